"""What a shopper sees and did: items by their modalities, and impressions that point into them."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch.base import Batch


@dataclass(frozen=True)
class ItemBatch(Batch):
    """Items as their modalities come: ids as 64-bit keys, a picture's features, a title's words, statistics."""

    ids: Int[Tensor, "item field_dim"]  # keys of what the fields hold; 0: not known
    image: Float[Tensor, "item image_dim"]  # zeros: no picture
    tokens: Int[Tensor, "item word"]  # of the title, <pad> behind
    statistics: Float[Tensor, "item statistic_dim"]  # nan: not known


@dataclass(frozen=True)
class ClickBatch(Batch):
    """Impressions: a candidate, and what its user did before, the oldest first; places point into the batch's items.

    Every item stands here once, however often it occurs; `counts` says how often that is, and is 0 of padding.
    """

    candidate: Int[Tensor, " impression"]
    history: Int[Tensor, "impression behaviour"]
    mask: Bool[Tensor, "impression behaviour"]
    kinds: Int[Tensor, "impression behaviour"]  # of behaviour, from 1; 0: not known
    ages: Float[Tensor, "impression behaviour"]  # seconds from the behaviour to the impression; nan: not known
    clicked: Float[Tensor, " impression"]
    rows: Int[Tensor, " item"]  # of the catalogue
    counts: Float[Tensor, " item"]
    items: ItemBatch | None = None  # None: to be taken from a catalogue on the device
