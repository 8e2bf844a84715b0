"""Recalls of float32 from a table that was computed sooner: what a rank hangs on is scored again in full.

A table in 16 bits or in bytes orders almost all pairs as float32 does. A rank changes only where a wrong answer lies so
near to the right one that rounding can carry it across, and these are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import ImageCode, TextCode
from saccade.models import Matcher
from saccade.nn import byte_products, full_precision

SAFETY = 4.0  # the margin, in times of the largest error seen; of SCAN on Flickr8k it covers that of every pair
MOST = 0.1  # of the table: a pair alone takes several times what it takes among all
SLAB = 1 << 24  # scores looked through at a time
SPREAD = 0.6180339887498949  # steps of this share of a table come near every place and to none twice

Indices = Int[Tensor, " pair"]
PairScores = Callable[[Indices, Indices], Float[Tensor, " pair"]]


@dataclass(frozen=True)
class Refined:
    """A table whose ranks are those of float32, and what that took."""

    table: Float[Tensor, "image text"]
    scored_again: int = 0  # pairs
    margin: float = 0.0  # by how much the quick score of all others may be off

    @property
    def share(self) -> float:
        """Of all pairs, those that were scored again."""
        return self.scored_again / max(1, self.table.numel())


@torch.no_grad()
def refined_similarity(
    model: Matcher, images: ImageCode, texts: TextCode, image_of_text: Int[np.ndarray, " text"], most: float = MOST
) -> Refined:
    """The model's table: first in fewer bits where it has a way to (`Matcher.quick_bits`), then refined; else in full.

    The codes are of float32.
    """
    device = images.regions.device
    bits = model.quick_bits.get(device.type)
    if bits is None:
        return Refined(model.similarity(images, texts))
    with byte_products() if bits == torch.int8 else torch.autocast(device.type, bits):
        quick = model.similarity(images, texts)
    with full_precision(images.regions):
        return refine(
            quick,
            image_of_text,
            lambda image, text: model.pair_scores(images, texts, image, text),
            lambda: model.similarity(images, texts),
            most,
        )


def refine(
    quick: Float[Tensor, "image text"],
    image_of_text: Int[np.ndarray, " text"],
    pair_scores: PairScores,
    whole: Callable[[], Float[Tensor, "image text"]],
    most: float = MOST,
) -> Refined:
    """A quick table in which every pair that a rank can hang on has its exact score.

    These are: all pairs of a picture with a caption of its own; for every text all pictures whose quick score is within
    a margin of that of its own picture; for every picture all texts within the margin of the best of its own; and for
    both whatever the margin lets stand on top, so that not only ranks but first answers are right
    (`metrics.Ranks`; of answers in between the order stays that of the quick table).

    The margin is `SAFETY` times the largest difference of a quick and an exact score among all pairs that were scored
    both ways: at first own pairs, first answers, and some from all over the table. It grows with what is seen, and the
    search is repeated until it finds nothing new. It is measured, not proven: pairs that nobody scored again may be off
    by more.

    `pair_scores(image, text)` scores single pairs in full, `whole` all of them; the latter is asked instead where more
    than a share `most` would have to be scored again (a model that tells nothing apart), or where 16 bits overflowed.
    """
    images, texts = quick.shape
    state = _Table(quick.new_empty(images, texts, dtype=torch.float32).copy_(quick), pair_scores)
    owner = torch.as_tensor(image_of_text, device=quick.device)
    every = torch.arange(texts, device=quick.device)
    own = owner * texts + every
    limit = most * quick.numel()
    if not quick.numel() or len(own) > limit or not bool(state.table.isfinite().all()):
        return Refined(whole(), quick.numel())

    first_image, first_text = state.table.argmax(dim=0), state.table.argmax(dim=1)
    rows = torch.arange(images, device=quick.device)
    tops = torch.cat([first_image * texts + every, rows * texts + first_text])
    anywhere = torch.arange(len(tops), device=quick.device, dtype=torch.float64) * SPREAD % 1 * quick.numel()
    wanted: Tensor = torch.unique(torch.cat([own, tops, anywhere.long()]))
    while len(wanted):
        if state.scored + len(wanted) > limit:
            return Refined(whole(), quick.numel())
        state.score(wanted)
        right = state.table[owner, every]
        best = right.new_full((images,), -torch.inf).scatter_reduce(0, owner, right, "amax")
        of_texts = right, torch.maximum(right, state.table[first_image, every])
        of_images = best, torch.maximum(best, state.table[rows, first_text])
        wanted = torch.cat(list(state.near(of_images, of_texts)))
    return Refined(state.table, state.scored, state.margin)


Marks = tuple[Float[Tensor, " query"], Float[Tensor, " query"]]  # of each query: the right answer's score, the top's


@dataclass
class _Table:
    """Scores, exact where they are known and else quick."""

    table: Float[Tensor, "image text"]
    pair_scores: PairScores
    scored: int = 0
    error: float = 0.0

    def __post_init__(self) -> None:
        self.known = torch.zeros_like(self.table, dtype=torch.bool)

    @property
    def margin(self) -> float:
        return SAFETY * self.error

    def score(self, places: Indices) -> None:
        """Pairs by their place in the table, none of which is known."""
        texts = self.table.shape[1]
        exact = self.pair_scores(places // texts, places % texts).to(self.table)
        table, known = self.table.view(-1), self.known.view(-1)
        rounding = torch.finfo(torch.float32).eps * exact.abs().max()  # also of what happens to show no error
        self.error = max(self.error, float((table[places] - exact).abs().max() + rounding))
        table[places], known[places] = exact, True
        self.scored += len(places)

    def near(self, of_images: Marks, of_texts: Marks) -> Iterator[Indices]:
        """Where a quick score is within the margin of a mark of its row or column, some rows at a time."""
        images, texts = self.table.shape
        height = max(1, SLAB // texts)
        for start in range(0, images, height):
            some = slice(start, start + height)
            quick = self.table[some]
            wanted = torch.zeros_like(self.known[some])
            for right, top in ((of_texts[0], of_texts[1]), (of_images[0][some, None], of_images[1][some, None])):
                wanted |= (quick - right).abs_() <= self.margin
                wanted |= quick >= top - self.margin
            yield (wanted & ~self.known[some]).view(-1).nonzero()[:, 0] + start * texts
