"""The loops of `looks.cpp`: all looks of some queries at some context items, each taking its finds into memory."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from saccade.ops.native.attention import NativeAttention
from saccade.ops.native.panels import Layout, Panels, place_of, places

EXPONENTS = (-1 / math.log(2), 2 / math.log(2))  # σ(gate) = 1 / (1 + 2^…), tanh(candidate) = 1 - 2 / (1 + 2^…)


class Askers(NamedTuple):
    """The queries of some items, one below the other, and rows of zeros."""

    vectors: Float[Tensor, "piece row number"]
    length: Float[Tensor, " row"]
    start: Int[Tensor, " item+1"]
    recalled: Float[Tensor, "panel row column"]  # W_q q


class Asked(NamedTuple):
    """Some context items."""

    context: Panels  # of each item
    gram: Float[Tensor, "other part*width"]
    offered: Panels  # of each item: W_a c + b
    lengths: Int[Tensor, " other"]
    parts: int


@dataclass(frozen=True)
class NativeLooks:
    """K looks of one form, with a memory that has W [q ; a] + b for its gate and its candidate."""

    attention: NativeAttention
    layout: Layout
    steps: int
    mean: bool
    own: Panels  # W_q
    found: Panels  # W_a
    bias: Float[Tensor, "panel 1 column"]

    @classmethod
    def prepared(
        cls, attention: NativeAttention, steps: int, mean: bool, maps: Sequence[nn.Linear], in_bytes: bool
    ) -> NativeLooks:
        layout, dim = Layout.of(attention.library), maps[0].out_features
        own, found = (
            layout.weights([each.weight[:, half] for each in maps], in_bytes and layout.bytes)
            for half in (slice(0, dim), slice(dim, None))
        )
        bias = torch.cat([each.bias.view(-1, 1, layout.panel // len(maps)) for each in maps], dim=-1)
        exponents = torch.tensor(EXPONENTS).repeat_interleave(layout.panel // len(maps))
        for each in (bias, *(panels.values if panels.scale is None else panels.scale for panels in (own, found))):
            each *= exponents
        return cls(attention, layout, steps, mean, own, found, bias)

    def askers(self, vectors: Float[Tensor, "row dim"], start: Int[Tensor, " item+1"]) -> Askers:
        own = self.layout.in_pieces(vectors)
        length = vectors.new_zeros(own.shape[1])
        torch.linalg.vector_norm(vectors, dim=-1, out=length[: len(vectors)])
        return Askers(own, length, start, self.layout.multiply(own, self.own))

    def asked(self, context: Float[Tensor, "other part dim"], lengths: Int[Tensor, " other"]) -> Asked:
        """Of context items with zeros for padding, which comes last."""
        others, parts, _ = context.shape
        brought = self.layout.multiply(self.layout.in_pieces(context.flatten(0, 1)), self.found).add_(self.bias)
        offered = brought[:, : others * parts].view(len(brought), others, parts, -1)
        gram = self.layout.matrices(torch.bmm(context, context.mT))
        offers = self.layout.offers(offered, self.own.scale is not None)
        compared = self.layout.compared(context, self.own.scale is not None)
        return Asked(compared, gram, offers, lengths, parts)

    def add(self, askers: Askers, asked: Asked, table: Float[Tensor, "other item"]) -> None:
        """Σ_k F_k of every pair, on top of what the table has."""
        pieces, rows, numbers = askers.vectors.shape
        width = asked.gram.shape[1] // asked.parts
        sizes = len(asked.lengths), asked.parts, width, rows, pieces * numbers, table.shape[1], table.stride(0)
        self.attention.library.saccade_looks(
            *places((askers.vectors, askers.length)),
            place_of(askers.start),
            *places([askers.recalled]),
            *asked.context.places,
            *places([asked.gram]),
            *asked.offered.places,
            place_of(asked.lengths),
            *self.own.places,
            place_of(table),
            *map(ctypes.c_int64, sizes),
            ctypes.c_int(self.steps),
            ctypes.c_int(self.mean),
            *self.attention.form(),
        )
