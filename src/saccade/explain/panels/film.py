"""When something happens in a video, drawn: a film strip, below it how well each piece fits, and the moments found.

From left to right goes time, alike in all rows. What lies outside the best moment is dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.core.errors import SaccadeError
from saccade.explain import draw

WIDE = 1800  # of the strip
LOWEST, TALLEST = 130, 320  # of its frames
HOLES = 26  # the perforated rim above and below
CURVE, ROW, AXIS, READ = 200, 58, 56, 60  # heights of the curve, a moment's row, the axis, a level's words
DIM = 0.38  # the brightness outside of the best moment
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)  # seconds between two marks
MOST_MARKS = 12
FILM, HOLE = "#20262c", "#4d5862"


@dataclass(frozen=True, eq=False)
class FilmStrip:
    """Some frames of a video at equal distances, how well each piece of it fits a sentence, and moments, best first."""

    frames: tuple[UInt8[Array, "height width 3"], ...]
    seconds: float
    spans: Float[Array, "moment 2"]  # in seconds
    scores: Float[Array, " moment"]
    curve: Float[Array, " piece"]
    title: str = ""
    words: tuple[str, ...] = ()  # of the sentence …
    weights: Float[Array, "level word"] | None = None  # … and how much each level of the model read of each
    generated = False

    @property
    def score_note(self) -> str:
        """The best moment in words."""
        start, end = self.spans[0]
        return f"{clock(float(start))} to {clock(float(end))}, score {self.scores[0]:.2f}"

    def __post_init__(self) -> None:
        if not self.frames or not len(self.curve) or not self.seconds > 0 or len(self.spans) != len(self.scores):
            raise SaccadeError("a film strip needs frames, a length in seconds, a curve, and a score for every moment")
        if self.weights is not None and self.weights.shape[1] != len(self.words):
            raise SaccadeError(f"{len(self.words)} words need as many weights, not {self.weights.shape[1]}")

    def save(self, path: Path | str) -> Path:
        """As .png, .jpg or .webp."""
        return draw.save_drawing(draw_film(self), path, "a film strip")


def draw_film(film: FilmStrip) -> Image.Image:
    """Drawn at twice the size it is meant to be seen at."""
    high, frames = _frames(film)
    rows = len(film.spans)
    heading = draw.CAPTION + draw.GAP if film.title else 0
    top = draw.MARGIN + heading
    strip_high = high + 2 * HOLES
    below = top + strip_high + draw.GAP
    foot = below + CURVE + AXIS + draw.GAP + rows * ROW
    levels = 0 if film.weights is None else len(film.weights)
    high_all = foot + (draw.GAP + levels * READ if levels else 0) + draw.MARGIN
    sheet = Image.new("RGB", (WIDE + 2 * draw.MARGIN, high_all), draw.PAPER)
    pen = ImageDraw.Draw(sheet)
    if film.title:
        draw.write(pen, (draw.MARGIN, draw.MARGIN + 34), film.title, draw.CAPTION, draw.INK, room=WIDE)
    draw.paste_rounded(sheet, _strip(film, frames, high), draw.MARGIN, top)
    _curve(sheet, film, below)
    _axis(pen, film.seconds, below + CURVE)
    for n, (span, score) in enumerate(zip(film.spans, film.scores, strict=True)):
        _row(pen, film, n, span, float(score), below + CURVE + AXIS + draw.GAP + n * ROW)
    for level in range(levels):
        _read(pen, film, level, foot + draw.GAP + level * READ)
    return sheet


def clock(seconds: float, fine: bool = True) -> str:
    """1:02:03, 2:03.4 or 3.4 s."""
    if seconds < 60:
        return f"{seconds:.1f} s" if fine else f"{seconds:g} s"
    minutes, rest = divmod(round(seconds, 1) if fine else round(seconds), 60)
    hours, minutes = divmod(int(minutes), 60)
    tail = f"{rest:04.1f}" if fine else f"{int(rest):02d}"
    return f"{hours}:{minutes:02d}:{tail}" if hours else f"{minutes}:{tail}"


def _frames(film: FilmStrip) -> tuple[int, list[Image.Image]]:
    """As many frames as fit at their own shape, and their height."""
    tall, wide = film.frames[0].shape[:2]
    count = max(1, min(len(film.frames), int(WIDE // (LOWEST * wide / tall))))
    high = int(min(TALLEST, max(LOWEST, WIDE / count * tall / wide)))
    places = ((np.arange(count) + 0.5) / count * len(film.frames)).astype(int)
    edges = np.linspace(0, WIDE, count + 1).round().astype(int)
    found = []
    for n, place in enumerate(places):
        size = int(edges[n + 1] - edges[n]), high
        found.append(_filled(Image.fromarray(film.frames[place]), size))
    return high, found


def _filled(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The middle of a picture, so that it fills a frame of this size."""
    grow = max(size[0] / picture.width, size[1] / picture.height)
    scaled = picture.resize(
        (max(size[0], round(picture.width * grow)), max(size[1], round(picture.height * grow))),
        Image.Resampling.LANCZOS,
    )
    left, top = (scaled.width - size[0]) // 2, (scaled.height - size[1]) // 2
    return scaled.crop((left, top, left + size[0], top + size[1]))


def _strip(film: FilmStrip, frames: list[Image.Image], high: int) -> Image.Image:
    strip = Image.new("RGB", (WIDE, high + 2 * HOLES), FILM)
    x = 0
    for frame in frames:
        strip.paste(frame, (x, HOLES))
        x += frame.width
    pen = ImageDraw.Draw(strip)
    x = 0
    for frame in frames[:-1]:
        x += frame.width
        pen.line((x, HOLES, x, HOLES + high), FILM, 4)
    for hole in range(10, WIDE - 16, 36):
        for y in (7, high + HOLES + 7):
            pen.rounded_rectangle((hole, y, hole + 18, y + 12), 4, HOLE)
    if len(film.spans):
        left, right = _places(film, film.spans[0])
        light = np.full((1, WIDE, 1), DIM)
        light[:, left:right] = 1.0
        strip = Image.fromarray((np.asarray(strip) * light).astype(np.uint8))
        edge = (left, 3, max(right - 1, left + 6), high + 2 * HOLES - 4)
        ImageDraw.Draw(strip).rounded_rectangle(edge, 6, outline=draw.PALETTE[0].glow, width=6)
    return strip


def _places(film: FilmStrip, span: Float[Array, " 2"]) -> tuple[int, int]:
    left, right = (round(float(np.clip(time / film.seconds, 0, 1)) * WIDE) for time in span)
    return left, max(right, left + 2)


def _curve(sheet: Image.Image, film: FilmStrip, top: int) -> None:
    """The fit of each piece, from the least to the greatest; the moments' spans as bands behind it."""
    pen = ImageDraw.Draw(sheet)
    for n in reversed(range(min(len(film.spans), len(draw.PALETTE)))):
        left, right = _places(film, film.spans[n])
        tint = [round(255 - (255 - part) * (0.22 if n == 0 else 0.08)) for part in draw.rgb(draw.PALETTE[n].glow)]
        pen.rectangle((draw.MARGIN + left, top, draw.MARGIN + right, top + CURVE), tuple(tint))
    values = np.asarray(film.curve, dtype=np.float64)
    low, span = float(values.min()), max(float(values.max() - values.min()), 1e-9)
    heights = (values - low) / span * (CURVE - 30) + 10
    if len(values) == 1:
        heights, values = np.repeat(heights, 2), np.repeat(values, 2)
    x = (np.arange(len(values)) + 0.5) / len(values) * WIDE
    points = np.stack([np.concatenate([[0.0], x, [WIDE]]), CURVE - np.pad(heights, 1, mode="edge")], axis=1)
    brush = draw.Brush((WIDE, CURVE + 4))
    brush.stroke(points, (draw.INK, draw.INK), 4)
    layer = brush.layer()
    sheet.paste(layer, (draw.MARGIN, top), layer)
    pen.line((draw.MARGIN, top + CURVE, draw.MARGIN + WIDE, top + CURVE), draw.RULE, 3)


def _axis(pen: ImageDraw.ImageDraw, seconds: float, top: int) -> None:
    step = next((step for step in STEPS if seconds / step <= MOST_MARKS), STEPS[-1] * 4)
    for mark in np.arange(0, seconds + 1e-6, step):
        x = draw.MARGIN + mark / seconds * WIDE
        pen.line((x, top, x, top + 10), draw.FAINT, 3)
        room = 0.9 * step / seconds * WIDE
        anchor = "ls" if mark == 0 else "rs" if x > draw.MARGIN + WIDE - 40 else "ms"
        draw.write(
            pen, (x, top + 40), clock(float(mark), fine=False), draw.NOTE, draw.FAINT, anchor, room=max(room, 60)
        )


def _read(pen: ImageDraw.ImageDraw, film: FilmStrip, level: int, top: int) -> None:
    """The words, each on a ground as strong as the level's attention to it."""
    assert film.weights is not None
    said = f"level {level + 1} reads"
    draw.write(pen, (draw.MARGIN, top + 38), said, draw.NOTE, draw.FAINT)
    start = draw.MARGIN + draw.width(said, draw.NOTE) + 30
    share = film.weights[level] / max(float(film.weights[level].max()), 1e-9)
    size = draw.LABEL - 4
    room = WIDE + draw.MARGIN - start
    while size > 14 and sum(draw.width(word, size) + 22 for word in film.words) > room:
        size -= 1
    x = start
    for word, own in zip(film.words, share, strict=True):
        wide = draw.width(word, size)
        if x + wide + 22 > WIDE + draw.MARGIN + 22:
            break
        tint = tuple(round(255 - (255 - part) * 0.75 * float(own)) for part in draw.rgb(draw.PALETTE[4].glow))
        pen.rounded_rectangle((x, top + 4, x + wide + 16, top + READ - 10), 8, tint)
        draw.write(pen, (x + 8, top + 38), word, size, draw.INK)
        x += wide + 22


def _row(
    pen: ImageDraw.ImageDraw, film: FilmStrip, number: int, span: Float[Array, " 2"], score: float, top: int
) -> None:
    colour = draw.PALETTE[number % len(draw.PALETTE)]
    left, right = (draw.MARGIN + place for place in _places(film, span))
    pen.rounded_rectangle((left, top + 4, max(right, left + 12), top + ROW - 14), 8, colour.glow)
    said = f"{number + 1}   {clock(float(span[0]))} to {clock(float(span[1]))}   {score:.2f}"
    long = draw.width(said, draw.NOTE)
    if long + 24 < right - left:
        at, anchor = (left + 14.0, top + 36.0), "ls"
    elif right + 16 + long < draw.MARGIN + WIDE:
        at, anchor = (right + 16.0, top + 36.0), "ls"
    else:
        at, anchor = (left - 16.0, top + 36.0), "rs"
    draw.write(pen, at, said, draw.NOTE, draw.INK, anchor)
