"""The loops of `attention.cpp`, called with tensors: contiguous float32 on a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.ops.cores import on_every_core, ranges
from saccade.ops.native import native_library
from saccade.ops.native.panels import place_of, places

if TYPE_CHECKING:
    from saccade.ops.pairwise import AttentionForm

EPSILON = 1e-8
SAFE = 30.0  # λ up to which the square of a sum of exp(±λ) is a float32
NORMS = {"clipped_l2": 2, "l2": 2, "clipped_l1": 1, "l1": 1}


class Context(NamedTuple):
    """What is asked: real vectors of items, and the lower halves of their Gram matrices, as αᵀGα needs them."""

    vectors: Float[Tensor, "any dim"]
    place: Int[Tensor, " row"]
    start: Int[Tensor, " other+1"]  # of an item's rows
    gram: Float[Tensor, " number"]
    triangle: Int[Tensor, " other+1"]  # where an item's begins

    def places(self, begin: int) -> list[ctypes.c_void_p]:
        """Of all that the loops read, from one item on."""
        vectors, gram = places((self.vectors, self.gram))
        return [vectors, place_of(self.place), place_of(self.start[begin:]), gram, place_of(self.triangle[begin:])]


class Columns(NamedTuple):
    """Vectors as columns of a matrix in panels."""

    values: Float[Tensor, "column dim"]  # so many numbers
    length: Float[Tensor, " column"]


@dataclass(frozen=True)
class NativeAttention:
    """One form of attention in compiled loops."""

    library: ctypes.CDLL
    norm: int
    slope: float
    sharpness: float

    @property
    def lanes(self) -> int:
        """Pairs that are worked on at once."""
        return int(self.library.saccade_lanes())

    def triangle(self, gram: Float[Tensor, "*item part part"]) -> Float[Tensor, "*item part height"]:
        """What αᵀGα needs of a Gram matrix: its lower half, counted twice beside the diagonal."""
        rows = int(self.library.saccade_rows())
        return F.pad(_twice(gram), (0, -gram.shape[-1] % rows)).contiguous()

    def context(self, vectors: Float[Tensor, "other part dim"], mask: Bool[Tensor, "other part"]) -> Context:
        """What is asked, with the triangles of each item's Gram matrix."""
        counts, rows = mask.sum(dim=1), int(self.library.saccade_rows())
        start, triangle = (_starts(sizes) for sizes in (counts, counts * (-(-counts // rows) * rows)))
        place = mask.flatten().nonzero()[:, 0]
        made = Context(vectors.flatten(0, 1), place, start, vectors.new_empty(int(triangle[-1])), triangle)

        def fill(some: range) -> None:
            sizes = len(some), vectors.shape[-1]
            self.library.saccade_triangles(*made.places(some.start), *map(ctypes.c_int64, sizes))

        on_every_core(partial(fill, some) for some in ranges(len(counts), torch.get_num_threads()))
        return made

    def columns(self, vectors: Float[Tensor, "any dim"], place: Int[Tensor, " column"]) -> Columns:
        """Vectors at some places, a negative one being padding; and as many more as make whole vectors."""
        wanted = F.pad(place, (0, -len(place) % self.lanes), value=-1)
        made = Columns(vectors.new_empty(len(wanted), vectors.shape[1]), vectors.new_empty(len(wanted)))
        self.library.saccade_columns_of(
            *places([vectors]), place_of(wanted), *places(made), *map(ctypes.c_int64, made.values.shape)
        )
        return made

    def match(
        self,
        asked: Context,
        begin: int,
        queries: Columns,
        matches: Sequence[Float[Tensor, "other query item"]],
    ) -> None:
        """Into `matches`, in the order of their columns: R_j of every query, its cosine with what it finds in each of
        some items, those from `begin` on."""
        sizes = len(matches[0]), asked.vectors.shape[1], len(queries.length), len(matches)
        shapes = [match.shape[1:] for match in matches]
        firsts = list(accumulate((shape.numel() for shape in shapes[:-1]), initial=0))
        groups = torch.tensor([(first, *shape) for first, shape in zip(firsts, shapes, strict=True)])
        norms = [queries.length[first:] for first in firsts]
        self.library.saccade_attend(
            *asked.places(begin),
            *places([queries.values]),
            place_of(groups),
            *((ctypes.c_void_p * len(each))(*map(Tensor.data_ptr, each)) for each in (norms, matches)),
            *map(ctypes.c_int64, sizes),
            *self.form(),
        )

    def block_cosines(
        self,
        regions: Float[Tensor, "image part block few"],
        seen: Float[Tensor, "image block part part"],
        region_mask: Bool[Tensor, "image part"],
        words: Float[Tensor, "text word block few"],
        read: Float[Tensor, "text block word word"],
        word_mask: Bool[Tensor, "text word"],
    ) -> tuple[Float[Tensor, "image text word block"], Float[Tensor, "image text part block"]]:
        """Both ways, with the Gram matrices of either side; padding has zeros in all of them."""
        (images, parts, blocks, width), texts = regions.shape, len(words)
        pictures = [regions, self.triangle(seen), _lengths(regions), region_mask.float()]
        of_words, of_regions = words.new_zeros(images, *words.shape[:3]), words.new_empty(images, texts, parts, blocks)
        last = (word_mask * torch.arange(1, word_mask.shape[1] + 1)).amax(dim=1)
        for start in range(0, texts, self.lanes):
            some = slice(start, start + self.lanes)
            count = max(1, int(last[some].max()))
            group = words[some, :count], _twice(read[some, :, :count, :count]), word_mask[some, :count]
            sentences = [self._packed(group[0]), *map(self._by_lane, (group[1], _lengths(group[0]), group[2].float()))]
            found = [words.new_empty(images, nodes, blocks, self.lanes) for nodes in (count, parts)]
            self.library.saccade_block_match(
                *places([tensor.contiguous() for tensor in pictures] + sentences + found),
                *map(ctypes.c_int64, (images, parts, count, blocks, width)),
                *self.form(),
            )
            here = len(group[0])
            of_words[:, some, :count] = found[0][..., :here].permute(0, 3, 1, 2)
            of_regions[:, some] = found[1][..., :here].permute(0, 3, 1, 2)
        return of_words, of_regions

    def _by_lane(self, values: Float[Tensor, "item ..."]) -> Float[Tensor, "... lane"]:
        missing = self.lanes - len(values)
        return F.pad(values, (*(0, 0) * (values.ndim - 1), 0, missing)).movedim(0, -1).contiguous()

    def _packed(
        self, words: Float[Tensor, "text word block few"]
    ) -> Float[Tensor, "block word//columns few columns lane"]:
        columns = int(self.library.saccade_columns())
        spread = self._by_lane(F.pad(words, (0, 0, 0, 0, 0, -words.shape[1] % columns)))
        return spread.view(-1, columns, *spread.shape[1:]).permute(2, 0, 3, 1, 4).contiguous()

    def form(self) -> tuple[ctypes.c_int, ctypes.c_float, ctypes.c_float]:
        return ctypes.c_int(self.norm), ctypes.c_float(self.slope), ctypes.c_float(self.sharpness)


def native_attention(form: AttentionForm, dtype: torch.dtype, work: float) -> NativeAttention | None:
    """For forms that keep scores within ±λ, in float32, where so many operations are worth it; else None."""
    if dtype != torch.float32 or form.normaliser not in NORMS or form.choice != "attend" or abs(form.sharpness) > SAFE:
        return None
    library = native_library(work)
    if library is None:
        return None
    slope = form.slope if form.normaliser.startswith("clipped") else 1.0
    return NativeAttention(library, NORMS[form.normaliser], slope, form.sharpness)


def _starts(sizes: Int[Tensor, " item"]) -> Int[Tensor, " item+1"]:
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(dim=0)])


def _twice(gram: Float[Tensor, "*item part part"]) -> Float[Tensor, "*item part part"]:
    parts = gram.shape[-1]
    return gram * torch.full((parts, parts), 2.0).tril_(-1).fill_diagonal_(1.0)


def _lengths(vectors: Float[Tensor, "*item block few"]) -> Float[Tensor, "*item block"]:
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return lengths.clamp(min=EPSILON)
