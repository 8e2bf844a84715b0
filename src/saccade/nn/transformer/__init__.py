"""Transformers: BERT's layer on PyTorch's own attention, embeddings of words and regions, streams of both, MiniLM."""

from saccade.nn.transformer.blocks import Layer, attend_over, pack, places_of, run_layers
from saccade.nn.transformer.words import TransformerWords

__all__ = ["Layer", "TransformerWords", "attend_over", "pack", "places_of", "run_layers"]
