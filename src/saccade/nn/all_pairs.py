"""Every picture with every sentence, tile by tile, for models whose score of a pair needs more than a few numbers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from saccade.batch import ImageCode, TextCode
from saccade.ops import DEFAULT_BUDGET

SMALL = 64 << 20  # bytes: below, padding costs less than the calls that would avoid it
ALIKE = 0.75  # sentences in a tile have at least this share of the length of its longest
Score = Callable[[ImageCode, TextCode], Float[Tensor, "image text"]]


def all_pairs(
    score: Score,
    images: ImageCode,
    texts: TextCode,
    floats_per_pair: Callable[[int, int], int],
    budget: int = DEFAULT_BUDGET,
) -> Float[Tensor, "image text"]:
    """The table of scores, where `score` may hold `floats_per_pair(regions, words)` numbers for each pair of a tile.

    Sentences are sorted by length and tiles cut to their longest, so that little of a large table is padding. While a
    gradient is wanted and the whole table would not fit the budget, a tile keeps nothing for the backward pass and is
    computed again there.
    """
    regions, element = images.regions.shape[1], images.regions.element_size()

    def size(words: int) -> int:
        return element * max(1, floats_per_pair(regions, words))

    whole = len(images) * len(texts) * size(texts.words.shape[1])
    if whole <= min(budget, SMALL):
        return score(images, texts)
    lengths, order = texts.mask.sum(dim=1).sort(descending=True, stable=True)
    longest, ordered = lengths.tolist(), texts.select(order)
    columns, start = [], 0
    while start < len(texts):
        pairs = max(1, budget // size(longest[start]))
        alike = sum(length >= ALIKE * longest[start] for length in longest[start:])
        wide = max(1, min(alike, max(int(pairs**0.5), pairs // len(images))))
        tall = max(1, pairs // wide)
        some = ordered.select(slice(start, start + wide)).trimmed()
        tiles = [
            _tile(score, images.select(slice(i, i + tall)), some, again=whole > budget)
            for i in range(0, len(images), tall)
        ]
        columns.append(torch.cat(tiles))
        start += wide
    return torch.cat(columns, dim=1)[:, order.argsort()]


def _tile(score: Score, images: ImageCode, texts: TextCode, again: bool) -> Float[Tensor, "image text"]:
    if not (again and torch.is_grad_enabled()):
        return score(images, texts)
    result: Tensor = checkpoint(score, images, texts, use_reentrant=False, preserve_rng_state=False)
    return result
