"""What click predictors learn from: items by row, and impressions that name them by their rows.

Impressions are read by number. Those that are streamed lie in blocks (row groups of Parquet files), which are read
whole: a sampler that shuffles blocks, and then the rows of a few of them together, needs those few in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int64

from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedDrawings, CaptionedPhotos


def key_of(value: str) -> int:
    """A positive 63-bit key of an id, the same everywhere; 0 of none."""
    if not value:
        return 0
    return (int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest(), "little") >> 1) or 1


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Items by row; the last row is an item of which nothing is known."""

    name: str
    ids: Int64[np.ndarray, "item field"]  # keys, the first field the item itself
    fields: tuple[str, ...]
    titles: Sequence[str]
    statistics: Float32[np.ndarray, "item statistic"]  # nan: not known
    statistic_names: tuple[str, ...]
    image: Float32[np.ndarray, "item image_dim"] | None = None  # features, often a mapped file
    pictures: CaptionedPhotos | CaptionedDrawings | None = None  # of which features are to be made …
    picture_rows: Int64[np.ndarray, " picture"] | None = None  # … and whose they are
    extractor: str | None = None  # what made the features

    def __post_init__(self) -> None:
        counts = {len(self.ids), len(self.titles), len(self.statistics)}
        if len(counts) > 1 or (self.image is not None and len(self.image) != len(self.ids)):
            raise SaccadeError(f"{self.name}: ids, titles, statistics and images are not of the same items")

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class ImpressionRows:
    """Some impressions: candidates, and of each the latest behaviours of its user, the oldest first."""

    user: Int64[np.ndarray, " impression"]  # a key or number
    item: Int64[np.ndarray, " impression"]  # rows of the catalogue
    clicked: Float32[np.ndarray, " impression"]  # nan: not known
    history: Int64[np.ndarray, "impression behaviour"]
    mask: Bool[np.ndarray, "impression behaviour"]
    kinds: Int64[np.ndarray, "impression behaviour"]  # from 1; 0: not known
    ages: Float32[np.ndarray, "impression behaviour"]  # seconds; nan: not known

    def __len__(self) -> int:
        return len(self.item)

    def select(self, index: Int[np.ndarray, " chosen"]) -> ImpressionRows:
        return ImpressionRows(**{name: value[index] for name, value in vars(self).items()})


def join_rows(parts: Sequence[ImpressionRows]) -> ImpressionRows:
    return ImpressionRows(**{name: np.concatenate([vars(part)[name] for part in parts]) for name in vars(parts[0])})


def no_rows(longest: int) -> ImpressionRows:
    one, many = np.zeros(0, np.int64), np.zeros((0, longest), np.int64)
    return ImpressionRows(one, one, one.astype(np.float32), many, many > 0, many, many.astype(np.float32))


class Impressions(Protocol):
    """Impressions by number."""

    @property
    def behaviours(self) -> tuple[str, ...]:
        """The kinds that are known."""
        ...

    @property
    def streamed(self) -> bool:
        """Whether only rows of a few blocks should be asked for together."""
        ...

    @property
    def blocks(self) -> Sequence[int]:
        """How many impressions lie together; the numbers go through one block after the other."""
        ...

    def __len__(self) -> int: ...

    def rows(self, numbers: Int[np.ndarray, " impression"], longest: int) -> ImpressionRows:
        """These impressions, each with its `longest` latest behaviours at most."""
        ...

    def hold(self, rows: int) -> None:
        """Keep so many of those that were read last, where they are streamed."""
        ...


@dataclass(frozen=True, eq=False)
class HeldImpressions:
    """All in memory: an impression's history is a piece of the list of all behaviours."""

    behaviours: tuple[str, ...]
    user: Int64[np.ndarray, " impression"]
    item: Int64[np.ndarray, " impression"]
    clicked: Float32[np.ndarray, " impression"]  # nan: not known
    time: Float[np.ndarray, " impression"]  # seconds; nan: not known
    first: Int64[np.ndarray, " impression"]  # of its user's behaviours
    after: Int64[np.ndarray, " impression"]  # the first that came later
    behaviour_item: Int64[np.ndarray, " behaviour"]
    behaviour_kind: Int64[np.ndarray, " behaviour"]
    behaviour_time: Float[np.ndarray, " behaviour"]
    streamed: bool = False

    @property
    def blocks(self) -> Sequence[int]:
        return (len(self),)

    def __len__(self) -> int:
        return len(self.item)

    def hold(self, rows: int) -> None:
        """All are held anyway."""

    def rows(self, numbers: Int[np.ndarray, " impression"], longest: int) -> ImpressionRows:
        numbers = np.asarray(numbers)
        after = self.after[numbers]
        first = np.maximum(self.first[numbers], after - longest)
        place = first[:, None] + np.arange(longest)
        mask = place < after[:, None]
        place = np.where(mask, place, 0)

        def taken(values: np.ndarray) -> np.ndarray:
            return np.where(mask, values[place] if len(values) else 0, 0)

        ages = (self.time[numbers, None] - taken(self.behaviour_time)).astype(np.float32)
        return ImpressionRows(
            *(self.user[numbers], self.item[numbers], self.clicked[numbers]),
            *(taken(self.behaviour_item), mask, taken(self.behaviour_kind), np.where(mask, ages, np.float32(np.nan))),
        )


@dataclass(frozen=True, eq=False)
class Clicks:
    """One split: the catalogue that all splits share, and impressions."""

    name: str
    split: str
    catalogue: Catalogue
    impressions: Impressions
    truth: Float[np.ndarray, " impression"] | None = None  # the probabilities that clicks were drawn with, if known
    device: str | None = None  # where to keep all of it for training; None: nowhere

    def __len__(self) -> int:
        return len(self.impressions)
