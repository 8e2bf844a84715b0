"""Greedy non-maximum suppression for many lists of boxes at once: each box, best first, removes those it clashes with.

A list may be the boxes of a picture or those of one class in one picture. Told one by one, the rule is a loop over
boxes within a loop over lists. Told as an equation it is neither: a box stays if no better box that itself stays
clashes with it. Start with all boxes and apply this to all at once until nothing changes. A round settles every box
whose better ones are settled, so the rounds end, and as a box depends on better ones alone there is only one end: what
the loop finds. `greedily_one_by_one` is that loop, and the tests hold one to the other.

The boxes are taken in blocks, best first: rounds within a block, then what stays of it removes from the rest at once.
Boxes that are gone are never compared with the rest, and where only the best few are wanted the last blocks are never
looked at. On a GPU one block is as quick as many, and it is asked only now and then whether all is settled.
"""

from __future__ import annotations

from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

BLOCK = 64  # boxes settled together on a CPU …
GPU_BLOCK = 2048  # … and on a GPU, where fewer and larger steps are quicker
ASK = 4  # rounds between two questions to a GPU whether anything still changes: each makes it wait
PAIRS = 2**24  # of boxes held at a time on a GPU: 64 MB in float32 …
CPU_PAIRS = 2**20  # … and on a CPU, where a table should stay in its cache


class Clash(Protocol):
    """Which of the boxes `others` of each row overlap each of the row's boxes `best` too much."""

    def __call__(self, best: Int[Tensor, "row a"], others: slice) -> Bool[Tensor, "row a b"]: ...


def greedily(
    clash: Clash, alive: Bool[Tensor, "row box"], most: int | None = None, rounds: int | None = None
) -> Bool[Tensor, "row box"]:
    """Which boxes stay, of rows whose boxes stand best first; those not `alive` neither stay nor remove any.

    `most`: the first so many of each row are wanted; later ones may be told to be gone. With `rounds` set, a GPU is
    never waited for, and boxes at the end of a chain of more than so many clashes may stay or go wrongly.
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
        if alive.device.type == "cpu":  # to ask costs nothing here
            if most is not None and bool((kept[:, :end].sum(dim=1) >= most).all()):
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
    ask = ASK if clash.is_cuda else 1
    kept = alive
    for step in range(alive.shape[1] if rounds is None else rounds):
        before, kept = kept, alive & (torch.bmm(kept[:, None].to(kind), better)[:, 0] == 0)
        if rounds is None and step % ask == ask - 1 and torch.equal(before, kept):
            break
    return kept


def rows_at_once(rows: int, boxes: int, device: torch.device) -> int:
    """How many of the rows `greedily` should be given together: what it holds stays small whatever the batch."""
    pairs = CPU_PAIRS if device.type == "cpu" else PAIRS
    return min(max(rows, 1), max(1, pairs // max(min(_block(boxes, device), boxes) * boxes, 1)))


def _block(boxes: int, device: torch.device) -> int:
    return BLOCK if device.type == "cpu" else max(BLOCK, min(GPU_BLOCK, PAIRS // max(boxes, 1)))


def greedily_one_by_one(
    overlap: Float[Tensor, "box box"], scores: Float[Tensor, " box"], threshold: float
) -> Bool[Tensor, " box"]:
    """The rule as the published codes have it, for one list of boxes: what `greedily` is tested and timed against."""
    kept = torch.zeros(len(scores), dtype=torch.bool)
    left = scores.argsort(descending=True, stable=True)
    while len(left):
        first, left = left[0], left[1:]
        kept[first] = True
        left = left[~(overlap[first, left] > threshold)]
    return kept
