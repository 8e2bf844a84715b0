"""Every picture with every sentence, tile by tile, for models whose score of a pair needs more than a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from saccade.batch import ImageCode, TextCode
from saccade.nn.precision import plainly_on_cpu, present_precision
from saccade.ops import DEFAULT_BUDGET
from saccade.ops.cores import on_every_core

SMALL = 64 << 20  # bytes: below, padding costs less than the calls that would avoid it
ALIKE = 0.75  # sentences in a tile have at least this share of the length of its longest
Score = Callable[[ImageCode, TextCode], Float[Tensor, "image text"]]
Tile = tuple[slice, slice, int]  # some pictures, some sentences, the length of the longest


def all_pairs(
    score: Score,
    images: ImageCode,
    texts: TextCode,
    weights: Iterable[Tensor],
    floats_per_pair: Callable[[int, int], int],
    budget: int = DEFAULT_BUDGET,
    cpu_tile: int = SMALL,
    together: int = 1,
) -> Float[Tensor, "image text"]:
    """The table of scores, where `score` may hold `floats_per_pair(regions, words)` numbers for each pair of a tile.

    Sentences are sorted by length and tiles cut to their longest, so that little of a large table is padding. While a
    gradient is wanted and the whole table would not fit the budget, a tile keeps nothing for the backward pass and is
    computed again there. `weights` has all that `score` learns, and may have more: nothing else but the codes gets a
    gradient. On a CPU, and without gradients, every core takes tiles of its own, of about `cpu_tile` bytes,
    with `together` sentences or a multiple of that.
    """
    regions, element = images.regions.shape[1], images.regions.element_size()

    def size(words: int) -> int:
        return element * max(1, floats_per_pair(regions, words))

    whole, on_cores = len(images) * len(texts) * size(texts.words.shape[1]), plainly_on_cpu(images.regions)
    if whole <= min(budget, cpu_tile if on_cores else SMALL):
        return score(images, texts)
    if on_cores:
        budget = min(cpu_tile, budget // torch.get_num_threads())
    lengths, order = texts.reach.sort(descending=True, stable=True)
    columns = _columns(lengths.tolist(), len(images), lambda words: max(1, budget // size(words)), together)
    codes = images, texts.select(order)
    if on_cores:
        table = _table_on_cores(score, *codes, columns)
    elif whole <= budget or not torch.is_grad_enabled():
        table = _table(score, *codes, columns)
    else:
        kinds = [(type(code), [f.name for f in fields(code) if getattr(code, f.name) is not None]) for code in codes]
        tensors = [getattr(code, name) for code, (_, names) in zip(codes, kinds, strict=True) for name in names]
        table = _Recomputed.apply(score, columns, kinds, *tensors, *weights)  # type: ignore[no-untyped-call]
    return table[:, order.argsort()]


def _columns(
    lengths: Sequence[int], images: int, pairs_that_fit: Callable[[int], int], together: int = 1
) -> list[list[Tile]]:
    """Tiles for sentences of these lengths, the longest first."""
    columns, start = [], 0
    while start < len(lengths):
        pairs = pairs_that_fit(lengths[start])
        alike = sum(length >= ALIKE * lengths[start] for length in lengths[start:])
        wide = max(1, min(alike, max(int(pairs**0.5), pairs // images)))
        wide = max(wide // together * together, min(wide, together))
        tall = max(1, pairs // wide)
        some = slice(start, start + wide), lengths[start]
        columns.append([(slice(row, row + tall), *some) for row in range(0, images, tall)])
        start += wide
    return columns


def _table(score: Score, images: ImageCode, texts: TextCode, columns: list[list[Tile]]) -> Float[Tensor, "image text"]:
    found = []
    for column in columns:
        _, place, longest = column[0]
        some = texts.select(place).trimmed(longest)
        found.append(torch.cat([score(images.select(rows), some) for rows, _, _ in column]))
    return torch.cat(found, dim=1)


def _table_on_cores(
    score: Score, images: ImageCode, texts: TextCode, columns: list[list[Tile]]
) -> Float[Tensor, "image text"]:
    table = images.regions.new_empty(len(images), len(texts))

    def fill(rows: slice, place: slice, longest: int) -> None:
        table[rows, place] = score(images.select(rows), texts.select(place).trimmed(longest))

    on_every_core(partial(fill, *tile) for column in columns for tile in column)
    return table


class _Recomputed(torch.autograd.Function):
    """A table of which nothing is kept but the codes; its gradient is gathered tile by tile.

    (Checkpointed tiles would each keep the graph of their score: its many small pieces made a process five times as
    large as the tensors in it.)
    """

    @staticmethod
    def forward(ctx: Any, score: Score, columns: list[list[Tile]], kinds: list[Any], *tensors: Tensor) -> Tensor:
        ctx.options = score, columns, kinds
        ctx.precision = present_precision(tensors[0])
        ctx.save_for_backward(*tensors)
        with ctx.precision:
            return _table(score, *_codes(kinds, tensors), columns)

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "image text"]) -> tuple[Tensor | None, ...]:
        score, columns, kinds = ctx.options
        tensors: tuple[Tensor, ...] = ctx.saved_tensors
        of_images, of_codes = len(kinds[0][1]), sum(len(names) for _, names in kinds)
        learning = [place for place, wanted in enumerate(ctx.needs_input_grad[3:]) if wanted]
        into: dict[int, Tensor] = {}
        for rows, some, longest in (tile for column in columns for tile in column):
            cut = [rows if place < of_images else some for place in range(of_codes)]
            parts = [tensor[here].detach() for tensor, here in zip(tensors, cut, strict=False)]
            leaves = [parts[place].requires_grad_() if place < of_codes else tensors[place] for place in learning]
            with torch.enable_grad(), ctx.precision:
                images, texts = _codes(kinds, parts)
                similarity = score(images, texts.trimmed(longest))
            found = torch.autograd.grad(similarity, leaves, gradient[rows, some], allow_unused=True)
            for place, part in zip(learning, found, strict=True):
                if part is not None:
                    if place not in into:
                        into[place] = torch.zeros_like(tensors[place])
                    (into[place][cut[place]] if place < of_codes else into[place]).add_(part)
        return (None, None, None, *(into.get(place) for place in range(len(tensors))))


def _codes(kinds: list[Any], tensors: Sequence[Tensor]) -> tuple[ImageCode, TextCode]:
    (image_code, of_images), (text_code, of_texts) = kinds
    texts = tensors[len(of_images) :][: len(of_texts)]
    return (
        image_code(**dict(zip(of_images, tensors, strict=False))),
        text_code(**dict(zip(of_texts, texts, strict=True))),
    )
