"""Sentences: tokenising and vocabularies."""

from saccade.language.tokenise import tokenise
from saccade.language.vocabulary import Vocabulary

__all__ = ["Vocabulary", "tokenise"]
