"""A grounded sentence: the photo with a box for every phrase, and beneath it where each phrase was found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.explain import draw

SIDE, TILE, COLUMNS = 900, 330, 6  # of the photo, of a phrase's tile, tiles in a row
FOOT = 84  # room beneath a tile
WIDER = 1.6  # how much the photo may grow to be as wide as the tiles beneath it


@dataclass(frozen=True, eq=False)
class PhrasePicture:
    """A phrase, its box if it has one, what else is said of it, and its heat on every region."""

    text: str
    box: Float[Array, " 4"] | None  # x1, y1, x2, y2 in 0..1
    note: str
    heat: Float[Array, " region"]


@dataclass(frozen=True, eq=False)
class GroundedPicture:
    image: UInt8[Array, "height width 3"]
    sentence: str
    regions: Float[Array, "region 4"]
    phrases: tuple[PhrasePicture, ...]

    def save(self, path: Path | str) -> Path:
        """As .png, .jpg or .webp."""
        draw.check_format(path, "a grounded sentence")
        return draw.save_drawing(draw_grounded(self), path, "a grounded sentence")


def draw_grounded(given: GroundedPicture) -> Image.Image:
    """Drawn at twice the size it is meant to be seen at."""
    aspect, margin = given.image.shape[1] / given.image.shape[0], draw.MARGIN
    large, small = (draw.size_like(aspect, side, side * 1.25) for side in (SIDE, TILE))
    columns = min(COLUMNS, len(given.phrases))
    rows = -(-len(given.phrases) // columns)
    room = columns * (small[0] + draw.GAP) - draw.GAP
    if large[0] < room <= WIDER * large[0]:
        large = room, round(room / aspect)
    wide = 2 * margin + max(large[0], room)
    top = margin + draw.CAPTION + draw.GAP
    tiles = top + large[1] + draw.GAP
    sheet = Image.new("RGB", (wide, tiles + rows * (small[1] + FOOT) + margin // 2), draw.PAPER)
    pen = ImageDraw.Draw(sheet)
    draw.write(pen, (margin, margin + 26), given.sentence, draw.CAPTION, draw.INK, room=wide - 2 * margin)
    photo = Image.fromarray(given.image)
    draw.paste_rounded(sheet, _boxed(photo.resize(large, Image.Resampling.LANCZOS), given.phrases), margin, top)
    tile = photo.resize(small, Image.Resampling.LANCZOS)
    for number, phrase in enumerate(given.phrases):
        x = margin + number % columns * (small[0] + draw.GAP)
        y = tiles + number // columns * (small[1] + FOOT)
        colour = draw.PALETTE[number % len(draw.PALETTE)]
        draw.paste_rounded(sheet, _lit(tile, given.regions, phrase, colour), x, y)
        draw.write(pen, (x, y + small[1] + 36), phrase.text, draw.LABEL - 4, colour.ink, room=small[0])
        draw.write(pen, (x, y + small[1] + 66), phrase.note, draw.NOTE - 2, draw.FAINT, room=small[0])
    return sheet


def _boxed(photo: Image.Image, phrases: tuple[PhrasePicture, ...]) -> Image.Image:
    """The photo with all boxes and their phrases, small boxes on top."""
    over = Image.new("RGBA", photo.size)
    pen = ImageDraw.Draw(over)
    boxes = {n: phrase.box for n, phrase in enumerate(phrases) if phrase.box is not None}
    frames = {n: draw.pixels(box, photo.size) for n, box in boxes.items()}
    glow = {n: draw.PALETTE[n % len(draw.PALETTE)].glow for n in boxes}
    order = sorted(boxes, key=lambda n: -(boxes[n][2:] - boxes[n][:2]).prod())
    for n in order:
        draw.outline(pen, frames[n], (*draw.rgb(glow[n]), 255), 6, shadow=True)
    drawn = Image.alpha_composite(photo.convert("RGBA"), over)
    taken: list[draw.Frame] = []
    for n in reversed(order):
        draw.tag(drawn, phrases[n].text, glow[n], frames[n], taken)
    return drawn.convert("RGB")


def _lit(
    tile: Image.Image, regions: Float[Array, "region 4"], phrase: PhrasePicture, colour: draw.Colour
) -> Image.Image:
    """The picture lit where a phrase was found, with its box; dark where nothing was."""
    lit = Image.fromarray(draw.illuminate(np.asarray(tile), draw.spread(phrase.heat, regions, tile.size[::-1])))
    if phrase.box is None:
        return lit
    over = Image.new("RGBA", lit.size)
    frame = draw.pixels(phrase.box, lit.size)
    draw.outline(ImageDraw.Draw(over), frame, (*draw.rgb(colour.glow), 255), 4, shadow=True)
    return Image.alpha_composite(lit.convert("RGBA"), over).convert("RGB")
