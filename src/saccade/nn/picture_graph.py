"""The scene graph of a picture as vectors: its regions, and the words that there are for them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saccade.batch import SceneGraphBatch
from saccade.models.sgae.graphs import GraphNodes, SceneGraphConvolution, bent, place_of, read_out
from saccade.nn.encode import dropout_layer

Hear = Callable[[Tensor], Tensor]  # word ids → vectors


class Fusion(nn.Module):
    """u = ReLU(W₁ e + W₂ v) − (W₁ e − W₂ v)²: high where a word and what is seen agree.

    Squares run away when a fresh model learns fast; with `norm` every u has mean 0 and variance 1.
    """

    def __init__(self, word_dim: int, seen_dim: int, dim: int, norm: bool = False) -> None:
        super().__init__()
        self.word = nn.Linear(word_dim, dim)
        self.seen = nn.Linear(seen_dim, dim)
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()

    def forward(
        self, word: Float[Tensor, "*node word"], seen: Float[Tensor, "*node seen"]
    ) -> Float[Tensor, "*node dim"]:
        one, other = self.word(word), self.seen(seen)
        fused: Tensor = self.norm((one + other).relu() - (one - other).square())
        return fused


class PictureGraph(nn.Module):
    """The paper's multi-modal graph network: every node is fused of its word and what is seen of it, then convolved.

    A relation is seen as the mean of its two things. Where no detector names a thing, its word is read out of the table
    of words, as R(x; D) reads the dictionary: e = softmax((W v) Eᵀ) E.
    """

    def __init__(self, word_dim: int, dim: int, dropout: float, norm: bool = False) -> None:
        super().__init__()
        self.guess = nn.Linear(dim, word_dim)
        self.object = Fusion(word_dim, dim, dim, norm)
        self.relation = Fusion(word_dim, dim, dim, norm)
        self.attribute = Fusion(word_dim, dim, dim, norm)
        self.convolution = SceneGraphConvolution(dim, dim, dropout)

    def forward(
        self, regions: Float[Tensor, "image region dim"], graph: SceneGraphBatch, words: nn.Embedding, hear: Hear
    ) -> GraphNodes:
        named = graph.objects > 0
        labels = read_out(self.guess(regions), words.weight.relu())
        labels = torch.where(named[:, :, None], hear(graph.objects).to(labels), labels)
        subject, object_ = (place_of(graph.relations[:, :, end], graph.relation_mask, regions) for end in (0, 1))
        owners = place_of(graph.described, graph.attribute_mask.any(dim=2), regions) @ regions
        nodes: GraphNodes = self.convolution(
            self.object(labels, regions),
            self.relation(hear(graph.relations[:, :, 2]), (subject + object_) @ regions / 2),
            self.attribute(hear(graph.attributes), owners[:, :, None]),
            graph,
        )
        return nodes


class PlainPictureGraph(nn.Module):
    """The released code's: regions as they are, words mapped to where regions are; things need no names."""

    def __init__(self, word_dim: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.word = bent(word_dim, dim, dropout)
        self.convolution = SceneGraphConvolution(dim, dim, dropout, keep=True)

    def forward(
        self, regions: Float[Tensor, "image region dim"], graph: SceneGraphBatch, words: nn.Embedding, hear: Hear
    ) -> GraphNodes:
        relations, attributes = (self.word(hear(ids)) for ids in (graph.relations[:, :, 2], graph.attributes))
        nodes: GraphNodes = self.convolution(regions, relations, attributes, graph)
        return nodes


def to_sentences(dim: int, dropout: float) -> nn.Sequential:
    """From what pictures look like to what sentences do, in the released code: before D can be asked."""
    layers: list[nn.Module] = []
    for _ in range(2):
        layers += [nn.Linear(dim, dim), nn.LeakyReLU(0.1), dropout_layer(dropout)]
    return nn.Sequential(*layers, nn.Linear(dim, dim))
