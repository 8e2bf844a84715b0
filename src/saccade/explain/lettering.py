"""Type for drawn pictures: fonts that come with the dependencies, measuring, fitting and breaking lines."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import matplotlib
from PIL import ImageFont

from saccade.explain.reading import joins_left

_AILERON = frozenset(map(chr, range(32, 127))) | frozenset("°±·«»‘’“”…")  # what Pillow's own face covers


@lru_cache(maxsize=64)
def _face(size: int, latin: bool) -> ImageFont.FreeTypeFont:
    if latin:
        face = ImageFont.load_default(size)  # Aileron, a clear grotesque
        if isinstance(face, ImageFont.FreeTypeFont):
            return face
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)


def font(text: str, size: int) -> ImageFont.FreeTypeFont:
    """The face for this text: Aileron, or DejaVu Sans where other letters are needed."""
    return _face(size, _AILERON.issuperset(text))


def width(text: str, size: int) -> float:
    return font(text, size).getlength(text)


def fit(text: str, size: int, room: float, smallest: int = 18) -> tuple[str, int]:
    """The text and size at which it fits into `room`: first smaller letters, then a cut with an ellipsis."""
    while size > smallest and width(text, size) > room:
        size -= 1
    if width(text, size) > room:
        while len(text) > 1 and width(text + "…", size) > room:
            text = text[:-1]
        text += "…"
    return text, size


def break_lines(words: tuple[str, ...], size: int, room: float) -> list[list[tuple[int, float, float]]]:
    """Lines of (word, x, width), no line wider than `room` unless one word alone is."""
    space = width(" ", size)
    lines: list[list[tuple[int, float, float]]] = [[]]
    pen = 0.0
    for index, word in enumerate(words):
        length = width(word, size)
        gap = 0.0 if not lines[-1] or joins_left(word) else space
        if lines[-1] and pen + gap + length > room:
            lines.append([])
            pen = gap = 0.0
        lines[-1].append((index, pen + gap, length))
        pen += gap + length
    return lines
