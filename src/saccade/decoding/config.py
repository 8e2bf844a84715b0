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

    Published beam searches differ in what becomes of a sentence that has said <end> (`finished_beams`), and of one that
    is cut at `max_length` words (`unfinished_beams`); `docs/decoding.md` says which code does what.
    """

    strategy: Literal["greedy", "beam", "diverse", "sample"] = "beam"
    max_length: int = 20  # words at most, <end> among them
    temperature: float = 1.0  # below 1 the likely words become likelier

    suppress_unk: bool = True  # <unk> is never generated
    suppress_tokens: tuple[int, ...] = ()  # ids of words that are never generated
    no_immediate_repeat: bool = False  # not "a a dog"
    no_repeat_ngram_size: int = 0  # 3: no three words in a row occur twice; 0: they may
    repeat_ngram_penalty: float | None = None  # what each earlier occurrence costs; none: it is forbidden
    no_bad_endings: bool = False  # not "a dog on the"
    bad_endings: tuple[str, ...] = BAD_ENDINGS

    num_beams: int = 3  # sentences that are followed at once, over all groups
    finished_beams: Literal["keep_slot", "shrink_beam", "keep_beam_full"] = "keep_slot"
    unfinished_beams: Literal["compete", "fallback"] = "compete"  # fallback: only where nothing finished
    length_penalty: Literal["none", "wu", "average"] = "none"
    alpha: float = 0.9  # of wu: the score is Σ log p · (6 / (5 + length))^alpha

    num_beam_groups: int = 2  # of diverse beam search; each has num_beams / num_beam_groups sentences
    diversity_penalty: float = 0.5  # λ: what a word costs for each time that earlier groups say it at that place

    num_return_sequences: int = 1  # sentences drawn a picture
    top_k: int = 0  # draw among so many words; 0: among all
    top_p: float = 1.0  # draw among the fewest words that have this share of the probability
    continue_after_end: bool = False  # greedy and samples go on after <end>, as roll-outs of fixed length do

    def __post_init__(self) -> None:
        for name in ("max_length", "num_beams", "num_beam_groups", "num_return_sequences"):
            if getattr(self, name) < 1:
                raise SaccadeError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("no_repeat_ngram_size", "top_k", "alpha", "diversity_penalty"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SaccadeError(f"{name} must be zero or more, not {getattr(self, name)}")
        if not 0 < self.temperature < math.inf:
            raise SaccadeError(f"temperature must be above 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise SaccadeError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.strategy == "diverse":
            _ = self.beams_per_group

    @property
    def beams_per_group(self) -> int:
        """Of diverse beam search. Raises: SaccadeError if beams cannot be shared out evenly."""
        if self.num_beams % self.num_beam_groups:
            raise SaccadeError(
                f"num_beams={self.num_beams} cannot be shared out among num_beam_groups={self.num_beam_groups}"
            )
        return self.num_beams // self.num_beam_groups
