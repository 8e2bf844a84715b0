"""Greedy non-maximum suppression of many lists of boxes at once: each box, best first, removes those it overlaps.

A list may be the boxes of a picture, or those of one class in one picture. Published codes loop over boxes within a
loop over lists. Here the rule is a fixed point instead: a box stays if no better box that itself stays clashes with it.
Start with all boxes and apply this to all of them until nothing changes. Each round settles every box whose better ones
are decided, so the rounds end; and as a box depends on better ones alone, there is one end only: what the loop finds.

Boxes are taken in blocks, best first: rounds within a block, then what stays of it removes from the rest at once. Boxes
that are gone are never compared with the rest, and where only the best few are wanted the last blocks are skipped. On a
GPU one block is as fast as many, and whether all is decided is checked only now and then, as each check waits for it.

`class_confidence` and `select` are the rule of Bottom-Up attention (Anderson et al., 2018) for which of a detector's
boxes become regions. Every class suppresses overlapping boxes by its own scores. A box is worth the best score among
the classes for which it survived, and those worth at least 0.2 are kept: as they were proposed where there are between
10 and 100 of them, the 10 or the 100 best, best first, where there are fewer or more.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.vision.boxes import overlap_more

CPU_BLOCK_BOXES = 64  # decided together
GPU_BLOCK_BOXES = 2048  # fewer and larger steps are faster there
ROUNDS_PER_CHECK = 4  # on a GPU: each check whether anything still changes waits for it
MAX_GPU_PAIRS = 2**26  # of boxes held at a time: 256 MB in float32
MAX_CPU_PAIRS = 2**20  # the table should stay in the cache


class Clash(Protocol):
    """Which of the boxes `others` of each row overlap each of the row's boxes `best` too much."""

    def __call__(self, best: Int[Tensor, "row a"], others: slice) -> Bool[Tensor, "row a b"]: ...


def greedy_nms(
    clash: Clash, alive: Bool[Tensor, "row box"], limit: int | None = None, rounds: int | None = None
) -> Bool[Tensor, "row box"]:
    """Which boxes stay, of rows whose boxes stand best first; those not `alive` neither stay nor remove any.

    With `limit`, only the first so many that stay are wanted, and any later one may be dropped. With `rounds`, a GPU is
    never waited for, and boxes at the end of a chain of more clashes than that may stay or go wrongly.
    """
    rows, boxes = alive.shape
    block = _block(boxes, alive.device)
    kept = alive.clone()
    for start in range(0, boxes if rows else 0, block):
        end = min(start + block, boxes)
        places = torch.arange(start, end, device=alive.device).expand(rows, end - start)
        kept[:, start:end] = stay = settle(clash(places, slice(start, end)), kept[:, start:end], rounds)
        if end == boxes:
            break
        if alive.device.type == "cpu":  # reading a result costs nothing here
            if limit is not None and bool((kept[:, :end].sum(dim=1) >= limit).all()):
                kept[:, end:] = False
                break
            widest = int(stay.sum(dim=1).max())
            stay, order = stay.to(torch.uint8).topk(widest, dim=1)
            places = places.gather(1, order)
        kept[:, end:] &= ~(clash(places, slice(end, boxes)) & stay.bool()[:, :, None]).any(dim=1)
    return kept


def settle(
    clash: Bool[Tensor, "row box box"], alive: Bool[Tensor, "row box"], rounds: int | None = None
) -> Bool[Tensor, "row box"]:
    """The rule applied to all boxes of a block until nothing changes, or `rounds` times."""
    kind = torch.bfloat16 if clash.is_cuda else torch.float32  # a sum of ones may round, but never to zero
    better = clash.triu(diagonal=1).to(kind)
    every = ROUNDS_PER_CHECK if clash.is_cuda else 1
    kept = alive
    for step in range(alive.shape[1] if rounds is None else rounds):
        before, kept = kept, alive & (torch.bmm(kept[:, None].to(kind), better)[:, 0] == 0)
        if rounds is None and step % every == every - 1 and torch.equal(before, kept):
            break
    return kept


def rows_at_once(rows: int, boxes: int, device: torch.device) -> int:
    """How many rows to give `greedy_nms` together, so that its tables stay small whatever the batch."""
    pairs = MAX_CPU_PAIRS if device.type == "cpu" else MAX_GPU_PAIRS
    return min(max(rows, 1), max(1, pairs // max(min(_block(boxes, device), boxes) * boxes, 1)))


def _block(boxes: int, device: torch.device) -> int:
    return (
        CPU_BLOCK_BOXES
        if device.type == "cpu"
        else max(CPU_BLOCK_BOXES, min(GPU_BLOCK_BOXES, MAX_GPU_PAIRS // max(boxes, 1)))
    )


def nms_sorted(
    boxes: Float[Tensor, "row box 4"],
    threshold: float,
    inclusive: bool = False,
    limit: int | None = None,
    rounds: int | None = None,
) -> Bool[Tensor, "row box"]:
    """Non-maximum suppression of boxes that stand best first: each removes those that overlap it more than this.

    `limit` and `rounds` as for `greedy_nms`.
    """

    def part(boxes: Float[Tensor, "row box 4"]) -> Bool[Tensor, "row box"]:
        def clash(best: Int[Tensor, "row a"], others: slice) -> Bool[Tensor, "row a b"]:
            chosen = boxes.gather(1, best[..., None].expand(*best.shape, 4))
            return overlap_more(chosen, boxes[:, others], threshold, inclusive)

        return greedy_nms(clash, torch.ones(boxes.shape[:2], dtype=torch.bool, device=boxes.device), limit, rounds)

    size = rows_at_once(boxes.shape[0], boxes.shape[1], boxes.device)
    return torch.cat([part(rows) for rows in torch.split(boxes, size)])


def nms(
    boxes: Float[Tensor, "*batch box 4"],
    scores: Float[Tensor, "*batch box"],
    threshold: float,
    inclusive: bool = False,
) -> Bool[Tensor, "*batch box"]:
    """Non-maximum suppression: which boxes stay when each, best first, removes those that overlap it more than this.

    All pictures of a batch go through it together. Of two boxes with the same score the first is the better.
    """
    order = scores.argsort(dim=-1, descending=True, stable=True)
    ranked = boxes.gather(-2, order[..., None].expand_as(boxes))
    rows = ranked.reshape(order.shape[:-1].numel(), *ranked.shape[-2:])
    kept = nms_sorted(rows, threshold, inclusive).view(order.shape)
    return torch.zeros_like(kept).scatter(-1, order, kept)


def best(scores: Float[Tensor, " box"], kept: Bool[Tensor, " box"], limit: int) -> Int[Tensor, " kept"]:
    """Positions of the kept boxes, best first, at most `limit` of them."""
    order = scores.argsort(descending=True, stable=True)
    return order[kept[order]][:limit]


def class_confidence(
    boxes: Float[Tensor, "image box 4"],
    scores: Float[Tensor, "image box class"],
    overlap: float = 0.3,
    inclusive: bool = False,
    floor: float = 0.0,
) -> Float[Tensor, "image box"]:
    """The best score of each box among the classes whose non-maximum suppression it survives, 0 if there is none.

    `scores` are probabilities with the background in column 0, which is no class. All classes of all pictures go
    through the suppression together, a row for each class of a picture that has any score. Scores below `floor` neither
    suppress nor count, which shortens the rows: a lower score never removes a higher one, so nothing above the floor
    changes.
    """
    images, count = boxes.shape[:2]
    worth = scores.new_zeros(images * count)
    if not count or scores.shape[2] < 2:
        return worth.view(images, count)
    clashes = overlap_more(boxes, boxes, overlap, inclusive)  # [image, box, box]
    by_class = scores[..., 1:].transpose(1, 2).flatten(0, 1)  # [image · class, box]
    by_class = by_class.masked_fill(~(by_class >= floor), -torch.inf)
    counted, row = (by_class >= floor).sum(dim=1).sort(descending=True)
    lengths = counted.cpu()  # of the rows, longest first: rows of a like length …
    start, end = 0, int(lengths.count_nonzero())
    while start < end:  # … go together, so many that what is held stays small
        longest = int(lengths[start])
        chosen = row[start : min(start + rows_at_once(end - start, longest, boxes.device), end)]
        image = chosen // (scores.shape[2] - 1)
        score, order = by_class[chosen].sort(dim=1, descending=True, stable=True)
        score, order = score[:, :longest], order[:, :longest]
        kept = greedy_nms(_Clash(clashes, image, order), score >= floor)
        worth.scatter_reduce_(
            0, (image[:, None] * count + order).flatten(), torch.where(kept, score, 0.0).flatten(), "amax"
        )
        start += len(chosen)
    return worth.view(images, count)


class _Clash(NamedTuple):
    """The boxes of each row in its own order, compared by the table of its picture."""

    clashes: Bool[Tensor, "image box box"]
    image: Int[Tensor, " row"]
    order: Int[Tensor, "row place"]

    def __call__(self, best: Int[Tensor, "row a"], others: slice) -> Bool[Tensor, "row a b"]:
        first = self.order.gather(1, best)[:, :, None]
        return self.clashes[self.image[:, None, None], first, self.order[:, None, others]]


def select(
    confidence: Float[Tensor, "image box"],
    threshold: float = 0.2,
    least: int = 10,
    most: int = 100,
    real: Bool[Tensor, "image box"] | None = None,
) -> tuple[Int[Tensor, "image region"], Bool[Tensor, "image region"]]:
    """Positions of the boxes to keep, and which of them are there: pictures keep different numbers.

    `real` marks the boxes of a padded batch; a picture that has fewer than `least` keeps them all.
    """
    if not 0 <= least <= most:
        raise ValueError(f"between {least} and {most} boxes: the first must not be larger")
    real = torch.ones_like(confidence, dtype=torch.bool) if real is None else real
    confidence = confidence.masked_fill(~real, -1.0)
    sure = confidence >= threshold
    wanted = sure.sum(dim=1)
    limited = (wanted < least) | (wanted > most)
    best_first = confidence.argsort(dim=1, descending=True, stable=True)
    as_proposed = (~sure).to(torch.uint8).argsort(dim=1, stable=True)
    count = torch.minimum(wanted.clamp(least, most), real.sum(dim=1))
    order = torch.where(limited[:, None], best_first, as_proposed)[:, :most]
    return order, torch.arange(order.shape[1], device=order.device) < count[:, None]
