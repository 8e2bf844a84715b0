"""What is asked of an index, and what it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.vision.pictures import Picture

Box = tuple[float, float, float, float]
MAX_WORDS = 200  # of one sentence
MAX_TERMS = 20  # sentences of one query
_EXCLUDED = re.compile(r'(?:(?<=\s)|^)-(?:"([^"]+)"|(\w[^\s"]*))')


@dataclass(frozen=True)
class Query:
    """A sentence, a picture or a part of one, and conditions; `like` is a picture (a path, pixels), `like_id` one of
    the index."""

    text: str = ""
    like: Picture | None = None
    like_id: str = ""
    region: Box | None = None  # of `like` or `like_id`: x1, y1, x2, y2 in 0..1
    plus: tuple[str, ...] = ()  # sentences that must fit too
    minus: tuple[str, ...] = ()  # sentences that must not fit
    where: str = ""  # an SQL condition on the columns of the index
    top: int = 20
    candidates: int | None = None  # pictures of the first stage that the model scores; None: by `top`
    exact: bool = False  # every picture is scored
    maxsim: bool = False  # candidates by the regions of all pictures, not by their vectors
    among: tuple[str, ...] | None = None  # ids of the pictures to choose from; None: all

    @property
    def positive(self) -> tuple[str, ...]:
        return tuple(text for text in (self.text, *self.plus) if text.strip())

    @property
    def texts(self) -> tuple[str, ...]:
        return (*self.positive, *self.minus)

    @property
    def by_picture(self) -> bool:
        return self.like is not None or bool(self.like_id)

    @staticmethod
    def parse(text: str, base: Query | None = None) -> Query:
        """A sentence as one types it into a search box: `-word` and `-"several words"` must not fit."""
        base = base or Query()
        minus = tuple(phrase or word for phrase, word in _EXCLUDED.findall(text))
        return replace(base, text=" ".join(_EXCLUDED.sub(" ", text).split()), minus=(*base.minus, *minus))

    def check(self) -> None:
        """Raises: SaccadeError if it asks for nothing, or for too much."""
        if not self.positive and not self.by_picture:
            raise SaccadeError("a search needs a sentence or a picture to go by")
        if len(self.texts) > MAX_TERMS:
            raise SaccadeError(f"a query has at most {MAX_TERMS} sentences, not {len(self.texts)}")
        for text in self.texts:
            if not text.strip():
                raise SaccadeError("a term of the query is empty")
            if len(text.split()) > MAX_WORDS or len(text) > 20 * MAX_WORDS:
                raise SaccadeError(f"a sentence of a query has at most {MAX_WORDS} words")
        if self.like is not None and self.like_id:
            raise SaccadeError("search by one picture: a file or one of the index, not both")
        if self.top < 1 or (self.candidates is not None and self.candidates < 1):
            raise SaccadeError(f"top ({self.top}) and candidates ({self.candidates}) must be at least 1")
        if self.region is not None:
            if not self.by_picture:
                raise SaccadeError("a region is part of a picture: say of which one")
            x1, y1, x2, y2 = self.region
            if not (0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1):
                raise SaccadeError(
                    f"the region {x1:g},{y1:g},{x2:g},{y2:g} must be x1,y1,x2,y2 in 0..1, x1 < x2, y1 < y2"
                )


@dataclass(frozen=True)
class WordHit:
    """A word of the query in a picture that was found."""

    word: str
    contribution: float  # how well it found its regions
    region: int  # the one it found best, by its number; −1: none
    known: bool = True  # to the model


@dataclass(frozen=True)
class Hit:
    id: str
    path: str
    score: float
    probability: float | None = None  # that it fits, if the model was calibrated
    words: tuple[WordHit, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """What a query found, best first."""

    hits: tuple[Hit, ...]
    total: int  # pictures that were searched
    seconds: Mapping[str, float]  # by stage
    fits: bool  # whether anything is above the calibrated line; True where there is none
    model: str
    exact: bool = False  # whether every picture was scored by the model itself
    unknown: tuple[str, ...] = ()  # words of the query that the model does not know
    missing: tuple[str, ...] = ()  # parts of the index that did not answer, a sentence each
