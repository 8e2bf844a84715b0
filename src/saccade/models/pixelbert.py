"""Pixel-BERT: Aligning Image Pixels with Text by Deep Multi-Modal Transformers (Huang, Zeng, Liu, Fu, Fu; 2020).

No regions are detected: the cells of a CNN's last map, trained along with everything else, go through one transformer
together with a text's pieces. In pre-training each picture shows a random part of its cells at every step.

    image    v_i = W max_{2×2} CNN(I)_i,   v̂_i = v_i + s, one s for all     (`grid:…~max2`, trained by `backbone.train`)
    sample   100 of the v̂ of each picture, drawn anew at every step of pre-training; all of them later on
    text     t_j = norm(word_j + position_j)
    layer    h = norm(x + attention(x)),   x′ = norm(h + W₂ gelu(W₁ h))
    pooled   z = tanh(W_z t_0) of the layers' [t ; v̂]
    words    p(w_j) = softmax(E norm(gelu(W t_j)) + b), E the word vectors: cross-entropy of masked pieces
    match    softmax(W_m z): cross-entropy, random texts the wrong ones

There is no official code; `reduce=conv`, `image_norm`, `rows`, `columns`, `segments` and `word_average` are the form of
a re-implementation that others use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import Answered, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.cross_encoder import Pairs
from saccade.models.base.fusion import (
    Fused,
    Fusion,
    FusionAnswerer,
    FusionAnswererConfig,
    FusionConfig,
    FusionEntailer,
    FusionEntailerConfig,
    FusionMatcher,
    Output,
)
from saccade.models.base.model import register
from saccade.nn.encode import dropout_layer
from saccade.nn.negatives import other_items
from saccade.nn.transformer.blocks import EPS
from saccade.nn.transformer.streams import Interaction, Sizes

POOL = 2  # cells a side that a convolution's output is pooled by


@dataclass(frozen=True)
class PixelBertConfig(FusionConfig):
    """The paper's settings, with ResNet-50."""

    layers: int = 12
    pooled_dim: int = 768
    segments: int = 0  # kinds of text; the re-implementation adds the first of two
    samples: int = 100  # cells of each picture that a step of training sees; 0: all
    reduce: Literal["linear", "conv"] = "linear"  # conv: 3 × 3 cells, then the largest of 2 × 2, rectified
    image_norm: bool = False  # layer normalisation of v̂, not in the paper
    rows: int = 0  # with columns, tables of a cell's row and column are added; 0: none, as in the paper
    columns: int = 0
    word_average: Literal["masked", "all"] = "masked"  # all: the loss of words is divided by all places of the batch
    outputs: tuple[Output, ...] = ("words", "match")

    SIZES: ClassVar[tuple[str, ...]] = (*FusionConfig.SIZES, "layers", "reduce", "image_norm", "rows", "columns")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, "layers samples rows columns", "zero or more")
        if bool(self.rows) != bool(self.columns):
            raise SaccadeError("model.rows and model.columns go together: give both, or none")


class PixelEmbeddings(nn.Module):
    """v̂ of a map's cells."""

    def __init__(self, config: PixelBertConfig) -> None:
        super().__init__()
        dim = config.dim
        self.reduce: nn.Module = nn.Linear(config.region_dim, dim)
        if config.reduce == "conv":
            self.reduce = nn.Conv2d(config.region_dim, dim, 3, padding=1, bias=False)
        self.kind = nn.Parameter(config.initial_spread * torch.randn(dim))  # s
        self.rows = nn.Embedding(config.rows, dim) if config.rows else None
        self.columns = nn.Embedding(config.columns, dim) if config.columns else None
        self.norm = nn.LayerNorm(dim, EPS) if config.image_norm else None
        self.dropout = dropout_layer(config.dropout)

    def convolve(self, cells: Float[Tensor, "image in row column"]) -> Float[Tensor, "image dim half_row half_column"]:
        return functional.max_pool2d(self.reduce(cells), POOL).relu()

    def forward(
        self, reduced: Float[Tensor, "image region dim"], boxes: Float[Tensor, "image region 4"]
    ) -> Float[Tensor, "image region dim"]:
        states = reduced + self.kind
        if self.rows is not None and self.columns is not None:
            row, column = places(boxes)
            states = states + self.rows(row.clamp(max=self.rows.num_embeddings - 1))
            states = states + self.columns(column.clamp(max=self.columns.num_embeddings - 1))
        found: Tensor = self.dropout(states if self.norm is None else self.norm(states))
        return found


def places(boxes: Float[Tensor, "*image 4"]) -> tuple[Int[Tensor, " *image"], Int[Tensor, " *image"]]:
    """Row and column of cells of one size, by where they lie."""
    column, row = (boxes[..., :2] / (boxes[..., 2:] - boxes[..., :2]).clamp(min=1e-6)).round().long().unbind(dim=-1)
    return row, column


@register(
    "pixelbert",
    task="pretraining",
    title="Pixel-BERT: Aligning Image Pixels with Text by Deep Multi-Modal Transformers",
    venue="Huang et al., 2020",
)
class PixelBert(Fusion):
    Config = PixelBertConfig
    config: PixelBertConfig

    def __init__(self, config: PixelBertConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        self.image = PixelEmbeddings(config)
        memory = config.packed, config.checkpoint_activations
        rates = config.dropout, config.attention_dropout
        sizes = Sizes(config.dim, config.heads, config.heads, config.hidden, config.hidden, *rates, *memory)
        self.streams = Interaction(sizes, config.layers, 0, 0)
        self.pool_text = nn.Linear(config.dim, config.pooled_dim)
        self._add_outputs()

    def _label_output(self, pooled: int, labels: int) -> nn.Module:
        """Two layers."""
        return nn.Sequential(nn.Linear(pooled, 2 * pooled), nn.ReLU(), nn.Linear(2 * pooled, labels))

    def text_layers(self) -> list[nn.Module]:
        return [*self.streams.shared]

    def embed_regions(
        self,
        features: Float[Tensor, "image region in"],
        images: RegionBatch,
        hidden: Bool[Tensor, "image region"] | None = None,
    ) -> ImageCode:
        """v̂; in training those that were drawn. Nothing is hidden of the picture in this paper, though it may be."""
        if hidden is not None:
            features = features.masked_fill(hidden[..., None], 0)
        boxes, mask = images.boxes, images.mask
        if self.config.reduce == "conv":
            cells = as_map(features, boxes)
            mask = mask[:, :1].expand(-1, (cells.shape[2] // POOL) * (cells.shape[3] // POOL))
            boxes = pooled_boxes(cells).expand(len(cells), -1, -1)
            reduced = self.image.convolve(cells).flatten(2).mT
        else:
            reduced = self.image.reduce(features)
        states = self.image(reduced, boxes.to(reduced)) * mask[..., None]
        count = self.config.samples
        if not self.training or not count or count >= mask.shape[1]:
            return ImageCode(states, mask, boxes=boxes if self.config.reduce == "conv" else None)
        drawn = (torch.rand(mask.shape, device=mask.device) + mask).topk(count, dim=1).indices
        item = torch.arange(len(mask), device=mask.device)[:, None]
        return ImageCode(states[item, drawn], mask[item, drawn])

    def fuse(self, images: ImageCode, texts: TextCode, look: Any = None) -> Fused:
        regions, words = self.streams(images.regions, images.mask, texts.words, texts.mask, look)
        return Fused(regions, words, self.dropout(self.pool(words)))

    def pool(self, words: Float[Tensor, "item word dim"]) -> Float[Tensor, "item pooled_dim"]:
        """z."""
        pooled: Tensor = self.pool_text(words[:, 0]).tanh()
        return pooled

    def word_loss(
        self, logits: Float[Tensor, "item word known"], target: Int[Tensor, "item word"]
    ) -> Float[Tensor, ""]:
        loss = super().word_loss(logits, target)
        return loss if self.config.word_average == "masked" else loss * (target >= 0).float().mean()


def as_map(
    features: Float[Tensor, "image region in"], boxes: Float[Tensor, "image region 4"]
) -> Float[Tensor, "image in row column"]:
    """Cells, listed row by row, as the map they are of. Where they lie is read from the device.

    Raises: SaccadeError if they are no cells of one grid.
    """
    width, height = (boxes[0, 0, 2:] - boxes[0, 0, :2]).clamp(min=1e-6).tolist() if boxes.numel() else (1.0, 1.0)
    rows, columns = round(1 / height), round(1 / width)
    if rows * columns > features.shape[1] or min(rows, columns) < POOL:
        raise SaccadeError(
            f"model.reduce=conv reads all cells of one grid (extractor=grid:…), {POOL} or more a side: "
            f"{features.shape[1]} regions of {width:.2f} × {height:.2f} are none"
        )
    return features[:, : rows * columns].mT.reshape(len(features), -1, rows, columns)


def pooled_boxes(cells: Float[Tensor, "image in row column"]) -> Float[Tensor, "region 4"]:
    """Where the largest of 2 × 2 cells come from."""
    rows, columns = cells.shape[2:]
    y, x = (torch.arange(n // POOL, device=cells.device) * POOL / n for n in (rows, columns))
    first = torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1], dim=-1).flatten(0, 1)
    return torch.cat([first, first + first.new_tensor([POOL / columns, POOL / rows])], dim=1)


@dataclass(frozen=True)
class PixelBertMatchingConfig(PixelBertConfig):
    outputs: tuple[Output, ...] = ("match",)  # which pre-training learned
    samples: int = 0
    wrong_pairs: int = 20  # wrong pairs of each text, among which it chooses
    budget_mb: int = 256  # bounds the memory of all-pairs scoring

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, "wrong_pairs", "at least 1")


@register(
    "pixelbert_matching", task="matching", title="Pixel-BERT, fine-tuned for retrieval", venue="Huang et al., 2020"
)
class PixelBertMatching(PixelBert, FusionMatcher):
    Config = PixelBertMatchingConfig
    config: PixelBertMatchingConfig

    def choices(self, texts: TextBatch, owner: Int[Tensor, " text"], same: Bool[Tensor, "image text"]) -> list[Pairs]:
        """The true pair, then the picture with other texts and the text with other pictures in turn, at random."""
        text, others = torch.arange(len(texts), device=owner.device), ~same[owner]
        wrong = [
            (owner, other_items(others)) if n % 2 == 0 else (other_items(~same.T), text)
            for n in range(self.config.wrong_pairs)
        ]
        return [(owner, text), *wrong]


@dataclass(frozen=True)
class PixelBertAnsweringConfig(FusionAnswererConfig, PixelBertConfig):
    samples: int = 0


@register(
    "pixelbert_answering", task="answering", title="Pixel-BERT, fine-tuned for questions", venue="Huang et al., 2020"
)
class PixelBertAnswering(PixelBert, FusionAnswerer):
    Config = PixelBertAnsweringConfig

    def answer(self, images: RegionBatch, questions: TextBatch) -> Answered:
        """Where words looked is told of the cells that came in."""
        found = super().answer(images, questions)
        if self.config.reduce == "linear" or found.alignment is None:
            return found
        held = as_map(images.features, images.boxes)
        x, y = ((images.boxes[..., :2] + images.boxes[..., 2:]) / 2).unbind(dim=-1)
        own = pooled_boxes(held).to(x)
        within = [(own[:, 0] <= x[..., None]) & (x[..., None] < own[:, 2])]
        within.append((own[:, 1] <= y[..., None]) & (y[..., None] < own[:, 3]))
        share = (within[0] & within[1] & images.mask[..., None]).to(found.alignment) / POOL**2
        alignment = found.alignment @ share.mT
        return replace(found, weights=alignment[:, 0], alignment=alignment)


@dataclass(frozen=True)
class PixelBertEntailmentConfig(FusionEntailerConfig, PixelBertAnsweringConfig):
    pass


@register(
    "pixelbert_entailment",
    task="entailment",
    title="Pixel-BERT, fine-tuned for visual entailment",
    venue="Huang et al., 2020",
)
class PixelBertEntailment(PixelBertAnswering, FusionEntailer):
    Config = PixelBertEntailmentConfig
