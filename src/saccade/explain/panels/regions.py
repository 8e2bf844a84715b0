"""What an extractor found, drawn on its photo, or many photos on one contact sheet in rows that fill its width.

Boxes have colours that differ clearly, and labels that can be read: none hides another or leaves the picture. The
best regions are named, the rest stay thin lines, and regions without names (the cells of a grid) get numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.core.errors import SaccadeError
from saccade.explain import draw

SIDE = 1100  # of a square photo on its own
COLOURS = (
    *(colour.glow for colour in draw.PALETTE[:6]),
    "#ff7b7b",
    "#a6e85c",
    "#4fe0ea",
    "#e0ad76",
    "#f27bff",
    "#eef2f5",
)
DARK, PALE = "#11161b", "#f4f6f8"
NAMED, NUMBERED = 12, 100  # how many regions are labelled when nobody says
DOUBTFUL = 0.1  # a region that the extractor is less sure of is not named when nobody says how many
HIDDEN = 0.3  # a label may lie over so much of another named region before it goes to a better place

SHEET_WIDTH, ROW = 2400, 420  # of a contact sheet; of its rows before they are stretched to fill the width
MARGIN, GAP, FOOT = 48, 24, 52
NAMED_ON_SHEET = 6  # labels a photo, when nobody says: a small print holds fewer than a large one
MAX_SHEET_PHOTOS = 60
MIN_ASPECT, MAX_ASPECT = 0.4, 2.5  # a photo slimmer or wider than this gets its share of the row as if it were not


@dataclass(frozen=True, eq=False)
class RegionPicture:
    """A photo and the regions found in it. Without `labels` the regions are numbered, as the extractor gave them."""

    image: UInt8[Array, "height width 3"]
    boxes: Float[Array, "region 4"]  # x1, y1, x2, y2 in 0..1
    labels: tuple[str, ...] = ()
    scores: Float[Array, " region"] | None = None  # the best are named; without them, the first
    title: str = ""

    def __post_init__(self) -> None:
        if self.image.ndim != 3 or self.image.shape[2] != 3 or self.image.dtype != np.uint8 or not self.image.size:
            raise SaccadeError(f"a photo must be uint8 [height, width, 3], not {self.image.dtype} {self.image.shape}")
        count = len(self.boxes)
        if self.boxes.shape != (count, 4) or not np.isfinite(self.boxes).all():
            raise SaccadeError(f"regions need finite boxes [region, 4], not {self.boxes.shape}")
        if self.labels and len(self.labels) != count:
            raise SaccadeError(f"there are {count} boxes but {len(self.labels)} labels")
        if self.scores is not None and (self.scores.shape != (count,) or not np.isfinite(self.scores).all()):
            raise SaccadeError(f"{count} boxes need {count} finite scores, not {self.scores.shape}")

    @cached_property
    def is_whole(self) -> list[bool]:
        """Which regions are the picture itself: they get a label in a corner and no line."""
        return [bool((box[:2] <= 0.005).all() and (box[2:] >= 0.995).all()) for box in self.boxes]

    def surest(self, most: int) -> int:
        """How many regions to name when nobody says: at most so many, none that is doubtful, but one at least."""
        if self.scores is None:
            return most
        sure = int((self.scores[~np.array(self.is_whole, dtype=bool)] >= DOUBTFUL).sum())
        return min(most, max(1, sure))

    def best(self, top: int | None = None) -> list[int]:
        """The regions to name, best first, `top` of them beside the whole picture (0: all; None: the surest few)."""
        score = np.zeros(len(self.boxes)) if self.scores is None else self.scores
        order = [int(i) for i in np.argsort(-score, kind="stable")]
        parts = [i for i in order if not self.is_whole[i]]
        if top is None:
            top = self.surest(NAMED) if self.labels else NUMBERED
        return (parts[:top] if top else parts) + [i for i in order if self.is_whole[i]]

    def save(self, path: Path | str, top: int | None = None) -> Path:
        """Write the drawing (.png, .jpg, .webp); the file is whole or absent."""
        draw.check_format(path, "a picture of regions")
        return draw.save_drawing(draw_regions(self, top), path, "a picture of regions")


def draw_regions(photo: RegionPicture, top: int | None = None, size: tuple[int, int] | None = None) -> Image.Image:
    """The photo with its regions, at `size` = (width, height) or at a size that suits it alone."""
    height, wide = photo.image.shape[:2]
    size = size or draw.size_like(wide / height, SIDE, 1.6 * SIDE)
    drawn = Image.fromarray(photo.image).resize(size, Image.Resampling.LANCZOS).convert("RGBA")
    over = Image.new("RGBA", size)
    pen = ImageDraw.Draw(over)
    scale = (size[0] * size[1]) ** 0.5 / SIDE
    named = photo.best(top)
    parts = [i for i in named if not photo.is_whole[i]]
    frames = {i: draw.pixels(box, size) for i, box in enumerate(photo.boxes)}
    quiet = not photo.labels and (photo.scores is None or len(np.unique(photo.scores)) < 2)  # a grid: all alike
    colour_of = {i: PALE if quiet else COLOURS[rank % len(COLOURS)] for rank, i in enumerate(parts)}

    faint = min(110, 2400 // max(1, len(frames) - len(named)))  # many thin lines together must not veil the photo
    for i, frame in frames.items():  # the rest first, so that the named lie on top
        if i not in colour_of and not photo.is_whole[i]:
            draw.outline(pen, frame, (255, 255, 255, faint), max(1, round(1.5 * scale)), shadow=False)
    for i in sorted(parts, key=lambda i: -_area(frames[i])):  # … and the small on top of the large
        thickness = max(2, round((2 if quiet else 5) * scale))
        draw.outline(pen, frames[i], (*draw.rgb(colour_of[i]), 235), thickness, shadow=not quiet)
    named = [i for i in named if i in colour_of or (photo.labels and photo.labels[i])]  # a nameless whole: no label
    labels = [_label(photo, i, colour_of.get(i, PALE), size, scale, quiet) for i in named]
    _lay(labels, [frames[i] for i in named], [not photo.is_whole[i] for i in named], size, within=quiet)
    for label in labels:
        label.draw(over, pen)
    return Image.alpha_composite(drawn, over).convert("RGB")


@dataclass
class _Label:
    """A plate with a name and, small, a score."""

    text: str
    size: int
    note: str
    plate: tuple[int, int]
    colour: str
    spot: tuple[int, int] | None = None  # its upper left corner, once there is room for it
    reach: tuple[int, int, int, int] | None = None  # a line to its box, where it had to go away from it

    def draw(self, over: Image.Image, pen: ImageDraw.ImageDraw) -> None:
        if self.spot is None:
            return
        if self.reach is not None:
            pen.line(self.reach, DARK, max(3, self.size // 6))
            pen.line(self.reach, self.colour, max(1, self.size // 12))
        x, y = self.spot
        over.paste(Image.new("RGBA", self.plate, self.colour), self.spot, draw.rounded(self.plate, self.plate[1] // 4))
        x, base = x + self.size // 3, y + round(1.05 * self.size)
        draw.write(pen, (x, base), self.text, self.size, DARK)
        if self.note:
            right = self.spot[0] + self.plate[0] - self.size // 3
            draw.write(pen, (right, base), self.note, _note_size(self.size), "#11161bb0", "rs")


def _note_size(size: int) -> int:
    return max(8, round(0.68 * size))


def _label(photo: RegionPicture, index: int, colour: str, size: tuple[int, int], scale: float, quiet: bool) -> _Label:
    type_size = max(11, round((20 if quiet else 27) * max(scale, 0.7)))
    text, note = photo.labels[index] if photo.labels else str(index + 1), ""
    if photo.scores is not None and not quiet and not photo.is_whole[index]:
        note = f"{photo.scores[index]:.2f}"
    text, type_size = draw.fit(text or "?", type_size, 0.6 * size[0], smallest=11)
    wide = draw.width(text, type_size) + 2 * (type_size // 3)
    if note:
        wide += draw.width(note, _note_size(type_size)) + type_size // 3
    return _Label(text, type_size, note, (round(wide), round(1.35 * type_size)), colour)


def _lay(
    labels: list[_Label], frames: list[draw.Frame], has_line: list[bool], size: tuple[int, int], within: bool = False
) -> None:
    """Give each label a place, best region first: on its box, else as near as there is room; without room, none."""
    taken: list[draw.Frame] = []
    named = [frame for frame, line in zip(frames, has_line, strict=True) if line]
    for label, frame, line in zip(labels, frames, has_line, strict=True):
        wide, high = label.plate
        if wide > size[0] - 4 or high > size[1] - 4:
            continue
        left, top, right, bottom = frame
        if not line:  # the whole picture: a lower corner, else an upper one
            wanted = [(0, size[1]), (size[0], size[1]), (size[0], 0), (0, 0)]
        else:
            wanted = [(left, top - high), (left, top), (right - wide, top - high), (left, bottom), (right - wide, top)]
            if within:  # above a cell is another cell
                wanted = [(left + 4, top + 4), *wanted]
            wanted += [(left, bottom - high), (right - wide, bottom), (right, top), (left - wide, top)]
            wanted += [(left, top + step * high) for step in range(1, max(1, (bottom - top) // high))]
        near = [(min(max(2, x), size[0] - wide - 2), min(max(2, y), size[1] - high - 2)) for x, y in wanted]
        plates = [(x, y, x + wide, y + high) for x, y in near]
        others = [other for other in named if other != frame]
        free = [plate for plate in plates if not any(_shared(plate, t) for t in taken)]
        # the largest part of another region that the label would lie over
        cost = [max((_shared(p, other) / max(1, _area(other)) for other in others), default=0.0) for p in free]
        plate = _nearest(frame, label.plate, size, taken) if line and not free else None
        if free:
            plate = next((p for p, c in zip(free, cost, strict=True) if c < HIDDEN), free[int(np.argmin(cost))])
        elif plate is not None and not _shared(plate, frame):  # a line to the nearest point of its box
            x, y = (plate[0] + plate[2]) // 2, (plate[1] + plate[3]) // 2
            label.reach = x, y, min(max(x, left), right), min(max(y, top), bottom)
        if plate is not None:
            label.spot = plate[:2]
            taken.append(plate)


def _nearest(
    frame: draw.Frame, plate: tuple[int, int], size: tuple[int, int], taken: list[draw.Frame]
) -> draw.Frame | None:
    """The free place nearest to a box, on a grid of half plates over the whole picture."""
    (wide, high), middle = plate, ((frame[0] + frame[2] - plate[0]) / 2, (frame[1] + frame[3] - plate[1]) / 2)
    plates = [
        (x, y, x + wide, y + high)
        for y in range(4, size[1] - high - 3, max(1, high // 2))
        for x in range(4, size[0] - wide - 3, max(1, wide // 2))
    ]
    plates.sort(key=lambda p: (p[0] - middle[0]) ** 2 + (p[1] - middle[1]) ** 2)
    return next((p for p in plates if not any(_shared(p, t) for t in taken)), None)


def _area(frame: draw.Frame) -> int:
    return max(0, frame[2] - frame[0]) * max(0, frame[3] - frame[1])


def _shared(one: draw.Frame, other: draw.Frame) -> int:
    return _area((max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3])))


def draw_sheet(photos: Sequence[RegionPicture], top: int | None = None) -> Image.Image:
    """Each photo with its regions, its title beneath it."""
    if not photos:
        raise SaccadeError("a contact sheet needs at least one photo")
    rows = _rows(photos)
    room = max(sum(wide for _, (wide, _) in row) + GAP * (len(row) - 1) for row in rows)
    total = 2 * MARGIN + sum(max(high for _, (_, high) in row) + FOOT for row in rows)
    sheet = Image.new("RGB", (room + 2 * MARGIN, total), draw.PAPER)
    pen = ImageDraw.Draw(sheet)
    y = MARGIN
    for row in rows:
        x, floor = MARGIN, y + max(high for _, (_, high) in row)
        for photo, size in row:
            named = top if top is not None or not photo.labels else photo.surest(NAMED_ON_SHEET)
            draw.paste_rounded(sheet, draw_regions(photo, named, size), x, floor - size[1])
            if photo.title:
                draw.write(pen, (x, floor + 32), photo.title, draw.NOTE, room=size[0])
            x += size[0] + GAP
        y = floor + FOOT
    return sheet


def save_sheet(photos: Sequence[RegionPicture], path: Path | str, top: int | None = None) -> Path:
    """Write the sheet (.png, .jpg, .webp); the file is whole or absent."""
    draw.check_format(path, "a contact sheet")
    return draw.save_drawing(draw_sheet(photos, top), path, "a contact sheet")


def _rows(photos: Sequence[RegionPicture]) -> list[list[tuple[RegionPicture, tuple[int, int]]]]:
    """Photos in order, as many rows as their widths need, each row as high as makes it fill the sheet."""
    room = SHEET_WIDTH - 2 * MARGIN
    aspects = [photo.image.shape[1] / photo.image.shape[0] for photo in photos]
    slots = [min(max(aspect, MIN_ASPECT), MAX_ASPECT) for aspect in aspects]
    count = max(1, round(sum(slots) * ROW / room))
    share = sum(slots) / count  # of the widths, for each row
    rows: list[list[int]] = [[] for _ in range(count)]
    before = 0.0
    for i, slot in enumerate(slots):
        rows[min(count - 1, int((before + slot / 2) / share))].append(i)
        before += slot
    laid = []
    for row in filter(None, rows):
        high = min((room - GAP * (len(row) - 1)) / sum(slots[i] for i in row), 1.4 * ROW)
        sizes = [  # the largest pictures inside slots of slot · high by high
            (max(1, round(min(slots[i], aspects[i]) * high)), max(1, round(high * min(1.0, slots[i] / aspects[i]))))
            for i in row
        ]
        laid.append([(photos[i], size) for i, size in zip(row, sizes, strict=True)])
    return laid
