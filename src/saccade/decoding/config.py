"""How a caption is found: the settings of every decoder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from saccade.core.errors import SaccadeError

BAD_ENDINGS = (
    *("a", "an", "the", "in", "for", "at", "of", "with", "before", "after"),
    *("on", "upon", "near", "to", "is", "are", "am"),
)


@dataclass(frozen=True)
class DecodingConfig:
    """What the decoders share stands first, then what beams, groups and samples add.

    A finished sentence has said <end>. Published beam searches differ in what happens then (`finished`), and in what
    becomes of sentences that are cut at `longest` words (`unfinished`); `docs/decoding.md` says which code does what.
    """

    how: Literal["greedy", "beam", "diverse", "sample"] = "beam"
    longest: int = 20  # words at most, <end> among them
    temperature: float = 1.0  # below 1 the likely words become likelier

    unknown: bool = False  # whether <unk> may be said
    never: tuple[int, ...] = ()  # ids of words that may not be said
    no_immediate_repeat: bool = False  # "a a dog"
    no_repeat_ngram_size: int = 0  # 3: no three words in a row occur twice; 0: they may
    ngram_cost: float | None = None  # what each earlier occurrence costs; none: it is forbidden
    no_bad_endings: bool = False  # "a dog on the"
    bad_endings: tuple[str, ...] = BAD_ENDINGS

    beam: int = 3  # sentences that are followed at once, over all groups
    finished: Literal["slot", "shrink", "aside"] = "slot"
    unfinished: Literal["compete", "fallback"] = "compete"  # fallback: only where nothing finished
    length_penalty: Literal["none", "wu", "average"] = "none"
    alpha: float = 0.9  # of wu: the score is Σ log p · (6 / (5 + length))^alpha

    groups: int = 2  # of diverse beam search; each has beam / groups sentences
    diversity: float = 0.5  # λ: what a word costs for each time that earlier groups say it at that place

    samples: int = 1  # sentences drawn a picture
    top_k: int = 0  # draw among so many words; 0: among all
    nucleus: float = 1.0  # draw among the fewest words that have this share of the probability
    past_end: bool = False  # greedy and samples go on after <end>, as roll-outs of fixed length do

    def __post_init__(self) -> None:
        for name in ("longest", "beam", "groups", "samples"):
            if getattr(self, name) < 1:
                raise SaccadeError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("no_repeat_ngram_size", "top_k", "alpha", "diversity"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SaccadeError(f"{name} must be zero or more, not {getattr(self, name)}")
        if not 0 < self.temperature < math.inf:
            raise SaccadeError(f"temperature must be above 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise SaccadeError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.strategy == "diverse" and self.num_beams % self.num_beam_groups:
            raise SaccadeError(f"beam={self.num_beams} cannot be shared out among groups={self.num_beam_groups}")
