"""Many photos with their regions on one sheet, in rows that fill its width, as contact prints are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from saccade.errors import SaccadeError
from saccade.explain.brush import FAINT, NOTE, PAPER, paste_rounded
from saccade.explain.drawing import check_format, save_drawing
from saccade.explain.lettering import fit, font
from saccade.explain.regions import RegionPicture, draw_regions

WIDTH, ROW = 2400, 420  # of the sheet; of a row before it is stretched to fill the width
MARGIN, GAP, FOOT = 48, 24, 52
NAMED = 6  # labels a photo, when nobody says: a small print holds fewer than a large one
MOST = 60  # photos on one sheet
_ASPECT = 0.4, 2.5  # a photo slimmer or wider than this gets its share of the row as if it were not


def draw_sheet(photos: Sequence[RegionPicture], top: int | None = None) -> Image.Image:
    """Each photo with its regions, its title beneath it."""
    if not photos:
        raise SaccadeError("a contact sheet needs at least one photo")
    rows = _rows(photos)
    room = max(sum(wide for _, (wide, _) in row) + GAP * (len(row) - 1) for row in rows)
    total = 2 * MARGIN + sum(max(high for _, (_, high) in row) + FOOT for row in rows)
    sheet = Image.new("RGB", (room + 2 * MARGIN, total), PAPER)
    pen = ImageDraw.Draw(sheet)
    y = MARGIN
    for row in rows:
        x, floor = MARGIN, y + max(high for _, (_, high) in row)
        for photo, size in row:
            named = top if top is not None or not photo.labels else photo.surest(NAMED)
            paste_rounded(sheet, draw_regions(photo, named, size), x, floor - size[1])
            text, letter = fit(photo.title, NOTE, size[0], smallest=NOTE - 5) if photo.title else ("", NOTE)
            pen.text((x, floor + 32), text, FAINT, font(text, letter), anchor="ls")
            x += size[0] + GAP
        y = floor + FOOT
    return sheet


def save_sheet(photos: Sequence[RegionPicture], path: Path | str, top: int | None = None) -> Path:
    """Write the sheet (.png, .jpg, .webp); the file is whole or absent."""
    check_format(path, "a contact sheet")
    return save_drawing(draw_sheet(photos, top), path, "a contact sheet")


def _rows(photos: Sequence[RegionPicture]) -> list[list[tuple[RegionPicture, tuple[int, int]]]]:
    """Photos in order, as many rows as their widths need, each row as high as makes it fill the sheet."""
    room = WIDTH - 2 * MARGIN
    aspects = [photo.image.shape[1] / photo.image.shape[0] for photo in photos]
    slots = [min(max(aspect, _ASPECT[0]), _ASPECT[1]) for aspect in aspects]
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
        laid.append([(photos[i], _size(aspects[i], slots[i], high)) for i in row])
    return laid


def _size(aspect: float, slot: float, high: float) -> tuple[int, int]:
    """The largest picture of this aspect ratio inside a slot of slot · high by high."""
    return max(1, round(min(slot, aspect) * high)), max(1, round(high * min(1.0, slot / aspect)))
