"""All caption metrics at once, from plain sentences, and how rich the language is: what a table of captioners prints.

A captioner that says "a man is standing" of every picture may score well and still be dull. Of the figures that say
nothing of being right, high is rich for the share of different n-grams, the vocabulary and the share of new captions;
low is rich for self-BLEU.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.language.tokenise import ptb_tokenise
from saccade.metrics.captions.bleu import bleu
from saccade.metrics.captions.cider import DocumentFrequencies, cider, cider_d
from saccade.metrics.captions.meteor import MeteorTables, meteor
from saccade.metrics.captions.rouge import rouge_l
from saccade.metrics.captions.scene_graph import scene_graph_f
from saccade.metrics.captions.score import Candidates, CaptionScore, Tokens, check_captions

CAPTION_METRICS = {  # by key, in the order of papers: what a table calls them
    "bleu1": "BLEU-1",
    "bleu2": "BLEU-2",
    "bleu3": "BLEU-3",
    "bleu4": "BLEU-4",
    "meteor": "METEOR",
    "rouge_l": "ROUGE-L",
    "cider_d": "CIDEr-D",
    "cider": "CIDEr",
    "scene_graph_f": "scene graph F",
}


def caption_report(
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    document_frequencies: DocumentFrequencies | None = None,
    meteor_tables: MeteorTables | None = None,
) -> dict[str, float]:
    """One figure for each metric: `bleu1` … `bleu4`, `meteor`, `rouge_l`, `cider_d`, `cider`, `scene_graph_f`, …

    Sentences are tokenised as the official evaluation does. Document frequencies are those of the references, METEOR
    matches words and stems, unless other tables are given. What follows `scene_graph_f` is about the language alone.
    """
    scores = caption_scores(candidates, references, document_frequencies, meteor_tables)
    language = asdict(diversity([caption_words(caption) for caption in candidates]))
    return {name: score.corpus for name, score in scores.items()} | {
        name: float(value) for name, value in language.items() if value is not None
    }


def caption_scores(
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    document_frequencies: DocumentFrequencies | None = None,
    meteor_tables: MeteorTables | None = None,
    only: Sequence[str] | None = None,
    tell: Callable[[int, int], None] = lambda done, all: None,
) -> dict[str, CaptionScore]:
    """The same metrics with their figures for each picture, without those of the language; or `only` some of them.

    `tell` is called with how many are done and how many there are.

    Raises: SaccadeError if there is nothing to score, or `only` names no metric.
    """
    check_captions(candidates, references)
    for name in only or ():
        if name not in CAPTION_METRICS:
            raise SaccadeError(
                f'there is no caption metric "{name}"{did_you_mean(name, CAPTION_METRICS)} '
                f"(there are: {', '.join(CAPTION_METRICS)})"
            )
    said = [caption_words(caption) for caption in candidates]
    wanted = [[caption_words(caption) for caption in captions] for captions in references]
    scorers: dict[str, Callable[[], CaptionScore]] = {
        "rouge_l": lambda: rouge_l(said, wanted),
        "cider_d": lambda: cider_d(said, wanted, document_frequencies),
        "cider": lambda: cider(said, wanted, document_frequencies),
        "meteor": lambda: meteor(said, wanted, meteor_tables),
        "scene_graph_f": lambda: scene_graph_f(said, wanted),
    }
    names = [name for name in CAPTION_METRICS if not only or name in only]
    found: dict[str, CaptionScore] = {}
    if any(name.startswith("bleu") for name in names):
        found |= {f"bleu{n}": score for n, score in enumerate(bleu(said, wanted), start=1)}
    for done, name in enumerate(names):
        if name in scorers:
            found[name] = scorers[name]()
        tell(done + 1, len(names))
    return {name: found[name] for name in names}


@lru_cache(maxsize=1 << 17)  # an evaluation after each epoch meets the same references again
def caption_words(caption: str) -> tuple[str, ...]:
    """The words that are counted; a token with a space in it ("3 1/2") is several, as officially."""
    return tuple(" ".join(ptb_tokenise(caption)).split())


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
