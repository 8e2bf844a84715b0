"""How good matchers are: pictures and sentences encoded and compared, the rank of every query, recalls and ensembles.

A recall is a sum over pictures, each with its own captions, so that claims can ask what every picture adds to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int

from saccade.batch import ImageCode, TextCode, stack
from saccade.core.arrays import map_npy
from saccade.core.errors import SaccadeError
from saccade.core.files import atomic_file
from saccade.data import CaptionedImages
from saccade.metrics import CUTOFFS, WAYS, chance, check_folds, ranks, recall, summary
from saccade.models import CrossEncoder, Matcher, load_model
from saccade.models.base.rerank import TwoStages
from saccade.tasks.evaluator import Arrays, EvalRequest, Evaluation, Evaluator, Scores, SplitForModels
from saccade.tasks.matching import EvalOptions
from saccade.tasks.matching.refined import refined_similarity

RECALLS = {f"{way}_r{k}": f"{name} R@{k}" for way, name in WAYS.items() for k in CUTOFFS}
# narrow, so that names have room in a terminal
RECALL_HEADINGS = (
    "\n\nmodel",
    "\n\nrsum",
    *(
        f"{way.replace('→', chr(10) + '→')}\nR@{k}" if k == CUTOFFS[0] else f"\n\nR@{k}"
        for way in WAYS.values()
        for k in CUTOFFS
    ),
)


@torch.no_grad()
def encode_all_images(model: Matcher, data: CaptionedImages, batch_size: int = 256) -> ImageCode:
    """Every picture of a split, encoded; the codes stay on the model's device."""
    device = next(model.parameters()).device
    parts = [range(i, min(i + batch_size, len(data.images))) for i in range(0, len(data.images), batch_size)]
    return stack([model.encode_images(model.extract(data.images.batch(list(part)).to(device))) for part in parts])


@torch.no_grad()
def encode_all_texts(model: Matcher, texts: Sequence[str], batch_size: int = 256) -> TextCode:
    device = next(model.parameters()).device
    parts = [texts[i : i + batch_size] for i in range(0, len(texts), batch_size)]
    return stack([model.encode_texts(model.read(part).to(device)) for part in parts])


@torch.no_grad()
def similarity_table(
    model: Matcher, data: CaptionedImages, batch_size: int = 256, quick: bool = False
) -> Float[np.ndarray, "image text"]:
    """All pictures of a split against all its sentences.

    `quick`: in fewer bits where the model can, and again in full wherever a rank hangs on it (`refined_similarity`).
    """
    was_training = model.training
    model.eval()
    try:
        images, texts = encode_all_images(model, data, batch_size), encode_all_texts(model, data.texts, batch_size)
        if quick:
            table = refined_similarity(model, images, texts, data.image_of_text).table
        else:
            table = model.similarity(images, texts)
        return table.float().cpu().numpy()
    finally:
        model.train(was_training)


def ensemble_of(
    tables: Sequence[Float[np.ndarray, "image text"]], weights: Sequence[float] | None = None, raw: bool = False
) -> Float[np.ndarray, "image text"]:
    """The mean of several models' similarities, each brought to zero mean and unit spread: their scales differ.

    `raw` leaves them as they are, as papers do that average two models of one kind; `weights` counts some for more.
    """
    if weights is not None:
        check_weights(weights, len(tables))
    scaled = tables if raw else [(table - table.mean()) / max(float(table.std()), 1e-12) for table in tables]
    return np.asarray(np.average(np.stack(scaled), axis=0, weights=weights))


def check_weights(weights: Sequence[float], models: int) -> None:
    """Called before a long computation. Raises: SaccadeError if these are no weights for so many models."""
    if len(weights) != models:
        raise SaccadeError(f"{models} models need {models} weights, not {len(weights)}")
    if not all(np.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
        raise SaccadeError(f"weights must be zero or more, and one above zero: not {', '.join(map(str, weights))}")


@dataclass(frozen=True, eq=False)
class QueryRanks:
    """Where the first right answer of every query of a split stands (0: on top)."""

    image_to_text: Int[np.ndarray, " image"]
    text_to_image: Int[np.ndarray, " text"]
    image_of_text: Int[np.ndarray, " text"]

    def recalls(self) -> dict[str, float]:
        """The same figures as `saccade.metrics.recall`."""
        report = {f"i2t_{k}": v for k, v in summary(self.image_to_text).items()}
        report |= {f"t2i_{k}": v for k, v in summary(self.text_to_image).items()}
        return report | {"rsum": sum(value for key, value in report.items() if "_r" in key)}

    def contributions(self) -> dict[str, Float[np.ndarray, " image"]]:
        """Every recall as a sum over pictures: what a picture and its own captions, as queries, add to it."""
        images, texts = len(self.image_to_text), len(self.text_to_image)
        found: dict[str, np.ndarray] = {}
        for k in CUTOFFS:
            hits = np.bincount(self.image_of_text, weights=self.text_to_image < k, minlength=images)
            found[f"i2t_r{k}"] = 100.0 / images * (self.image_to_text < k)
            found[f"t2i_r{k}"] = 100.0 / texts * hits
        return found | {"rsum": np.sum(list(found.values()), axis=0)}

    def scores(self) -> Scores:
        counts = {"pictures": len(self.image_to_text), "texts": len(self.text_to_image)}
        at_random = chance(self.image_of_text, len(self.image_to_text))
        return Scores(self.recalls(), self.contributions(), counts, at_random)


def query_ranks(table: Float[np.ndarray, "image text"], image_of_text: Int[np.ndarray, " text"]) -> QueryRanks:
    found = ranks(table, image_of_text)
    return QueryRanks(found.image_to_text, found.text_to_image, image_of_text)


def two_stage_ranks(
    stages: TwoStages, count: int, image_of_text: Int[np.ndarray, " text"], blend: float = 0.0
) -> QueryRanks:
    """Of both ways, whose candidates are not the same pairs."""
    texts, images = stages.image_to_text(count, blend), stages.text_to_image(count, blend).T
    return QueryRanks(
        ranks(texts.cpu().numpy(), image_of_text).image_to_text,
        ranks(images.cpu().numpy(), image_of_text).text_to_image,
        image_of_text,
    )


def summaries(found: QueryRanks, cutoffs: Sequence[int]) -> dict[str, float]:
    """Recalls both ways, at any cut-offs."""
    ways = {"i2t": found.image_to_text, "t2i": found.text_to_image}
    return {f"{way}_{name}": value for way, own in ways.items() for name, value in summary(own, cutoffs).items()}


class Recalls(Evaluator[Matcher, CaptionedImages]):
    """Recall@1, 5, 10 both ways, and their sum."""

    file = "ranks.npz"
    metrics: ClassVar = {"rsum": "rsum", **RECALLS}
    metric = "rsum"
    columns = ("i2t_r1", "t2i_r1", "rsum")
    unit = "Recall in per cent"

    def evaluate(self, model: Matcher, data: CaptionedImages, settings: Any) -> dict[str, float]:
        return recall(similarity_table(model, data, settings.eval_batch), data.image_of_text)

    def compare(self, request: EvalRequest) -> Evaluation:
        """Each model's recalls beside chance, and those of their average if the options say so."""
        options: EvalOptions = request.options
        ensemble = options.ensemble or options.raw or options.weights is not None
        if ensemble and len(request.models) == 1:
            raise SaccadeError(f"an ensemble needs two models or more, and {request.models[0]} is the only one given")
        if ensemble and options.quick:
            raise SaccadeError(
                "--quick is exact in what ranks hang on and an ensemble averages whole tables: leave one out"
            )
        if options.first is not None:
            if ensemble or options.quick or options.folds > 1:
                raise SaccadeError("--first ranks in two stages: leave --folds, --quick and ways of averaging out")
            return self.two_stages(request, options.first)
        shares = read_weights(options.weights, len(request.models)) if options.weights is not None else None
        splits = SplitForModels(request.data, request.split)
        rows: dict[str, dict[str, float]] = {}
        tables = []
        for folder in request.models:
            model = load_model(folder, Matcher).to(request.device)
            data: CaptionedImages = splits.regions_for(model, folder)
            check_folds(len(data.images), options.folds)
            rows.setdefault("chance", chance(data.image_of_text, len(data.images), options.folds))
            tables.append(similarity_table(model, data, quick=options.quick))
            rows[folder] = recall(tables[-1], data.image_of_text, options.folds)
        if ensemble:
            together = ensemble_of(tables, shares, options.raw)
            rows["ensemble"] = recall(together, data.image_of_text, options.folds)
        title, facts = protocol(data)
        return Evaluation(
            f"{data.name}/{data.split}: {title}",
            RECALL_HEADINGS,
            tuple((name, *(f"{figures[key]:.1f}" for key in ("rsum", *RECALLS))) for name, figures in rows.items()),
            {"data": data.name, "split": data.split, "folds": options.folds, "protocol": facts, "results": rows},
        )

    def two_stages(self, request: EvalRequest, first: str) -> Evaluation:
        """The first stage; what a perfect order of its best k would be; and each cross-encoder's order of them."""
        counts, blends = read_counts(request.options.rerank), read_shares(request.options.blend)
        splits = SplitForModels(request.data, request.split)
        model = load_model(first, Matcher).to(request.device)
        data: CaptionedImages = splits.regions_for(model, first)
        table, owner = similarity_table(model, data), data.image_of_text
        rows = {"chance": chance(owner, len(data.images)), first: recall(table, owner)}
        bounds = summaries(query_ranks(table, owner), sorted({*counts, *CUTOFFS}))
        for count in counts:
            found = {f"{way}_r{k}": bounds[f"{way}_r{max(k, count)}"] for way in WAYS for k in CUTOFFS}
            rows[f"perfect order, best {count}"] = found | {"rsum": sum(found.values())}
        pairs: dict[str, int] = {}
        for folder in request.models:
            reader = load_model(folder, CrossEncoder).to(request.device)
            data = splits.regions_for(reader, folder)
            codes = encode_all_images(reader, data), encode_all_texts(reader, data.texts)
            stages = TwoStages.score(reader, *codes, torch.from_numpy(table).to(request.device), max(counts))
            pairs[folder] = stages.pairs
            for blend, count in product(blends, counts):
                said = f" + {blend:g} × {first}" if blend else ""
                rows[f"{folder}{said}, best {count}"] = two_stage_ranks(stages, count, owner, blend).recalls()
        title, facts = protocol(data)
        facts |= {"first": first, "best": counts, "blend": blends, "pairs": pairs}
        return Evaluation(
            f"{data.name}/{data.split}: {title}; the best of each query by {first}, put in order again",
            RECALL_HEADINGS,
            tuple((name, *(f"{figures[key]:.1f}" for key in ("rsum", *RECALLS))) for name, figures in rows.items()),
            {"data": data.name, "split": data.split, "protocol": facts, "results": rows},
            tuple(f"{folder} read {n:,} of {table.size:,} pairs" for folder, n in pairs.items()),
        )

    def measure(self, model: Matcher, data: CaptionedImages, settings: Any, folder: Path, tables: bool) -> Arrays:
        table = similarity_table(model, data)
        if tables:
            save_table(self.tables(folder, data.split), table)
        found = query_ranks(table, data.image_of_text)
        return {name: np.asarray(values, dtype=np.int32) for name, values in vars(found).items()}

    def scores(self, kept: Arrays) -> Scores:
        return QueryRanks(kept["image_to_text"], kept["text_to_image"], kept["image_of_text"]).scores()

    def tables(self, folder: Path, split: str) -> Path:
        return folder / f"similarity-{split}.npy"

    def ensemble(self, folders: Sequence[Path], split: str, kept: Arrays) -> Scores:
        tables = [load_table(self.tables(folder, split)) for folder in folders]
        return query_ranks(ensemble_of(tables), kept["image_of_text"]).scores()


def protocol(data: CaptionedImages) -> tuple[str, dict[str, Any]]:
    """What figures of a split depend on beside the model, in words and as numbers: how many captions compete, how long
    videos are and how often they were looked at, and what becomes of ties."""
    captions = [len(own) for own in data.texts_of_image]
    facts: dict[str, Any] = {
        "queries": {"i2t": len(data.images), "t2i": len(data.texts)},
        "captions_each": [min(captions), max(captions)],
        "ties": "count against the model",
    }
    counted = f"{len(data.images)} pictures, {len(data.texts)} texts"
    videos = [data.regions.get(i) for i in range(len(data.images))] if hasattr(data.images, "dim") else []
    seconds = [video.seconds for video in videos if video.seconds is not None]
    if not seconds:
        return counted, facts
    frames = [len(video.features) for video in videos]
    facts |= {"seconds": [min(seconds), float(np.mean(seconds)), max(seconds)], "frames": [min(frames), max(frames)]}
    return (
        f"{len(videos)} videos of {_range(seconds)} s (mean {np.mean(seconds):.1f}) as {_range(frames)} frames, "
        f"{len(data.texts)} texts ({_range(captions)} a video); ties count against the model"
    ), facts


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):g}", f"{max(values):g}"
    return low if low == high else f"{low} to {high}"


def read_weights(text: str, models: int) -> list[float]:
    """`2,1` as the weights of two models. Raises: SaccadeError if it is none of that."""
    try:
        weights = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SaccadeError(f"--weights {text}: numbers with commas between them were expected, such as 2,1") from error
    check_weights(weights, models)
    return weights


def read_counts(text: str) -> list[int]:
    """`8,32` as the numbers of candidates, the least first. Raises: SaccadeError if it is none of that."""
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = []
    if not counts or counts[0] < 1:
        raise SaccadeError(
            f"--rerank {text}: whole numbers from 1 on were expected, with commas between them, such as 8,32"
        )
    return counts


def read_shares(text: str) -> list[float]:
    """`0,1` as how much of the first score is added. Raises: SaccadeError if it is none of that."""
    try:
        shares = sorted({float(part) for part in text.split(",")})
    except ValueError:
        shares = []
    if not shares or not all(0 <= share < float("inf") for share in shares):
        raise SaccadeError(f"--blend {text}: numbers from 0 on were expected, with commas between them, such as 0,1")
    return shares


def save_table(path: Path, table: Float[np.ndarray, "image text"]) -> None:
    """Similarities brought to zero mean and unit spread, which is what an ensemble averages, in half precision."""
    standard = (table - table.mean()) / max(float(table.std()), 1e-12)
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.save(file, standard.astype(np.float16))


def load_table(path: Path) -> Float[np.ndarray, "image text"]:
    try:
        return np.asarray(map_npy(path), dtype=np.float32)
    except SaccadeError as error:
        raise SaccadeError(f"{error}: remove it, and the run is measured again") from error
