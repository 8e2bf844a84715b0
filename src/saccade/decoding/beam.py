"""Beam search: the best few sentences of every picture are followed at once, all pictures in one batch.

No loop runs over pictures or beams. Each step keeps only what it chose and whom that continued; the words, their
log-probabilities and the attention of the sentences that were kept are read back from these pointers at the end.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import END, PAD, START, CaptionState, PictureBatch, RegionBatch
from saccade.decoding.beam import GONE, Entries, Kept, go_on, penalised, take
from saccade.decoding.config import DecodingConfig
from saccade.decoding.constraints import Constraints
from saccade.decoding.output import DecodedCaptions
from saccade.decoding.sampling import begin, worth_asking
from saccade.models.base.captioner import Captioner


class Step(NamedTuple):
    """What is remembered of a step."""

    parents: Int[Tensor, "image entry"]
    words: Int[Tensor, "image entry"]
    log_probabilities: Float[Tensor, "image entry"]
    weights: Float[Tensor, "image beam region"]
    sentinel: Float[Tensor, "image beam"] | None

    def of(self, chosen: Int[Tensor, " image"]) -> Step:
        sentinel = None if self.sentinel is None else self.sentinel[chosen]
        return Step(
            self.parents[chosen], self.words[chosen], self.log_probabilities[chosen], self.weights[chosen], sentinel
        )


class Search:
    """A beam search under way, for all pictures at once, for the `keep` best sentences of each."""

    def __init__(
        self, model: Captioner, state: CaptionState, config: DecodingConfig, beam: int, keep: int | None = None
    ) -> None:
        self.model, self.config, self.beam, self.keep = model, config, beam, min(keep or beam, beam)
        device = next(model.parameters()).device
        self.constraints = Constraints(config, model.vocabulary, device)
        self.state = state.repeat(beam)
        self.images = len(state)
        self.said = torch.zeros(self.images, beam, 0, dtype=torch.long, device=device)
        self.over: Bool[Tensor, "image beam"] = torch.zeros(self.images, beam, dtype=torch.bool, device=device)
        self.sums: Float[Tensor, "image beam"] | None = None
        self.kept: Kept | None = None
        self.steps: list[Step] = []

    def advance(self, cost: Float[Tensor, "image word"] | None = None) -> None:
        """One word further; `cost` is taken from the log-probabilities before continuations are compared."""
        step, beam = len(self.steps), self.beam
        read = self.said[:, :, -1] if step else torch.full_like(self.over, START, dtype=torch.long)
        spoken, output = self.model.predict_next(read.flatten(), self.state)
        spoken = self._by_picture(self.constraints(spoken, self.said.flatten(0, 1)))
        if self.sums is None or self.kept is None:  # at first all beams are one
            self.sums = spoken.new_full((self.images, beam), GONE).index_fill(1, read.new_zeros(1), 0)
            self.kept = Kept.none(self.images, beam, spoken)
        totals = self.sums[..., None] + (spoken if cost is None else spoken - cost[:, None])
        entries = take(totals, self.config, beam - self.kept.count)
        chances = spoken.flatten(1).gather(1, entries.parents * spoken.shape[2] + entries.words)
        sentinel = None if output.sentinel is None else self._by_picture(output.sentinel)
        self.steps.append(Step(entries.parents, entries.words, chances, self._by_picture(output.weights), sentinel))
        self._keep(entries, self.kept)
        self._go_on(entries, output.state)

    def _by_picture(self, rows: Float[Tensor, row * rest]) -> Float[Tensor, "image beam *rest"]:
        return rows.view(self.images, self.beam, *rows.shape[1:])

    def _keep(self, entries: Entries, kept: Kept) -> None:
        """Put sentences that end here among the finished ones, at the last step also those that are cut."""
        length = len(self.steps)
        alive = (entries.sums > GONE) & ~self.over.gather(1, entries.parents)
        scores = penalised(entries.sums, length, self.config)
        kept = kept.add(scores.masked_fill(~(alive & (entries.words == END)), GONE), length - 1)
        if length == self.config.max_length:
            cut = alive & (entries.words != END)
            if self.config.unfinished_beams == "fallback":
                cut &= (kept.count == 0)[:, None]
            kept = kept.add(scores.masked_fill(~cut, GONE), length - 1)
        self.kept = kept

    def _go_on(self, entries: Entries, state: CaptionState) -> None:
        sums, parents, words = (part[:, : self.beam] for part in entries)
        ended = words == END
        self.sums = go_on(sums, ended, self.config)
        self.over = self.over.gather(1, parents) | ended
        earlier = self.said.gather(1, parents[..., None].expand(-1, -1, self.said.shape[2]))
        self.said = torch.cat([earlier, words[..., None]], dim=2)
        first = torch.arange(self.images, device=parents.device)[:, None] * self.beam
        self.state = state.reorder((first + parents).flatten())

    @property
    def settled(self) -> Bool[Tensor, " image"]:
        """Where nothing still alive can come before the sentences wanted, whatever it goes on to say."""
        assert self.sums is not None
        assert self.kept is not None
        hope = penalised(self.sums.masked_fill(self.over, GONE).amax(dim=1), self.config.max_length, self.config)
        return self.kept.scores[:, self.keep - 1] >= hope

    def of(self, pictures: Bool[Tensor, " image"]) -> Search:
        """The same search for some of the pictures."""
        assert self.sums is not None
        assert self.kept is not None
        search, chosen = copy(self), pictures.nonzero()[:, 0]
        search.images = len(chosen)
        search.state = self.state.select(pictures.repeat_interleave(self.beam))
        search.said, search.over, search.sums = self.said[chosen], self.over[chosen], self.sums[chosen]
        search.kept = Kept(self.kept.scores[chosen], self.kept.steps[chosen], self.kept.entries[chosen])
        search.steps = [step.of(chosen) for step in self.steps]
        return search

    def result(self) -> DecodedCaptions:
        """Follow the sentences kept back to their first words."""
        assert self.kept is not None
        scores, ends, here = (part[:, : self.keep] for part in (self.kept.scores, self.kept.steps, self.kept.entries))
        backward = []
        for number in range(len(self.steps) - 1, -1, -1):
            step, there = self.steps[number], number <= ends
            parents = step.parents.gather(1, here)
            looked = step.weights.gather(1, parents[..., None].expand(-1, -1, step.weights.shape[2]))
            backward.append(
                (
                    step.words.gather(1, here).masked_fill(~there, PAD),
                    step.log_probabilities.gather(1, here).masked_fill(~there, 0),
                    looked.masked_fill(~there[..., None], 0),
                    None if step.sentinel is None else step.sentinel.gather(1, parents).masked_fill(~there, 0),
                )
            )
            here = torch.where(there, parents, here)
        words, chances, weights, sentinels = zip(*reversed(backward), strict=True)
        return DecodedCaptions(
            torch.stack(words, dim=2).flatten(0, 1),
            torch.stack(chances, dim=2).flatten(0, 1),
            scores.flatten(),
            torch.stack(weights, dim=2).flatten(0, 1),
            None if sentinels[0] is None else torch.stack(sentinels, dim=2).flatten(0, 1),
            per_image=self.keep,
        ).trimmed()


@torch.no_grad()
def beam_search(
    model: Captioner,
    images: RegionBatch | PictureBatch | CaptionState,
    config: DecodingConfig | None = None,
    *,
    keep: int | None = None,
) -> DecodedCaptions:
    """The `keep` best captions found of each picture, best first; unless told, as many as there are beams.

    The search is over when no others can be better, so that one caption is found sooner than five. Where at least a
    quarter of the pictures are settled, the others go on alone.
    """
    config = config or DecodingConfig()
    search = Search(model, begin(model, images), config, config.num_beams, keep)
    here = torch.arange(search.images, device=search.said.device)
    places, results = [], []
    for step in range(config.max_length):
        search.step()
        if not worth_asking(search.said, step):
            continue
        settled = search.settled
        count = int(settled.sum())
        if count == search.images:
            break
        if 4 * count >= search.images:
            places.append(here[settled])
            results.append(search.of(settled).result())
            search, here = search.of(~settled), here[~settled]
    decoded = stack([*results, search.result()])
    order = torch.cat([*places, here]).argsort()[:, None] * search.keep
    return decoded.select((order + torch.arange(search.keep, device=order.device)).flatten())
