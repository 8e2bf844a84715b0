"""Beam search: the best few sentences of every picture are followed at once, all pictures in one batch.

No loop runs over pictures or beams. Each step keeps only what it chose and whom that continued; the words, their
log-probabilities and the attention of the sentences that were kept are read back from these pointers at the end.

Diverse beam search (Vijayakumar et al., AAAI 2018) is several such searches, each of which pays for words that those
before it say.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import END, PAD, START, CaptionState, PictureBatch, RegionBatch, stack
from saccade.decoding.config import DecodingConfig
from saccade.decoding.output import DecodedCaptions
from saccade.decoding.sampling import FORBIDDEN, Constraints, should_check, start_state
from saccade.models.base.captioner import Captioner

FINISHED_SETBACK = 1000.0  # so far a finished sentence falls behind those that go on, in the code of Up-Down


@torch.no_grad()
def beam_search(
    model: Captioner,
    images: RegionBatch | PictureBatch | CaptionState,
    config: DecodingConfig | None = None,
    *,
    keep: int | None = None,
) -> DecodedCaptions:
    """The `keep` best captions found of each picture, best first; by default, as many as there are beams.

    The search is over when no others can be better, so that one caption is found sooner than five. Where at least a
    quarter of the pictures are decided, the others go on alone.
    """
    config = config or DecodingConfig()
    search = Search(model, start_state(model, images), config, config.num_beams, keep)
    here = torch.arange(search.images, device=search.generated.device)
    places, results = [], []
    for step in range(config.max_length):
        search.step()
        if not should_check(search.generated, step):
            continue
        decided = search.decided
        count = int(decided.sum())
        if count == search.images:
            break
        if 4 * count >= search.images:
            places.append(here[decided])
            results.append(search.of(decided).result())
            search, here = search.of(~decided), here[~decided]
    captions = stack([*results, search.result()])
    order = torch.cat([*places, here]).argsort()[:, None] * search.keep
    return captions.select((order + torch.arange(search.keep, device=order.device)).flatten())


@torch.no_grad()
def diverse_beam_search(
    model: Captioner, images: RegionBatch | PictureBatch | CaptionState, config: DecodingConfig | None = None
) -> DecodedCaptions:
    """The best captions of the first group, then of the second, …, `num_beams / num_beam_groups` of each.

    Group g is g words behind the first, as in the code of ImageCaptioning.pytorch: what it must pay for is what earlier
    groups say at that place in the sentences they follow by now.

    Raises: SaccadeError if the beams cannot be shared out evenly.
    """
    config = config or DecodingConfig()
    state = start_state(model, images)
    groups = [Search(model, state, config, config.beams_per_group) for _ in range(config.num_beam_groups)]
    for time in range(config.max_length + len(groups) - 1):
        for number, group in enumerate(groups):
            if 0 <= time - number < config.max_length:
                times = _times_generated(groups[:number], time - number, len(model.vocabulary))
                group.step(None if times is None else config.diversity_penalty * times)
        begun = time >= len(groups) - 1
        if begun and should_check(groups[0].generated, time) and all(bool(group.decided.all()) for group in groups):
            break
    return DecodedCaptions.side_by_side([group.result() for group in groups])


class Step(NamedTuple):
    """What is remembered of a step."""

    parents: Int[Tensor, "image entry"]
    words: Int[Tensor, "image entry"]
    log_probabilities: Float[Tensor, "image entry"]
    weights: Float[Tensor, "image beam region"]
    sentinel: Float[Tensor, "image beam"] | None

    def of(self, chosen: Int[Tensor, " image"]) -> Step:
        return Step(*(None if part is None else part[chosen] for part in self))  # type: ignore[arg-type]


class Search:
    """A beam search under way, for all pictures at once, for the `keep` best sentences of each."""

    def __init__(
        self, model: Captioner, state: CaptionState, config: DecodingConfig, beams: int, keep: int | None = None
    ) -> None:
        self.model, self.config, self.beams, self.keep = model, config, beams, min(keep or beams, beams)
        device = next(model.parameters()).device
        self.constraints = Constraints(config, model.vocabulary, device)
        self.state = state.repeat(beams)
        self.images = len(state)
        self.generated = torch.zeros(self.images, beams, 0, dtype=torch.long, device=device)
        self.over: Bool[Tensor, "image beam"] = torch.zeros(self.images, beams, dtype=torch.bool, device=device)
        self.sums = torch.full((self.images, beams), FORBIDDEN, device=device)
        self.kept = Finished.none(self.sums)
        self.sums[:, 0] = 0  # at first all beams are one
        self.steps: list[Step] = []

    def step(self, cost: Float[Tensor, "image word"] | None = None) -> None:
        """One word further; `cost` is taken from the log-probabilities before continuations are compared."""
        step, beams = len(self.steps), self.beams
        read = self.generated[:, :, -1] if step else torch.full_like(self.over, START, dtype=torch.long)
        log_probs, output = self.model.predict_next(read.flatten(), self.state)
        log_probs = self._by_picture(self.constraints(log_probs, self.generated.flatten(0, 1)))
        totals = self.sums[..., None] + (log_probs if cost is None else log_probs - cost[:, None])
        entries = best_continuations(totals, self.config, beams - self.kept.count)
        chosen = log_probs.flatten(1).gather(1, entries.parents * log_probs.shape[2] + entries.words)
        sentinel = None if output.sentinel is None else self._by_picture(output.sentinel)
        self.steps.append(Step(entries.parents, entries.words, chosen, self._by_picture(output.weights), sentinel))
        self._keep_finished(entries, self.kept)
        self._continue(entries, output.state)

    def _by_picture(self, rows: Float[Tensor, "row ..."]) -> Float[Tensor, "image beam *rest"]:
        return rows.view(self.images, self.beams, *rows.shape[1:])

    def _keep_finished(self, entries: Entries, kept: Finished) -> None:
        """Put sentences that end here among the finished ones, at the last step also those that are cut."""
        length = len(self.steps)
        alive = (entries.sums > FORBIDDEN) & ~self.over.gather(1, entries.parents)
        scores = penalised(entries.sums, length, self.config)
        kept = kept.add(scores.masked_fill(~(alive & (entries.words == END)), FORBIDDEN), length - 1)
        if length == self.config.max_length:
            cut = alive & (entries.words != END)
            if self.config.unfinished_beams == "fallback":
                cut &= (kept.count == 0)[:, None]
            kept = kept.add(scores.masked_fill(~cut, FORBIDDEN), length - 1)
        self.kept = kept

    def _continue(self, entries: Entries, state: CaptionState) -> None:
        """The beams of the next step. With `keep_slot` an ended one is still there, but anything alive is before it."""
        sums, parents, words = (part[:, : self.beams] for part in entries)
        ended = words == END
        if self.config.finished_beams == "keep_slot":
            self.sums = torch.where(ended, sums - FINISHED_SETBACK, sums)
        else:
            self.sums = sums.masked_fill(ended, FORBIDDEN)
        self.over = self.over.gather(1, parents) | ended
        earlier = self.generated.gather(1, parents[..., None].expand(-1, -1, self.generated.shape[2]))
        self.generated = torch.cat([earlier, words[..., None]], dim=2)
        first = torch.arange(self.images, device=parents.device)[:, None] * self.beams
        self.state = state.reorder((first + parents).flatten())

    @property
    def decided(self) -> Bool[Tensor, " image"]:
        """Where nothing still alive can come before the sentences wanted, whatever it goes on to say."""
        hope = penalised(self.sums.masked_fill(self.over, FORBIDDEN).amax(dim=1), self.config.max_length, self.config)
        return self.kept.scores[:, self.keep - 1] >= hope

    def of(self, pictures: Bool[Tensor, " image"]) -> Search:
        """The same search for some of the pictures."""
        search, chosen = copy(self), pictures.nonzero()[:, 0]
        search.images = len(chosen)
        search.state = self.state.select(pictures.repeat_interleave(self.beams))
        search.generated, search.over, search.sums = self.generated[chosen], self.over[chosen], self.sums[chosen]
        search.kept = Finished(self.kept.scores[chosen], self.kept.steps[chosen], self.kept.entries[chosen])
        search.steps = [step.of(chosen) for step in self.steps]
        return search

    def result(self) -> DecodedCaptions:
        """Follow the sentences kept back to their first words."""
        scores, ends, here = (part[:, : self.keep] for part in (self.kept.scores, self.kept.steps, self.kept.entries))
        backward = []
        for number in range(len(self.steps) - 1, -1, -1):
            step, there = self.steps[number], number <= ends
            parents = step.parents.gather(1, here)
            attended = step.weights.gather(1, parents[..., None].expand(-1, -1, step.weights.shape[2]))
            backward.append(
                (
                    step.words.gather(1, here).masked_fill(~there, PAD),
                    step.log_probabilities.gather(1, here).masked_fill(~there, 0),
                    attended.masked_fill(~there[..., None], 0),
                    None if step.sentinel is None else step.sentinel.gather(1, parents).masked_fill(~there, 0),
                )
            )
            here = torch.where(there, parents, here)
        words, log_probabilities, weights, sentinels = zip(*reversed(backward), strict=True)
        return DecodedCaptions(
            torch.stack(words, dim=2).flatten(0, 1),
            torch.stack(log_probabilities, dim=2).flatten(0, 1),
            scores.flatten(),
            torch.stack(weights, dim=2).flatten(0, 1),
            None if sentinels[0] is None else torch.stack(sentinels, dim=2).flatten(0, 1),
            per_image=self.keep,
        ).trimmed()


class Entries(NamedTuple):
    """The continuations taken at one step; the first of them are the beams of the next step."""

    sums: Float[Tensor, "image entry"]
    parents: Int[Tensor, "image entry"]  # the beam that each continues
    words: Int[Tensor, "image entry"]


def best_continuations(
    totals: Float[Tensor, "image beam word"], config: DecodingConfig, room: Int[Tensor, " image"]
) -> Entries:
    """`room` is what finished sentences have left of the beam, where it shrinks.

    Where the beam is kept full, each beam's best continuations are taken, as many as there are beams, and of these the
    endings apart: they stand behind the best of the others, which are the beams of the next step.
    """
    beams, vocabulary = totals.shape[1:]
    if config.finished_beams != "keep_beam_full":
        sums, places = totals.flatten(1).topk(beams, dim=1)
        if config.finished_beams == "shrink_beam":
            sums = sums.masked_fill(torch.arange(beams, device=sums.device) >= room[:, None], FORBIDDEN)
        return Entries(sums, places // vocabulary, places % vocabulary)
    sums, words = totals.topk(min(beams, vocabulary), dim=2)
    ends = words == END
    parents = torch.arange(beams, device=words.device)[:, None].expand_as(words)
    live, places = sums.masked_fill(ends, FORBIDDEN).flatten(1).topk(beams, dim=1)
    end_sums = sums.masked_fill(~ends, FORBIDDEN).amax(dim=2)
    return Entries(
        torch.cat([live, end_sums], dim=1),
        torch.cat([parents.flatten(1).gather(1, places), parents[..., 0]], dim=1),
        torch.cat([words.flatten(1).gather(1, places), torch.full_like(parents[..., 0], END)], dim=1),
    )


def penalised(sums: Tensor, length: int, config: DecodingConfig) -> Tensor:
    """The score of sentences of `length` words, <end> among them."""
    if config.length_penalty == "wu":
        return sums / float(((5 + length) / 6) ** config.alpha)
    return sums / length if config.length_penalty == "average" else sums


@dataclass(frozen=True)
class Finished:
    """The best finished sentences of each picture so far, best first; of equals, the one that came first."""

    scores: Float[Tensor, "image beam"]
    steps: Int[Tensor, "image beam"]  # when they ended
    entries: Int[Tensor, "image beam"]  # and as which entry of that step

    @staticmethod
    def none(like: Float[Tensor, "image beam"]) -> Finished:
        nowhere = torch.zeros_like(like, dtype=torch.long)
        return Finished(torch.full_like(like, FORBIDDEN), nowhere - 1, nowhere)

    @property
    def count(self) -> Int[Tensor, " image"]:
        return (self.scores > FORBIDDEN).sum(dim=1)

    def add(self, scores: Float[Tensor, "image entry"], step: int) -> Finished:
        """Entries of a step that ended; those that did not have −∞."""
        entries = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
        everything = torch.cat([self.scores, scores], dim=1)
        best, order = everything.sort(dim=1, descending=True, stable=True)
        best, order = best[:, : self.scores.shape[1]], order[:, : self.scores.shape[1]]
        steps = torch.cat([self.steps, torch.full_like(entries, step)], dim=1).gather(1, order)
        places = torch.cat([self.entries, entries], dim=1).gather(1, order)
        return Finished(best, steps.masked_fill(best == FORBIDDEN, -1), places)


def _times_generated(groups: list[Search], step: int, vocabulary: int) -> Float[Tensor, "image word"] | None:
    """How many beams of these groups have each word at this place."""
    if not groups:
        return None
    words = torch.cat([group.generated[:, :, step] for group in groups], dim=1)
    times = torch.zeros(len(words), vocabulary, device=words.device)
    return times.scatter_add(1, words, torch.ones_like(words, dtype=times.dtype))
