"""Beam searches written plainly: one picture, lists of sentences, every log-probability asked for anew."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from saccade.batch import END
from saccade.decoding import DecodingConfig

Sentence = tuple[int, ...]
Next = Callable[[Sentence], Tensor]  # log-probabilities of all words after a sentence
Found = list[tuple[float, Sentence]]


def penalised(total: float, length: int, config: DecodingConfig) -> float:
    if config.length_penalty == "wu":
        return total * float((6 / (5 + length)) ** config.alpha)
    return total / length if config.length_penalty == "average" else total


def best(found: Found, count: int) -> Found:
    return sorted((f for f in found if f[0] > -1e9), key=lambda f: -f[0])[:count]


class Slot:
    """A sentence that ends takes a place for one step; then it is 1000 behind, and goes on only where it has to."""

    def __init__(self, following: Next, config: DecodingConfig, beam: int) -> None:
        self.following, self.config, self.beam = following, config, beam
        self.beams: list[tuple[float, Sentence]] = [(0.0, ())]
        self.done: Found = []

    def step(self, cost: dict[int, float]) -> None:
        candidates = []
        for total, said in self.beams:
            chances = self.following(said).tolist()
            candidates += [(total + p - cost.get(w, 0), (*said, w)) for w, p in enumerate(chances) if p > -1e9]
        self.beams = best(candidates, self.beam)
        for i, (total, said) in enumerate(self.beams):
            last = len(said) == self.config.max_length and self.config.unfinished_beams == "compete"
            if said[-1] == END or last:
                if END not in said[:-1]:
                    self.done.append((penalised(total, len(said), self.config), said))
                self.beams[i] = (total - 1000, said)

    def result(self) -> Found:
        cut = [(penalised(t, len(s), self.config), s) for t, s in self.beams]
        return best(self.done or cut, self.beam)


def keep_slot(following: Next, config: DecodingConfig) -> Found:
    search = Slot(following, config, config.num_beams)
    for _ in range(config.max_length):
        search.step({})
    return search.result()


def shrink_beam(following: Next, config: DecodingConfig) -> Found:
    """A sentence that ends leaves, and the beam is one smaller from then on."""
    live: Found = [(0.0, ())]
    done: Found = []
    for _ in range(config.max_length):
        candidates = [(t + p, (*s, w)) for t, s in live for w, p in enumerate(following(s).tolist())]
        taken = best(candidates, config.num_beams - len(done))
        done += [(t, s) for t, s in taken if s[-1] == END]
        live = [(t, s) for t, s in taken if s[-1] != END]
    if config.unfinished_beams == "compete" or not done:
        done += live
    return best([(penalised(t, len(s), config), s) for t, s in done], config.num_beams)


def keep_beam_full(following: Next, config: DecodingConfig) -> Found:
    """Each sentence offers its best words, as many as there are beams; the ended go to a list of their own."""
    live: Found = [(0.0, ())]
    done: Found = []
    for _ in range(config.max_length):
        offered: Found = []
        for total, said in live:
            words = [(total + p, (*said, w)) for w, p in enumerate(following(said).tolist())]
            offered += best(words, config.num_beams)
        done = best(done + [(penalised(t, len(s), config), s) for t, s in offered if s[-1] == END], config.num_beams)
        live = best([(t, s) for t, s in offered if s[-1] != END], config.num_beams)
    if config.unfinished_beams == "compete" or not done:
        done += [(penalised(t, len(s), config), s) for t, s in live]
    return best(done, config.num_beams)


def diverse(following: Next, config: DecodingConfig) -> Found:
    """Group g takes its word t when the first group takes its word t + g."""
    groups = [
        Slot(following, config, config.num_beams // config.num_beam_groups) for _ in range(config.num_beam_groups)
    ]
    for time in range(config.max_length + config.num_beam_groups - 1):
        for g, group in enumerate(groups):
            if 0 <= time - g < config.max_length:
                cost: dict[int, float] = {}
                for earlier in groups[:g]:
                    for _, said in earlier.beams:
                        cost[said[time - g]] = cost.get(said[time - g], 0) + config.diversity_penalty
                group.step(cost)
    return [found for group in groups for found in group.result()]
