"""Sentences: tokenising, vocabularies, word vectors, and the things that noun phrases name."""

from saccade.language.phrases import NounPhrase, read_phrase
from saccade.language.tokenise import tokenise
from saccade.language.vectors import WordVectors, load_vectors
from saccade.language.vocabulary import Vocabulary

__all__ = ["NounPhrase", "Vocabulary", "WordVectors", "load_vectors", "read_phrase", "tokenise"]
