"""What all drawn pictures are made of: colours, type, boxes, tags and bars, curves, heat, and files.

Everything is drawn at twice the size it is meant to be seen at (192 dots per inch), with Pillow alone. Sizes are in
those pixels. Files are whole or absent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.core.errors import SaccadeError
from saccade.core.files import atomic_file
from saccade.core.text import escaped
from saccade.explain import fonts
from saccade.metrics.pointing import are_cells

PAPER, INK, FAINT, RULE = "#ffffff", "#1b2127", "#7d8790", "#e3e7eb"


@dataclass(frozen=True)
class Colour:
    """One hue in two tones, both distinct to colour-blind readers (after Okabe and Ito)."""

    ink: str  # on white paper
    glow: str  # on pictures and dark pages


PALETTE = (
    Colour("#0069ab", "#58b7f5"),  # blue
    Colour("#bf4b00", "#ff8f45"),  # vermilion
    Colour("#00785a", "#35dbab"),  # bluish green
    Colour("#a63f7c", "#f593cb"),  # reddish purple
    Colour("#846500", "#f7dc5a"),  # yellow
    Colour("#5546b3", "#b7abff"),  # violet
    Colour("#46525c", "#eef2f5"),  # slate
)


def rgb(colour: str) -> tuple[int, int, int]:
    """#rrggbb as three numbers."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


MARGIN, GUTTER, GAP = 56, 60, 26
CAPTION, LABEL, NOTE = 42, 32, 23  # sizes of type
MIN_CUT_ASPECT, MAX_CUT_ASPECT = 0.6, 1.7  # width over height of a cut: a slimmer box shows its surroundings too
MIN_CUT = 0.06  # of the picture's shorter side: a smaller cut would be a blur
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}

Frame = tuple[int, int, int, int]  # left, top, right, bottom

MAX_LETTERS = 300  # of a text on one line, however much room there is


def width(text: str, size: int) -> float:
    return fonts.length(escaped(text[: MAX_LETTERS + 1]), size)


def fit(text: str, size: int, room: float, smallest: int = 18) -> tuple[str, int]:
    """The text and size at which it fits into `room`: first smaller letters, then a cut with an ellipsis.

    Line breaks and other commands in it are spelt out.
    """
    text = escaped(text[: MAX_LETTERS + 1])
    text = text if len(text) <= MAX_LETTERS else text[: MAX_LETTERS - 1] + "…"
    while size > smallest and width(text, size) > room:
        size -= 1
    if width(text, size) > room:
        kept = bisect_right(range(1, len(text)), room, key=lambda count: width(text[:count] + "…", size))
        text = text[: max(kept, 1)] + "…"
    return text, size


def write(
    pen: ImageDraw.ImageDraw, at: Point, text: str, size: int, tone: str = FAINT, anchor: str = "ls", room: float = 1e9
) -> None:
    """Text that fits into `room`; the left end of its baseline, or what `anchor` names (as in Pillow), is at `at`."""
    text, size = fit(text, size, room)
    fonts.draw_text(pen, at, text, size, tone, anchor)


def joins_left(word: str) -> bool:
    """Is the word written without a space before it (punctuation, 's, n't)?"""
    return word in {".", ",", ";", ":", "!", "?", ")", "]", "…", "”", "’"} or word.startswith(("'", "’", "n't", "n’t"))


def break_lines(
    words: tuple[str, ...], size: int, room: float, joined: float = 0.0, apart: float | None = None
) -> list[list[tuple[int, float, float]]]:
    """Lines of (word, x, width), no wider than `room`: the gaps are `joined` before punctuation, else `apart`."""
    space = width(" ", size) if apart is None else apart
    lines: list[list[tuple[int, float, float]]] = [[]]
    pen = 0.0
    for index, word in enumerate(words):
        length = min(width(word, size), room)
        gap = 0.0 if not lines[-1] else joined if joins_left(word) else space
        if lines[-1] and pen + gap + length > room:
            lines.append([])
            pen = gap = 0.0
        lines[-1].append((index, pen + gap, length))
        pen += gap + length
    return lines


def in_visual_order(
    lines: list[list[tuple[int, float, float]]], words: Sequence[str], room: float
) -> list[list[tuple[int, float, float]]]:
    """Lines that are read from left to right as they are; a sentence that is read the other way begins at the right.

    Its first word that has a direction decides; words of the other direction keep their own order among themselves.
    """
    directions = [fonts.direction_of(word) for word in words]
    if "R" not in directions:
        return lines
    base = next(filter(None, directions))
    placed = []
    for line in lines:
        gaps = [0.0, *(after[1] - before[1] - before[2] for before, after in pairwise(line))]
        order = fonts.visual_order([directions[index] for index, _, _ in line], base)
        pen = room - line[-1][1] - line[-1][2] if base == "R" else line[0][1]
        moved = []
        for number, at in enumerate(order):
            index, _, length = line[at]
            pen += gaps[max(at, order[number - 1])] if number else 0.0
            moved.append((index, pen, length))
            pen += length
        placed.append(moved)
    return placed


def size_like(aspect: float, side: float, limit: float) -> tuple[int, int]:
    """Width and height of this aspect ratio with the area of a `side` × `side` square, neither above `limit`."""
    wide, high = side * aspect**0.5, side / aspect**0.5
    shrink = min(1.0, limit / wide, limit / high)
    return max(1, round(wide * shrink)), max(1, round(high * shrink))


def bar(pen: ImageDraw.ImageDraw, start: int, stop: int, y: int, tone: str) -> None:
    if stop - start >= 6:
        pen.rounded_rectangle((start, y, stop, y + 6), 3, tone)


def score_bar(
    pen: ImageDraw.ImageDraw, start: int, stop: int, y: int, score: float, share: float, tone: str, gap: int
) -> None:
    """A score as a number at the right, and left of it, as a bar, the `share` of the whole that it is."""
    number = f"{score:.2f}"
    write(pen, (stop, y + 11), number, NOTE, anchor="rs")
    end = stop - round(width("0.00", NOTE)) - gap
    bar(pen, start, end, y, RULE)
    bar(pen, start, start + round((end - start) * share), y, tone)


def gate(pen: ImageDraw.ImageDraw, start: int, stop: int, y: int, openness: float, tone: str) -> None:
    """A framed bar, filled from the left as far as the gate is open: unlike a score's bar at a glance."""
    pen.rounded_rectangle((start, y, stop, y + 15), 5, PAPER, tone, 2)
    filled = round((stop - start) * min(max(openness, 0.0), 1.0))
    if filled >= 3:
        pen.rounded_rectangle((start, y, start + filled, y + 15), min(5, filled // 2), tone)


def tag(over: Image.Image, text: str, colour: str, frame: Frame, taken: list[Frame], large: int = NOTE + 2) -> None:
    """A name on a plate beside its box, where it hides no tag of `taken`; its place is added there."""
    text, size = fit(text, large, over.size[0] * 0.6)
    plate = (round(width(text, size)) + 24, size + 16)
    spot = free_spot(frame, plate, over.size, taken)
    taken.append((*spot, spot[0] + plate[0], spot[1] + plate[1]))
    over.paste(Image.new("RGBA", plate, colour), spot, rounded(plate, plate[1] // 3))
    write(ImageDraw.Draw(over), (spot[0] + 12, spot[1] + size + 3), text, size, "#11161b")


def free_spot(frame: Frame, plate: tuple[int, int], bounds: tuple[int, int], taken: list[Frame]) -> tuple[int, int]:
    """Where a box's tag goes: on its corners or stacked inside it, the first place that hides no other tag."""
    left, top, right, bottom = frame
    wide, high = plate
    wanted = [(left, top - high), (left, bottom), (right - wide, top - high), (right - wide, bottom)]
    wanted += [(left, top + step * high) for step in range(max(1, (bottom - top) // high))]
    wanted += [(left, step * high) for step in range(bounds[1] // high)]
    spots = [(min(max(4, x), max(4, bounds[0] - wide - 4)), min(max(4, y), bounds[1] - high - 4)) for x, y in wanted]

    def hides(spot: tuple[int, int]) -> bool:
        x, y = spot
        return any(x < t[2] and x + wide > t[0] and y < t[3] and y + high > t[1] for t in taken)

    return next((spot for spot in spots if not hides(spot)), spots[0])


def outline(pen: ImageDraw.ImageDraw, frame: Frame, tone: tuple[int, ...], thickness: int, shadow: bool) -> None:
    """A box; with a thin dark rim where it must stand out against any picture."""
    left, top, right, bottom = frame
    if shadow:
        pen.rounded_rectangle((left - 2, top - 2, right + 2, bottom + 2), 8, outline=(10, 12, 14, 150), width=2)
        inner = (left + thickness, top + thickness, right - thickness, bottom - thickness)
        if inner[2] - inner[0] > 8 and inner[3] - inner[1] > 8:
            pen.rounded_rectangle(inner, 4, outline=(10, 12, 14, 150), width=2)
    pen.rounded_rectangle(frame, 6, outline=tone, width=thickness)


def pixels(box: Float[Array, " 4"], size: tuple[int, int]) -> Frame:
    """A 0..1 box in the pixels of a drawing, kept inside it and never empty."""
    left, top, right, bottom = np.clip(np.asarray(box, dtype=np.float64), 0, 1) * (size[0], size[1], size[0], size[1])
    x = min(max(round(left), 2), max(2, size[0] - 8))
    y = min(max(round(top), 2), max(2, size[1] - 8))
    return x, y, max(min(round(right), size[0] - 3), x + 4), max(min(round(bottom), size[1] - 3), y + 4)


def paste_rounded(sheet: Image.Image, picture: Image.Image, x: int, y: int) -> None:
    sheet.paste(picture, (x, y), rounded(picture.size, 14))


@lru_cache(maxsize=128)
def rounded(size: tuple[int, int], radius: int) -> Image.Image:
    """A mask with smooth round corners (drawn four times as large: Pillow's own corners are jagged)."""
    mask = Image.new("L", size, 255)
    radius = min(radius, size[0] // 2, size[1] // 2)
    if radius:
        corner = Image.new("L", (radius * 8, radius * 8))
        ImageDraw.Draw(corner).ellipse((0, 0, radius * 8 - 1, radius * 8 - 1), 255)
        corner = corner.resize((radius * 2, radius * 2), Image.Resampling.LANCZOS)
        for x, left in ((0, 0), (size[0] - radius, radius)):
            for y, top in ((0, 0), (size[1] - radius, radius)):
                mask.paste(corner.crop((left, top, left + radius, top + radius)), (x, y))
    return mask


def cut(source: Image.Image, box: Float[Array, " 4"], height: int) -> Image.Image:
    """What a 0..1 box shows, `height` pixels high and never distorted."""
    left, top, right, bottom = window(source.size, box)
    wide = max(8, round(height * (right - left) / (bottom - top)))
    return source.resize((wide, height), Image.Resampling.LANCZOS, (left, top, right, bottom))


def window(size: tuple[int, int], box: Float[Array, " 4"]) -> tuple[float, float, float, float]:
    """The part of a picture to cut out for a box: the box, made larger where it is too small or too slim."""
    corners = np.clip(np.asarray(box, dtype=np.float64), 0, 1) * (*size, *size)
    middle = (corners[:2] + corners[2:]) / 2
    wide, high = np.maximum(corners[2:] - corners[:2], MIN_CUT * min(size))
    wide, high = min(max(wide, MIN_CUT_ASPECT * high), size[0]), min(max(high, wide / MAX_CUT_ASPECT), size[1])
    left = min(max(middle[0] - wide / 2, 0.0), size[0] - wide)
    top = min(max(middle[1] - high / 2, 0.0), size[1] - high)
    return left, top, left + wide, top + high


def check_format(path: Path | str, what: str, also: tuple[str, ...] = ()) -> str:
    """The ending of `path` in lower case; `what` (an explanation …) is what errors call the drawing.

    Raises: SaccadeError if no drawing is saved under this ending, nor one of `also`.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS and suffix not in also:
        known = ", ".join([*FORMATS, *also])
        raise SaccadeError(f"{path}: {what} is saved as one of {known}, not {suffix or 'a bare name'}")
    return suffix


def save_drawing(drawn: Image.Image, path: Path | str, what: str) -> Path:
    """Write a picture drawn at twice the size it is meant to be seen at, in the format its ending names."""
    suffix = check_format(path, what)
    with atomic_file(path) as temporary:
        drawn.save(temporary, format=FORMATS[suffix], dpi=(192, 192), compress_level=2, quality=90)
    return Path(path)


Point = tuple[float, float]

FINE = 2  # lines are drawn so many times as large and then reduced
RIM = (10, 12, 14, 170)  # the dark edge that keeps a line apart from any picture


class Brush:
    """Draws on a transparent layer of its own, in that layer's coordinates; `layer` has its edges smooth."""

    def __init__(self, size: tuple[int, int]) -> None:
        self._size, self._large = size, Image.new("RGBA", (size[0] * FINE, size[1] * FINE))
        self._pen = ImageDraw.Draw(self._large)

    def layer(self) -> Image.Image:
        return self._large.resize(self._size, Image.Resampling.BOX)

    def stroke(self, points: Float[Array, "point 2"], tones: tuple[str, str], thickness: float, rim: float = 0) -> None:
        """A line through points, its colour going over from the first tone to the second; with a dark rim if `rim`."""
        path = points * FINE
        start, stop = np.array(rgb(tones[0])), np.array(rgb(tones[1]))
        if rim:
            self._trace(path, [RIM] * len(path), (thickness + 2 * rim) * FINE)
        ramp = [(*map(int, (start + (stop - start) * t).round()), 255) for t in np.linspace(0, 1, len(path))]
        self._trace(path, ramp, thickness * FINE)

    def arrow(self, points: Float[Array, "point 2"], tones: tuple[str, str], thickness: float, rim: float = 0) -> None:
        """A stroke that ends in a head."""
        tip, back = points[-1], points[max(0, len(points) - 4)]
        along = (tip - back) / max(float(np.hypot(*(tip - back))), 1e-9)
        across, long = np.array([-along[1], along[0]]), 2.2 * thickness + 8
        self.stroke(points[: max(2, len(points) - 2)], tones, thickness, rim)
        for grow, tone in ((2.0 * bool(rim), RIM), (0.0, (*rgb(tones[1]), 255))):
            corners = [
                tip + along * grow * 1.5,
                tip - along * (long + grow) + across * (0.62 * long + grow),
                tip - along * (long + grow) - across * (0.62 * long + grow),
            ]
            if grow or not rim or tone != RIM:
                self._pen.polygon([tuple(c * FINE) for c in corners], tone)

    def dot(self, at: Point, radius: float, fill: str, edge: str | None = None, thick: float = 3) -> None:
        x, y = at
        for r, tone in ((radius + thick, edge), (radius, fill)):
            if tone is not None:
                self._pen.ellipse(((x - r) * FINE, (y - r) * FINE, (x + r) * FINE, (y + r) * FINE), (*rgb(tone), 255))

    def _trace(self, path: Float[Array, "point 2"], tones: Sequence[tuple[int, ...]], thickness: float) -> None:
        wide = max(1, round(thickness))
        radius = (wide - 1) / 2  # of the joints, no wider than the line
        for (x, y), (u, v), tone in zip(path[:-1], path[1:], tones[1:], strict=True):
            self._pen.line((x, y, u, v), tone, wide)
            if radius > 1:
                self._pen.ellipse((u - radius, v - radius, u + radius, v + radius), tone)


def bend(start: Point, stop: Point, bulge: float = 0.18, count: int = 40) -> Float[Array, "point 2"]:
    """A curve from one point to another that bulges to its left by a part of its length (0: straight)."""
    one, other = np.array(start, dtype=np.float64), np.array(stop, dtype=np.float64)
    away = np.array([other[1] - one[1], one[0] - other[0]])
    return through(one, (one + other) / 2 + 2 * bulge * away, other, count)


def through(
    start: Float[Array, " 2"], pull: Float[Array, " 2"], stop: Float[Array, " 2"], count: int = 40
) -> Float[Array, "point 2"]:
    """A quadratic Bézier curve, drawn towards `pull` on its way."""
    t = np.linspace(0, 1, count)[:, None]
    curve: Float[Array, "point 2"] = (1 - t) ** 2 * start + 2 * t * (1 - t) * pull + t**2 * stop
    return curve


def drop(start: Point, stop: Point, count: int = 30) -> Float[Array, "point 2"]:
    """A curve that leaves its start straight down and reaches its end straight from above."""
    t = np.linspace(0, 1, count)
    ease = t * t * (3 - 2 * t)
    return np.stack([start[0] + (stop[0] - start[0]) * ease, start[1] + (stop[1] - start[1]) * t], axis=1)


def arch(left: Point, right: Point, height: float, count: int = 48) -> Float[Array, "point 2"]:
    """Half an ellipse above two points, as tall as `height`."""
    angle = np.linspace(np.pi, 0, count)
    (x, y), (u, v) = left, right
    level = np.linspace(y, v, count)
    return np.stack([(x + u) / 2 + (u - x) / 2 * np.cos(angle), level - height * np.sin(angle)], axis=1)


def middle(frame: Frame) -> Point:
    return (frame[0] + frame[2]) / 2, (frame[1] + frame[3]) / 2


SOFTNESS = 0.3  # the blurred rim of a box, as a part of the box's side: enough to read as light, not as a tile
DARKNESS = 0.76  # how much of the picture the colour map hides where no attention goes
SHADE = 0.04  # … and where all of it goes: the brightest place shows the picture's own colours


def spread(
    weights: Float[Array, " region"], boxes: Float[Array, "region 4"], size: tuple[int, int]
) -> Float[Array, "height width"]:
    """Σᵣ wᵣ · boxᵣ on a grid of `size` = (height, width), scaled so that the brightest point is 1.

    A box with soft edges is the outer product of two one-dimensional profiles, so all regions together are one matrix
    product. Overlapping boxes add; weights below zero give no light; all zero stays dark. Between the middles of a
    grid's cells light flows evenly.
    """
    height, width = size
    weights = np.clip(np.asarray(weights, dtype=np.float64), 0.0, None)
    boxes = np.asarray(boxes, dtype=np.float64)
    softness = 1.0 if are_cells(boxes) else SOFTNESS
    across = _profile(boxes[:, 0], boxes[:, 2], width, softness)  # [region, width]
    down = _profile(boxes[:, 1], boxes[:, 3], height, softness)  # [region, height]
    light: Float[Array, "height width"] = (down * weights[:, None]).T @ across
    peak = float(light.max(initial=0.0))
    return light / peak if peak > 0 else light


def brightest(
    weights: Float[Array, " region"], boxes: Float[Array, "region 4"], size: tuple[int, int]
) -> Float[Array, "height width"]:
    """maxᵣ wᵣ · boxᵣ on a grid of `size` = (height, width): every box as bright as its weight says, 0 to 1."""
    light = np.zeros(size)
    for weight, (left, top, right, bottom) in zip(
        np.clip(weights, 0.0, 1.0), np.asarray(boxes, np.float64), strict=True
    ):
        across, down = (
            _profile(np.array([start]), np.array([stop]), count, SOFTNESS)[0]
            for start, stop, count in ((left, right, size[1]), (top, bottom, size[0]))
        )
        np.maximum(light, weight * np.outer(down, across), out=light)
    return light


def _profile(
    start: Float[Array, " region"], stop: Float[Array, " region"], count: int, softness: float
) -> Float[Array, "region count"]:
    """1 inside start..stop, 0 outside, with a smooth rim centred on each edge (so the area stays the box's)."""
    pixel = 1.0 / count
    middle, half = (start + stop) / 2, np.maximum(stop - start, pixel) / 2  # a box thinner than a pixel still shows
    rim = np.maximum(softness * 2 * half, pixel)[:, None]
    at = (np.arange(count) + 0.5) * pixel
    rise = np.clip((at - (middle - half)[:, None]) / rim + 0.5, 0, 1)
    fall = np.clip(((middle + half)[:, None] - at) / rim + 0.5, 0, 1)
    smooth: Float[Array, "region count"] = (rise * rise * (3 - 2 * rise)) * (fall * fall * (3 - 2 * fall))
    return smooth


@cache
def colour_table() -> tuple[UInt8[Array, "256 3"], UInt8[Array, " 256"]]:
    """For each heat 0..255: the colour laid over the picture, and how opaque it lies there.

    The colour map is inferno (perceptually uniform, safe for colour-blind readers). Its dark end veils what the word
    does not attend to, its bright end glows around what it does; at full heat it gives way to the picture itself: who
    wants to know whether *red* found the red one needs the true colours there.
    """
    import matplotlib  # takes a while to come, and not every explanation is drawn

    level = np.linspace(0, 1, 256)
    colours = (matplotlib.colormaps["inferno"](0.04 + 0.82 * level)[:, :3] * 255).round().astype(np.uint8)
    opacity = SHADE + (DARKNESS - SHADE) * (1 - level) ** 1.2
    return colours, (opacity * 255).round().astype(np.uint8)


def illuminate(
    picture: UInt8[Array, "height width 3"], heat: Float[Array, "height width"]
) -> UInt8[Array, "height width 3"]:
    """The picture, dark except where the heat is."""
    colours, opacity = colour_table()
    level = (np.clip(heat, 0, 1) * 255).round().astype(np.uint8)
    alpha = opacity[level][..., None].astype(np.float32) / 255
    mixed: UInt8[Array, "height width 3"] = (
        (picture * (1 - alpha) + colours[level] * alpha).round().clip(0, 255).astype(np.uint8)
    )
    return mixed
