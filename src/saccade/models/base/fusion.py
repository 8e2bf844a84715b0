"""Models that read a picture and a text together and are pre-trained: word pieces, outputs for every task, and losses.

    words    p(w_j) = softmax(E norm(gelu(W t_j)) + b), E the word vectors: cross-entropy of masked pieces
    regions  p(c_i) = softmax(U norm(gelu(W v_i)) + b): KL from the detector's classes, of masked regions of true pairs
    match    softmax(W_m z), 0 a true pair, 1 none: cross-entropy

A paper says how pictures and texts become states (`encode_images`, `encode_texts`) and how they meet (`fuse`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import (
    Answered,
    Batch,
    CandidateBatch,
    ImageCode,
    PictureBatch,
    Referred,
    RegionBatch,
    StepBatch,
    TextBatch,
    TextCode,
)
from saccade.core.config import check_ranges
from saccade.data.records import Spoken
from saccade.language import Vocabulary
from saccade.language.wordpieces import learn_pieces, read_pieces
from saccade.models.base.answerer import Answerer, AnswererConfig
from saccade.models.base.cross_encoder import CrossEncoder
from saccade.models.base.matcher import Matcher
from saccade.models.base.model import Model
from saccade.models.base.referrer import Referrer, ReferrerConfig
from saccade.nn.encode import Standardise, at_least_float32, dropout_layer, unit
from saccade.nn.transformer.bert import load_bert
from saccade.nn.transformer.blocks import EPS, Layer
from saccade.nn.transformer.embeddings import WordEmbeddings

Output = Literal["words", "regions", "match", "labels", "choice", "region_choice", "word_choice"]
PRETRAINING: tuple[Output, ...] = ("words", "regions", "match")
RegionTarget = Literal["classes", "features", "contrast"]
MATCHED = 0  # the class of true pairs
CONTRAST_PICTURES = 4  # a masked region is told from those of so many pictures, its own among them
CONTRAST_SHARPNESS = 10.0


@dataclass(frozen=True)
class FusionConfig:
    """What such models have in common; the sizes are those of a BERT."""

    region_dim: int = 2048
    dim: int = 768
    heads: int = 12
    hidden: int = 3072  # width of the two layers for each token
    pooled_dim: int = 1024
    max_words: int = 512  # pieces of a text
    segments: int = 2  # kinds of text; here there is one
    vocabulary: str = "pieces"  # learned from the captions; words: whole words; or the BERT whose pieces are taken
    vocabulary_size: int = 30522  # pieces at most, where they are learned
    used_pieces: bool = False  # of a BERT's pieces, those that the captions use and all letters; not in the paper
    bert: str | None = None  # what layers that read words start from: minilm, a folder, OWNER/NAME of the hub
    bert_lr_scale: float = 0.1  # how fast these learn, beside the rest of the model
    region_output: RegionTarget = "classes"  # what is told of masked regions
    region_labels: tuple[str, ...] = ()  # the classes of regions
    region_classes: int = 1601  # … where they have no names
    outputs: tuple[Output, ...] = PRETRAINING
    labels: int = 0  # of the output `labels`
    dropout: float = 0.1
    attention_dropout: float = 0.1
    standardise: bool = False  # region features to mean 0 and spread 1, channel by channel; not in the paper
    initial_spread: float = 0.02  # of fresh weights, BERT's; narrow layers learn sooner with more
    checkpoint_activations: bool = False  # keep only what enters each layer; the rest is computed again
    compiled: bool = False  # layers through torch.compile, quicker on a GPU once they are
    packed: bool | None = None  # leave out padding, and outputs no one asks for; none: on CPUs, which need not wait

    SIZES: ClassVar[tuple[str, ...]] = (  # that a fine-tuned model takes from what it starts from
        *("region_dim", "dim", "heads", "hidden", "pooled_dim", "max_words", "segments", "vocabulary", "standardise"),
    )

    def __post_init__(self) -> None:
        check_ranges(self, "heads hidden max_words vocabulary_size region_classes", "at least 1")
        check_ranges(self, "labels segments", "zero or more")
        check_ranges(self, "bert_lr_scale initial_spread", "more than zero")


@dataclass(frozen=True)
class Fused(Batch):
    """Pictures and texts that were read together, item by item."""

    regions: Float[Tensor, "item region dim"]
    words: Float[Tensor, "item word dim"]
    pooled: Float[Tensor, "item pooled_dim"]  # z


class Transform(nn.Module):
    """norm(gelu(W x))."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(dim, dim), nn.LayerNorm(dim, EPS)

    def forward(self, states: Float[Tensor, "*items dim"]) -> Float[Tensor, "*items dim"]:
        found: Tensor = self.norm(functional.gelu(self.dense(states)))
        return found


class Fusion(Model):
    """A picture and a text in, states of both and one vector for the pair out."""

    intended_use = "To be fine-tuned for a task on pictures and texts."
    keeps_words = True

    def __init__(self, config: FusionConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        self.standardise = Standardise(config.region_dim) if config.standardise else None
        self.text = WordEmbeddings(len(vocabulary), config.dim, config.max_words, config.segments, config.dropout)
        self.dropout = dropout_layer(config.dropout)

    def _add_outputs(self) -> None:
        """The layers of `config.outputs`, and fresh weights as BERT's; called when a paper's own layers are there."""
        config, dim, pooled = self.config, self.config.dim, self.config.pooled_dim
        wanted = set(config.outputs)
        if "words" in wanted:
            self.word_transform, self.word_bias = Transform(dim), nn.Parameter(torch.zeros(len(self.vocabulary)))
        if "regions" in wanted:
            classes = len(config.region_labels) or config.region_classes
            self.region_transform = Transform(dim)
            self.region_out = nn.Linear(dim, classes if config.region_output == "classes" else config.region_dim)
        if "match" in wanted:
            self.match_out = nn.Linear(pooled, 2)
        if "labels" in wanted:
            self.label_out = self._label_output(pooled, len(getattr(config, "answers", ())) or config.labels)
        if "choice" in wanted:
            self.choice_out = nn.Linear(pooled, 1)
        if "region_choice" in wanted:
            self.region_choice_out = nn.Linear(dim, 1)
        if "word_choice" in wanted:
            self.word_choice_out = nn.Linear(dim, 1)
        for module in self.modules():
            if config.compiled and isinstance(module, Layer):
                module.compile(dynamic=True)  # no two batches have the same number of tokens
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=config.initial_spread)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def _label_output(self, pooled: int, labels: int) -> nn.Module:
        return nn.Linear(pooled, labels)

    @abstractmethod
    def embed_regions(
        self,
        features: Float[Tensor, "image region in"],
        images: RegionBatch,
        hidden: Bool[Tensor, "image region"] | None = None,
    ) -> ImageCode:
        """States of regions before they meet words, from their `region_features`; `hidden` ones have none."""

    def encode_images(self, images: RegionBatch, hidden: Bool[Tensor, "image region"] | None = None) -> ImageCode:
        return self.embed_regions(self.region_features(images), images, hidden)

    @abstractmethod
    def fuse(self, images: ImageCode, texts: TextCode, look: Any = None) -> Fused:
        """Picture p with text p; `look` is shown what words attend to, layer by layer."""

    @abstractmethod
    def text_layers(self) -> list[nn.Module]:
        """The layers that read words, as a BERT has them."""

    @classmethod
    def own_vocabulary(cls, config: FusionConfig, texts: Sequence[str]) -> Vocabulary | None:
        """Pieces, unless whole words are wanted."""
        if config.vocabulary == "words":
            return None
        if config.vocabulary == "pieces" and config.bert is None:
            return learn_pieces(texts, config.vocabulary_size)
        known = read_pieces(config.vocabulary if config.vocabulary != "pieces" else str(config.bert))
        return known.used_in(texts) if config.used_pieces else known

    def read(self, texts: Sequence[str]) -> TextBatch:
        """Raises: SaccadeError if a text is too long: known before a training begins."""
        read = self.vocabulary.batch(texts)  # <start> is [CLS] and <end> [SEP]
        self.text.check_length(read.tokens)
        return read

    def begin(self) -> None:
        """Words, then the layers that read them, from a BERT's; where it has fewer, the last stay fresh."""
        if self.config.bert is not None:
            load_bert(self.config.bert, self.vocabulary, self.text, self.text_layers())

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What came from a BERT learns more slowly."""
        own, *others = super().parameter_groups()
        if self.config.bert is None:
            return [own, *others]
        modules: list[nn.Module] = [self.text, *self.text_layers()]
        learnt = {id(weight) for module in modules for weight in module.parameters()}
        slow = {"params": [w for w in own["params"] if id(w) in learnt], "factor": self.config.bert_lr_scale}
        return [{**own, "params": [w for w in own["params"] if id(w) not in learnt]}, slow, *others]

    def region_features(self, images: RegionBatch) -> Float[Tensor, "image region dim"]:
        """As the model takes them, zero where there is no region."""
        features = images.features if self.standardise is None else self.standardise(images.features, images.mask)
        return features * images.mask[..., None]

    def encode_texts(self, texts: TextBatch) -> TextCode:
        """t before any layer."""
        return TextCode(self.text(texts.tokens), texts.mask)

    def attention(self, images: ImageCode, texts: TextCode) -> tuple[Float[Tensor, "pair word region"], Fused]:
        """Where words look, over all layers in which words attend to regions and their heads, and what came of it.

        Of each word all weights together are one; what went to the picture as a whole, first of all, is left out.
        """
        count, seen = images.mask.shape[1], list[Tensor]()
        fused = self.fuse(images, texts, lambda weights: seen.append(weights.mean(dim=1)[..., -count:]))
        weights = torch.stack(seen).mean(dim=0) * images.mask[:, None] * texts.mask[..., None]
        return weights / weights.sum(dim=2, keepdim=True).clamp(min=1e-12), fused

    def word_logits(self, words: Float[Tensor, "*items dim"]) -> Float[Tensor, "*items word"]:
        decoded = functional.linear(self.word_transform(words), self.text.words.weight, self.word_bias)
        return at_least_float32(decoded)

    def region_outputs(self, regions: Float[Tensor, "*items dim"]) -> Float[Tensor, "*items out"]:
        """Logits of classes, or features."""
        return at_least_float32(self.region_out(self.region_transform(regions)))

    def match_logits(self, pooled: Float[Tensor, "item pooled_dim"]) -> Float[Tensor, "item 2"]:
        return at_least_float32(self.match_out(pooled))

    def word_loss(
        self, logits: Float[Tensor, "item word known"], target: Int[Tensor, "item word"]
    ) -> Float[Tensor, ""]:
        """Cross-entropy of the pieces that were masked, −1 elsewhere."""
        summed = functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-1, reduction="sum")
        return summed / (target >= 0).sum().clamp(min=1)

    def region_loss(
        self, found: Float[Tensor, "item region out"], masked: Bool[Tensor, "item region"], target: Tensor
    ) -> Float[Tensor, ""]:
        """Of the masked regions: KL(classes ‖ p), or how far features are off, or how well they are told apart."""
        if self.config.region_output == "classes":
            each = functional.kl_div(found.log_softmax(dim=-1), target, reduction="none").sum(dim=-1)
        elif self.config.region_output == "features":
            each = (found - target).square().mean(dim=-1)
        else:
            scores, own = contrast(found, target)
            each = functional.cross_entropy(scores.flatten(0, 1), own.flatten(), reduction="none").view(own.shape)
        return (each * masked).sum() / masked.sum().clamp(min=1)

    def match_loss(self, logits: Float[Tensor, "item 2"], matched: Bool[Tensor, " item"]) -> Float[Tensor, ""]:
        return functional.cross_entropy(logits, torch.where(matched, MATCHED, 1 - MATCHED))

    def forward(self, images: RegionBatch | PictureBatch, texts: TextBatch) -> Fused:
        return self.fuse(self.encode_images(self.extract(images)), self.encode_texts(texts))


def contrast(
    found: Float[Tensor, "item region dim"], target: Float[Tensor, "item region dim"]
) -> tuple[Float[Tensor, "item region other"], Int[Tensor, "item region"]]:
    """Scores by which what was found for a region picks it among the regions of a few pictures, and its own place."""
    items, count = target.shape[:2]
    step = torch.arange(min(CONTRAST_PICTURES, items), device=target.device)
    near = (torch.arange(items, device=target.device)[:, None] + step) % max(items, 1)
    keys = unit(target)
    scores = CONTRAST_SHARPNESS * unit(found) @ keys[near].flatten(1, 2).mT
    empty = (keys == 0).all(dim=-1)[near].flatten(1, 2)[:, None]
    scores = scores.masked_fill(empty, torch.finfo(scores.dtype).min)
    return scores, torch.arange(count, device=target.device).expand(items, -1)


class FusionMatcher(Fusion, CrossEncoder):
    """Fine-tuned to choose the true pair among four by the output `choice`, or with the output `match` that
    pre-training learned."""

    intended_use = "To rank a few pictures by a sentence, or sentences by a picture, and to show why."

    forward = Matcher.forward  # type: ignore[assignment]

    def score(self, fused: Fused) -> Float[Tensor, " pair"]:
        if "choice" in self.config.outputs:
            return at_least_float32(self.choice_out(fused.pooled))[:, 0]
        logits = self.match_logits(fused.pooled)
        return logits[:, MATCHED] - logits[:, 1 - MATCHED]

    def pair_scores(self, images: ImageCode, texts: TextCode) -> Float[Tensor, " pair"]:
        return self.score(self.fuse(images, texts))

    def pair_attention(self, images: ImageCode, texts: TextCode) -> tuple[Tensor, Tensor]:
        weights, fused = self.attention(images, texts)
        return weights, self.score(fused)


@dataclass(frozen=True)
class FusionAnswererConfig(AnswererConfig):
    """What answerers of this kind add to their paper's settings."""

    outputs: tuple[Output, ...] = ("labels",)


class FusionAnswerer(Fusion, Answerer):
    """Fine-tuned to answer questions by the output `labels`."""

    intended_use = "To answer questions about pictures, and to show where each word of a question looked."

    forward = Answerer.forward  # type: ignore[assignment]

    def answer(self, images: RegionBatch, questions: TextBatch) -> Answered:
        codes = self.encode_images(images), self.encode_texts(questions)
        if self.training:
            logits = at_least_float32(self.label_out(self.fuse(*codes).pooled))
            return Answered(logits, images.mask.to(logits))
        alignment, fused = self.attention(*codes)
        return Answered(at_least_float32(self.label_out(fused.pooled)), alignment[:, 0], None, alignment)


@dataclass(frozen=True)
class FusionReferrerConfig(ReferrerConfig):
    """What referrers of this kind add to their paper's settings."""

    outputs: tuple[Output, ...] = ("region_choice",)


class FusionReferrer(Fusion, Referrer):
    """Fine-tuned to choose a box by the output `region_choice`: candidates and the picture's regions are read with the
    whole of a text, in one step."""

    intended_use = Referrer.intended_use
    forward = Referrer.forward  # type: ignore[assignment]

    def read_spoken(self, texts: Sequence[Spoken]) -> StepBatch:
        whole = [text if isinstance(text, str) else " ".join(text) for text in texts]
        read = self.read(whole)
        return StepBatch(read.tokens[:, None], read.mask[:, None], tuple((text,) for text in whole))

    def refer(self, images: RegionBatch, candidates: CandidateBatch, texts: StepBatch) -> Referred:
        together = RegionBatch(
            torch.cat([candidates.features, images.features], dim=1),
            torch.cat([candidates.mask, images.mask], dim=1),
            torch.cat([candidates.boxes, images.boxes], dim=1),
        )
        sentence = TextBatch(texts.tokens[:, 0], texts.mask[:, 0])
        codes, count = (self.encode_images(together), self.encode_texts(sentence)), candidates.mask.shape[1]
        seen = None
        if self.training:
            fused = self.fuse(*codes)
        else:
            alignment, fused = self.attention(*codes)
            shares = alignment[:, :1].expand(-1, texts.mask.shape[1], -1)
            both = shares[..., :count], shares[..., count:]
            seen = [part / part.sum(dim=2, keepdim=True).clamp(min=1e-12) for part in both]  # each side by itself
        found = at_least_float32(self.region_choice_out(fused.regions[:, :count]))[..., 0]
        logits = found.masked_fill(~candidates.mask, torch.finfo(found.dtype).min)
        steps = logits[:, None].expand(-1, texts.mask.shape[1], -1)
        if seen is None:
            return Referred(logits, steps, None, None)
        return Referred(logits, steps, *seen)


LABELS = ("entailment", "neutral", "contradiction")


@dataclass(frozen=True)
class FusionEntailerConfig(FusionAnswererConfig):
    """One of three answers is right."""

    answers: tuple[str, ...] = LABELS
    output: Literal["sigmoid", "softmax"] = "softmax"


class FusionEntailer(FusionAnswerer):
    """Fine-tuned to tell whether a picture entails a sentence, contradicts it, or leaves it open."""

    intended_use = "To tell whether a picture entails a sentence, contradicts it or leaves it open."

    def read_questions(self, questions: Sequence[str]) -> TextBatch:
        """Sentences, as they are."""
        return self.read(questions)
