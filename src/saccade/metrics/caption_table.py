"""All caption metrics by name, each a `CaptionScore`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from saccade.errors import SaccadeError, did_you_mean
from saccade.metrics.caption_bleu import bleu
from saccade.metrics.caption_cider import cider, cider_d
from saccade.metrics.caption_frequencies import DocumentFrequencies
from saccade.metrics.caption_meteor import meteor
from saccade.metrics.caption_meteor_tables import MeteorTables
from saccade.metrics.caption_rouge import rouge_l
from saccade.metrics.caption_scene_graph import scene_graph_f
from saccade.metrics.caption_score import Candidates, CaptionScore, References

CAPTION_METRICS = ("bleu1", "bleu2", "bleu3", "bleu4", "meteor", "rouge_l", "cider_d", "cider", "scene_graph_f")


def caption_scores(
    candidates: Candidates,
    references: References,
    only: Sequence[str] | None = None,
    tables: MeteorTables | None = None,
    frequencies: DocumentFrequencies | None = None,
    tell: Callable[[int, int], None] = lambda done, all: None,
) -> dict[str, CaptionScore]:
    """The metrics asked for (all, if none are named) of tokenised captions, in the order of `CAPTION_METRICS`.

    `tables` is what METEOR knows of synonyms, `frequencies` what CIDEr weighs n-grams by.
    """
    for name in only or ():
        if name not in CAPTION_METRICS:
            raise SaccadeError(
                f'there is no caption metric "{name}"{did_you_mean(name, CAPTION_METRICS)} '
                f"(there are: {', '.join(CAPTION_METRICS)})"
            )
    wanted = [name for name in CAPTION_METRICS if not only or name in only]
    scorers: dict[str, Callable[[], CaptionScore]] = {
        "meteor": lambda: meteor(candidates, references, tables),
        "rouge_l": lambda: rouge_l(candidates, references),
        "cider_d": lambda: cider_d(candidates, references, frequencies),
        "cider": lambda: cider(candidates, references, frequencies),
        "scene_graph_f": lambda: scene_graph_f(
            candidates, references, wordnet=(tables.wordnet or None) if tables else None
        ),
    }
    found: dict[str, CaptionScore] = {}
    bleus: list[CaptionScore] = []
    for done, name in enumerate(wanted):
        if name.startswith("bleu"):
            bleus = bleus or bleu(candidates, references)
            found[name] = bleus[int(name[-1]) - 1]
        else:
            found[name] = scorers[name]()
        tell(done + 1, len(wanted))
    return found
