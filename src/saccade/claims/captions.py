"""Captioners: what they say of every picture is kept, and how good each of these captions is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from saccade.claims.scores import Arrays, Scores, mean_parts
from saccade.claims.sentinel import sentinel_shares
from saccade.claims.yardstick import SplitOf, Yardstick
from saccade.core.files import write_json
from saccade.metrics import CAPTION_METRICS, caption_scores
from saccade.models import Captioner, Model
from saccade.tasks import caption_all, references_of

if TYPE_CHECKING:
    from saccade.training.run import RunConfig

MEANS = ("rouge_l", "cider_d")  # BLEU and METEOR add up counts of the whole split: they are no means over pictures
SENTINEL = ("sentinel_function", "sentinel_nouns", "sentinel_contrast")
PART = "part/"  # what a picture adds to the figure of this name


class CaptionScores(Yardstick):
    """Figures as in papers, times 100; METEOR knows words and stems, which needs no other tables."""

    file = "scores.npz"
    metrics: ClassVar = {
        **{key: name for key, name in CAPTION_METRICS.items() if key not in ("cider", "scene_graph_f")},
        "sentinel_function": "β on function words",
        "sentinel_nouns": "β on nouns",
        "sentinel_contrast": "β on function words − on nouns",
    }
    metric = "cider_d"
    columns = ("bleu1", "bleu4", "meteor", "rouge_l", "cider_d")
    unit = "All figures times 100"

    def shown(self, metric: str) -> tuple[str, ...]:
        return (*SENTINEL, "bleu4", "cider_d") if metric in SENTINEL else super().shown(metric)

    def measure(
        self, model: Model, config: RunConfig, split: str, split_of: SplitOf, folder: Path, tables: bool
    ) -> Arrays:
        assert isinstance(model, Captioner)
        data = split_of(config.data, split).regions_for(model, folder)
        said = caption_all(model, data, config.task.decoding, config.task.eval_batch)
        results = [{"image_id": id, "caption": text} for id, text in zip(data.images.ids, said, strict=True)]
        write_json(folder / f"captions-{split}.json", results)  # as `saccade metrics score` reads them
        wanted = [name for name in self.metrics if name not in SENTINEL]
        scores = caption_scores(said, references_of(data), only=wanted)
        kept = {name: np.asarray(100 * scores[name].corpus) for name in wanted}
        kept |= {PART + name: mean_parts(scores[name].each) for name in MEANS}
        shares = sentinel_shares(model, data, config.task.longest)
        if shares is not None:
            parts = {
                name: mean_parts(each) for name, each in zip(SENTINEL, (*shares, shares[0] - shares[1]), strict=True)
            }
            kept |= {name: part.sum() for name, part in parts.items()}
            kept |= {PART + name: part for name, part in parts.items()}
        return kept | {"pictures": np.asarray(len(said)), "texts": np.asarray(len(data.texts))}

    def scores(self, kept: Arrays) -> Scores:
        return plain_scores(self, kept)


def plain_scores(yardstick: Yardstick, kept: Arrays) -> Scores:
    """Figures and parts that were kept by their names."""
    figures = {name: float(kept[name]) for name in yardstick.metrics if name in kept}
    parts = {name: kept[PART + name] for name in figures if PART + name in kept}
    return Scores(figures, parts, {name: int(kept[name]) for name in ("pictures", "texts")})
