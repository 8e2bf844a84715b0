"""Learning to find the regions of a picture that are worth a phrase, and to say one of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from saccade.batch import PAD
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.decoding import DecodingConfig
from saccade.features.splits import PhraseBatch, PhrasedPictures, open_region_phrases, phrase_batch
from saccade.models import DenseCap
from saccade.tasks.base import ClaimDefaults, TaskSpec
from saccade.tasks.dense_captioning import EvalOptions
from saccade.tasks.dense_captioning.evaluate import DECODING, DensePrecision
from saccade.tasks.dense_captioning.predict import PictureDescriber
from saccade.tasks.pairs import Read
from saccade.tasks.prepare import prepare_words
from saccade.vision.augment import AugmentConfig, augment_with_boxes


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
        for name in ("max_words", "eval_batch", "eval_pictures", "regions"):
            if getattr(self, name) < 1:
                raise SaccadeError(f"{name} must be at least 1, not {getattr(self, name)}")


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
    pixels, boxes, real = augment_with_boxes(
        batch.pictures.pixels, batch.boxes, batch.real, size, config.crop, config.colour
    )
    return replace(batch, pictures=replace(batch.pictures, pixels=pixels), boxes=boxes, real=real)


def open_phrased(config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu") -> PhrasedPictures:
    """Pictures whose boxes have phrases: always pixels, read on demand."""
    return open_region_phrases(config, split)


WORLD = ClaimDefaults(
    ("eval_pictures=300", "epochs=6"),
    "every thing that can be seen has a box and phrases; six epochs; METEOR matches words and stems",
)

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
    claims={"world": WORLD},
)
