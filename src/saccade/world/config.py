"""What a world is made from: the numbers a user may change, and the version of the generator."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from saccade.core.config import to_dict
from saccade.core.errors import SaccadeError
from saccade.core.files import cache_folder

GENERATOR = 4  # raised whenever the same configuration would give another picture or sentence

SPLITS = ("train", "dev", "test", "hard", "novel")


@dataclass(frozen=True)
class WorldConfig:
    """A world of 2,000 pictures with the twins and novelties that test a model on it."""

    pictures: int = 2000  # train, dev and test together: 80, 10 and 10 per cent
    seed: int = 0
    size: int = 128  # of a picture's side, in pixels
    captions: int = 5  # a picture
    twins: float = 0.3  # share of the train pictures that come in pairs differing in one binding only
    hard_groups: int = 150  # pairs of twins in `hard`
    novel: int = 200  # pictures of compositions never seen in any other split

    def __post_init__(self) -> None:
        for name, least in (("pictures", 0), ("size", 32), ("captions", 1), ("hard_groups", 0), ("novel", 0)):
            if getattr(self, name) < least:
                raise SaccadeError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not 0.0 <= self.twins <= 1.0:
            raise SaccadeError(f"twins is a share of the train pictures, from 0 to 1, not {self.twins}")

    def counts(self) -> dict[str, int]:
        """Pictures per split."""
        tenth = self.pictures // 10
        return {
            "train": self.pictures - 2 * tenth,
            "dev": tenth,
            "test": tenth,
            "hard": 2 * self.hard_groups,
            "novel": self.novel,
        }

    def digest(self) -> str:
        text = json.dumps({"generator": GENERATOR, **to_dict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def folder(self) -> Path:
        """Where this world is kept when no other folder is asked for."""
        return cache_folder() / "world" / self.digest()
