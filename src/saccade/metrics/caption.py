"""All caption metrics at once, from plain sentences: what a table of captioners prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache

from saccade.language.ptb import ptb_tokenise
from saccade.metrics.caption_bleu import bleu
from saccade.metrics.caption_cider import cider, cider_d
from saccade.metrics.caption_diversity import diversity
from saccade.metrics.caption_frequencies import DocumentFrequencies
from saccade.metrics.caption_meteor import meteor
from saccade.metrics.caption_meteor_tables import MeteorTables
from saccade.metrics.caption_rouge import rouge_l
from saccade.metrics.caption_scene_graph import scene_graph_f
from saccade.metrics.caption_score import CaptionScore, check_captions


def caption_report(
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    document_frequencies: DocumentFrequencies | None = None,
    meteor_tables: MeteorTables | None = None,
) -> dict[str, float]:
    """One figure for each metric: `bleu1` … `bleu4`, `rouge_l`, `cider_d`, `cider`, `meteor`, `scene_graph_f`, …

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
) -> dict[str, CaptionScore]:
    """The same metrics with their figures for each picture, without those of the language."""
    check_captions(candidates, references)
    said = [caption_words(caption) for caption in candidates]
    wanted = [[caption_words(caption) for caption in captions] for captions in references]
    return {
        **{f"bleu{n}": score for n, score in enumerate(bleu(said, wanted), start=1)},
        "rouge_l": rouge_l(said, wanted),
        "cider_d": cider_d(said, wanted, document_frequencies),
        "cider": cider(said, wanted, document_frequencies),
        "meteor": meteor(said, wanted, meteor_tables),
        "scene_graph_f": scene_graph_f(said, wanted),
    }


@lru_cache(maxsize=1 << 17)  # an evaluation after each epoch meets the same references again
def caption_words(caption: str) -> tuple[str, ...]:
    """The words that are counted; a token with a space in it ("3 1/2") is several, as officially."""
    return tuple(" ".join(ptb_tokenise(caption)).split())
