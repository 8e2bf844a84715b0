"""Sentences: tokenising, vocabularies and word vectors."""

from saccade.language.tokenise import tokenise
from saccade.language.vectors import WordVectors, load_vectors
from saccade.language.vocabulary import Vocabulary

__all__ = ["Vocabulary", "WordVectors", "load_vectors", "tokenise"]
