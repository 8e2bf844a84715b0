"""What a beam search does with a sentence that has come to its end: three ways, as the published codes have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import END
from saccade.decoding.config import DecodingConfig

GONE = float("-inf")
STEPPED_BACK = 1000.0  # so far a finished sentence falls behind those that go on, in the code of Up-Down


class Entries(NamedTuple):
    """The continuations taken at one step. The first `beam` of them are the beams of the next step."""

    sums: Float[Tensor, "image entry"]
    parents: Int[Tensor, "image entry"]  # the beam that each continues
    words: Int[Tensor, "image entry"]


def take(totals: Float[Tensor, "image beam word"], config: DecodingConfig, room: Int[Tensor, " image"]) -> Entries:
    """The best continuations; `room` is what finished sentences have left of the beam, where it shrinks."""
    beam, vocabulary = totals.shape[1:]
    if config.finished_beams == "aside":
        return _take_aside(totals)
    sums, places = totals.flatten(1).topk(beam, dim=1)
    if config.finished_beams == "shrink":
        sums = sums.masked_fill(torch.arange(beam, device=sums.device) >= room[:, None], GONE)
    return Entries(sums, places // vocabulary, places % vocabulary)


def _take_aside(totals: Float[Tensor, "image beam word"]) -> Entries:
    """Of each beam its best continuations, as many as there are beams: of these the endings apart from the others.

    The endings stand behind the best of the others, which are the beams of the next step.
    """
    beam, vocabulary = totals.shape[1:]
    sums, words = totals.topk(min(beam, vocabulary), dim=2)
    ends = words == END
    parents = torch.arange(beam, device=words.device)[:, None].expand_as(words)
    live, places = sums.masked_fill(ends, GONE).flatten(1).topk(beam, dim=1)
    end_sums = sums.masked_fill(~ends, GONE).amax(dim=2)
    return Entries(
        torch.cat([live, end_sums], dim=1),
        torch.cat([parents.flatten(1).gather(1, places), parents[..., 0]], dim=1),
        torch.cat([words.flatten(1).gather(1, places), torch.full_like(parents[..., 0], END)], dim=1),
    )


def go_on(
    sums: Float[Tensor, "image beam"], ended: Bool[Tensor, "image beam"], config: DecodingConfig
) -> Float[Tensor, "image beam"]:
    """What the beams of the next step start from.

    slot: the ended beam is still there, but anything alive is before it.
    """
    if config.finished_beams == "slot":
        return torch.where(ended, sums - STEPPED_BACK, sums)
    return sums.masked_fill(ended, GONE)


def penalised(sums: Tensor, length: int, config: DecodingConfig) -> Tensor:
    """The score of sentences of `length` words, <end> among them."""
    if config.length_penalty == "wu":
        return sums / float(((5 + length) / 6) ** config.alpha)
    return sums / length if config.length_penalty == "average" else sums


@dataclass(frozen=True)
class Kept:
    """The best finished sentences of each picture so far, best first; of equals, the one that came first."""

    scores: Float[Tensor, "image beam"]
    steps: Int[Tensor, "image beam"]  # when they ended
    entries: Int[Tensor, "image beam"]  # and as which entry of that step

    @staticmethod
    def none(images: int, beam: int, like: Tensor) -> Kept:
        scores = like.new_full((images, beam), GONE)
        nowhere = torch.zeros_like(scores, dtype=torch.long)
        return Kept(scores, nowhere - 1, nowhere)

    @property
    def count(self) -> Int[Tensor, " image"]:
        return (self.scores > GONE).sum(dim=1)

    def add(self, scores: Float[Tensor, "image entry"], step: int) -> Kept:
        """Entries of a step that ended; those that did not have −∞."""
        entries = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
        everything = torch.cat([self.scores, scores], dim=1)
        best, order = everything.sort(dim=1, descending=True, stable=True)
        best, order = best[:, : self.scores.shape[1]], order[:, : self.scores.shape[1]]
        steps = torch.cat([self.steps, torch.full_like(entries, step)], dim=1).gather(1, order)
        places = torch.cat([self.entries, entries], dim=1).gather(1, order)
        return Kept(best, steps.masked_fill(best == GONE, -1), places)
