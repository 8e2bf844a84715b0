"""InterBERT: Vision-and-Language Interaction for Multi-modal Pretraining (Lin, Yang, Zhang, Liu, Zhou, Yang; 2020).

A text's pieces and a picture's regions go through one transformer together (interaction), so that each attends to its
own kind and to the other; then each kind goes on by itself (independence). It is pre-trained on captioned pictures by
three games (`models/base/fusion.py`), and fine-tuned with a small output for a task.

    text     t_j = norm(word_j + position_j + segment)
    image    v_i = norm(W_f f_i + W_p p_i), p a box and its share of the picture; v_0 the whole: f the regions' mean
    layer    h = norm(x + attention(x)),   x′ = norm(h + W₂ gelu(W₁ h))
    streams  [v ; t] through `layers` together;   t through `text_layers` more,   v through `image_layers` of its own
    pooled   z_t = relu(W_t t_0),   z_v = relu(W_v v_0),   z = z_t ∘ z_v

The frameworks that it is drawn beside are presets of the same blocks (`framework`): Unicoder-VL (Li, Duan, Fang, Gong,
Jiang, Zhou; AAAI 2020), ViLBERT (Lu, Batra, Parikh, Lee; NeurIPS 2019) and LXMERT (Tan, Bansal; EMNLP 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from saccade.batch import ImageCode, RegionBatch, TextCode
from saccade.core.config import check_ranges
from saccade.language import Vocabulary
from saccade.models.base.fusion import (
    Fused,
    Fusion,
    FusionAnswerer,
    FusionAnswererConfig,
    FusionConfig,
    FusionEntailer,
    FusionEntailerConfig,
    FusionMatcher,
    FusionReferrer,
    FusionReferrerConfig,
    Output,
)
from saccade.models.base.model import register
from saccade.nn.transformer.embeddings import Positions, RegionEmbeddings, locations, whole_location
from saccade.nn.transformer.streams import CoAttention, Interaction, Sizes, Streams


class Framework(NamedTuple):
    """How many layers of which kind, and what pools."""

    layers: int  # all tokens together
    text_layers: int
    image_layers: int
    cross_layers: int
    whole: bool  # the picture as a whole is one more region
    pooled: Literal["both", "text"]  # z of z_t and z_v, or z_t alone
    positions_apart: bool = False


FRAMEWORKS = {
    "interbert": Framework(6, 6, 6, 0, True, "both"),
    "unicoder_vl": Framework(12, 0, 0, 0, False, "text"),
    "vilbert": Framework(0, 6, 0, 6, True, "both"),
    "lxmert": Framework(0, 9, 5, 5, False, "text", True),
}
DEPTHS = ("layers", "text_layers", "image_layers", "cross_layers")


@dataclass(frozen=True)
class InterBertConfig(FusionConfig):
    """The released settings; numbers of layers that are not given are the framework's."""

    framework: Literal["interbert", "unicoder_vl", "vilbert", "lxmert"] = "interbert"
    image_heads: int = 8  # of layers that read regions alone
    image_hidden: int = 3072
    layers: int | None = None  # that read words and regions together
    text_layers: int | None = None
    image_layers: int | None = None
    cross_layers: int | None = None
    fusion: Literal["product", "sum"] = "product"  # of z_t and z_v
    positions: Positions = "linear"  # of boxes; mlp: with a hidden layer

    SIZES: ClassVar[tuple[str, ...]] = (
        *(*FusionConfig.SIZES, "framework", "image_heads", "image_hidden", *DEPTHS, "fusion", "positions"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, "image_heads image_hidden", "at least 1")
        check_ranges(self, " ".join(DEPTHS), "zero or more")

    @property
    def preset(self) -> Framework:
        """The framework with the numbers of layers that were given."""
        given = {name: getattr(self, name) for name in DEPTHS}
        return FRAMEWORKS[self.framework]._replace(**{name: n for name, n in given.items() if n is not None})


@register(
    "interbert",
    task="pretraining",
    title="InterBERT: Vision-and-Language Interaction for Multi-modal Pretraining",
    venue="Lin et al., 2020",
)
class InterBert(Fusion):
    Config = InterBertConfig
    config: InterBertConfig

    def __init__(self, config: InterBertConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        preset, dim = config.preset, config.dim
        self.image = RegionEmbeddings(config.region_dim, dim, config.positions, preset.positions_apart, config.dropout)
        self.streams = self._streams()
        pools = bool({"match", "labels", "choice"} & set(config.outputs))
        self.pool_text = nn.Linear(dim, config.pooled_dim) if pools else None
        self.pool_image = nn.Linear(dim, config.pooled_dim) if pools and preset.pooled == "both" else None
        self._add_outputs()

    def _streams(self) -> Streams:
        config, preset = self.config, self.config.preset
        sizes = Sizes(
            config.dim,
            config.heads,
            config.image_heads,
            config.hidden,
            config.image_hidden,
            config.dropout,
            config.attention_dropout,
            config.packed,
            config.checkpoint_activations,
        )
        apart = preset.text_layers, preset.image_layers
        if not preset.cross_layers:
            return Interaction(sizes, preset.layers, *apart)
        return CoAttention(sizes, *apart, preset.cross_layers, feeds=config.framework != "lxmert")

    def text_layers(self) -> list[nn.Module]:
        streams = self.streams
        if isinstance(streams, Interaction):
            return [*streams.shared, *streams.text]
        assert isinstance(streams, CoAttention)
        return [*streams.text, *streams.text_after]

    def embed_regions(
        self,
        features: Float[Tensor, "image region in"],
        images: RegionBatch,
        hidden: Bool[Tensor, "image region"] | None = None,
    ) -> ImageCode:
        """v before any layer; `pooled` is that of the whole picture."""
        if hidden is not None:
            features = features.masked_fill(hidden[..., None], 0)
        states = self.image(features, locations(images.boxes))
        if not self.config.preset.whole:
            return ImageCode(states, images.mask)
        mean = features.sum(dim=1) / images.mask.sum(dim=1, keepdim=True).clamp(min=1)
        return ImageCode(states, images.mask, self.image(mean, whole_location(mean)))

    def fuse(self, images: ImageCode, texts: TextCode, look: Any = None) -> Fused:
        states, mask = images.regions, images.mask
        if images.pooled is not None:
            states = torch.cat([images.pooled[:, None], states], dim=1)
            mask = torch.cat([torch.ones_like(mask[:, :1]), mask], dim=1)
        regions, words = self.streams(states, mask, texts.words, texts.mask, look)
        return Fused(regions if images.pooled is None else regions[:, 1:], words, self.pool(regions, words))

    def pool(
        self, regions: Float[Tensor, "item region dim"], words: Float[Tensor, "item word dim"]
    ) -> Float[Tensor, "item pooled_dim"]:
        """z of the first tokens; of a model without an output for pairs, the text's first token."""
        if self.pool_text is None:
            return words[:, 0]
        pooled: Tensor = self.pool_text(words[:, 0]).relu()
        if self.pool_image is not None:
            image = self.pool_image(regions[:, 0]).relu()
            pooled = pooled * image if self.config.fusion == "product" else pooled + image
        found: Tensor = self.dropout(pooled)
        return found


@dataclass(frozen=True)
class InterBertMatchingConfig(InterBertConfig):
    outputs: tuple[Output, ...] = ("choice",)  # or ("match",), which pre-training learned
    budget_mb: int = 256  # bounds the memory of all-pairs scoring


@register("interbert_matching", task="matching", title="InterBERT, fine-tuned for retrieval", venue="Lin et al., 2020")
class InterBertMatching(InterBert, FusionMatcher):
    Config = InterBertMatchingConfig


@dataclass(frozen=True)
class InterBertAnsweringConfig(FusionAnswererConfig, InterBertConfig):
    pass


@register(
    "interbert_answering", task="answering", title="InterBERT, fine-tuned for questions", venue="Lin et al., 2020"
)
class InterBertAnswering(InterBert, FusionAnswerer):
    Config = InterBertAnsweringConfig


@dataclass(frozen=True)
class InterBertReferringConfig(FusionReferrerConfig, InterBertConfig):
    pass


@register(
    "interbert_referring", task="referring", title="InterBERT, tuned to choose a region", venue="Lin et al., 2020"
)
class InterBertReferring(InterBert, FusionReferrer):
    Config = InterBertReferringConfig


@dataclass(frozen=True)
class InterBertEntailmentConfig(FusionEntailerConfig, InterBertConfig):
    pass


@register(
    "interbert_entailment",
    task="entailment",
    title="InterBERT, fine-tuned for visual entailment",
    venue="Lin et al., 2020",
)
class InterBertEntailment(InterBert, FusionEntailer):
    Config = InterBertEntailmentConfig
