"""Click predictors: how probable it is that a user who did this clicks on that item."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import PAD, ClickBatch, ItemBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.model import Model
from saccade.nn.encode import at_least_float32

Modality = Literal["ids", "image", "title", "statistics"]
MODALITIES: tuple[Modality, ...] = ("ids", "image", "title", "statistics")
MINUTE = 60.0  # the youngest behaviours; each further bucket is twice as long


@dataclass(frozen=True)
class ClickPredictorConfig:
    """What an item and a behaviour consist of; names and counts are the training data's."""

    modalities: tuple[Modality, ...] = MODALITIES
    id_fields: tuple[str, ...] = ("item",)
    id_counts: tuple[int, ...] = (0,)  # known values of each field; others share one vector
    id_dim: int = 16  # of each field
    image_dim: int = 4096  # VGG16's last layer but one
    word_dim: int = 64
    title_dim: int = 128  # filters of the title's convolution …
    title_width: int = 3  # … each over so many words
    statistics: tuple[str, ...] = ("exposures", "clicks")
    buckets: int = 16  # that a statistic is cut into, equally full ones
    statistic_dim: int = 8  # of each statistic
    behaviours: tuple[str, ...] = ("click",)
    history: int = 20  # the latest behaviours of a user that are read
    title_words: int = 12  # the first words of a title that are read
    property_dim: int = 8  # of a behaviour's kind, and of its age
    age_buckets: int = 20  # the first is a minute, each of the others twice the one before
    standardise: bool = False  # image features to mean 0 and spread 1 over the training items; not in the papers

    def __post_init__(self) -> None:
        check_ranges(self, "title_width age_buckets history title_words", "at least 1")
        if self.buckets < 2:
            raise SaccadeError(f"model.buckets must be at least 2, not {self.buckets}")
        if not self.modalities or len(set(self.modalities)) < len(self.modalities):
            raise SaccadeError("model.modalities must name one or more of ids, image, title and statistics, each once")
        if len(self.id_fields) != len(self.id_counts):
            raise SaccadeError("model.id_fields and model.id_counts must be of one length")


class ItemEmbedding(nn.Module):
    """e^m of every modality: tables of ids, the picture's features, a convolution over the title's words whose largest
    response counts, tables of discretised statistics."""

    edges: Tensor
    mean: Tensor
    spread: Tensor

    def __init__(self, config: ClickPredictorConfig, words: int) -> None:
        super().__init__()
        self.modalities = config.modalities
        self.ids = nn.ModuleList(nn.Embedding(count + 1, config.id_dim) for count in config.id_counts)
        for field, count in enumerate(config.id_counts):
            self.register_buffer(f"known{field}", torch.arange(count))  # keys, in order
        self.words = nn.Embedding(words, config.word_dim, padding_idx=PAD)
        self.title = nn.Conv1d(config.word_dim, config.title_dim, config.title_width, padding="same")
        count = len(config.statistics)
        self.statistics = nn.ModuleList(nn.Embedding(config.buckets + 1, config.statistic_dim) for _ in range(count))
        self.register_buffer("edges", torch.zeros(count, config.buckets - 1))
        self.standardise = config.standardise
        self.register_buffer("mean", torch.zeros(config.image_dim))
        self.register_buffer("spread", torch.ones(config.image_dim))
        every = {
            "ids": config.id_dim * len(config.id_counts),
            "image": config.image_dim,
            "title": config.title_dim,
            "statistics": config.statistic_dim * count,
        }
        self.widths = tuple(every[modality] for modality in config.modalities)
        if 0 in self.widths:
            empty = config.modalities[self.widths.index(0)]
            raise SaccadeError(f"the data have no {empty}: leave it out of model.modalities")

    @torch.no_grad()
    def learn(
        self,
        known: Mapping[int, Int[Tensor, " value"]],
        edges: Float[Tensor, "statistic edge"],
        mean: Float[Tensor, " image_dim"],
        spread: Float[Tensor, " image_dim"],
    ) -> None:
        """Take in what the training items say: the keys of each field, in order, edges of buckets, image statistics."""
        for field, keys in known.items():
            getattr(self, f"known{field}").copy_(keys)
        self.edges.copy_(edges)
        self.mean.copy_(mean)
        self.spread.copy_(spread)

    def forward(self, items: ItemBatch) -> tuple[Float[Tensor, "item embedding_dim"], ...]:
        return tuple(getattr(self, f"embed_{modality}")(items) for modality in self.modalities)

    def embed_ids(self, items: ItemBatch) -> Float[Tensor, "item id_dim"]:
        """A value that was never seen has row 0."""
        found = []
        for field, table in enumerate(self.ids):
            known, keys = getattr(self, f"known{field}"), items.ids[:, field].contiguous()
            if not len(known):
                found.append(table(torch.zeros_like(keys)))
                continue
            place = torch.searchsorted(known, keys).clamp(max=len(known) - 1)
            found.append(table(torch.where(known[place] == keys, place + 1, 0)))
        return torch.cat(found, dim=1)

    def embed_image(self, items: ItemBatch) -> Float[Tensor, "item image_dim"]:
        """An item without a picture has zeros."""
        image = items.image.to(self.mean.dtype)
        if not self.standardise:
            return image
        return (image - self.mean) / self.spread * (image != 0).any(dim=1, keepdim=True)

    def embed_title(self, items: ItemBatch) -> Float[Tensor, "item title_dim"]:
        """Zeros of a title without words."""
        real = items.tokens != PAD
        found: Tensor = self.title(self.words(items.tokens).mT).relu() * real[:, None]  # ≥ 0: padding never wins
        return found.amax(dim=2)

    def embed_statistics(self, items: ItemBatch) -> Float[Tensor, "item statistic_dim"]:
        values = items.statistics.to(self.edges.dtype).T.contiguous()
        bucket = torch.searchsorted(self.edges, values, right=True) + 1
        bucket = torch.where(values.isnan(), 0, bucket)
        return torch.cat([table(own) for table, own in zip(self.statistics, bucket, strict=True)], dim=1)


class PropertyEmbedding(nn.Module):
    """e^p of a behaviour: of which kind it was, and how long ago."""

    edges: Tensor

    def __init__(self, config: ClickPredictorConfig) -> None:
        super().__init__()
        self.kinds = nn.Embedding(len(config.behaviours) + 1, config.property_dim)
        self.ages = nn.Embedding(config.age_buckets + 1, config.property_dim)
        edges = MINUTE * 2.0 ** torch.arange(config.age_buckets - 1)
        self.register_buffer("edges", edges, persistent=False)
        self.dim = 2 * config.property_dim

    def forward(
        self, kinds: Int[Tensor, "impression behaviour"], ages: Float[Tensor, "impression behaviour"]
    ) -> Float[Tensor, "impression behaviour property_dim"]:
        bucket = torch.bucketize(ages.to(self.edges.dtype).contiguous(), self.edges, right=True) + 1
        bucket = torch.where(ages.isnan(), 0, bucket)
        return torch.cat([self.kinds(kinds), self.ages(bucket)], dim=-1)


@dataclass(frozen=True)
class ClickReasons:
    """What a prediction rests on, of every impression."""

    logits: Float[Tensor, " impression"]
    parts: Float[Tensor, "impression part"]  # how much of the candidate's vector each modality makes up, then the
    # invariant part: lengths, as shares of their sum
    gates: Float[Tensor, "impression modality"]  # mean of the attention gate of each modality, −1…1; nan: no gates
    effects: Float[Tensor, "impression modality"]  # what the logit loses if the candidate has not this modality
    attention: Float[Tensor, "impression behaviour"]  # weights of the history


class ClickPredictor(Model):
    """Predicts clicks of impressions whose items are given by their modalities."""

    intended_use = "To predict which items a user clicks on, and to show which modality of an item mattered."

    def __init__(self, config: ClickPredictorConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        self.embed = ItemEmbedding(config, len(vocabulary))
        self.properties = PropertyEmbedding(config)

    @abstractmethod
    def click_logits(self, batch: ClickBatch) -> Float[Tensor, " impression"]:
        """log p / (1 − p)."""

    @abstractmethod
    def losses(self, batch: ClickBatch) -> dict[str, Float[Tensor, ""]]:
        """By name what training minimises the sum of; `click` is the log loss."""

    @abstractmethod
    def reasons(self, batch: ClickBatch) -> ClickReasons: ...

    @staticmethod
    def click_loss(logits: Float[Tensor, " impression"], clicked: Float[Tensor, " impression"]) -> Float[Tensor, ""]:
        return F.binary_cross_entropy_with_logits(at_least_float32(logits), clicked.to(logits))

    def forward(self, batch: ClickBatch) -> Float[Tensor, " impression"]:
        return self.click_logits(batch)
