"""Image–text matching: pull a picture and its captions together, rank everything else below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.batch import UNKNOWN, PairBatch, PictureBatch, RegionBatch, TextBatch, TextCode
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.data import CaptionedImages, FeatureStore
from saccade.data.store.manifest import Broken
from saccade.explain import Explanation
from saccade.explain.panels.frames import FrameExplanation
from saccade.models import CrossEncoder, Matcher, Model, load_model
from saccade.models.base.cross_encoder import Pairs
from saccade.nn import Negatives, RankingLoss, Ways, binary_loss, contrastive_loss, distillation_loss, triplet_loss
from saccade.nn.negatives import likely_items
from saccade.tasks import find_task
from saccade.tasks.base import Loss, TaskSpec
from saccade.tasks.matching import EvalOptions
from saccade.tasks.matching.benchmark import MatchingBenchmark
from saccade.tasks.matching.evaluate import Recalls
from saccade.tasks.pairs import PairTask, Read, open_captioned, prepare_captioned, vary_images
from saccade.tasks.predict import Images, Photo, RegionPredictor, in_batches
from saccade.tasks.uses import Line, Outcome, Use
from saccade.vision.augment import AugmentConfig
from saccade.vision.extractors import VIDEO_EXTRACTORS
from saccade.vision.pictures import VIDEO_SUFFIXES, Picture, as_array
from saccade.vision.videos import Footage, Sampling, read_frames
from saccade.vision.videos.extractor import VideoExtractor
from saccade.vision.videos.frames import FrameConfig, FrameExtractor

BATCH_SIZE = 16  # pictures whose regions and codes are held at a time
PHOTO_SAMPLING = Sampling(count=32)  # how often a model of photos looks at a video


def _scored(matcher: PictureMatcher, image: Any, text: str, top: int) -> Outcome:
    found = matcher.explain(image, text)
    lines = (Line(text, score=found.score, probability=found.probability),)
    return Outcome(lines, found if isinstance(found, Explanation) else None)  # of a video it is another kind


class PictureMatcher(RegionPredictor[Matcher]):
    """A trained matcher and the extractor it was trained on: pictures and sentences in, scores and explanations out."""

    uses: ClassVar[tuple[Use, ...]] = (
        Use("score", "How well a sentence fits a picture", "picture", _scored, "sentence", "two dogs run"),
    )

    @classmethod
    def adopt(cls, model: Model) -> PictureMatcher | None:
        """A model that learned from videos is shown videos."""
        if find_task(model.task).predictor is not cls or not isinstance(model, Matcher):
            return None
        found = cls(model)
        if found.sees_videos:
            found.uses = (replace(cls.uses[0], does="How well a sentence fits a video", medium="video"),)  # type: ignore[misc]
        return found

    def read(self, texts: str | Sequence[str]) -> TextBatch:
        """Sentences as word ids; a sentence without a single known word is refused."""
        listed = [texts] if isinstance(texts, str) else list(texts)
        for text in listed:
            self.model.vocabulary.check(text)
        return self.model.read(listed).to(self.device)

    @torch.no_grad()
    def score(self, images: Images, texts: str | Sequence[str]) -> Float[np.ndarray, "image text"]:
        """The similarity of every picture with every sentence; of many pictures only the scores are kept."""
        codes = self.model.encode_texts(self.read(texts))
        parts = [self._score(regions, codes) for regions in self.batches(images, BATCH_SIZE)]
        return np.concatenate([np.zeros((0, len(codes)), np.float32), *parts])

    @torch.no_grad()
    def score_places(
        self, photos: Sequence[Photo], stores: Sequence[FeatureStore], texts: Sequence[str], name: object = "the model"
    ) -> Iterator[tuple[str, Path | None, Float[np.ndarray, " text"]] | Broken]:
        """The scores of photo files and of pictures in stores, one after the other: `over_places`."""
        codes = self.model.encode_texts(self.read(texts))
        yield from self.over_places(photos, stores, BATCH_SIZE, lambda regions: self._score(regions, codes), name)

    @torch.no_grad()
    def _score(self, regions: RegionBatch, texts: TextCode) -> Float[np.ndarray, "image text"]:
        similarity = self.model.similarity(self.model.encode_images(regions), texts)
        return np.asarray(similarity.float().cpu().numpy())

    def probabilities(self, scores: Float[np.ndarray, "*pair"]) -> Float[np.ndarray, "*pair"] | None:
        """How likely each pair fits; None if the model was not calibrated (`saccade calibrate`)."""
        return None if self.model.calibration is None else self.model.calibration(scores)

    def rank(self, text: str, images: Images, top: int | None = None) -> list[tuple[int, float]]:
        """(position, score) of the pictures that fit a sentence best, best first; of all, if `top` is None or 0."""
        scores = self.score(images, text)[:, 0]
        order = np.argsort(-scores, kind="stable")[: top or None]
        return [(int(i), float(scores[i])) for i in order]

    @torch.no_grad()
    def score_videos(
        self, videos: Sequence[Photo], texts: Sequence[str], name: object = "the model"
    ) -> Iterator[tuple[str, Path | None, Float[np.ndarray, " text"]] | Broken]:
        """The scores of video files. A model that learned from photos looks at each frame as at a photo: a video's
        score is the mean over its frames."""
        if self.sees_videos:
            yield from self.score_places(videos, [], texts, name)
            return
        codes = self.model.encode_texts(self.read(texts))
        for id, path in videos:
            try:
                frames = list(read_frames(path, PHOTO_SAMPLING, self.extractor.prepare).frames)
            except SaccadeError as error:
                yield Broken(id, str(path), str(error))
                continue
            parts = [self._score(self.extract(part), codes) for part in in_batches(frames, BATCH_SIZE)]
            yield id, path, np.concatenate(parts).mean(axis=0)

    @property
    def sees_videos(self) -> bool:
        """Whether the model learned from videos."""
        return bool(self.model.extractor) and str(self.model.extractor).startswith(VIDEO_EXTRACTORS)

    @torch.no_grad()
    def explain_video(self, video: Path | str | Footage, text: str) -> FrameExplanation:
        """Which frames each phrase found: `.save("why.png")` draws it. A model of photos sees a frame as the mean of
        its regions."""
        extractor = self.extractor
        if not isinstance(extractor, VideoExtractor):
            extractor = FrameExtractor(FrameConfig(extractor.name), extractor)
        footage = video if isinstance(video, Footage) else extractor.footage(video)
        (frames,) = extractor.each_batch([footage], None, BATCH_SIZE)
        frames, words = frames.to(self.device), self.read(text)
        alignment = self.model.locate(self.model.encode_images(frames), self.model.encode_texts(words))
        found = FrameExplanation.from_alignment(
            alignment,
            words.words[0],
            frames.boxes[0].cpu().numpy(),
            list(footage.frames),
            footage.seconds,
            getattr(self.model.config, "levels", ()) if alignment.level_score is not None else (),
            None if words.role_words is None else words.role_words[0].cpu().numpy(),
        )
        chance = self.probabilities(np.array(found.score))
        return replace(found, probability=None if chance is None else float(chance))

    @torch.no_grad()
    def explain(self, image: Picture, text: str | None = None, *, title: str = "") -> Explanation:
        """Which regions each word found, or in a video file which frames: `.save("why.png")` draws it."""
        if text is None:
            raise SaccadeError("a matcher explains why a picture fits a sentence: give one after the picture")
        if isinstance(image, str | Path) and Path(image).suffix.lower() in VIDEO_SUFFIXES:
            return self.explain_video(image, text)  # type: ignore[return-value]  # it is drawn and told alike
        picture = as_array(image)
        regions, words = self.extract([picture]), self.read(text)
        codes = self.model.encode_images(regions)
        alignment = self.model.locate(codes, self.model.encode_texts(words))
        boxes = regions.boxes if codes.boxes is None else codes.boxes  # some join regions
        found = Explanation.from_alignment(alignment, 0, words.words[0], boxes[0].cpu(), picture, title)
        chance = self.probabilities(np.array(found.score))
        unknown = frozenset(self.model.vocabulary.unknown(text))
        return replace(found, probability=None if chance is None else float(chance), unknown=unknown)


@dataclass(frozen=True)
class MatchingConfig:
    """The official settings: hardest negatives, margin 0.2, loss summed over the batch."""

    margin: float = 0.2
    loss: RankingLoss = "triplet"  # bce: binary cross-entropy, for scores between 0 and 1; contrastive: softmax
    temperature: float = 0.05  # of the contrastive loss
    negatives: Negatives = "hardest"
    hardest: int = 1  # how many of them count, as their mean
    ways: Ways = "both"  # what is to be told from its negatives: the text of a picture, the picture of a text, or both
    all_negatives_steps: int = 0  # first steps that learn from all negatives: the hardest alone can stall a fresh model
    hard_negative_ramp_steps: int = 0  # … over which the loss moves from all negatives, averaged, to the hardest
    same_image_negatives: bool = True  # another caption of the same picture is a negative, as in the official code
    items: Literal["pairs", "pictures"] = "pairs"  # what a batch counts: pairs, or pictures with all their captions
    word_dropout: float = 0.0  # the chance of each word of being unknown in training
    min_count: int = 4  # rarer words of the training captions are unknown words
    teacher: Path | None = None  # a trained matcher, whose scores of a batch are learned beside the ranking
    teacher_weight: float = 1.0
    teacher_temperature: float = 0.05  # of both models' scores
    teacher_negatives: int = 2  # of a cross-encoder: wrong texts, and pictures, that the teacher takes for true
    vectors: str | None = None  # what words start from: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 256  # pictures or sentences encoded at once
    eval_pictures: int = 0  # while training, so many pictures of the dev split are measured; 0: all

    def __post_init__(self) -> None:
        check_ranges(self, "temperature", "more than zero")
        check_ranges(self, "word_dropout", "at least 0 and less than 1")
        for name in ("eval_batch", "hardest"):
            check_ranges(self, name, "at least 1")
        if self.loss != "triplet" and (self.hardest > 1 or self.ways != "both"):
            raise SaccadeError(f"hardest and ways are of loss=triplet, not of loss={self.loss}")
        check_ranges(self, "teacher_weight teacher_negatives eval_pictures", "zero or more")
        check_ranges(self, "teacher_temperature", "more than zero")


class MatchingTask(PairTask):
    """Pictures and captions of theirs in one batch; every caption of another picture in it is a negative.

    A cross-encoder, which would have to read every pair, chooses the true one among a few.
    """

    selection = "rsum"
    config: MatchingConfig

    def __init__(
        self,
        train: CaptionedImages,
        dev: CaptionedImages,
        read: Read,
        config: MatchingConfig,
        augmentation: AugmentConfig | None = None,
    ) -> None:
        if config.eval_pictures:
            dev = dev.select(range(min(config.eval_pictures, len(dev.images))))
        super().__init__(train, dev, read, config, augmentation)
        self.teacher = None if config.teacher is None else load_model(config.teacher, Matcher).requires_grad_(False)
        if self.teacher is not None and hasattr(train.images, "dim") and self.teacher.extractor != train.extractor:
            seen = self.teacher.extractor or "an extractor of its own"
            raise SaccadeError(f"teacher={config.teacher} learned from regions of {seen}, not of {train.extractor}")

    def before_loss(self, model: Matcher, batch: PairBatch, step: int) -> PairBatch:
        return batch

    def graph_batch(self, model: Matcher, batch: PairBatch, step: int) -> PairBatch | None:
        """Regions, words and phrases padded to a multiple of four; None while the loss still changes."""
        images, texts, config = batch.images, batch.texts, self.config
        changing = step < max(config.all_negatives_steps, config.hard_negative_ramp_steps)
        if changing or self.teacher is not None or not isinstance(images, RegionBatch):
            return None
        images = replace(images, ids=()).pad(-images.mask.shape[1] % 4)
        texts = texts.tables()
        texts = texts.pad(-texts.mask.shape[1] % 4)
        if texts.spans is not None:
            texts = texts.resize(phrase=texts.spans.shape[1] + -texts.spans.shape[1] % 4)
        return replace(batch, images=images, texts=texts)

    def loss(self, model: Matcher, batch: PairBatch, step: int) -> Loss:
        pictures = vary_images(model, batch.images, self.augmentation)
        images = model.encode_images(model.extract(pictures))
        if isinstance(model, CrossEncoder):
            same = batch.image_index[:, None] == batch.image_index[batch.owner]
            codes = model.encode_texts(self._vary_texts(batch.texts))
            harder = self._hard_pairs(pictures, batch, same)
            return model.choice_loss(images, codes, batch.texts, batch.owner, same, harder), {}
        tables = model.ranked(images, model.encode_texts(self._vary_texts(batch.texts)))
        weights = model.ranking_weights
        first = len(tables) == 1 or weights
        config, similarity = self.config, tables[0] if first else torch.stack(tables).sum(dim=0)
        losses = [self._ranked(table, batch, step) for table in tables]
        losses = [weight * part for weight, part in zip(weights, losses, strict=True)] if weights else losses
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        own = model.own_losses(images, batch.texts, batch.owner)
        if self.teacher is not None:
            target = self._taught(self.teacher.to(similarity.device), pictures, batch.texts)
            taught = distillation_loss(similarity, target, config.teacher_temperature)
            own = {**own, "teacher_loss": config.teacher_weight * taught}
        if own:
            return loss + sum(own.values()), {"ranking_loss": loss, **own}
        return loss, {}

    def _ranked(self, table: Float[Tensor, "image text"], batch: PairBatch, step: int) -> Tensor:
        """From all negatives at first, where the settings say so, to the hardest."""
        config = self.config
        loss = self._ranking(table, batch, "all" if step < config.all_negatives_steps else config.negatives)
        if step < config.hard_negative_ramp_steps and config.loss != "contrastive":
            ramp = step / config.hard_negative_ramp_steps
            pairs = len(batch.owner)  # to the size of the hardest: their hinges are a sum over n², their entropy a mean
            size = 2 * pairs if config.loss == "bce" else 1 / pairs
            loss = ramp * loss + (1 - ramp) * size * self._ranking(table, batch, "all")
        return loss

    def _ranking(self, similarity: Float[Tensor, "image text"], batch: PairBatch, negatives: Negatives) -> Tensor:
        same = (
            None if self.config.same_image_negatives else batch.image_index[:, None] == batch.image_index[batch.owner]
        )
        if self.config.loss == "bce":
            return binary_loss(similarity, negatives, same, batch.owner)
        if self.config.loss == "contrastive":
            return contrastive_loss(similarity, self.config.temperature, same, batch.owner)
        config = self.config
        return triplet_loss(similarity, config.margin, negatives, same, batch.owner, config.hardest, config.ways)

    def _hard_pairs(
        self, pictures: RegionBatch | PictureBatch, batch: PairBatch, same: Bool[Tensor, "image text"]
    ) -> list[Pairs]:
        """Wrong pairs for a cross-encoder to tell, drawn by the teacher's scores: what it re-ranks is of that kind."""
        if self.teacher is None:
            return []
        scores = self._taught(self.teacher.to(same.device), pictures, batch.texts) / self.config.teacher_temperature
        owner, text = batch.owner, torch.arange(len(batch.owner), device=same.device)
        found: list[Pairs] = []
        for _ in range(self.config.teacher_negatives):
            found.append((owner, likely_items(scores[owner], ~same[owner])))
            found.append((likely_items(scores.T, ~same.T), text))
        return found

    @torch.no_grad()
    def _taught(self, teacher: Matcher, pictures: RegionBatch | PictureBatch, texts: TextBatch) -> Tensor:
        """The teacher's scores: of the pictures as the student sees them, and all words of the sentences."""
        sentences = [" ".join(words[1:-1]).replace(" ##", "") for words in texts.words]  # it has words of its own
        taught: Tensor = teacher(pictures, teacher.read(sentences).to(texts.tokens.device))
        return taught

    def _vary_texts(self, texts: TextBatch) -> TextBatch:
        """Now and then a word is unknown: a model must not hang on a single one."""
        if not self.config.word_dropout:
            return texts
        lost = torch.rand(texts.tokens.shape, device=texts.tokens.device) < self.config.word_dropout
        return replace(texts, tokens=texts.tokens.masked_fill(lost & texts.mask, UNKNOWN))

    def evaluate(self, model: Matcher) -> dict[str, float]:
        return Recalls().evaluate(model, self.dev, self.config)


SPEC: TaskSpec[Matcher, CaptionedImages] = TaskSpec(
    name="matching",
    noun="matcher",
    does="matches pictures with sentences",
    protocol=Matcher,
    config=MatchingConfig,
    open=open_captioned,
    prepare=prepare_captioned,
    task=lambda model, train, dev, settings, vary: MatchingTask(train, dev, model.read, settings, vary),
    evaluator=Recalls(),
    predictor=PictureMatcher,
    verbs=("score", "explain"),
    options=EvalOptions,
    benchmark=MatchingBenchmark(),
)
