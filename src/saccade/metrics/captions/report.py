"""All caption metrics at once, from plain sentences: what a table of captioners prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.language.tokenise import ptb_tokenise
from saccade.metrics.captions.bleu import bleu
from saccade.metrics.captions.cider import DocumentFrequencies, cider, cider_d
from saccade.metrics.captions.diversity import diversity
from saccade.metrics.captions.meteor import meteor
from saccade.metrics.captions.meteor_tables import MeteorTables
from saccade.metrics.captions.rouge import rouge_l
from saccade.metrics.captions.scene_graph import scene_graph_f
from saccade.metrics.captions.score import CaptionScore, check_captions

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
