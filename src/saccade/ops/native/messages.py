"""The loop of `messages.cpp`: what the fragments of some items become beside each of some other items, pooled."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from saccade.ops.native.panels import Layout, Panels, place_of, places


class Hearers(NamedTuple):
    """The fragments of some items, one below the other, and rows of zeros: each [panel, row, column]."""

    vectors: Tensor
    own: Tensor  # F_own v
    start: Int[Tensor, " item+1"]


class Heard(NamedTuple):
    """Some items of the other side."""

    asked: Panels  # of each item, side by side: what vectors are multiplied with for scores, and T itself
    between: Float[Tensor, "other part*width"]  # (A_q T)(A_k T)ᵀ, if fragments look again
    gram: Float[Tensor, "other part*width"]
    sent: Panels  # of each item: F_sent T
    lengths: Int[Tensor, " other"]
    parts: int


@dataclass(frozen=True)
class NativeMessages:
    """One side's way of hearing: in bytes, or in full."""

    layout: Layout
    again: bool  # two rounds of attention, with messages of length one
    gated: bool
    weight: Panels  # L₁
    hidden_bias: Float[Tensor, " dim"]
    heads: Float[Tensor, "head dim"]  # L₂
    bias: Float[Tensor, " dim"] | None  # of the fusion

    @classmethod
    def prepared(
        cls,
        library: ctypes.CDLL,
        again: bool,
        gated: bool,
        hidden: nn.Linear,
        heads: Float[Tensor, "head dim"],
        bias: Float[Tensor, " dim"] | None,
        in_bytes: bool,
    ) -> NativeMessages:
        layout = Layout.of(library)
        weight = layout.weights([hidden.weight], in_bytes and layout.bytes)
        return cls(layout, again, gated, weight, hidden.bias, heads.contiguous(), bias)

    def maps(
        self, rows: Float[Tensor, "row depth"], weights: Sequence[Float[Tensor, "column depth"]]
    ) -> list[Float[Tensor, "row column"]]:
        """Rows times weights, as exactly as all else."""
        return self.layout.maps(rows, weights, self.weight.scale is not None)

    def hearers(self, fragments: Sequence[Float[Tensor, "row dim"]], start: Int[Tensor, " item+1"]) -> Hearers:
        """Of vectors and own."""
        vectors, own = map(self.layout.in_pieces, fragments)
        return Hearers(vectors, own, start)

    def heard(
        self,
        asked: Float[Tensor, "other part dim"],
        vectors: Float[Tensor, "other part dim"],
        between: Float[Tensor, "other part part"] | None,
        sent: Float[Tensor, "other part dim"],
        lengths: Int[Tensor, " other"],
    ) -> Heard:
        """Of items with zeros for padding, which comes last."""
        gram = torch.bmm(vectors, vectors.mT)
        in_bytes, (others, parts, dim) = self.weight.scale is not None, vectors.shape
        both = vectors.new_zeros(others, 2, self.layout.whole(parts), dim)
        both[:, 0, :parts], both[:, 1, :parts] = asked, vectors
        compared = self.layout.compared(both.flatten(1, 2), in_bytes)
        between, gram = map(self.layout.matrices, (gram if between is None else between, gram))
        columns = sent.view(others, parts, -1, self.layout.panel).permute(2, 0, 1, 3)
        return Heard(compared, between, gram, self.layout.offers(columns, in_bytes), lengths, parts)

    def pool(
        self, hearers: Hearers, heard: Heard, pooled: Float[Tensor, "place item dim"], where: Int[Tensor, " other"]
    ) -> None:
        """p = Σ ω v' of every pair, each other item's at a place of its own."""
        panels, rows, columns = hearers.vectors.shape
        dim, width = panels * columns, heard.gram.shape[1] // heard.parts
        stride, down, along = pooled.stride()
        assert along == 1
        assert where.dtype == torch.int64
        sizes = len(heard.lengths), heard.parts, width, rows, dim, pooled.shape[1], stride, down, len(self.heads)
        self.layout.library.saccade_hear(
            *places(hearers[:2]),
            place_of(hearers.start),
            *heard.asked.places,
            *places([heard.between, heard.gram]),
            *heard.sent.places,
            place_of(heard.lengths),
            *self.weight.places,
            *places([self.hidden_bias, self.heads]),
            place_of(self.bias),
            place_of(pooled),
            place_of(where),
            *map(ctypes.c_int64, sizes),
            ctypes.c_int(self.again),
            ctypes.c_int(self.gated),
            ctypes.c_float(dim**-0.5),
        )
