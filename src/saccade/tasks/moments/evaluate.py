"""How good moment finders are: recall of the true moment among the best n at an overlap of m, and the mean overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float

from saccade.batch import FrameBatch, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedImages, Moments
from saccade.language.tokenise import tokenise
from saccade.metrics.moments import moment_hits, temporal_iou
from saccade.models import Matcher, Model, MomentFinder, load_model
from saccade.tasks.evaluator import PART, Arrays, EvalRequest, Evaluation, Evaluator, SplitForModels, mean_parts
from saccade.tasks.moments.windows import WindowScore, best_first, scored_windows, sliding_windows

MomentSplit = Moments[CaptionedImages]
COUNTS, OVERLAPS = (1, 5), (0.3, 0.5, 0.7)
FIGURES = {f"r{n}_iou{m:g}": f"R@{n},IoU={m:g}" for n in COUNTS for m in OVERLAPS}
MEAN, MAIN = "miou", "r1_iou0.5"
# narrow, so that names have room in a terminal
HEADINGS = (
    "\n\nmodel",
    *(f"{f'R@{n}' if m == OVERLAPS[0] else ''}\nIoU\n{m:g}" for n in COUNTS for m in OVERLAPS),
    "\nmean\nIoU",
)
TEMPORAL = frozenset(("before", "after", "while", "then", "until", "first", "finally", "again"))
TIMED = f"{MAIN}_temporal"  # of the sentences with such a word
RANDOM, WHOLE = "at random", "whole video"
WINDOWS: dict[WindowScore, str] = {"similarity": "windows", "contrast": "windows that stand out"}
RANDOM_SPANS = 200  # drawn for every sentence
READ_AT_ONCE = 128  # videos
Spans = Float[np.ndarray, "span 2"]  # as shares of a video


def lengths(data: MomentSplit) -> Float[np.ndarray, " video"]:
    """In seconds. Raises: SaccadeError if they are not known."""
    found = list[float]()
    for first in range(0, len(data.images), READ_AT_ONCE):
        part = data.pictures.regions.batch(range(first, min(first + READ_AT_ONCE, len(data.images))))
        if not isinstance(part, FrameBatch) or part.seconds is None:
            raise SaccadeError(f"{data.pictures.name}/{data.pictures.split} does not say how long its videos are")
        found += part.seconds.double().cpu().tolist()
    return np.array(found)


def truth_of(data: MomentSplit, seconds: Float[np.ndarray, " video"]) -> list[Spans]:
    """The true moments of each text, as shares of its video."""
    owners = data.pictures.image_of_text
    return [np.array(own) / seconds[owner] for own, owner in zip(data.spans, owners, strict=True)]


@torch.no_grad()
def find_all(
    model: MomentFinder | Matcher, data: MomentSplit, batch_size: int = 64, windows: WindowScore = "contrast"
) -> list[Spans]:
    """Of every text the moments of its video, the best first, as shares of it; by a matcher, `windows` says how."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        if isinstance(model, Matcher):
            return _by_windows(model, data, device, windows)
        found, owners = list[Spans](), data.pictures.image_of_text
        for first in range(0, len(data.texts), batch_size):
            part = list(range(first, min(first + batch_size, len(data.texts))))
            pictures, place = np.unique(owners[part], return_inverse=True)
            videos = data.pictures.regions.batch(pictures.tolist()).select(place).to(device)
            ranked = model.propose(videos, model.read([data.texts[n] for n in part]).to(device))
            rows = zip(ranked.spans.double().cpu().numpy(), ranked.mask.cpu().numpy(), strict=True)
            found += [spans[mask] for spans, mask in rows]
        return found
    finally:
        model.train(was_training)


def _by_windows(model: Matcher, data: MomentSplit, device: torch.device, by: WindowScore) -> list[Spans]:
    windows, found = sliding_windows(), list[Spans]([np.zeros((0, 2))] * len(data.texts))
    owners = data.pictures.image_of_text
    for video in range(len(data.images)):
        texts = np.flatnonzero(owners == video).tolist()
        if texts:
            frames = data.pictures.regions.batch([video]).to(device)
            assert isinstance(frames, RegionBatch)
            read = model.read([data.texts[n] for n in texts]).to(device)
            scores = scored_windows(model, frames, read, windows, by)
            for n, own in zip(texts, scores, strict=True):
                found[n] = best_first(windows, own)[0]
    return found


@dataclass(frozen=True, eq=False)
class Recalls:
    """Every figure of every text."""

    each: dict[str, Float[np.ndarray, " text"]]  # 0..1; nan where a text does not count
    kinds: tuple[str, ...] = ()

    def of(self, data: MomentSplit) -> Recalls:
        """With the kinds of a split, and the figure of its temporal sentences."""
        timed = np.array([bool(TEMPORAL & {*tokenise(text)}) for text in data.texts])
        return Recalls({**self.each, TIMED: np.where(timed, self.each[MAIN], np.nan)}, data.kinds)

    def figures(self) -> dict[str, float]:
        known = {name: values[np.isfinite(values)] for name, values in self.each.items()}
        found = {name: 100 * float(own.mean()) for name, own in known.items() if len(own)}
        kinds = np.array(self.kinds)
        for kind in sorted(set(self.kinds)):
            own = kinds == kind
            found |= {f"{name}_{kind}": 100 * float(self.each[name][own].mean()) for name in (MAIN, MEAN)}
        return found


def recalls_of(found: Sequence[Spans], truth: Sequence[Spans], nms: bool = True) -> Recalls:
    rows = []
    for spans, own in zip(found, truth, strict=True):
        hits = moment_hits(spans, own, COUNTS, OVERLAPS, nms)
        best = float(temporal_iou(spans[:1], own).max(initial=0.0))
        rows.append([*(hits[name] for name in FIGURES.values()), best])
    table = np.array(rows, dtype=float).reshape(len(rows), len(FIGURES) + 1)
    return Recalls(dict(zip((*FIGURES, MEAN), table.T, strict=True)))


def recalls_at_random(truth: Sequence[Spans]) -> Recalls:
    """What moments drawn at random reach on average, begin and end being any two places."""
    spans = np.sort(np.random.default_rng(0).random((RANDOM_SPANS, 2)), axis=1)
    overlaps = np.array([temporal_iou(spans[:, None], own[None]).max(axis=1) for own in truth])
    each = {f"r{n}_iou{m:g}": 1 - (1 - (overlaps >= m).mean(axis=1)) ** n for n in COUNTS for m in OVERLAPS}
    return Recalls({**each, MEAN: overlaps.mean(axis=1)})


class MomentRecall(Evaluator[MomentFinder, MomentSplit]):
    """In per cent of the sentences."""

    metrics: ClassVar = {
        **{name: label.replace(",", ", ") for name, label in FIGURES.items()},
        MEAN: "mean IoU",
        TIMED: "R@1, IoU=0.5, temporal words",
    }
    metric = MAIN
    columns = (MAIN, "r5_iou0.5", "r1_iou0.7", MEAN)
    unit = "Sentences in per cent"

    def evaluate(self, model: MomentFinder, data: MomentSplit, settings: Any) -> dict[str, float]:
        return self.recalls(model, data, settings).figures()

    def recalls(
        self,
        model: MomentFinder | Matcher,
        data: MomentSplit,
        settings: Any,
        nms: bool = True,
        windows: WindowScore = "contrast",
    ) -> Recalls:
        found = find_all(model, data, getattr(settings, "eval_batch", 64), windows)
        return recalls_of(found, truth_of(data, lengths(data)), nms).of(data)

    def measure(self, model: MomentFinder, data: MomentSplit, settings: Any, folder: Path, tables: bool) -> Arrays:
        """Sentences about one video are not independent: a video's part is that of all its sentences."""
        recalls = self.recalls(model, data, settings)
        kept = {name: np.asarray(value) for name, value in {**recalls.figures(), **self.counts(data, settings)}.items()}
        for name in (*FIGURES, MEAN, TIMED):
            parts = np.zeros(len(data.images))
            np.add.at(parts, data.pictures.image_of_text, mean_parts(recalls.each[name]))
            kept[PART + name] = parts
        return kept

    def counts(self, data: MomentSplit, settings: Any) -> dict[str, int]:
        return {"pictures": len(data.images), "texts": len(data.texts)}

    def compare(self, request: EvalRequest) -> Evaluation:
        """A row for every model, beside moments for which no model is needed."""
        splits = SplitForModels(request.data, request.split)
        rows: dict[str, dict[str, float]] = {}
        data: MomentSplit | None = None
        for folder in request.models:
            model: Model = load_model(folder).to(request.device)
            assert isinstance(model, MomentFinder | Matcher)
            data = splits.regions_for(model, folder, "moments")
            truth = truth_of(data, lengths(data))
            rows.setdefault(RANDOM, recalls_at_random(truth).of(data).figures())
            rows.setdefault(WHOLE, recalls_of([np.array([[0.0, 1.0]])] * len(truth), truth).of(data).figures())
            settings, nms = request.settings.get(folder), not request.options.no_nms
            if isinstance(model, Matcher):
                for by, name in WINDOWS.items():
                    rows[f"{folder} ({name})"] = self.recalls(model, data, settings, nms, by).figures()
            else:
                rows[folder] = self.recalls(model, data, settings, nms).figures()
        assert data is not None
        seconds, frames = lengths(data), [len(data.pictures.regions.get(n).features) for n in range(len(data.images))]
        clip = float(seconds.sum() / max(sum(frames), 1))
        suppressed = "none" if request.options.no_nms else "IoU − 0.05"
        return Evaluation(
            f"{data.pictures.name}/{data.pictures.split}: {len(data.images)} videos of {seconds.min():g} to "
            f"{seconds.max():g} s (a frame every {clip:.2f} s), {len(data.texts)} sentences; per cent, "
            f"suppression {suppressed}",
            HEADINGS,
            tuple(_table(rows, Counter(data.kinds))),
            {
                "data": data.pictures.name,
                "split": data.pictures.split,
                "videos": len(data.images),
                "sentences": len(data.texts),
                "seconds_a_frame": clip,
                "nms": suppressed,
                "results": rows,
            },
        )


def _table(rows: Mapping[str, dict[str, float]], kinds: Counter[str]) -> Iterator[tuple[str, ...] | None]:
    """A row for each model; then of every kind of sentence, if there are several, R@1 at 0.5 and the mean overlap."""
    names = (*FIGURES, MEAN)
    for row, own in rows.items():
        yield (row, *(f"{own[name]:.1f}" for name in names))
    for kind, count in kinds.most_common() if len(kinds) > 1 else ():
        yield None
        yield (f"{kind or 'other'} ({count:,})", *[""] * len(names))
        for row, own in rows.items():
            cells = (own.get(f"{name}_{kind}") for name in names)
            yield (row, *("" if cell is None else f"{cell:.1f}" for cell in cells))
