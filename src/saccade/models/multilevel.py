"""Multi-level multimodal common semantic space: Multi-level Multimodal Common Semantic Space for Image-Phrase Grounding
(Akbari, Karaman, Bhargava, Chen, Vondrick, Chang; CVPR 2019).

Several layers of a backbone are brought to one grid and, each by layers of its own, into the space of words and
sentences. A word attends to the cells of every level by its positive cosines alone, and belongs to the level that fits
it best: "sky" may be found in another layer than "guitar". For cells v_nl of length one at level l, words s_t and the
sentence s̄:

    H_nlt = [s_t · v_nl]₊                                   the heat map of a word                           (1)
    a_tl  = unit(Σ_n H_nlt v_nl),   R_tl = a_tl · s_t,   R_t = max_l R_tl                                    (2–3)
    R_w   = log(Σ_t exp(γ₁ R_t)) / γ₁,   and with s̄ for s_t: R_s = max_l a_l · s̄                             (4–5)
    L     = L_w + L_s, of each table −Σ log softmax(γ₂ R), over texts and over pictures                      (6)

(6) is the task's contrastive loss, with temperature 1 / γ₂ = 0.1, of both tables (`ranked`). A phrase's heat map is the
mean of its words', each at its own level, weighted by R_t. As in SCAN, a is never computed: a · s_t is Σ_n H s_t · v_n
over √(Hᵀ G H), G the Gram matrix of a level's cells.

A cell has the features of the levels side by side (`levels`), as a grid extractor of several maps gives them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.matcher import FragmentMatcher, Fragments
from saccade.models.base.model import Model, register
from saccade.nn.attention import attended_cosine, masked_softmax, products, summed
from saccade.nn.encode import Standardise, at_least_float32, dropout_layer, full_precision, mean_state
from saccade.nn.recurrent import SentenceLstm
from saccade.nn.transformer import TransformerWords
from saccade.ops import Pool, pool
from saccade.ops.all_pairs import all_pairs

SLOPE = 0.25  # of every leaky ReLU
SHORTEST = 1e-6  # a shorter vector is not scaled to length one: an empty heat map gives R = 0


@dataclass(frozen=True)
class MultilevelConfig:
    """The paper's settings, but for its backbone (PNASNet) and ELMo, whose place a bi-LSTM of ELMo's form takes."""

    region_dim: int = 2048
    levels: tuple[int, ...] = ()  # widths of the layers that stand side by side in a cell's features; none: one level
    read: Literal["all", "last"] = "all"  # last: the other levels are not looked at
    hidden: tuple[int, ...] = (2048, 2048)  # layers of each level before the last, which is `dim` wide
    kernel: Literal[1, 3] = 1  # of these convolutions; the release has 3 and no hidden layer with VGG
    dim: int = 1024
    word_dim: int = 512
    word_encoder: Literal["mixed", "lstm", "minilm"] = (
        "mixed"  # mixed: all layers of a bi-LSTM, as ELMo's; lstm: its top
    )
    word_lr_scale: float = 0.1  # how fast MiniLM learns, beside the rest of the model
    attention: Literal["relu", "softmax", "nowhere"] = "relu"  # nowhere: softmax with learned entries for no cell
    slope: float = 0.0  # of negative cosines under relu; not in the paper, where a word may lose all its cells for good
    sharpness: float = 10.0  # of either softmax
    nowhere: int = 3  # learned entries a level
    pool: Pool = "logsumexp"  # over words
    pool_sharpness: float = 5.0  # γ₁
    tables: Literal["both", "words"] = "both"  # what is scored and ranked: words and sentences, or words alone
    unit_sentence: bool = True  # False: a sentence's a keeps its length, so that R_s has no bound
    count_padding: bool = False  # True: places after a sentence's end count as words, as in the release
    dropout: float = 0.0  # of features and word vectors in training; none in the paper
    standardise: bool = False  # features to mean 0 and spread 1, channel by channel; not in the paper
    budget_mb: int = 256  # bounds the memory of all-pairs scoring

    def __post_init__(self) -> None:
        if self.nowhere < 1:
            raise SaccadeError(f"model.nowhere must be at least 1, not {self.nowhere}")

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the levels that are read."""
        every = self.levels or (self.region_dim,)
        return every if self.read == "all" else every[-1:]


def unit_length(vectors: Float[Tensor, "*items dim"]) -> Float[Tensor, "*items dim"]:
    return F.normalize(at_least_float32(vectors), dim=-1, eps=SHORTEST)


def begin(layers: nn.ModuleList) -> None:
    """As TensorFlow does: a bias that is not zero would drown small inputs, and all words would begin alike."""
    for layer in layers:
        assert isinstance(layer, nn.Linear | nn.Conv2d)
        assert layer.bias is not None
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)


class UnitLayers(nn.ModuleList):
    """Two layers into the common space, to length one after each: x ← unit(leaky(W x + b))."""

    def __init__(self, in_dim: int, dim: int) -> None:
        super().__init__([nn.Linear(in_dim, dim), nn.Linear(dim, dim)])
        begin(self)

    def forward(self, vectors: Float[Tensor, "*items in"]) -> Float[Tensor, "*items dim"]:
        for layer in self:
            vectors = unit_length(F.leaky_relu(layer(vectors), SLOPE))
        return vectors


class LevelLayers(nn.ModuleList):
    """Convolutions of one level into the common space, x ← leaky(W x + b), the last of them to length one."""

    def __init__(self, in_dim: int, hidden: tuple[int, ...], dim: int, kernel: int) -> None:
        wide = (in_dim, *hidden, dim)
        pairs = pairwise(wide)
        super().__init__(
            nn.Linear(a, b) if kernel == 1 else nn.Conv2d(a, b, kernel, padding=kernel // 2) for a, b in pairs
        )
        begin(self)

    def forward(
        self, features: Float[Tensor, "image cell in"], grid: tuple[int, int] | None
    ) -> Float[Tensor, "image cell dim"]:
        """`grid`: rows and columns of the cells, for convolutions that see neighbours."""
        if grid is None:
            for layer in self:
                features = F.leaky_relu(layer(features), SLOPE)
            return unit_length(features)
        cells = grid[0] * grid[1]
        maps = features[:, :cells].mT.reshape(len(features), features.shape[2], *grid)
        for layer in self:
            maps = F.leaky_relu(layer(maps), SLOPE)
        return unit_length(F.pad(maps.flatten(2).mT, (0, 0, 0, features.shape[1] - cells)))


class MixedWords(nn.Module):
    """ELMo's form: a word is Σ_l softmax(w)_l h_l over its vector and the states of two layers of a bi-LSTM; a sentence
    mixes both layers' last states."""

    def __init__(self, vocabulary: int, dim: int, dropout: float, sentences: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        self.dropout = dropout_layer(dropout)
        self.layers = nn.ModuleList([SentenceLstm(dim, dim, 1), SentenceLstm(2 * dim, dim, 1)])
        self.weigh = nn.Parameter(torch.zeros(3))
        self.sentence = nn.Linear(2, 1, bias=False) if sentences else None

    def forward(self, texts: TextBatch) -> tuple[Float[Tensor, "text word wide"], Float[Tensor, "text wide"]]:
        vectors = self.dropout(self.embed(texts.tokens)) * texts.mask[..., None]
        first, low = self.layers[0](vectors, texts.lengths)
        second, high = self.layers[1](first, texts.lengths)
        every = torch.stack([torch.cat([vectors, vectors], dim=2), first, second])
        words = torch.einsum("l,ltwd->twd", (self.weigh + 1 / 3).softmax(dim=0), every)
        return words, high if self.sentence is None else self.sentence(torch.stack([low, high], dim=-1))[..., 0]


class LstmWords(nn.Module):
    """The states of a bi-LSTM's second layer, and its last ones for the sentence."""

    def __init__(self, vocabulary: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.dim = dim
        self.embed = nn.Embedding(vocabulary, dim)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        self.dropout = dropout_layer(dropout)
        self.lstm = SentenceLstm(dim, dim, 2)

    def forward(self, texts: TextBatch) -> tuple[Float[Tensor, "text word wide"], Float[Tensor, "text wide"]]:
        words, last = self.lstm(self.dropout(self.embed(texts.tokens)), texts.lengths)
        return words, last[:, -2 * self.dim :]


@dataclass(frozen=True)
class Levels(Fragments):
    """The cells of pictures at every level, entries for no cell before them, and their Gram matrices."""

    vectors: Float[Tensor, "image level cell dim"]
    mask: Bool[Tensor, "image cell"]
    gram: Float[Tensor, "image level cell cell"]


@dataclass(frozen=True)
class Sentences(Fragments):
    """Words, and the vector of the whole sentence."""

    vectors: Float[Tensor, "text word dim"]
    mask: Bool[Tensor, "text word"]  # what counts
    real: Bool[Tensor, "text word"]
    sentence: Float[Tensor, "text dim"] | None = None

    def trimmed(self, longest: int) -> Sentences:
        cut = {name: getattr(self, name)[:, :longest] for name in ("vectors", "mask", "real")}
        return replace(self, **cut)


@register(
    "multilevel",
    task="matching",
    title="Multi-level Multimodal Common Semantic Space for Image-Phrase Grounding",
    venue="Akbari et al., CVPR 2019",
)
class Multilevel(FragmentMatcher):
    Config = MultilevelConfig
    intended_use = (
        "To find what phrases mean in a picture, and to rank pictures by sentences, learned from captions alone."
    )

    def __init__(self, config: MultilevelConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        Model.__init__(self, config, vocabulary, extractor)  # with encoders of its own
        if config.levels and sum(config.levels) != config.region_dim:
            raise SaccadeError(f"model.levels add up to {sum(config.levels)}, a cell has {config.region_dim} numbers")
        wide, dim, words = 2 * config.word_dim, config.dim, len(vocabulary)
        self.standardise = Standardise(config.region_dim) if config.standardise else None
        self.dropout = dropout_layer(config.dropout)
        self.levels = nn.ModuleList(LevelLayers(width, config.hidden, dim, config.kernel) for width in config.widths)
        if config.attention == "nowhere":
            self.no_cell = nn.Parameter(torch.empty(len(config.widths), config.nowhere, dim))
            nn.init.xavier_uniform_(self.no_cell)
        self.words: MixedWords | LstmWords | TransformerWords  # type: ignore[assignment]
        if config.word_encoder == "minilm":
            self.words = TransformerWords(words, wide, False, config.dropout)
        elif config.word_encoder == "mixed":
            self.words = MixedWords(words, config.word_dim, config.dropout, config.tables == "both")
        else:
            self.words = LstmWords(words, config.word_dim, config.dropout)
        self.word_layers = UnitLayers(wide, dim)
        self.sentence_layers = UnitLayers(wide, dim) if config.tables == "both" else None

    def encode_images(self, images: RegionBatch) -> ImageCode:
        """The levels of every cell side by side, each of length one."""
        features = images.features if self.standardise is None else self.standardise(images.features, images.mask)
        parts = torch.split(self.dropout(features), list(self.config.levels or (self.config.region_dim,)), dim=2)
        grid = None if self.config.kernel == 1 else grid_of(images)
        read = zip(self.levels, parts[-len(self.levels) :], strict=True)
        cells = torch.cat([level(part, grid) for level, part in read], dim=2)
        return ImageCode(cells * images.mask[..., None], images.mask)

    def encode_texts(self, texts: TextBatch) -> TextCode:
        states: Tensor
        if isinstance(self.words, TransformerWords):
            states = self.words(texts)
            last = mean_state(states, texts.lengths)
        else:
            states, last = self.words(texts)
        words = self.word_layers(states)
        words = words if self.config.count_padding else words * texts.mask[..., None]
        return TextCode(words, texts.mask, None if self.sentence_layers is None else self.sentence_layers(last))

    def prepare(self, images: ImageCode, texts: TextCode) -> tuple[Levels, Sentences]:
        cells = images.regions.view(*images.mask.shape, len(self.levels), self.config.dim).transpose(1, 2)
        mask = images.mask
        if self.config.attention == "nowhere":
            nowhere = unit_length(self.no_cell).to(cells.dtype).expand(len(cells), -1, -1, -1)
            cells = torch.cat([nowhere, cells], dim=2)
            mask = torch.cat([mask.new_ones(len(mask), self.config.nowhere), mask], dim=1)
        counted = torch.ones_like(texts.mask) if self.config.count_padding else texts.mask
        return Levels(cells, mask, products(cells, cells)), Sentences(texts.words, counted, texts.mask, texts.pooled)

    def attend(
        self,
        queries: Float[Tensor, "*#pair query dim"],
        cells: Float[Tensor, "*#pair level cell dim"],
        mask: Bool[Tensor, "*#pair cell"],
        gram: Float[Tensor, "*#pair level cell cell"],
    ) -> tuple[Float[Tensor, "*pair level query cell"], Float[Tensor, "*pair level query"], Tensor]:
        """H (1), R (2–3) at every level, and the cosines s · v."""
        scores, real = products(queries.unsqueeze(-3), cells), mask[..., None, None, :]
        if self.config.attention == "relu":
            weights = F.leaky_relu(scores, self.config.slope) * real  # (1)
        else:
            weights = masked_softmax(self.config.sharpness * scores, real)
        return weights, attended_cosine(weights, scores, scores.new_ones(1), gram), scores  # (2–3)

    def every_pair(self, queries: Float[Tensor, "text query dim"], images: Levels) -> tuple[Tensor, Tensor, Tensor]:
        return self.attend(queries[None], images.vectors[:, None], images.mask[:, None], images.gram[:, None])

    def word_pairs(self, images: Levels, texts: Sentences) -> Float[Tensor, "image text"]:
        """R_w (4) of every pair."""
        fits = self.every_pair(texts.vectors, images)[1].amax(dim=-2)
        return pool(fits, texts.mask[None], self.config.pool, self.config.pool_sharpness)

    def sentence_pairs(self, images: Levels, texts: Sentences) -> Float[Tensor, "image text"]:
        """R_s (5) of every pair."""
        assert texts.sentence is not None
        return self.sentence_fit(*self.every_pair(texts.sentence[:, None], images))

    def sentence_fit(self, weights: Tensor, fits: Tensor, scores: Tensor) -> Float[Tensor, "*pair"]:
        each = fits if self.config.unit_sentence else (weights * scores).sum(dim=-1)
        return each[..., 0].amax(dim=-1)

    def ranked(self, images: ImageCode, texts: TextCode) -> tuple[Float[Tensor, "image text"], ...]:
        """R_w and R_s, each of which has its own loss (6)."""
        prepared = self.prepare(images, texts)
        tables = (self.word_pairs, self.sentence_pairs)[: 2 if self.config.tables == "both" else 1]
        return tuple(all_pairs(table, *prepared, self.budget) for table in tables)

    def pair(self, images: Levels, texts: Sentences) -> Float[Tensor, "image text"]:
        words = self.word_pairs(images, texts)
        return words if texts.sentence is None else words + self.sentence_pairs(images, texts)

    def alignment(self, images: Levels, texts: Sentences) -> Alignment:
        """The words' heat maps at their own levels, as shares; alike everywhere for a word that fits nowhere."""
        heat, fits, level = self.heat_maps(images, texts)
        mask = images.mask[:, self._skipped :]
        total = heat.sum(dim=2, keepdim=True)
        alike = mask[:, None] / mask.sum(dim=1).clamp(min=1)[:, None, None]
        weights = torch.where(total > 0, heat / total.clamp(min=SHORTEST), alike.to(heat)) * texts.real[..., None]
        sides = images.vectors, images.mask, images.gram
        score = pool(fits, texts.mask, self.config.pool, self.config.pool_sharpness)
        if texts.sentence is not None:
            score = score + self.sentence_fit(*self.attend(texts.sentence[:, None], *sides))
        return Alignment(weights, score, texts.real, mask, word_score=fits * texts.real, word_level=level * texts.real)

    @property
    def _skipped(self) -> int:
        """Entries for no cell before the cells."""
        return int(self.config.nowhere) if self.config.attention == "nowhere" else 0

    def heat_maps(
        self, images: Levels, texts: Sentences
    ) -> tuple[Float[Tensor, "pair word cell"], Float[Tensor, "pair word"], Tensor]:
        """H of every word of text p in picture p at the level that it fits best, R_t, and that level."""
        weights, fits, _ = self.attend(texts.vectors, images.vectors, images.mask, images.gram)
        best, level = fits.max(dim=1)
        place = level[:, None, :, None].expand(-1, 1, -1, weights.shape[3])
        return weights.gather(1, place)[:, 0, :, self._skipped :].clamp(min=0), best, level

    def locate(self, images: ImageCode, texts: TextCode) -> Alignment:
        return self.align(images, texts)

    def heat(
        self, images: ImageCode, texts: TextCode, phrases: Float[Tensor, "pair phrase word"]
    ) -> Float[Tensor, "pair phrase region"]:
        """The mean of the words' heat maps, weighted by R_t; nothing where no word fits."""
        with full_precision(images.regions):
            heat, fits, _ = self.heat_maps(*self.prepare(images, texts))
            return phrase_heat(heat, fits, phrases)


def phrase_heat(
    heat: Float[Tensor, "pair word cell"], fits: Float[Tensor, "pair word"], phrases: Float[Tensor, "pair phrase word"]
) -> Float[Tensor, "pair phrase cell"]:
    weights = phrases * fits[:, None].clamp(min=0)
    return summed(weights / weights.sum(dim=2, keepdim=True).clamp(min=SHORTEST), heat)


def grid_of(images: RegionBatch) -> tuple[int, int]:
    """Rows and columns of the cells. Raises: SaccadeError if the regions are no single grid."""
    first = images.boxes[0, 0]
    columns, rows = (round(1 / float(side)) if float(side) > 0 else 0 for side in first[2:] - first[:2])
    if not len(images) or bool((images.mask.sum(dim=1) != rows * columns).any()):
        raise SaccadeError("model.kernel=3 needs the cells of one grid, as grid:dinov2-s@224/8 gives them")
    return rows, columns
