"""A relation that was looked for, drawn: the pictures it was found in, best first, and the triplets that told what it
looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.core.text import plain_number
from saccade.explain import draw

SIDE, COLUMNS = 430, 3  # of a picture, in a row
FOOT = 58  # room below a picture
LINE = 46  # height of a source


@dataclass(frozen=True, eq=False)
class PairPicture:
    """A picture with the boxes of subject and object."""

    image: UInt8[Array, "height width 3"]
    boxes: Float[Array, "2 4"]  # x1, y1, x2, y2 in 0..1
    score: float
    title: str = ""


@dataclass(frozen=True, eq=False)
class RelationSheet:
    """Three words, the pairs that fit them, and the sources of an unseen triplet with their weights."""

    words: tuple[str, str, str]
    pictures: Sequence[PairPicture]
    sources: Sequence[tuple[tuple[str, str, str], float]] = ()
    note: str = ""

    def save(self, path: Path | str) -> Path:
        """As .png, .jpg or .webp."""
        draw.check_format(path, "a relation")
        return draw.save_drawing(draw_relation(self), path, "a relation")


def draw_relation(sheet: RelationSheet) -> Image.Image:
    """Drawn at twice the size it is meant to be seen at."""
    sizes = [draw.size_like(p.image.shape[1] / p.image.shape[0], SIDE, SIDE * 1.25) for p in sheet.pictures]
    rows = [range(n, min(n + COLUMNS, len(sizes))) for n in range(0, len(sizes), COLUMNS)]
    wide = max([sum(sizes[n][0] for n in row) + draw.GAP * (len(row) - 1) for row in rows], default=0)
    wide = max(wide, 2 * SIDE)
    top = draw.MARGIN + draw.CAPTION + draw.GAP + 24
    heights = [max(sizes[n][1] for n in row) + FOOT for row in rows]
    reasons = (LINE * (len(sheet.sources) + 1) + draw.GAP) if sheet.sources or sheet.note else 0
    total = (wide + 2 * draw.MARGIN, top + reasons + sum(heights) + draw.MARGIN // 2)
    drawn = Image.new("RGB", total, draw.PAPER)
    pen = ImageDraw.Draw(drawn)
    _write_words(pen, draw.MARGIN, draw.MARGIN + draw.CAPTION, sheet.words, draw.CAPTION, wide)
    y = top
    if reasons:
        draw.write(pen, (draw.MARGIN, y + 28), sheet.note, draw.NOTE + 2, room=wide)
        largest = max((weight for _, weight in sheet.sources), default=1.0) or 1.0
        for n, (words, weight) in enumerate(sheet.sources, start=1):
            base = y + LINE * n + 30
            _write_words(pen, draw.MARGIN, base, words, draw.LABEL - 4, wide // 2)
            start = draw.MARGIN + wide // 2
            draw.score_bar(pen, start, draw.MARGIN + wide, base - 14, weight, weight / largest, draw.PALETTE[2].ink, 18)
        y += reasons
    for row, high in zip(rows, heights, strict=True):
        x, floor = draw.MARGIN, y + high - FOOT
        for n in row:
            picture = sheet.pictures[n]
            draw.paste_rounded(drawn, _pair(picture, sheet.words, sizes[n]), x, floor - sizes[n][1])
            room = sizes[n][0] - draw.width("0.00000000", draw.NOTE) - 20
            draw.write(pen, (x, floor + 34), f"{n + 1}  {picture.title}", draw.NOTE, room=room)
            place = (x + sizes[n][0], floor + 34)
            draw.write(pen, place, plain_number(picture.score), draw.NOTE, draw.INK, "rs")
            x += sizes[n][0] + draw.GAP
        y += high
    return drawn


def _write_words(pen: ImageDraw.ImageDraw, x: int, y: int, words: tuple[str, str, str], size: int, room: float) -> None:
    """Subject, predicate and object, those that have boxes in the colour of their box."""
    text, size = draw.fit(" ".join(words), size, room)
    tones = (draw.PALETTE[0].ink, draw.INK, draw.PALETTE[1].ink)
    if text != " ".join(words):  # it was cut
        draw.write(pen, (x, y), text, size, draw.INK)
        return
    left = float(x)
    for word, tone in zip(words, tones, strict=True):
        draw.write(pen, (left, y), word, size, tone)
        left += draw.width(f"{word} ", size)


def _pair(picture: PairPicture, words: tuple[str, str, str], size: tuple[int, int]) -> Image.Image:
    shown = Image.fromarray(picture.image).resize(size, Image.Resampling.LANCZOS).convert("RGBA")
    over = Image.new("RGBA", size)
    pen = ImageDraw.Draw(over)
    frames = [draw.pixels(box, size) for box in picture.boxes]
    for frame, colour in zip(frames, draw.PALETTE, strict=False):
        draw.outline(pen, frame, (*draw.rgb(colour.glow), 255), 5, shadow=True)
    shown = Image.alpha_composite(shown, over)
    taken: list[draw.Frame] = []
    for frame, colour, word in zip(frames, draw.PALETTE, (words[0], words[2]), strict=False):
        draw.tag(shown, word, colour.glow, frame, taken, draw.NOTE)
    return shown.convert("RGB")
