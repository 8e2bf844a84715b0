"""Captions as trees, by our own rules, by spaCy or from files, and as scene graphs."""

from saccade.language.parsing.parser import Parse, Parser, load_parser, shared_parser
from saccade.language.parsing.scene_graph import SceneGraph

__all__ = ["Parse", "Parser", "SceneGraph", "load_parser", "shared_parser"]
