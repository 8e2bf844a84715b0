"""Sentences: tokenising, vocabularies, word vectors, the things that noun phrases name, and parses.

Vocabularies and word vectors are imported on first use: they need PyTorch and PyArrow, the rest only Python.
"""

from typing import TYPE_CHECKING

from saccade.language.parsing import Parse, Parser, SceneGraph, load_parser, shared_parser
from saccade.language.tokenise import ptb_tokenise, tokenise

if TYPE_CHECKING:
    from saccade.language.vectors import WordVectors, load_vectors
    from saccade.language.vocabulary import Vocabulary

__all__ = [
    "Parse",
    "Parser",
    "SceneGraph",
    "Vocabulary",
    "WordVectors",
    "load_parser",
    "load_vectors",
    "ptb_tokenise",
    "shared_parser",
    "tokenise",
]


def __getattr__(name: str) -> object:
    if name == "Vocabulary":
        from saccade.language import vocabulary

        return vocabulary.Vocabulary
    if name in ("WordVectors", "load_vectors"):
        from saccade.language import vectors

        return getattr(vectors, name)
    raise AttributeError(f"module 'saccade.language' has no attribute {name!r}")
