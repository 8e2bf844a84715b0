"""Dense captioning: find the regions of a picture that are worth a phrase, and say one of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy import ndarray as Array
from torch import Tensor

from saccade.batch import PAD, PictureBatch
from saccade.core.config import check_ranges, update
from saccade.data import DataConfig
from saccade.data.store.manifest import Broken
from saccade.decoding import DecodingConfig, decode
from saccade.explain.panels.regions import MAX_SHEET_PHOTOS, RegionPicture
from saccade.features.decoding import ShownPhoto, open_shown
from saccade.features.splits import PhraseBatch, PhrasedPictures, open_region_phrases, phrase_batch
from saccade.language import tokenise
from saccade.metrics.dense_captioning import Phrased, dense_captioning_map
from saccade.models import DenseCap, load_model
from saccade.tasks.base import TaskSpec
from saccade.tasks.dense_captioning import EvalOptions
from saccade.tasks.evaluator import EvalRequest, Evaluation, Evaluator
from saccade.tasks.pairs import Read
from saccade.tasks.predict import Predictor, in_batches
from saccade.tasks.prepare import prepare_words
from saccade.tasks.uses import Line, Outcome, Use
from saccade.vision.augment import AugmentConfig, augment_with_boxes
from saccade.vision.pictures import Picture, as_array

DECODING = DecodingConfig(strategy="greedy", max_length=16)  # of phrases, unless options say otherwise


@dataclass(frozen=True)
class DensePhrase:
    """A region, how sure the model is that it is worth a phrase, and the phrase."""

    box: tuple[float, float, float, float]  # x1, y1, x2, y2 in 0..1
    score: float
    phrase: str


@torch.no_grad()
def describe(
    model: DenseCap, pictures: PictureBatch, most: int | None = None, decoding: DecodingConfig | None = None
) -> list[list[DensePhrase]]:
    """The regions of each picture that are worth a phrase, surest first, and the phrases."""
    found = model.find(pictures.to(next(model.parameters()).device), most)
    counts = found.mask.sum(dim=1).tolist()
    if not sum(counts):
        return [[] for _ in counts]
    said = decode(model.writer, model.regions(found), decoding or DECODING).best()
    phrases = iter([model.writer.sentence(words) for words in said.words.tolist()])
    assert found.scores is not None
    return [
        [
            DensePhrase((x1, y1, x2, y2), score, next(phrases))
            for (x1, y1, x2, y2), score in zip(boxes[:count], scores[:count], strict=True)
        ]
        for count, boxes, scores in zip(counts, found.boxes.tolist(), found.scores.tolist(), strict=True)
    ]


class DensePrecision(Evaluator[DenseCap, PhrasedPictures]):
    """Mean average precision in per cent of a split, of all and of boxes alone, and how many regions were found."""

    metrics: ClassVar = {"map": "mAP", "detection_map": "mAP of boxes alone", "regions": "regions a picture"}
    metric = "map"
    columns = ("map", "detection_map", "regions")
    unit = "Mean average precision in per cent"

    def evaluate(self, model: DenseCap, data: PhrasedPictures, settings: Any) -> dict[str, float]:
        was_training, found = model.training, []
        model.eval()
        count = min(len(data.images), settings.eval_pictures)
        for start in range(0, count, settings.eval_batch):
            part = list(range(start, min(start + settings.eval_batch, count)))
            found += describe(model, data.pixels(part), settings.regions, settings.decoding)
        model.train(was_training)
        said = [
            Phrased(
                np.array([r.box for r in regions], dtype=np.float64).reshape(-1, 4),
                [[tokenise(r.phrase)] for r in regions],
                np.array([r.score for r in regions]),
            )
            for regions in found
        ]
        truth = [
            Phrased(
                true.boxes.astype(np.float64), [[tokenise(phrase) for phrase in phrases] for phrases in true.phrases]
            )
            for true in data.regions[:count]
        ]
        figures = {name: 100 * value for name, value in dense_captioning_map(said, truth).items()}
        return figures | {"regions": sum(map(len, found)) / max(count, 1)}

    def compare(self, request: EvalRequest) -> Evaluation:
        """Each model on the whole of the split."""
        from saccade.tasks.dense_captioning.task import DenseCaptioningConfig

        data = open_region_phrases(request.data, request.split)
        rows = {}
        for folder in request.models:
            settings = request.settings.get(folder, DenseCaptioningConfig())
            model = load_model(folder, DenseCap).to(request.device)
            rows[folder] = self.evaluate(model, data, replace(settings, eval_pictures=len(data.images)))
        boxes = sum(len(regions.boxes) for regions in data.regions)
        return Evaluation(
            f"{data.name}/{data.split}: {len(data.images)} pictures, {boxes} boxes, {len(data.texts)} phrases",
            ("model", "mAP", "mAP of boxes", "regions a picture"),
            tuple((folder, *(f"{found[name]:.2f}" for name in self.columns)) for folder, found in rows.items()),
            {"data": data.name, "split": data.split, "results": rows},
        )

    def counts(self, data: PhrasedPictures, settings: Any) -> dict[str, int]:
        pictures = min(len(data.images), settings.eval_pictures)
        texts = sum(len(phrases) for regions in data.regions[:pictures] for phrases in regions.phrases)
        return {"pictures": pictures, "texts": texts}


BATCH_SIZE = 8  # pictures described at once


@dataclass(frozen=True, eq=False)
class DescribedPhoto:
    """A photo file, its size in pixels, and what was said of its parts."""

    file: Path
    width: int
    height: int
    regions: tuple[DensePhrase, ...]
    picture: UInt8[Array, "row column 3"]  # made smaller, to be drawn on

    def boxes(self) -> list[list[float]]:
        """In pixels."""
        scale = (self.width, self.height, self.width, self.height)
        return [[round(side * length, 1) for side, length in zip(r.box, scale, strict=True)] for r in self.regions]

    def facts(self, model: str) -> dict[str, Any]:
        """For JSON."""
        regions = [
            {"phrase": region.phrase, "score": round(region.score, 4), "box": box}
            for region, box in zip(self.regions, self.boxes(), strict=True)
        ]
        size = {"width": self.width, "height": self.height}
        return {"photo": str(self.file), "model": model, **size, "regions": regions}

    @property
    def drawing(self) -> RegionPicture:
        """Boxes and phrases on the photo."""
        return drawn(self.picture, self.regions, self.file.name)


def _described(describer: PictureDescriber, image: Any, text: str, top: int) -> Outcome:
    found = describer.describe([image], top)[0]
    return Outcome(tuple(Line(one.phrase, probability=one.score, boxes=(one.box,)) for one in found))


class PictureDescriber(Predictor[DenseCap]):
    """A trained dense captioner: pictures in, phrases with boxes out."""

    uses = (Use("densecap", "Say a phrase of every part of a picture", "picture", _described),)

    def describe(
        self,
        images: Picture | Iterable[Picture],
        top: int = 20,
        least: float = 0.1,
        decoding: DecodingConfig = DECODING,
        **options: Any,
    ) -> list[list[DensePhrase]]:
        """The `top` regions of each picture that the model is surest of (0: all), none of them less sure than `least`.

        Pictures are paths, Pillow images or arrays; `options` are DecodingConfig's: `strategy="beam", num_beams=3` …
        """
        settings = update(decoding, options, "decoding")
        parts = in_batches(images, BATCH_SIZE)
        return [described for part in parts for described in self._describe(part, top, least, settings)]

    def draw(self, image: Picture, top: int = 20, least: float = 0.1, title: str = "", **options: Any) -> RegionPicture:
        """Boxes and phrases on a picture: `.save("phrases.png")`."""
        picture = as_array(image)
        return drawn(picture, self.describe([picture], top, least, **options)[0], title)

    def describe_photos(
        self, files: Sequence[Path], top: int, least: float, decoding: DecodingConfig, drawn_side: int
    ) -> Iterator[DescribedPhoto | Broken]:
        """Photo files in order, each opened once; one that cannot be read comes back as broken.

        Only of the first photos, as many as a sheet shows, is the picture kept.
        """
        prepare = partial(as_array, size=self.model.config.size)
        drawn_count = 0
        with closing(open_shown(files, prepare, drawn_side, BATCH_SIZE)) as opened:
            while batch := list(islice(opened, BATCH_SIZE)):
                pictures = [one.pixels for one in batch if isinstance(one, ShownPhoto)]
                described = iter(self._describe(pictures, top, least, decoding) if pictures else ())
                for one in batch:
                    if isinstance(one, Broken):
                        yield one
                        continue
                    drawn_count += 1
                    picture = one.picture if drawn_count <= MAX_SHEET_PHOTOS else np.zeros((1, 1, 3), np.uint8)
                    yield DescribedPhoto(one.file, one.width, one.height, tuple(next(described)), picture)

    def _describe(
        self, pictures: Sequence[Picture], top: int, least: float, decoding: DecodingConfig
    ) -> list[list[DensePhrase]]:
        size = self.model.config.size
        pixels = np.stack([as_array(picture, size=size) for picture in pictures])
        described = describe(self.model, PictureBatch(torch.from_numpy(pixels)), top or None, decoding)
        return [[region for region in regions if region.score >= least] for regions in described]


def drawn(picture: UInt8[Array, "row column 3"], regions: Sequence[DensePhrase], title: str) -> RegionPicture:
    boxes = np.array([region.box for region in regions], dtype=np.float64).reshape(-1, 4)
    labels, scores = tuple(region.phrase for region in regions), np.array([region.score for region in regions])
    return RegionPicture(picture, boxes, labels, scores, title)


@dataclass(frozen=True)
class DenseCaptioningConfig:
    """How a split is read, and how the dev split is described."""

    max_words: int = 15  # words of a phrase; what people said beyond is cut
    min_count: int = 15  # rarer words of the training captions are unknown words
    vary: bool = False  # mirror, cut and tint photos with their boxes; not where phrases say left and right
    vectors: str | None = None  # what words start from: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 16  # pictures described at once
    eval_pictures: int = 500  # of the dev split, at most
    regions: int = 100  # of a picture, at most: the surest are described
    decoding: DecodingConfig = DECODING

    def __post_init__(self) -> None:
        check_ranges(self, "max_words eval_batch eval_pictures regions", "at least 1")


class DenseCaptioningTask:
    """Pictures with all their boxes in one batch; each box with one of its phrases, drawn anew each time."""

    selection = "map"

    def __init__(
        self,
        train: PhrasedPictures,
        dev: PhrasedPictures,
        read: Read,
        config: DenseCaptioningConfig,
        augmentation: AugmentConfig | None = None,
    ) -> None:
        self.train, self.dev, self.read, self.config = train, dev, read, config
        self.augmentation = augmentation or AugmentConfig()

    def __len__(self) -> int:
        return len(self.train.images)

    def batch(self, indices: Sequence[int]) -> PhraseBatch:
        regions = [self.train.regions[i] for i in indices]
        return phrase_batch(self.train.pixels(indices), regions, self.read, self.config.max_words)

    def loss(self, model: DenseCap, batch: PhraseBatch, step: int) -> tuple[Tensor, dict[str, float]]:
        phrases = drawn_phrases(batch)
        if self.config.vary:
            batch = vary(batch, model.config.size, self.augmentation)
        losses = model.losses(batch.pictures, batch.boxes, batch.real, phrases)
        total = torch.stack(list(losses.values())).sum()
        return total, {name: value.item() for name, value in losses.items()}

    def evaluate(self, model: DenseCap) -> dict[str, float]:
        return DensePrecision().evaluate(model, self.dev, self.config)


def drawn_phrases(batch: PhraseBatch) -> Int[Tensor, "image thing word"]:
    """One of the phrases of each box, no wider than the longest of them."""
    lot = (torch.rand(batch.counts.shape, device=batch.counts.device) * batch.counts).long()
    place = lot[..., None, None].expand(*lot.shape, 1, batch.phrases.shape[3])
    chosen = batch.phrases.gather(2, place)[:, :, 0]
    longest = int((chosen != PAD).sum(dim=2).max()) if chosen.numel() else 0
    return chosen[:, :, : max(longest, 2)]


def vary(batch: PhraseBatch, size: int, config: AugmentConfig) -> PhraseBatch:
    """Other windows, mirrored, in another light; a box of which too little is left is no longer a target."""
    pixels, boxes, real, _ = augment_with_boxes(
        batch.pictures.pixels, batch.boxes, batch.real, size, config.crop, config.colour
    )
    return replace(batch, pictures=replace(batch.pictures, pixels=pixels), boxes=boxes, real=real)


def open_phrased(config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu") -> PhrasedPictures:
    """Pictures whose boxes have phrases: always pixels, read on demand."""
    return open_region_phrases(config, split)


SPEC: TaskSpec[DenseCap, PhrasedPictures] = TaskSpec(
    name="dense_captioning",
    noun="dense captioner",
    does="describes parts of pictures",
    protocol=DenseCap,
    config=DenseCaptioningConfig,
    open=open_phrased,
    prepare=lambda train, settings: prepare_words(train.texts, settings.min_count, settings.vectors),
    task=lambda model, train, dev, settings, vary: DenseCaptioningTask(train, dev, model.read, settings, vary),
    evaluator=DensePrecision(),
    predictor=PictureDescriber,
    verbs=("densecap",),
    options=EvalOptions,
    next_steps=("saccade densecap PHOTO --model {run} -o phrases.png",),
)
