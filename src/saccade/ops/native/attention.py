"""Attention in the loops of `attention.cpp` and `block_cosines.cpp`: float32 on a CPU, without a gradient.

For all pairs a core takes some groups of query items, as columns of a matrix, and goes with them over one context item
after the other. Query items are padded to the length of their group, context items not at all, and no score leaves the
core's cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.ops.form import EPSILON, MAX_UNSHIFTED_SHARPNESS, AttentionForm, Context, Queries
from saccade.ops.native import library
from saccade.ops.tiling import Cut, cut, longest_first, neighbours, on_every_core, slices

CORE_QUERIES = 600  # of a core at a time: their columns are not far from its cache
ENOUGH = 0.1  # of those: from here on a group of items ends where shorter ones begin
JOBS_PER_CORE = 4  # at least: one that was held up has less to do


def native_similarity(
    queries: Queries, context: Context, form: AttentionForm, budget: int
) -> Float[Tensor, "item other"]:
    """S of every query item with every context item.

    Temporaries of all cores together take at most about `budget` bytes, not counted what the context brings: a copy of
    it if it is not contiguous, and its Gram matrices.
    """
    native, cores = NativeAttention.of(form), torch.get_num_threads()
    numbers = budget // queries.vectors.element_size() // cores
    wide = min(CORE_QUERIES, max(1, numbers // (4 * queries.dim)))
    order, lengths = longest_first(queries.mask)
    cuts = list(cut(lengths, lambda n: wide // n, lambda n: int(wide * ENOUGH / n), multiple=native.lanes))
    sizes = [(place.stop - place.start) * longest for place, longest in cuts]
    bundles = [(rows.stop - rows.start, cuts[some]) for some, rows in neighbours(sizes, wide)]
    bundles.sort(key=itemgetter(0), reverse=True)  # the largest first: cores end together
    rows = native.context(context.vectors.contiguous(), context.mask)
    query_rows = _Rows(queries.vectors.contiguous().flatten(0, 1), queries.mask, order)
    table = query_rows.vectors.new_empty(len(queries), len(context))
    shares = -(-JOBS_PER_CORE * cores // max(1, len(bundles))) if cores > 1 else 1
    shares = max(shares, -(-len(context) // max(1, numbers // (4 * wide))))
    on_every_core(
        partial(_fill, query_rows, bundle, rows, others, form, native, table)
        for _, bundle in bundles
        for others in slices(len(context), shares)
    )
    return table


class _Rows(NamedTuple):
    """Query vectors one below the other, and their items' order by length."""

    vectors: Float[Tensor, "item*part dim"]
    mask: Bool[Tensor, "item part"]
    order: Int[Tensor, " item"]

    def places(self, some: Cut) -> Int[Tensor, "item part"]:
        """Where the vectors of some items are among all; negative where they are padding."""
        chosen, longest = self.order[some[0]], some[1]
        place = chosen[:, None] * self.mask.shape[1] + torch.arange(longest)
        return place.masked_fill_(~self.mask[chosen, :longest], -1)


def _fill(
    queries: _Rows,
    cuts: list[Cut],
    context: ContextRows,
    others: slice,
    form: AttentionForm,
    native: NativeAttention,
    table: Float[Tensor, "item other"],
) -> None:
    """Into the table: the similarities of some query items with some context items."""
    places = [queries.places(some).T for some in cuts]  # position by position: sums over these run along memory
    columns = native.columns(queries.vectors, torch.cat([place.flatten() for place in places]))
    matches = [table.new_empty(others.stop - others.start, *place.shape) for place in places]
    native.match(context, others.start, columns, matches)
    for match, place, (some, _) in zip(matches, places, cuts, strict=True):
        absent = place < 0
        pooled = _pool(match, absent if bool(absent.any()) else None, form)
        table[queries.order[some], others] = pooled.T


def _pool(
    match: Float[Tensor, "other query item"], absent: Bool[Tensor, "query item"] | None, form: AttentionForm
) -> Float[Tensor, "other item"]:
    """As `pool` does, in place: cosines are within ±1."""
    if form.pool == "max":
        return (match if absent is None else match.masked_fill_(absent, -torch.inf)).amax(dim=1)
    if form.pool == "logsumexp":
        sharp = match.mul_(form.pool_sharpness)
        if abs(form.pool_sharpness) > MAX_UNSHIFTED_SHARPNESS:
            sharp = sharp if absent is None else sharp.masked_fill_(absent, -torch.inf)
            return torch.logsumexp(sharp, dim=1).div_(form.pool_sharpness)
        match = sharp.exp_()
    total = (match if absent is None else match.masked_fill_(absent, 0.0)).sum(dim=1)
    if form.pool == "logsumexp":
        return total.log_().div_(form.pool_sharpness)
    if form.pool == "mean":
        total.div_(match.shape[1] if absent is None else (~absent).sum(dim=0).clamp(min=1))
    return total


class ContextRows(NamedTuple):
    """Real vectors of items, and the lower halves of their Gram matrices, as αᵀGα needs them."""

    vectors: Float[Tensor, "any dim"]
    place: Int[Tensor, " row"]
    start: Int[Tensor, " other+1"]  # of an item's rows
    gram: Float[Tensor, " number"]
    triangle: Int[Tensor, " other+1"]  # where an item's begins

    def addresses(self, begin: int) -> list[ctypes.c_void_p]:
        """Of all that the loops read, from one item on."""
        vectors, gram = _addresses((self.vectors, self.gram))
        rest = (self.place, self.start[begin:], self.triangle[begin:])
        place, start, triangle = map(_address, rest)
        return [vectors, place, start, gram, triangle]


class QueryColumns(NamedTuple):
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

    @classmethod
    def of(cls, form: AttentionForm) -> NativeAttention:
        """For a form that `native.refuses` does not."""
        loops = library()
        assert loops is not None
        slope = form.slope if form.normaliser.startswith("clipped") else 1.0
        return cls(loops, form.norm_power, slope, form.sharpness)

    @property
    def lanes(self) -> int:
        """Pairs that are worked on at once."""
        return int(self.library.saccade_lanes())

    def triangle(self, gram: Float[Tensor, "*item part part"]) -> Float[Tensor, "*item part height"]:
        """What αᵀGα needs of a Gram matrix: its lower half, counted twice beside the diagonal."""
        rows = int(self.library.saccade_rows())
        return F.pad(_twice(gram), (0, -gram.shape[-1] % rows)).contiguous()

    def context(self, vectors: Float[Tensor, "other part dim"], mask: Bool[Tensor, "other part"]) -> ContextRows:
        """A context, with the triangles of each item's Gram matrix."""
        counts, rows = mask.sum(dim=1), int(self.library.saccade_rows())
        start, triangle = (_starts(sizes) for sizes in (counts, counts * (-(-counts // rows) * rows)))
        place = mask.flatten().nonzero()[:, 0]
        made = ContextRows(vectors.flatten(0, 1), place, start, vectors.new_empty(int(triangle[-1])), triangle)

        def fill(some: slice) -> None:
            sizes = some.stop - some.start, vectors.shape[-1]
            self.library.saccade_triangles(*made.addresses(some.start), *map(ctypes.c_int64, sizes))

        on_every_core(partial(fill, some) for some in slices(len(counts), torch.get_num_threads()))
        return made

    def columns(self, vectors: Float[Tensor, "any dim"], place: Int[Tensor, " column"]) -> QueryColumns:
        """Vectors at some places, a negative one being padding; and as many more as make whole vectors."""
        wanted = F.pad(place, (0, -len(place) % self.lanes), value=-1)
        made = QueryColumns(vectors.new_empty(len(wanted), vectors.shape[1]), vectors.new_empty(len(wanted)))
        self.library.saccade_pack_columns(
            *_addresses([vectors]), _address(wanted), *_addresses(made), *map(ctypes.c_int64, made.values.shape)
        )
        return made

    def match(
        self,
        context: ContextRows,
        begin: int,
        queries: QueryColumns,
        matches: Sequence[Float[Tensor, "other query item"]],
    ) -> None:
        """Into `matches`, in the order of their columns: R_j of every query, its cosine with what it finds in each of
        some items, those from `begin` on."""
        sizes = len(matches[0]), context.vectors.shape[1], len(queries.length), len(matches)
        shapes = [match.shape[1:] for match in matches]
        firsts = list(accumulate((shape.numel() for shape in shapes[:-1]), initial=0))
        groups = torch.tensor([(first, *shape) for first, shape in zip(firsts, shapes, strict=True)])
        norms = [queries.length[first:] for first in firsts]
        self.library.saccade_attend(
            *context.addresses(begin),
            *_addresses([queries.values]),
            _address(groups),
            *((ctypes.c_void_p * len(each))(*map(Tensor.data_ptr, each)) for each in (norms, matches)),
            *map(ctypes.c_int64, sizes),
            *self.form(),
        )

    def block_cosines(
        self,
        regions: Float[Tensor, "image part block few"],
        region_gram: Float[Tensor, "image block part part"],
        region_mask: Bool[Tensor, "image part"],
        words: Float[Tensor, "text word block few"],
        word_gram: Float[Tensor, "text block word word"],
        word_mask: Bool[Tensor, "text word"],
    ) -> tuple[Float[Tensor, "image text word block"], Float[Tensor, "image text part block"]]:
        """Both ways, with the Gram matrices of either side; padding has zeros in all of them."""
        (images, parts, blocks, width), texts = regions.shape, len(words)
        pictures = [regions, self.triangle(region_gram), _lengths(regions), region_mask.float()]
        of_words, of_regions = words.new_zeros(images, *words.shape[:3]), words.new_empty(images, texts, parts, blocks)
        last = (word_mask * torch.arange(1, word_mask.shape[1] + 1)).amax(dim=1)
        for start in range(0, texts, self.lanes):
            some = slice(start, start + self.lanes)
            count = max(1, int(last[some].max()))
            group = words[some, :count], _twice(word_gram[some, :, :count, :count]), word_mask[some, :count]
            sentences = [self._packed(group[0]), *map(self._by_lane, (group[1], _lengths(group[0]), group[2].float()))]
            found = [words.new_empty(images, nodes, blocks, self.lanes) for nodes in (count, parts)]
            self.library.saccade_block_cosines(
                *_addresses([tensor.contiguous() for tensor in pictures] + sentences + found),
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


def _starts(sizes: Int[Tensor, " item"]) -> Int[Tensor, " item+1"]:
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(dim=0)])


def _twice(gram: Float[Tensor, "*item part part"]) -> Float[Tensor, "*item part part"]:
    parts = gram.shape[-1]
    return gram * torch.full((parts, parts), 2.0).tril_(-1).fill_diagonal_(1.0)


def _lengths(vectors: Float[Tensor, "*item block few"]) -> Float[Tensor, "*item block"]:
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return lengths.clamp(min=EPSILON)


def _address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _addresses(tensors: Sequence[Tensor]) -> list[ctypes.c_void_p]:
    """Of contiguous float32."""
    assert all(tensor.is_contiguous() and tensor.dtype == torch.float32 for tensor in tensors)
    return [_address(tensor) for tensor in tensors]
