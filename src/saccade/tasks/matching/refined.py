"""Two-stage scoring: all pairs in 16 bits on a GPU, then those that a rank hangs on again in float32.

A table in 16 bits orders almost all pairs as float32 does. A rank changes only where a wrong answer lies so near to
the right one that rounding can carry it across, and these are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import ImageCode, TextCode
from saccade.models import Matcher
from saccade.nn import full_precision
from saccade.ops.all_pairs import peak_bytes

SAFETY = 4.0  # the margin, in times of the largest error found; of SCAN on Flickr8k it covers that of every pair
MAX_RESCORED_SHARE = 0.1  # of the table: a pair alone takes several times what it takes among all
SLAB_SCORES = 1 << 24  # searched at a time
SPREAD = 0.6180339887498949  # steps of this share of a table come near every place and to none twice
LENGTH_STEP = 8  # texts whose lengths fall into the same so many words are scored together

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
    model: Matcher,
    images: ImageCode,
    texts: TextCode,
    image_of_text: Int[np.ndarray, " text"],
    most: float = MAX_RESCORED_SHARE,
) -> Refined:
    """The model's table in two stages, on a GPU and where its operator has a 16-bit type (`Operator.reduced`); else in
    full. The codes are of float32.
    """
    dtype = reduced_dtype(model, images.regions.device)
    if dtype is None:
        return Refined(model.similarity(images, texts))
    with torch.autocast(images.regions.device.type, dtype):
        quick = model.similarity(images, texts)
    with full_precision(images.regions):
        return refine(
            quick,
            image_of_text,
            lambda image, text: pair_scores(model, images, texts, image, text),
            lambda: model.similarity(images, texts),
            most,
        )


def reduced_dtype(model: Matcher, device: torch.device) -> torch.dtype | None:
    """In what the first stage of a model's table is computed; None: one stage is all."""
    return model.operator.reduced if model.operator is not None and device.type == "cuda" else None


@torch.no_grad()
def pair_scores(
    model: Matcher, images: ImageCode, texts: TextCode, image: Indices, text: Indices
) -> Float[Tensor, " pair"]:
    """Picture `image[p]` with text `text[p]`, as `similarity` has them to rounding, within the budget.

    How far a text is padded depends on its length alone, so that the same text always scores the same.
    """
    buckets = (texts.mask.sum(dim=1)[text] + LENGTH_STEP - 1) // LENGTH_STEP
    buckets, order = buckets.sort(stable=True)
    found = image.new_empty(len(image), dtype=images.regions.dtype)
    kinds, counts = torch.unique_consecutive(buckets, return_counts=True)
    for bucket, places in zip(kinds.tolist(), torch.split(order, counts.tolist()), strict=True):
        longest = min(bucket * LENGTH_STEP, texts.mask.shape[1])

        def scores(some: Indices, longest: int = longest) -> Float[Tensor, " pair"]:
            return model.align(images.select(image[some]), texts.select(text[some]).trimmed(longest)).score

        size = max(1, peak_bytes(partial(scores, places[:1])))
        for some in torch.split(places, max(1, model.budget // size)):
            found[some] = scores(some)
    return found


def refine(
    quick: Float[Tensor, "image text"],
    image_of_text: Int[np.ndarray, " text"],
    pair_scores: PairScores,
    whole: Callable[[], Float[Tensor, "image text"]],
    most: float = MAX_RESCORED_SHARE,
) -> Refined:
    """A quick table in which every pair that a rank can hang on has its exact score.

    These are: all pairs of a picture with a caption of its own; for every text all pictures whose quick score is within
    a margin of that of its own picture; for every picture all texts within the margin of the best of its own; and for
    both whatever the margin lets stand on top, so that not only ranks but first answers are right
    (`metrics.Ranks`; of answers in between the order stays that of the quick table).

    The margin is `SAFETY` times the largest difference of a quick and an exact score among all pairs that were scored
    both ways: at first own pairs, first answers, and some from all over the table. It grows with what is found, and the
    search is repeated until it finds nothing new. It is measured, not proven: pairs that nobody scored again may be off
    by more.

    `pair_scores(image, text)` scores single pairs in full, `whole` all of them; the latter is called instead where more
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
        height = max(1, SLAB_SCORES // texts)
        for start in range(0, images, height):
            some = slice(start, start + height)
            quick = self.table[some]
            wanted = torch.zeros_like(self.known[some])
            for right, top in ((of_texts[0], of_texts[1]), (of_images[0][some, None], of_images[1][some, None])):
                wanted |= (quick - right).abs_() <= self.margin
                wanted |= quick >= top - self.margin
            yield (wanted & ~self.known[some]).view(-1).nonzero()[:, 0] + start * texts
