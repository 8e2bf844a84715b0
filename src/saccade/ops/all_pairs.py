"""Every picture with every text, tile by tile, for models whose score of a pair needs more than a few numbers.

A model says in `pair` how some pictures are compared with some texts. Here the table is cut into tiles that fit a
budget of memory; how much a pair takes is measured, on one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary, finalize

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from saccade.ops.dispatch import Backend, Operator, anything
from saccade.ops.form import DEFAULT_BUDGET, name_of, product_dtype
from saccade.ops.tiling import cut, longest_first, on_every_core

SMALL_TABLE = 64 << 20  # bytes: below, padding costs less than the calls that would avoid it
CPU_TILE = 48 << 20  # bytes of a tile on one core
MEASURED_IMAGES = 8  # of a tile whose memory is measured
SIMILAR_LENGTH = 0.75  # texts in a tile have at least this share of the length of its longest
MAX_PAIR_TO_CODES = 32  # times its items is the most that a pair takes: tables that are small so are not measured
Pair = Callable[[Any, Any], Float[Tensor, "image text"]]
Tile = tuple[slice, slice, int]  # some pictures, some texts, the length of the longest
_measured: WeakKeyDictionary[Any, dict[tuple[Any, ...], int]] = WeakKeyDictionary()  # of a pair, by model and kind


@dataclass(frozen=True)
class PairsProblem:
    """Every picture with every text, by a model: its `prepare` for each of them alone, then its `pair` in tiles.

    What is prepared is a `Batch` of tensors whose first axis counts items; texts have a `mask` [text word], and
    `trimmed(longest)` cuts their words. A gradient comes to these and to the model's parameters. Another function may
    be given instead of the model's `pair`, for pictures and texts as it takes them.
    """

    model: Any
    images: Any
    texts: Any
    budget: int = DEFAULT_BUDGET  # bytes of temporaries, about
    instead: Pair | None = None
    together: int = 1  # tiles have so many texts or a multiple

    def describe(self) -> str:
        like = self.like
        return f"{name_of(product_dtype(like))}, {self.images.mask.shape[1]} regions, {self.texts.mask.shape[1]} words"

    @property
    def pair(self) -> Pair:
        found: Pair = self.instead or self.model.pair
        return found

    @cached_property
    def sides(self) -> tuple[Any, Any]:
        """Pictures and texts as `pair` takes them."""
        if self.instead is not None:
            return self.images, self.texts
        prepared: tuple[Any, Any] = self.model.prepare(self.images, self.texts)
        return prepared

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """All that `pair` learns; perhaps more."""
        return tuple(self.model.parameters()) if isinstance(self.model, nn.Module) else ()

    @property
    def like(self) -> Tensor:
        """A tensor of the pictures, for its device and precision."""
        first: Tensor = getattr(self.images, fields(self.images)[0].name)
        return first

    @property
    def pairs(self) -> int:
        return len(self.images) * len(self.texts)

    def pair_bytes(self, words: int) -> int:
        """What `pair` holds at once for a picture and a text of so many words; measured once for items of a kind."""
        (images, texts), like = self.sides, self.like
        kind = tuple(_kind(side) for side in (images, texts.trimmed(words)))
        precision = product_dtype(like), like.device.type, torch.is_grad_enabled()
        known, key = _measured.setdefault(self.model, {}), (getattr(self.pair, "__name__", ""), *precision, *kind)
        if key not in known:
            some = images.select(slice(MEASURED_IMAGES))  # several: what a text takes by itself is shared
            few = texts.select(slice(self.together)).trimmed(words)
            known[key] = max(1, peak_bytes(lambda: self.pair(some, few)) // (len(some) * len(few)))
        return known[key]

    @cached_property
    def table_bytes(self) -> int:
        """Of the table in one piece; an upper bound where that is small anyway."""
        bound = self.pairs * MAX_PAIR_TO_CODES * sum(_bytes_of_one(side) for side in self.sides)
        if bound <= min(self.budget, CPU_TILE):
            return bound
        return self.pairs * self.pair_bytes(self.texts.mask.shape[1])

    def columns(self, budget: int) -> tuple[Any, Int[Tensor, " text"], list[list[Tile]]]:
        """The texts by length, the longest first; where each of them was; and tiles for them."""
        order, lengths = longest_first(self.sides[1].mask)
        tiles = _columns(
            lengths, len(self.images), lambda words: max(1, budget // self.pair_bytes(words)), self.together
        )
        return self.sides[1].select(order), order, tiles


def all_pairs(pair: Pair, images: Any, texts: Any, budget: int = DEFAULT_BUDGET) -> Float[Tensor, "image text"]:
    """The table of a function, or of a model's method, over all pictures and texts: see `PairsProblem`."""
    return ALL_PAIRS(PairsProblem(getattr(pair, "__self__", pair), images, texts, budget, pair))


def peak_bytes(run: Callable[[], object]) -> int:
    """The most bytes that tensors made by a function took at once, what autograd keeps among them."""
    with _Held() as held:
        run()
    return int(held.most)


class _Held(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that were made within the block and are still there; those that were there before are not."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now, self.most = 0, 0
        self.own: set[int] = set()
        self.given: dict[int, Any] = {}  # kept, so that none of their places is given away

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for storage in _storages((args, kwargs)):
            if storage._cdata not in self.own:
                self.given[storage._cdata] = storage
        made = function(*args, **(kwargs or {}))
        for storage in _storages(made):
            if storage._cdata not in self.own and storage._cdata not in self.given:
                self.own.add(storage._cdata)
                self.now += storage.nbytes()
                finalize(storage, self._gone, storage._cdata, storage.nbytes())
        self.most = max(self.most, self.now)
        return made

    def _gone(self, which: int, size: int) -> None:
        self.own.discard(which)
        self.now -= size


def _storages(values: Any) -> Iterator[Any]:
    return (tensor.untyped_storage() for tensor in tree_leaves(values) if isinstance(tensor, Tensor))


def cpu_inference(like: Tensor) -> bool:
    """Work that cores can share out: on a CPU, with no gradient to gather and no precision that a thread would lose."""
    on_cpu = like.device.type == "cpu"
    return on_cpu and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def _small(problem: PairsProblem) -> str | None:
    limit = CPU_TILE if cpu_inference(problem.like) else SMALL_TABLE
    if problem.like.is_cuda and torch.is_grad_enabled():
        limit = problem.budget  # in one piece nothing waits for the GPU, so that a training step can be captured
    return None if problem.table_bytes <= min(problem.budget, limit) else "the table does not fit one tile"


def _on_cores(problem: PairsProblem) -> str | None:
    return None if cpu_inference(problem.like) else "for a CPU, without gradient and mixed precision"


def _too_much_to_keep(problem: PairsProblem) -> str | None:
    if not torch.is_grad_enabled():
        return "no gradient is wanted"
    return None if problem.table_bytes > problem.budget else "the budget holds all that a gradient needs"


def _whole_table(problem: PairsProblem) -> Float[Tensor, "image text"]:
    if not problem.pairs:
        return problem.like.new_zeros(len(problem.images), len(problem.texts))
    return problem.pair(*problem.sides)


def _tiled_table(problem: PairsProblem) -> Float[Tensor, "image text"]:
    texts, order, columns = problem.columns(problem.budget)
    return _table(problem.pair, problem.sides[0], texts, columns)[:, order.argsort()]


def _recomputed_table(problem: PairsProblem) -> Float[Tensor, "image text"]:
    texts, order, columns = problem.columns(problem.budget)
    sides = problem.sides[0], texts
    kinds = [(type(side), [f.name for f in fields(side) if getattr(side, f.name) is not None]) for side in sides]
    tensors = [getattr(side, name) for side, (_, names) in zip(sides, kinds, strict=True) for name in names]
    table: Tensor = _Recomputed.apply(problem.pair, columns, kinds, *tensors, *problem.weights)  # type: ignore[no-untyped-call]
    return table[:, order.argsort()]


def _table_on_cores(problem: PairsProblem) -> Float[Tensor, "image text"]:
    """Every core takes tiles of its own."""
    texts, order, columns = problem.columns(min(CPU_TILE, problem.budget // torch.get_num_threads()))
    images, table = problem.sides[0], problem.like.new_empty(len(problem.images), len(texts))

    def fill(rows: slice, place: slice, longest: int) -> None:
        table[rows, place] = problem.pair(images.select(rows), texts.select(place).trimmed(longest))

    on_every_core(partial(fill, *tile) for column in columns for tile in column)
    return table[:, order.argsort()]


ALL_PAIRS: Operator[PairsProblem, Tensor] = Operator(
    "all_pairs",
    (
        Backend("one tile", _small, _whole_table),
        Backend("a tile a core", _on_cores, _table_on_cores),
        Backend("tiles, recomputed for the gradient", _too_much_to_keep, _recomputed_table),
        Backend("tiles", anything, _tiled_table),
    ),
    torch.bfloat16,
)


def _columns(
    lengths: Sequence[int], images: int, pairs_that_fit: Callable[[int], int], together: int
) -> list[list[Tile]]:
    """Tiles for texts of these lengths, the longest first."""

    def wide(words: int) -> int:
        pairs = pairs_that_fit(words)
        return max(int(pairs**0.5), pairs // max(1, images))

    columns = []
    for some, longest in cut(lengths, wide, alike=SIMILAR_LENGTH, multiple=together):
        tall = max(1, pairs_that_fit(longest) // (some.stop - some.start))
        columns.append([(slice(row, row + tall), some, longest) for row in range(0, images, tall)])
    return columns


def _table(pair: Pair, images: Any, texts: Any, columns: list[list[Tile]]) -> Float[Tensor, "image text"]:
    found = []
    for column in columns:
        _, place, longest = column[0]
        some = texts.select(place).trimmed(longest)
        found.append(torch.cat([pair(images.select(rows), some) for rows, _, _ in column]))
    return torch.cat(found, dim=1)


class _Recomputed(torch.autograd.Function):
    """A table of which nothing is kept but the batches; its gradient is gathered tile by tile.

    (Checkpointed tiles would each keep the graph of their score: its many small pieces made a process five times as
    large as the tensors in it.)
    """

    @staticmethod
    def forward(ctx: Any, pair: Pair, columns: list[list[Tile]], kinds: list[Any], *tensors: Tensor) -> Tensor:
        ctx.options = pair, columns, kinds
        ctx.precision = current_autocast(tensors[0])
        ctx.save_for_backward(*tensors)
        with ctx.precision:
            return _table(pair, *_batches(kinds, tensors), columns)

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "image text"]) -> tuple[Tensor | None, ...]:
        pair, columns, kinds = ctx.options
        tensors: tuple[Tensor, ...] = ctx.saved_tensors
        of_images, of_batches = len(kinds[0][1]), sum(len(names) for _, names in kinds)
        learning = [place for place, wanted in enumerate(ctx.needs_input_grad[3:]) if wanted]
        into: dict[int, Tensor] = {}
        for rows, some, longest in (tile for column in columns for tile in column):
            cut = [rows if place < of_images else some for place in range(of_batches)]
            parts = [tensor[here].detach() for tensor, here in zip(tensors, cut, strict=False)]
            leaves = [parts[place].requires_grad_() if place < of_batches else tensors[place] for place in learning]
            with torch.enable_grad(), ctx.precision:
                images, texts = _batches(kinds, parts)
                similarity = pair(images, texts.trimmed(longest))
            found = torch.autograd.grad(similarity, leaves, gradient[rows, some], allow_unused=True)
            for place, part in zip(learning, found, strict=True):
                if part is not None:
                    if place not in into:
                        into[place] = torch.zeros_like(tensors[place])
                    (into[place][cut[place]] if place < of_batches else into[place]).add_(part)
        return (None, None, None, *(into.get(place) for place in range(len(tensors))))


def _batches(kinds: list[Any], tensors: Sequence[Tensor]) -> tuple[Any, Any]:
    (image_kind, of_images), (text_kind, of_texts) = kinds
    texts = tensors[len(of_images) :][: len(of_texts)]
    return (
        image_kind(**dict(zip(of_images, tensors, strict=False))),
        text_kind(**dict(zip(of_texts, texts, strict=True))),
    )


def current_autocast(like: Tensor) -> torch.autocast:
    """The precision of this moment, for a block that is run again later. It remembers no weight in its short form:
    one made without gradients would be used with them."""
    device = like.device.type
    dtype, enabled = torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
    return torch.autocast(device, dtype, enabled, cache_enabled=False)


def _kind(side: Any) -> tuple[Any, ...]:
    """All that the memory of a pair hangs on."""
    parts = [getattr(side, field.name) for field in fields(side)]
    return tuple(None if part is None else (part.shape[1:], part.dtype, part.requires_grad) for part in parts)


def _bytes_of_one(side: Any) -> int:
    parts: Iterable[Tensor | None] = [getattr(side, field.name) for field in fields(side)]
    return sum(part[:1].nbytes for part in parts if part is not None)
