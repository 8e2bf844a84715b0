"""Sentences: tokenising, vocabularies, word vectors, the things that noun phrases name, and parses."""

from saccade.language.parse import Parse, Parser, load_parser, scene_graph
from saccade.language.phrases import NounPhrase, read_phrase
from saccade.language.ptb import ptb_tokenise
from saccade.language.scene_graph import SceneGraph
from saccade.language.tokenise import tokenise
from saccade.language.vectors import WordVectors, load_vectors
from saccade.language.vocabulary import Vocabulary

__all__ = [
    "NounPhrase",
    "Parse",
    "Parser",
    "SceneGraph",
    "Vocabulary",
    "WordVectors",
    "load_parser",
    "load_vectors",
    "ptb_tokenise",
    "read_phrase",
    "scene_graph",
    "tokenise",
]
