"""Matchers: pictures and texts are encoded apart and compared, and show which word goes with which region."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar

from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import Alignment, Batch, ImageCode, PictureBatch, RegionBatch, TextBatch, TextCode
from saccade.language import Vocabulary
from saccade.models.base.model import Model
from saccade.nn.attention import summed
from saccade.nn.encode import RegionEncoder, WordEncoder, full_precision
from saccade.nn.transformer import TransformerWords
from saccade.nn.whole import cosine_weights
from saccade.ops.all_pairs import ALL_PAIRS, PairsProblem
from saccade.ops.dispatch import Operator

F = TypeVar("F", bound="Fragments")
LOCATING_SHARPNESS = 9.0  # λ of `locate`: SCAN's for its own attention


class Matcher(Model):
    """Encoding apart from scoring is what makes indexing and two-stage search possible."""

    intended_use = "To rank pictures by how well they fit a sentence, and sentences by a picture, and to show why."
    operator: ClassVar[Operator[Any, Tensor] | None] = None
    """What computes the table of all pairs, with its backends in `ops.dispatch`; None: one product of whole vectors."""
    whole_phrases: ClassVar[bool] = False  # `heat` reads a phrase as one; else as the mean of its words

    @property
    def matches(self) -> bool:
        """Whether it has learned to; a model of several tasks may have been trained without this one."""
        return True

    @abstractmethod
    def encode_images(self, images: RegionBatch) -> ImageCode: ...

    @abstractmethod
    def encode_texts(self, texts: TextBatch) -> TextCode: ...

    @abstractmethod
    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        """Every picture with every text."""

    @abstractmethod
    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        """Picture p with text p: the weight of every word–region pair."""

    def locate(self, images: ImageCode, texts: TextCode) -> Alignment:
        """`align`, with the weights by which words are shown in the picture and point at things in it."""
        return self.align(images, texts)

    def shown(self, images: ImageCode) -> Bool[Tensor, "image region"]:
        """Where words can be found: in all regions that are real, unless some of them are no place."""
        return images.mask

    def heat(
        self, images: ImageCode, texts: TextCode, phrases: Float[Tensor, "pair phrase word"]
    ) -> Float[Tensor, "pair phrase region"]:
        """Where phrases of text p are in picture p, `phrases` having 1 at the words of each: what makes every matcher
        a grounder. The mean of its words' weights in `locate`."""
        weights = self.locate(images, texts).weights
        return summed(phrases / phrases.sum(dim=2, keepdim=True).clamp(min=1), weights)

    def ranked(self, images: ImageCode, texts: TextCode) -> tuple[Float[Tensor, "image text"], ...]:
        """The tables of scores that training ranks, each with a loss of its own; their sum is the similarity, or where
        they have `ranking_weights` the first is."""
        return (self.similarity(images, texts),)

    @property
    def ranking_weights(self) -> tuple[float, ...]:
        """How much the loss of each of the `ranked` tables counts; none: all alike."""
        return ()

    @property
    def budget(self) -> int:
        """Bytes that temporaries of the table of all pairs may take."""
        return int(getattr(self.config, "budget_mb", 256)) << 20

    def own_losses(
        self, images: ImageCode, texts: TextBatch, owner: Int[Tensor, " text"]
    ) -> dict[str, Float[Tensor, ""]]:
        """The paper's losses beside ranking, by name; text t describes picture `owner[t]`."""
        return {}

    def forward(self, images: RegionBatch | PictureBatch, texts: TextBatch) -> Float[Tensor, "image text"]:
        return self.similarity(self.encode_images(self.extract(images)), self.encode_texts(texts))


@dataclass(frozen=True)
class EncoderConfig:
    """The sizes of the two encoders."""

    region_dim: int = 2048
    word_dim: int = 300
    dim: int = 1024  # the common space
    layers: int = 1  # of the GRU
    bidirectional: bool = True
    word_encoder: Literal["gru", "minilm"] = "gru"  # minilm: a pre-trained transformer; not in the papers
    word_lr_scale: float = 0.1  # how fast a pre-trained word encoder learns, beside the rest of the model
    dropout: float = 0.0  # of region features and word vectors in training; none in the papers
    standardise: bool = False  # region features to mean 0 and spread 1, channel by channel; not in the papers


class EncoderMatcher(Matcher):
    """Encodes regions by a linear map and words by a GRU (or MiniLM); each paper compares them in its own way."""

    def __init__(
        self,
        config: EncoderConfig,
        vocabulary: Vocabulary,
        extractor: str | None = None,
        weight_norm: bool = False,
        unit_regions: bool = False,
        unit_words: bool = False,
    ) -> None:
        super().__init__(config, vocabulary, extractor)
        dim, dropout = config.dim, config.dropout
        gru = config.layers, config.bidirectional
        self.regions = RegionEncoder(config.region_dim, dim, weight_norm, unit_regions, dropout, config.standardise)
        self.words: WordEncoder | TransformerWords
        if config.word_encoder == "minilm":
            self.words = TransformerWords(len(vocabulary), dim, unit_words, dropout)
        else:
            self.words = WordEncoder(len(vocabulary), config.word_dim, dim, *gru, unit_words, dropout)

    def begin(self) -> None:
        if isinstance(self.words, TransformerWords):
            self.words.load_minilm(self.vocabulary)

    def parameter_groups(self) -> list[dict[str, Any]]:
        own, *others = super().parameter_groups()
        if not isinstance(self.words, TransformerWords):
            return [own, *others]
        fresh = set(map(id, self.words.fc.parameters()))
        learnt = {id(weight) for weight in self.words.parameters()} - fresh
        slow = {"params": [w for w in own["params"] if id(w) in learnt], "factor": self.config.word_lr_scale}
        return [{**own, "params": [w for w in own["params"] if id(w) not in learnt]}, slow, *others]


@dataclass(frozen=True)
class FragmentConfig(EncoderConfig):
    """SCAN's settings, which the later papers kept."""

    region_encoder: Literal["linear", "weight_norm"] = "linear"
    unit_regions: bool = True
    unit_words: bool = True
    budget_mb: int = 256  # bounds the memory of all-pairs scoring


@dataclass(frozen=True)
class Fragments(Batch):
    """The regions of pictures or the words of texts, as a paper's `prepare` gives them; a paper adds what it needs."""

    vectors: Float[Tensor, "*item part dim"]
    mask: Bool[Tensor, "*item part"]

    def trimmed(self: F, longest: int) -> F:
        return self.map(lambda tensor: tensor[:, :longest])


class FragmentMatcher(EncoderMatcher):
    """SCAN and the papers that build on it: a pair is scored from all its region vectors and all its word vectors."""

    intended_use = "To rank pictures by how well they fit a sentence, and sentences by a picture, and to show why."
    operator: ClassVar[Operator[Any, Tensor]] = ALL_PAIRS

    def __init__(self, config: FragmentConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        weight_norm = config.region_encoder == "weight_norm"
        super().__init__(config, vocabulary, extractor, weight_norm, config.unit_regions, config.unit_words)

    def encode_images(self, images: RegionBatch) -> ImageCode:
        return ImageCode(self.regions(images), images.mask)

    def encode_texts(self, texts: TextBatch) -> TextCode:
        return TextCode(self.words(texts), texts.mask)

    def prepare(self, images: ImageCode, texts: TextCode) -> tuple[Any, Any]:
        """What the paper's equations need of every picture alone and of every text alone, computed once for all pairs.

        Both are a `Batch` of tensors whose first axis counts items; the second has a `mask` [text word] and `trimmed`.
        """
        return images, texts

    @abstractmethod
    def pair(self, images: Any, texts: Any) -> Float[Tensor, "image text"]:
        """The paper's equations for every pair of some pictures and some texts, as `prepare` gives them."""

    @abstractmethod
    def alignment(self, images: Any, texts: Any) -> Alignment:
        """The same equations for picture p with text p, as `prepare` gives them, and all that they show of the pair."""

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        """`pair` of every picture with every text, or what `operator` has for it that is faster."""
        return self.operator(self.problem(images, texts))

    def problem(self, images: ImageCode, texts: TextCode) -> PairsProblem:
        return PairsProblem(self, images, texts, self.budget)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        with full_precision(images.regions):
            return self.alignment(*self.prepare(images, texts))

    def locate(self, images: ImageCode, texts: TextCode) -> Alignment:
        """`align`, with the weights softmax_i(λ s_ij): each word by itself.

        In SCAN's normaliser the words of a sentence compete for every region. That serves the score, but a word by
        itself points better, and the regions it points at are more of a reason (docs/explain.md).
        """
        with full_precision(images.regions):
            weights, _ = cosine_weights(images, texts, LOCATING_SHARPNESS)
        return replace(self.align(images, texts), weights=weights * texts.mask[..., None])
