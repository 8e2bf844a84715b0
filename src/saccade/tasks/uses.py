"""What a trained model does with one picture and one text, said once for whatever asks: a service, its page.

A predictor lists its `uses`; each takes a picture, a video or nothing, and a text or none, and gives an `Outcome`:
lines with scores, boxes or times, and an explanation where there is one. Whoever shows it knows no task by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from saccade.explain import Explanation
from saccade.vision.pictures import Picture

Medium = Literal["picture", "video", "none"]
Box = tuple[float, float, float, float]  # x1, y1, x2, y2 in 0..1


@dataclass(frozen=True)
class Line:
    """One thing that was found or said."""

    text: str
    score: float | None = None
    probability: float | None = None
    boxes: tuple[Box, ...] = ()
    span: tuple[float, float] | None = None  # seconds of a video
    details: tuple[str, ...] = ()  # how it was found, step by step


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a use gives, best first."""

    lines: tuple[Line, ...]
    explanation: Explanation | None = None
    seconds: float | None = None  # how long the video is
    curve: tuple[float, ...] = ()  # how well each piece of the video fits


@dataclass(frozen=True)
class Use:
    """One thing that a predictor does: `run(predictor, picture or video file, text, top)`."""

    verb: str  # as on the command line: "caption"
    does: str  # "Say what is in a picture"
    medium: Medium
    run: Callable[[Any, Picture | Path | None, str, int], Outcome]
    text: str = ""  # what the text is, "question"; empty: none is taken
    example: str = ""
    medium_optional: bool = False
    text_optional: bool = False
