"""A map of concepts: how likely each is, given each other, as a heat map whose rows and columns are grouped by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.core.errors import SaccadeError
from saccade.explain import draw

CELL, WORD, GROUP = 20, 18, 26  # of a concept; sizes of type
NAMES, HEADING, SCALE = 150, 150, 90  # room for words, for what stands above, for the scale below


@dataclass(frozen=True, eq=False)
class ConceptMap:
    """Pr(row | column) of all concepts, those of a group one after another."""

    probability: Float[Array, "concept given"]
    words: tuple[str, ...]
    groups: tuple[tuple[str, int], ...]  # name and size of each, in order
    title: str = ""
    asked: tuple[int, ...] = ()  # concepts to mark

    def __post_init__(self) -> None:
        count = len(self.words)
        if self.probability.shape != (count, count) or sum(size for _, size in self.groups) != count or not count:
            raise SaccadeError(f"a map of {count} concepts needs a probability of each pair and a group of each")

    def save(self, path: Path | str) -> Path:
        """As .png, .jpg or .webp."""
        draw.check_format(path, "a map of concepts")
        return draw.save_drawing(draw_concept_map(self), path, "a map of concepts")


def draw_concept_map(given: ConceptMap) -> Image.Image:
    """Drawn at twice the size it is meant to be seen at."""
    side = CELL * len(given.words)
    left, top = draw.MARGIN + NAMES + GROUP + 12, draw.MARGIN + HEADING + NAMES
    wide = max(left + side + draw.MARGIN, 900)
    sheet = Image.new("RGB", (wide, top + side + SCALE + draw.MARGIN), draw.PAPER)
    pen = ImageDraw.Draw(sheet)
    draw.write(pen, (draw.MARGIN, draw.MARGIN + 30), given.title or "Concepts", draw.CAPTION, draw.INK, room=wide - 112)
    note = "how likely the concept of a row is, given that of a column: Pr(row | column)"
    draw.write(pen, (draw.MARGIN, draw.MARGIN + 74), note, draw.NOTE + 2, room=wide - 112)
    sheet.paste(_coloured(np.clip(given.probability, 0, 1)).resize((side, side), Image.Resampling.NEAREST), (left, top))
    asked = set(given.asked)
    for place, word in enumerate(given.words):
        tone = draw.PALETTE[1].ink if place in asked else draw.INK
        middle = place * CELL + CELL // 2
        draw.write(pen, (left - 8, top + middle + 6), word, WORD, tone, "rs", room=NAMES)
        _upright(sheet, (left + middle, top - 8), word, tone)
    ends = np.cumsum([0, *(size for _, size in given.groups)]) * CELL
    for (name, _), (start, stop) in zip(given.groups, pairwise(ends.tolist()), strict=True):
        for line in ((left, top + stop, left + side, top + stop), (left + stop, top, left + stop, top + side)):
            pen.line(line, draw.PAPER, 3)
        _upright(
            sheet, (draw.MARGIN + GROUP, top + (start + stop) // 2), name, draw.FAINT, stop - start, GROUP - 2, True
        )
    for row in asked:
        for column in asked - {row}:
            x, y = left + column * CELL, top + row * CELL
            pen.rectangle((x - 3, y - 3, x + CELL + 2, y + CELL + 2), None, draw.PALETTE[1].glow, 4)
    bar = _coloured(np.linspace(0, 1, 360)[None] ** 2).resize((360, 24))
    sheet.paste(bar, (left, top + side + 34))
    for share, anchor in ((0.0, "ls"), (0.25, "ms"), (1.0, "rs")):
        draw.write(pen, (left + 360 * share**0.5, top + side + 84), f"{share:g}", draw.NOTE, anchor=anchor)
    return sheet


def _coloured(values: Float[Array, "row column"]) -> Image.Image:
    """Most concepts hardly overlap: the colours go by the square root, in which small differences show."""
    return Image.fromarray((matplotlib.colormaps["viridis"](np.sqrt(values))[..., :3] * 255).round().astype(np.uint8))


def _upright(
    sheet: Image.Image,
    at: tuple[int, int],
    text: str,
    tone: str,
    room: int = NAMES,
    size: int = WORD,
    middle: bool = False,
) -> None:
    """A word read from below to above: it begins at `at`, or has its middle there."""
    text, size = draw.fit(text, size, room)
    plate = Image.new("RGB", (max(1, round(draw.width(text, size))), size + 8), draw.PAPER)
    draw.write(ImageDraw.Draw(plate), (0, size), text, size, tone)
    turned = plate.rotate(90, expand=True)
    sheet.paste(turned, (at[0] - turned.width // 2, at[1] - (turned.height // 2 if middle else turned.height)))


def grouped(words: Sequence[str], group_of: Sequence[tuple[str, str]]) -> tuple[list[int], tuple[tuple[str, int], ...]]:
    """The order in which words of a group stand together, and the groups; `group_of` has each word's (group, place)."""
    order = sorted(range(len(words)), key=lambda n: (group_of[n], words[n]))
    names = [group_of[n][0] for n in order]
    return order, tuple((name, names.count(name)) for name in dict.fromkeys(names))
