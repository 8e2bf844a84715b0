"""Contact sheets: pictures with their boxes, and captions whose phrases wear the colours of the boxes they name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from saccade.world.render import render
from saccade.world.scene import SceneCaption
from saccade.world.store import Split

PAPER, CARD, INK, FAINT = "#f6f3ec", "#fffdf8", "#33312e", "#8b867d"
TONES = ("#c8324b", "#1f6fb2", "#2f8a4c", "#b8620e", "#7447b0", "#00858a", "#b3267e", "#6b7411")
SCALE = 2  # drawn this much larger and then shrunk, for smooth lines
PICTURE, GAP, MARGIN, TEXT = 264, 22, 34, 13  # in pixels of the finished sheet
LINES = 8  # room for captions under a picture


@cache
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which comes with matplotlib."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size * SCALE)


def contact_sheet(
    split: Split, indices: Sequence[int], title: str, columns: int = 4, redraw: bool = False
) -> Image.Image:
    """Pictures in rows of `columns`; in `hard`, twins share a card. `redraw` renders finer than what is stored."""
    unit = 2 if split.name == "hard" else 1
    columns = max(min(columns, len(indices)), 1)
    rows = -(-len(indices) // columns)
    cell = PICTURE + GAP
    tall = PICTURE + round(LINES * TEXT * 1.5) + 2 * GAP
    head = MARGIN + 46
    sheet = Image.new("RGB", ((columns * cell + GAP) * SCALE, (head + rows * tall + MARGIN) * SCALE), PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((GAP * SCALE, MARGIN * SCALE), title, fill=INK, font=font(19, bold=True))
    note = "same words, other binding: each caption is true of its own picture only" if unit == 2 else ""
    note = note or "each phrase wears the colour of the box it names"
    pen.text((GAP * SCALE, (MARGIN + 27) * SCALE), note, fill=FAINT, font=font(12))
    for n in range(0, len(indices), unit):
        left, top = GAP + n % columns * cell, head + n // columns * tall + GAP // 2
        members = indices[n : n + unit]
        card = (left - 9, top - 9, left + cell * len(members) - GAP + 9, top + tall - GAP + 3)
        corners = tuple(SCALE * at for at in card)
        pen.rounded_rectangle(corners, 10 * SCALE, fill=CARD, outline="#e4dfd3", width=SCALE)
        for k, i in enumerate(members):
            _draw_picture(sheet, pen, split, i, left + k * cell, top, redraw)
        # Twins show the same sentences of each, side by side: as many as there is room for under both.
        y = float(top + PICTURE + 12)
        for captions in zip(*(split.captions(i) for i in members), strict=True):
            laid = [_lay_out(caption) for caption in captions]
            lines = max(height for _, height in laid)
            if y + lines > top + tall - GAP:
                break
            for k, (words, _) in enumerate(laid):
                for dx, dy, word, colour in words:
                    face = font(TEXT, bold=colour != INK)
                    pen.text(((left + k * cell) * SCALE + dx, (y + dy) * SCALE), word, fill=colour, font=face)
            y += lines + 5
    return sheet.resize((sheet.width // SCALE, sheet.height // SCALE), Image.Resampling.LANCZOS)


def _draw_picture(
    sheet: Image.Image, pen: ImageDraw.ImageDraw, split: Split, i: int, left: int, top: int, redraw: bool
) -> None:
    side = PICTURE * SCALE
    image = render(split.scene(i), PICTURE).image if redraw else split.image(i)
    picture = Image.fromarray(np.asarray(image)).resize((side, side), Image.Resampling.BICUBIC)
    mask = Image.new("L", (side, side), 0)
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, side - 1, side - 1), 6 * SCALE, fill=255)
    sheet.paste(picture, (left * SCALE, top * SCALE), mask)
    for n, (x1, y1, x2, y2) in enumerate(split.boxes(i).tolist()):
        if x2 > x1:
            corners = (
                left * SCALE + x1 * side - 3,
                top * SCALE + y1 * side - 3,
                left * SCALE + x2 * side + 2,
                top * SCALE + y2 * side + 2,
            )
            pen.rounded_rectangle(corners, 4 * SCALE, outline="#ffffff", width=2 * SCALE + 2)
            inner = (corners[0] + 1, corners[1] + 1, corners[2] - 1, corners[3] - 1)
            pen.rounded_rectangle(inner, 4 * SCALE, outline=TONES[n % len(TONES)], width=2 * SCALE)


def _lay_out(caption: SceneCaption) -> tuple[list[tuple[float, float, str, str]], float]:
    """Every word with its place and colour, lines broken to the picture's width, and the height of it all."""
    words = caption.text.replace(",", " ,").split()
    tone = [INK] * len(words)
    for phrase in caption.phrases:
        for at in range(phrase.start, phrase.end):
            tone[at] = TONES[phrase.things[0] % len(TONES)]
    plain, bold = font(TEXT), font(TEXT, bold=True)
    space, line = plain.getlength(" "), TEXT * 1.42
    placed: list[tuple[float, float, str, str]] = []
    x = y = 0.0
    for word, colour in zip(words, tone, strict=True):
        wide = (plain if colour == INK else bold).getlength(word)
        if word == ",":
            x -= space
        elif x + wide > PICTURE * SCALE:
            x, y = 0.0, y + line
        placed.append((x, y, word, colour))
        x += wide + space
    return placed, y + line
