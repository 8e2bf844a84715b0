"""Dense captioning: find the regions of a picture that are worth a phrase, and say one of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from saccade.batch import PictureBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.data.datasets.region_phrases import PhraseBatch, PhrasedPictures, phrase_batch
from saccade.decoding import DecodingConfig, decode
from saccade.language import tokenise
from saccade.language.vocabulary import PAD
from saccade.metrics.dense_captioning import Phrased, dense_captioning_map
from saccade.models import DenseCap
from saccade.vision.augment import AugmentConfig, augment_with_boxes


@dataclass(frozen=True)
class DenseCaptioningConfig:
    """How a split is read, and how the dev split is described."""

    longest: int = 15  # words of a phrase; what people said beyond is cut
    min_count: int = 15  # words seen less often in training are unknown words
    vary: bool = (
        False  # photos are mirrored, cut and tinted, their boxes with them; not where phrases say left and right
    )
    vectors: str | None = None  # what words start from: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 16  # pictures described at once
    eval_pictures: int = 500  # of the dev split, at most
    regions: int = 100  # of a picture, at most: the surest are described
    decoding: DecodingConfig = field(default_factory=lambda: DecodingConfig(how="greedy", longest=16))

    def __post_init__(self) -> None:
        for name in ("longest", "eval_batch", "eval_pictures", "regions"):
            if getattr(self, name) < 1:
                raise SaccadeError(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class DensePhrase:
    """A region, how sure the model is that it is worth a phrase, and the phrase."""

    box: tuple[float, float, float, float]  # x1, y1, x2, y2 in 0..1
    score: float
    phrase: str


class DenseCaptioningTask:
    """Pictures with all their boxes in one batch; each box with one of its phrases, drawn anew each time."""

    selection = "map"

    def __init__(
        self,
        train: PhrasedPictures,
        dev: PhrasedPictures,
        read: Callable[[Sequence[str]], TextBatch],
        config: DenseCaptioningConfig,
        augmentation: AugmentConfig | None = None,
    ) -> None:
        self.train, self.dev, self.read, self.config = train, dev, read, config
        self.augmentation = augmentation or AugmentConfig()

    def __len__(self) -> int:
        return len(self.train.images)

    def batch(self, indices: Sequence[int]) -> PhraseBatch:
        regions = [self.train.regions[i] for i in indices]
        return phrase_batch(self.train.pixels(indices), regions, self.read, self.config.longest)

    def loss(self, model: nn.Module, batch: PhraseBatch, step: int) -> tuple[Tensor, dict[str, float]]:
        assert isinstance(model, DenseCap)
        phrases = drawn_phrases(batch)
        if self.config.vary:
            batch = vary(batch, model.config.size, self.augmentation)
        losses = model.losses(batch.pictures, batch.boxes, batch.real, phrases)
        total = torch.stack(list(losses.values())).sum()
        return total, {name: value.item() for name, value in losses.items()}

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, DenseCap)
        return dense_captioning_figures(model, self.dev, self.config)


def drawn_phrases(batch: PhraseBatch) -> Int[Tensor, "image thing word"]:
    """One of the phrases of each box, no wider than the longest of them."""
    lot = (torch.rand(batch.counts.shape, device=batch.counts.device) * batch.counts).long()
    place = lot[..., None, None].expand(*lot.shape, 1, batch.phrases.shape[3])
    chosen = batch.phrases.gather(2, place)[:, :, 0]
    longest = int((chosen != PAD).sum(dim=2).max()) if chosen.numel() else 0
    return chosen[:, :, : max(longest, 2)]


def vary(batch: PhraseBatch, size: int, config: AugmentConfig) -> PhraseBatch:
    """Other windows, mirrored, in another light; a box of which too little is left is no longer asked for."""
    pixels, boxes, real = augment_with_boxes(
        batch.pictures.pixels, batch.boxes, batch.real, size, config.crop, config.colour
    )
    return replace(batch, pictures=replace(batch.pictures, pixels=pixels), boxes=boxes, real=real)


@torch.no_grad()
def describe(
    model: DenseCap, pictures: PictureBatch, most: int | None = None, decoding: DecodingConfig | None = None
) -> list[list[DensePhrase]]:
    """The regions of each picture that are worth a phrase, surest first, and the phrases."""
    found = model.find(pictures.to(next(model.parameters()).device), most)
    counts = found.mask.sum(dim=1).tolist()
    if not sum(counts):
        return [[] for _ in counts]
    said = decode(model.writer, model.regions(found), decoding or DenseCaptioningConfig().decoding).best()
    phrases = iter([model.writer.sentence(words) for words in said.words.tolist()])
    assert found.scores is not None
    return [
        [
            DensePhrase((x1, y1, x2, y2), score, next(phrases))
            for (x1, y1, x2, y2), score in zip(boxes[:count], scores[:count], strict=True)
        ]
        for count, boxes, scores in zip(counts, found.boxes.tolist(), found.scores.tolist(), strict=True)
    ]


def dense_captioning_figures(
    model: DenseCap, data: PhrasedPictures, config: DenseCaptioningConfig | None = None
) -> dict[str, float]:
    """Mean average precision in per cent of a split, of all and of boxes alone, and how many regions were found."""
    config = config or DenseCaptioningConfig()
    was_training, found = model.training, []
    model.eval()
    count = min(len(data.images), config.eval_pictures)
    for start in range(0, count, config.eval_batch):
        part = list(range(start, min(start + config.eval_batch, count)))
        found += describe(model, data.pixels(part), config.regions, config.decoding)
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
        Phrased(true.boxes.astype(np.float64), [[tokenise(phrase) for phrase in phrases] for phrases in true.phrases])
        for true in data.regions[:count]
    ]
    figures = {name: 100 * value for name, value in dense_captioning_map(said, truth).items()}
    return figures | {"regions": sum(map(len, found)) / max(count, 1)}
