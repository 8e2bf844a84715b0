"""Captioning without pairs: two players, a critic of sentences and a captioner, and what they learn before they meet.

The stages of a run, each so many steps (zero leaves it out), in this order:

    autoencoder    the critic reads a corrupted sentence, the captioner says it as it was
    sentence_gan   the captioner speaks from noise, the critic tells its sentences from people's
    concept        the captioner says a sentence from the concepts that are named in it
    pseudo         what it says from a picture's concepts is what it is to say from the picture
    the game       the full model, to the end of the run

In `sentence_gan` and in the game the players take turns: even steps are the critic's, odd ones the captioner's. The
loss of a turn reaches that player's weights alone; the others have no gradient then, and Adam leaves them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import END, UNKNOWN, Batch, CaptionState, PictureBatch, RegionBatch, TextBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.data import CaptionedImages
from saccade.decoding import DecodedCaptions, DecodingConfig, greedy, sample
from saccade.features.concepts import concepts_by_extractor, read_concepts
from saccade.models import Unsupervised
from saccade.models.unsupervised import Rollout, SentenceReader
from saccade.nn import unit
from saccade.ops import current_autocast
from saccade.tasks.base import Loss, TaskSpec
from saccade.tasks.captioning.evaluate import caption_figures
from saccade.tasks.captioning.task import SPEC as CAPTIONING
from saccade.tasks.pairs import Read, cut, open_captioned, vary_images
from saccade.vision.augment import AugmentConfig

Stage = Literal["autoencoder", "sentence_gan", "concept", "pseudo", "game"]


@dataclass(frozen=True)
class UnpairedCaptioningConfig:
    """The official corruption; no initialisation unless steps are given for it."""

    share: float = 0.5  # of the training split that gives pictures; the rest gives sentences
    max_words: int = 20  # words of a sentence, people's or the captioner's
    min_count: int = 5  # rarer words of the training captions are unknown words
    concepts: str = "extractor"  # what names things: the pictures' extractor, none, or a file of image ids and concepts
    concept_names: tuple[str, ...] = ("kind",)  # of what an extractor names: kind, colour, attribute …
    concept_confidence: float = 0.3  # names less sure than this are left out
    concept_count: int = 10  # at most so many a picture
    shuffle: float = 3.0  # how far a word moves in a corrupted sentence
    drop: float = 0.1  # how often it is lost
    autoencoder_steps: int = 0
    sentence_gan_steps: int = 0
    concept_steps: int = 0
    pseudo_steps: int = 0
    vectors: str | None = None  # what words start from: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 256  # pictures captioned at once
    decoding: DecodingConfig = field(
        default_factory=lambda: DecodingConfig(finished_beams="keep_beam_full", unfinished_beams="fallback")
    )

    def __post_init__(self) -> None:
        check_ranges(self, "share concept_confidence drop", "between 0 and 1")
        check_ranges(self, "max_words concept_count eval_batch", "at least 1")
        check_ranges(self, "shuffle autoencoder_steps sentence_gan_steps concept_steps pseudo_steps", "zero or more")
        if self.concepts == "none" and self.concept_steps + self.pseudo_steps:
            raise SaccadeError("concept_steps and pseudo_steps learn from concepts: concepts=none gives them none")

    def stage(self, step: int) -> tuple[Stage, int]:
        """What is learned at a step of the run, and the how many-th step of that it is."""
        stages: tuple[Stage, ...] = ("autoencoder", "sentence_gan", "concept", "pseudo")
        for stage in stages:
            length: int = getattr(self, f"{stage}_steps")
            if step < length:
                return stage, step
            step -= length
        return "game", step


class UnpairedCaptioningTask:
    """Pictures of one part of a split, sentences of the other; paired data serve the evaluation only."""

    selection = "cider_d"

    def __init__(
        self,
        train: CaptionedImages,
        dev: CaptionedImages,
        read: Read,
        config: UnpairedCaptioningConfig,
        augmentation: AugmentConfig | None = None,
    ) -> None:
        self.train, self.dev, self.config, self.augmentation = train, dev, config, augmentation
        self.pictures, sentences = take_apart(train, config.share)
        self.texts = cut(read([train.texts[i] for i in sentences]), config.max_words)
        named = (config.concepts, config.concept_names, config.concept_confidence, config.concept_count)
        self.concepts = concept_table(train, self.pictures, read, *named)
        self.rolling = DecodingConfig(max_length=config.max_words + 1, suppress_unk=False)  # <end> is a word there

    def __len__(self) -> int:
        return max(len(self.pictures), len(self.texts))

    def batch(self, indices: Sequence[int]) -> UnpairedBatch:
        """Which picture and which sentence share an index means nothing: no loss compares the two."""
        rows = [i % len(self.pictures) for i in indices]
        texts = self.texts.select([i % len(self.texts) for i in indices]).trimmed()
        concepts = self.concepts.select(rows)
        return UnpairedBatch(
            self.train.images.batch([self.pictures[i] for i in rows]), texts, concepts.words, concepts.scores
        )

    def loss(self, model: Unsupervised, batch: UnpairedBatch, step: int) -> Loss:
        stage, turn = self.config.stage(step)
        play = self._criticise if turn % 2 == 0 else self._improve
        losses: dict[Stage, Callable[[], Loss]] = {
            "autoencoder": lambda: self._autoencode(model, batch),
            "sentence_gan": lambda: play(model, batch, None),
            "concept": lambda: self._say_concepts(model, batch),
            "pseudo": lambda: self._say_pseudo_captions(model, batch),
            "game": lambda: play(model, batch, self._extract(model, batch)),
        }
        return losses[stage]()

    def _extract(self, model: Unsupervised, batch: UnpairedBatch) -> RegionBatch:
        return model.extract(vary_images(model, batch.images, self.augmentation))

    def _autoencode(self, model: Unsupervised, batch: UnpairedBatch) -> Loss:
        recalled = model.critic.score(*corrupt(batch.texts, self.config.shuffle, self.config.drop)).recalled
        return model.sentence_loss(batch.texts, recalled), {}

    def _begin(self, model: Unsupervised, batch: UnpairedBatch, images: RegionBatch | None) -> tuple[Tensor, Tensor]:
        """f and the regions' shares in it; or noise of the same length for each sentence, which is about no picture."""
        if images is not None:
            return model.encode_images(images)
        noise = torch.randn(len(batch.texts), model.config.dim, device=batch.texts.tokens.device)
        return unit(noise), noise.new_zeros(len(noise), 1)

    def _criticise(self, model: Unsupervised, batch: UnpairedBatch, images: RegionBatch | None) -> Loss:
        """The critic's turn: people's sentences or the captioner's, and which picture the latter are about."""
        with torch.no_grad():
            vectors, shares = self._begin(model, batch, images)
            words = sample(model, model.start_from(vectors, shares), self.rolling).words
        losses = model.discriminator_losses(batch.texts, _rollout(words, vectors, batch, images))
        total = torch.stack([*losses.values()]).sum()
        return total, {"critic_loss": total, **losses}

    def _improve(self, model: Unsupervised, batch: UnpairedBatch, images: RegionBatch | None) -> Loss:
        """The captioner's turn: more of what earned more than the greedy sentence; and any sentence said again."""
        vectors, shares = self._begin(model, batch, images)
        state = model.start_from(vectors, shares)
        said, plain = _alike(sample(model, state, self.rolling), greedy(model, state, self.rolling))
        rollout = _rollout(said.words, vectors, batch, images)
        loss, earned = model.generator_loss(said.log_probabilities, rollout, plain.words)
        figures = {"policy_loss": loss, "reward": earned, "said_words": said.lengths.float().mean()}
        if model.config.sentence_weight and images is not None:
            with torch.no_grad():
                corrupted = corrupt(batch.texts, self.config.shuffle, self.config.drop)
                recalled = model.critic.score(*corrupted).recalled
            sentences = model.sentence_loss(batch.texts, recalled)
            figures["sentence_loss"] = sentences
            loss = loss + model.config.sentence_weight * sentences
        return loss, figures

    def _say_concepts(self, model: Unsupervised, batch: UnpairedBatch) -> Loss:
        """Sentences from the concepts that they name; those that name none teach nothing here."""
        known = torch.zeros(len(model.vocabulary), dtype=torch.bool, device=batch.texts.tokens.device)
        known[self.concepts.words[self.concepts.scores > 0].to(known.device)] = True
        words, mask = keywords(batch.texts, known)
        vectors = _reader(model).whole(words, mask)
        return model.sentence_loss(batch.texts, vectors, mask.any(dim=1)), {}

    def _say_pseudo_captions(self, model: Unsupervised, batch: UnpairedBatch) -> Loss:
        """Pictures are to bring about what their concepts do; meanwhile concepts go on learning from sentences."""
        words, found = batch.concepts.flip(1), batch.scores.flip(1) > 0  # the surest is read last
        order = (~found).int().argsort(dim=1, stable=True)  # padding behind
        words, found = words.gather(1, order), found.gather(1, order)
        with torch.no_grad(), current_autocast(batch.scores):
            state: CaptionState = model.start_from(_reader(model).whole(words, found))
            captions = greedy(model, state, self.rolling).sentences()
        vectors, _ = model.encode_images(self._extract(model, batch))
        pictures = model.sentence_loss(captions, vectors, found.any(dim=1))
        sentences, _ = self._say_concepts(model, batch)
        return pictures + sentences, {"pseudo_loss": pictures, "concept_loss": sentences}

    def evaluate(self, model: Unsupervised) -> dict[str, float]:
        return caption_figures(model, self.dev, self.config.decoding, self.config.eval_batch)


def _reader(model: Unsupervised) -> SentenceReader:
    if model.reader is None:
        raise SaccadeError("concept_steps and pseudo_steps need a model that reads concepts: concept_reader=true")
    return model.reader


def _rollout(
    words: Tensor, vectors: Float[Tensor, "row dim"], batch: UnpairedBatch, images: RegionBatch | None
) -> Rollout:
    """What was said, of pictures with their concepts, or of nothing."""
    if images is None:
        return Rollout(words, None, batch.concepts[:, :0], batch.scores[:, :0])
    return Rollout(words, vectors.detach(), batch.concepts, batch.scores)


def _alike(one: DecodedCaptions, other: DecodedCaptions) -> tuple[DecodedCaptions, DecodedCaptions]:
    """Both with as many columns as the longer of them."""
    steps = max(one.words.shape[1], other.words.shape[1])
    return one.pad(steps - one.words.shape[1]), other.pad(steps - other.words.shape[1])


@dataclass(frozen=True)
class UnpairedBatch(Batch):
    """Some pictures with what a detector sees in them, and some sentences of other pictures."""

    images: RegionBatch | PictureBatch
    texts: TextBatch
    concepts: Int[Tensor, "image concept"]  # surest first, padded with <pad>
    scores: Float[Tensor, "image concept"]  # zero at padding


def take_apart(data: CaptionedImages, share: float) -> tuple[list[int], list[int]]:
    """Pictures of the first `share` of a split, without their sentences; sentences of the rest, without pictures."""
    first = round(share * len(data.images))
    texts = [text for text, image in enumerate(data.image_of_text.tolist()) if image >= first]
    if not first or not texts:
        raise SaccadeError(
            f"share={share} of the {len(data.images)} pictures of {data.name}/{data.split} leaves "
            f"{'no pictures' if not first else 'no sentences'}"
        )
    return list(range(first)), texts


@dataclass(frozen=True)
class ConceptTable(Batch):
    """The concepts of each picture that the model has a word for."""

    words: Int[Tensor, "image concept"]
    scores: Float[Tensor, "image concept"]


def concept_table(
    data: CaptionedImages,
    pictures: Sequence[int],
    read: Read,
    source: str = "extractor",
    attributes: Sequence[str] = ("kind",),
    confidence: float = 0.3,
    most: int = 10,
) -> ConceptTable:
    """What the extractor names in the pictures, or a file, or `none`; names that are no single word are left out."""
    if source == "none":
        return ConceptTable(torch.zeros(len(pictures), 1, dtype=torch.long), torch.zeros(len(pictures), 1))
    if source == "extractor":
        found = concepts_by_extractor(data, pictures, attributes, confidence)
    else:
        found = read_concepts(Path(source), [data.images.ids[i] for i in pictures])
    names = sorted({name for named in found for name in named})
    ids = {}
    for name in names:
        tokens = read([name]).tokens[0, 1:-1].tolist() if name.strip() else []
        if len(tokens) == 1 and tokens[0] != UNKNOWN:
            ids[name] = tokens[0]
    if not ids:
        raise SaccadeError(
            f"none of the {len(names)} concepts found in {data.name}/{data.split} is a word of the sentences: "
            f"lower concept_confidence ({confidence}), or give concepts=none"
        )
    words = torch.zeros(len(pictures), most, dtype=torch.long)
    scores = torch.zeros(len(pictures), most)
    for row, named in enumerate(found):
        known = [(ids[name], sure) for name, sure in named.items() if name in ids][:most]
        for column, (word, sure) in enumerate(known):
            words[row, column], scores[row, column] = word, sure
    return ConceptTable(words, scores)


def corrupt(
    texts: TextBatch, shuffle: float, drop: float
) -> tuple[Int[Tensor, "text word"], Bool[Tensor, "text word"]]:
    """Sentences without <start>: words change places with near ones, some are lost; <end> stays behind them.

    The new order is that of place + U(0, `shuffle` + 1), so that no word goes further than `shuffle` places.
    """
    place = torch.arange(texts.tokens.shape[1], device=texts.tokens.device, dtype=torch.float)
    keys = place + torch.rand(texts.tokens.shape, device=place.device) * (shuffle + 1)
    lost = torch.rand(texts.tokens.shape, device=place.device) < drop
    end = texts.tokens == END
    keys = keys.masked_fill(lost & ~end, torch.inf).masked_fill(end, 2 * len(place) + shuffle)
    keys = keys.masked_fill(~texts.mask, torch.inf)
    keys[:, 0] = torch.inf
    return in_order(texts.tokens, keys)


def keywords(
    texts: TextBatch, known: Bool[Tensor, " word"]
) -> tuple[Int[Tensor, "text word"], Bool[Tensor, "text word"]]:
    """The words of each sentence that are concepts, in any order."""
    keys = torch.rand(texts.tokens.shape, device=texts.tokens.device)
    return in_order(texts.tokens, keys.masked_fill(~(known[texts.tokens] & texts.mask), torch.inf))


def in_order(
    words: Int[Tensor, "text word"], keys: Float[Tensor, "text word"]
) -> tuple[Int[Tensor, "text kept"], Bool[Tensor, "text kept"]]:
    """The words by their keys, without those whose key is infinite; at least one column is left."""
    kept = keys.isfinite()
    longest = max(int(kept.sum(dim=1).max()), 1) if len(words) else 1
    order = keys.argsort(dim=1, stable=True)[:, :longest]
    mask = kept.gather(1, order)
    return words.gather(1, order).masked_fill(~mask, 0), mask


SPEC: TaskSpec[Unsupervised, CaptionedImages] = TaskSpec(
    name="unpaired_captioning",
    noun=CAPTIONING.noun,
    does=CAPTIONING.does,
    protocol=Unsupervised,
    config=UnpairedCaptioningConfig,
    open=open_captioned,
    prepare=CAPTIONING.prepare,
    task=lambda model, train, dev, settings, vary: UnpairedCaptioningTask(train, dev, model.read, settings, vary),
    evaluator=CAPTIONING.evaluator,
    predictor=CAPTIONING.predictor,
    verbs=CAPTIONING.verbs,
    next_steps=CAPTIONING.next_steps,
    options=CAPTIONING.options,
)
