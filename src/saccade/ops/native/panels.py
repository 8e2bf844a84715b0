"""Matrices as `products.h` reads them: in panels of as many columns as registers hold, in float32 or in integers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.ops.cores import on_every_core

BLOCK = 144  # rows of a core: as many as stay in its second cache with their products


class Panels(NamedTuple):
    """A matrix of float32 numbers; or of bytes, four neighbours together, and what the columns are multiplied by."""

    values: Float[Tensor, "*item panel depth column"] | Int[Tensor, "*item panel depth//4 column 4"]
    scale: Float[Tensor, "*item panel column"] | None

    @property
    def places(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
        return place_of(self.values), place_of(self.scale)


class Layout(NamedTuple):
    """Of the compiled loops: numbers of a vector, rows and columns that are multiplied at once; bytes, if they can."""

    library: ctypes.CDLL
    lanes: int
    rows: int
    panel: int
    bytes: bool

    @classmethod
    def of(cls, library: ctypes.CDLL) -> Layout:
        lanes, rows, panel = map(int, (library.saccade_lanes(), library.saccade_rows(), library.saccade_panel()))
        return cls(library, lanes, rows, panel, bool(library.saccade_bytes()))

    def whole(self, columns: int) -> int:
        """So many columns are whole vectors."""
        return -(-columns // self.lanes) * self.lanes

    def matrices(self, given: Float[Tensor, "item depth column"]) -> Float[Tensor, "item depth*width"]:
        """Panel by panel, with as many columns of zeros as make the last one whole vectors."""
        items, depth, columns = given.shape
        width = self.whole(columns)
        made = given.new_zeros(items, depth * width)
        for first in range(0, columns, self.panel):
            panel = made[:, first * depth : min(first + self.panel, width) * depth].view(items, depth, -1)
            some = given[..., first : first + self.panel]
            panel[..., : some.shape[-1]] = some
        return made

    def compared(self, vectors: Float[Tensor, "item part dim"], in_bytes: bool) -> Panels:
        """What rows are compared with: a vector is a column, in 16 bits by its own length, two neighbours together."""
        if not in_bytes:
            return Panels(self.matrices(vectors.mT), None)
        items, parts, dim = vectors.shape
        width = self.whole(parts)
        make = torch.zeros if parts < width else torch.empty
        packed, scales = make(items, dim * width, dtype=torch.int16), make(items, width)
        assert vectors.dtype == torch.float32
        assert vectors.stride(2) == 1
        sizes = [ctypes.c_int64(size) for size in (parts, dim, width, vectors.stride(1))]
        for each in zip(vectors, packed, scales, strict=True):
            self.library.saccade_pack_fine(*map(place_of, each), *sizes)
        return Panels(packed, scales)

    def maps(
        self, rows: Float[Tensor, "row depth"], weights: Sequence[Float[Tensor, "column depth"]], in_bytes: bool
    ) -> list[Float[Tensor, "row column"]]:
        """Rows times weights, each of whole panels; where others are in bytes, in 16 bits."""
        if not in_bytes:
            return [F.linear(rows, weight) for weight in weights]
        matrices = on_every_core(partial(self.compared, weight[None], True) for weight in weights)
        made = [rows.new_empty(len(rows), len(weight)) for weight in weights]

        def fill(some: slice) -> None:
            for matrix, result in zip(matrices, made, strict=True):
                given, found = rows[some], result[some]
                sizes = len(given), rows.shape[1], result.shape[1], rows.stride(0)
                self.library.saccade_multiply_fine(
                    place_of(given), *matrix.places, place_of(found), *map(ctypes.c_int64, sizes)
                )

        assert rows.dtype == torch.float32
        assert rows.stride(1) == 1
        on_every_core(partial(fill, slice(i, min(i + BLOCK, len(rows)))) for i in range(0, len(rows), BLOCK))
        return made

    def weights(self, maps: Sequence[Float[Tensor, "column depth"]], in_bytes: bool) -> Panels:
        """Maps of one size side by side in every panel; in bytes each column by its own largest, 128 added."""
        (columns, depth), share = maps[0].shape, self.panel // len(maps)
        panels = columns // share
        shape = (panels, depth // 4, self.panel, 4) if in_bytes else (panels, depth, self.panel)
        made = self._empty(shape, torch.uint8 if in_bytes else torch.float32)

        def pack(number: int, weight: Float[Tensor, "column depth"]) -> None:
            assert weight.dtype == torch.float32
            assert weight.stride(1) == 1
            sizes = (columns, depth, weight.stride(0), share, number * share)
            self.library.saccade_pack_weight(place_of(weight), *made.places, *map(ctypes.c_int64, sizes))

        on_every_core(partial(pack, number, weight) for number, weight in enumerate(maps))
        return made

    def offers(self, rows: Float[Tensor, "panel item part column"], in_bytes: bool) -> Panels:
        """What is multiplied by shares of one, of each item; in bytes each column by its own largest."""
        panels, items, parts, _ = rows.shape
        shape = (items, panels, -(-parts // 4), self.panel, 4) if in_bytes else (items, panels, parts, self.panel)
        made = self._empty(shape, torch.int8 if in_bytes else torch.float32)
        assert rows.dtype == torch.float32
        assert rows.stride(3) == 1
        sizes = [ctypes.c_int64(size) for size in (parts, panels, rows.stride(0), rows.stride(2))]
        for item in range(items):
            scale = None if made.scale is None else made.scale[item]
            given, values = place_of(rows[:, item]), place_of(made.values[item])
            self.library.saccade_pack_rows(given, values, place_of(scale), *sizes)
        return made

    def in_pieces(self, rows: Float[Tensor, "row dim"]) -> Float[Tensor, "piece row number"]:
        """A panel's width of every row, then the next; and rows of zeros, so that all are multiplied some at once."""
        made = rows.new_zeros(rows.shape[1] // self.panel, -(-len(rows) // self.rows) * self.rows, self.panel)
        made[:, : len(rows)] = rows.view(len(rows), -1, self.panel).transpose(0, 1)
        return made

    def multiply(self, pieces: Float[Tensor, "piece row number"], weights: Panels) -> Float[Tensor, "panel row column"]:
        """Rows `in_pieces`, times weights; the whole is short enough for a core's cache."""
        (many, rows, piece), panels = pieces.shape, len(weights.values)
        result = pieces.new_empty(panels, rows, self.panel)
        sizes = rows, many * piece, panels
        self.library.saccade_multiply(
            *places([pieces]), *weights.places, *places([result]), *map(ctypes.c_int64, sizes)
        )
        return result

    def _empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Panels:
        """Zeros: what is multiplied is a whole number of neighbours."""
        few = len(shape) - (3 if dtype == torch.float32 else 4)
        scale = None if dtype == torch.float32 else torch.empty(*shape[: few + 1], self.panel)
        return Panels(torch.zeros(shape, dtype=dtype), scale)


def place_of(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def places(tensors: Sequence[Tensor]) -> list[ctypes.c_void_p]:
    """Of contiguous float32."""
    assert all(tensor.is_contiguous() and tensor.dtype == torch.float32 for tensor in tensors)
    return [place_of(tensor) for tensor in tensors]
