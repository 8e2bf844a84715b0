"""Sentences: tokenising, vocabularies, word vectors, the things that noun phrases name, and parses.

Vocabularies and word vectors are imported on first use: they need PyTorch and PyArrow, the rest only Python.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from saccade.language.parsing import Parse, Parser, SceneGraph, load_parser, shared_parser
from saccade.language.tokenise import ptb_tokenise, tokenise, words_only

if TYPE_CHECKING:
    from saccade.language.vectors import load_vectors
    from saccade.language.vocabulary import Vocabulary

__all__ = [
    "Parse",
    "Parser",
    "SceneGraph",
    "Vocabulary",
    "load_parser",
    "load_vectors",
    "ptb_tokenise",
    "shared_parser",
    "tokenise",
    "words_only",
]


_LATE = {"Vocabulary": "saccade.language.vocabulary", "load_vectors": "saccade.language.vectors"}


def __getattr__(name: str) -> object:
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module 'saccade.language' has no attribute {name!r}")
