"""How rich a captioner's language is: figures that say nothing of being right.

A captioner that says "a man is standing" of every picture may score well and still be dull. High is rich for the share
of different n-grams, the vocabulary and the share of new captions; low is rich for self-BLEU.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.metrics.captions.bleu import bleu
from saccade.metrics.captions.score import Candidates, Tokens

SAMPLE = 200  # captions that self-BLEU is taken of: each is compared with all others of them


@dataclass(frozen=True)
class Diversity:
    distinct_1: float  # different words / all words
    distinct_2: float  # the same of pairs of neighbours
    vocabulary: int  # different words
    captions: float  # different captions / all captions
    length: float  # mean number of words
    self_bleu: float  # mean BLEU-4 of a caption against the others
    novel: float | None  # share of captions that no training caption equals; None where none were given


def diversity(candidates: Candidates, training: Iterable[Tokens] | None = None, seed: int = 0) -> Diversity:
    """Figures of tokenised captions, one a picture. Self-BLEU is that of 200 of them, drawn with `seed`."""
    said = [tuple(tokens) for tokens in candidates]
    if not said:
        raise SaccadeError("there are no captions to judge the language of")
    words = [word for tokens in said for word in tokens]
    pairs = [pair for tokens in said for pair in pairwise(tokens)]
    drawn = said if len(said) <= SAMPLE else random.Random(seed).sample(said, SAMPLE)
    known = None if training is None else {tuple(tokens) for tokens in training}
    return Diversity(
        distinct_1=len(set(words)) / max(1, len(words)),
        distinct_2=len(set(pairs)) / max(1, len(pairs)),
        vocabulary=len(set(words)),
        captions=len(set(said)) / len(said),
        length=len(words) / len(said),
        self_bleu=mutual_bleu([drawn]) if len(drawn) > 1 else 0.0,
        novel=None if known is None else sum(tokens not in known for tokens in said) / len(said),
    )


def mutual_bleu(groups: Sequence[Candidates], n: int = 4) -> float:
    """mBLEU-n: of several captions of one picture (a group), each against the others; the mean over all.

    1 where all captions of a group are the same: five samples of a captioner that are one caption.
    """
    scores: list[float] = []
    for group in groups:
        if len(group) < 2:
            raise SaccadeError(
                "mutual BLEU compares several captions of a picture: one of the groups has fewer than two"
            )
        others = [[*group[:place], *group[place + 1 :]] for place in range(len(group))]
        scores.extend(bleu(group, others)[n - 1].each)
    return float(np.mean(scores))
