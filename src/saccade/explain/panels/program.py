"""An executed program drawn: a panel for every step, with the things it found lit up by their probability."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.explain import draw

SIDE, COLUMNS = 380, 4  # of a panel, in a row
TITLE, FOOT = 64, 54  # room above and below a panel
MARKED, CERTAIN = 0.5, 0.995  # the probability from which a thing has a box, and from which that says it all


@dataclass(frozen=True, eq=False)
class StepPicture:
    """A step in words, the probability of every region, and what it says where that is no set of things."""

    title: str
    found: Float[Array, " region"]
    result: str = ""


@dataclass(frozen=True, eq=False)
class ProgramPicture:
    """A question, its answer, and the steps that lead there on a picture."""

    image: UInt8[Array, "height width 3"]
    boxes: Float[Array, "region 4"]  # x1, y1, x2, y2 in 0..1
    question: str
    answer: str
    steps: tuple[StepPicture, ...]

    def save(self, path: Path | str) -> Path:
        """As .png, .jpg or .webp."""
        draw.check_format(path, "an executed program")
        return draw.save_drawing(draw_program(self), path, "an executed program")


def draw_program(program: ProgramPicture) -> Image.Image:
    """Drawn at twice the size it is meant to be seen at."""
    size = draw.size_like(program.image.shape[1] / program.image.shape[0], SIDE, SIDE * 1.25)
    picture = Image.fromarray(program.image).resize(size, Image.Resampling.LANCZOS)
    rows = -(-len(program.steps) // COLUMNS)
    columns = -(-len(program.steps) // rows)
    high = TITLE + size[1] + FOOT
    wide = 2 * draw.MARGIN + max(columns, 2) * (size[0] + draw.GAP) - draw.GAP
    top = draw.MARGIN + 2 * draw.CAPTION + draw.GAP
    sheet = Image.new("RGB", (wide, top + rows * high + draw.MARGIN // 2), draw.PAPER)
    pen = ImageDraw.Draw(sheet)
    room = wide - 2 * draw.MARGIN
    draw.write(pen, (draw.MARGIN, draw.MARGIN + 26), program.question, draw.CAPTION, draw.INK, room=room)
    draw.write(pen, (draw.MARGIN, draw.MARGIN + 80), f"→ {program.answer}", draw.LABEL, draw.PALETTE[0].ink, room=room)
    for number, step in enumerate(program.steps):
        x = draw.MARGIN + number % columns * (size[0] + draw.GAP)
        y = top + number // columns * high
        draw.write(pen, (x, y + TITLE - 18), f"{number + 1}  {step.title}", draw.LABEL - 4, draw.INK, room=size[0])
        draw.paste_rounded(sheet, _panel(picture, program.boxes, step), x, y + TITLE)
        if step.result:
            place = (x + size[0], y + TITLE + size[1] + 36)
            draw.write(pen, place, step.result, draw.LABEL - 4, draw.PALETTE[0].ink, "rs", room=size[0])
    return sheet


def _panel(picture: Image.Image, boxes: Float[Array, "region 4"], step: StepPicture) -> Image.Image:
    """The picture, as bright at each thing as it is likely; those more likely than not have a box, and a
    number unless it would be 100."""
    light = draw.brightest(step.found, boxes, (picture.height, picture.width))
    lit = Image.fromarray(draw.illuminate(np.asarray(picture), light)).convert("RGBA")
    over = Image.new("RGBA", picture.size)
    pen = ImageDraw.Draw(over)
    marked = [region for region in np.argsort(-step.found, kind="stable") if step.found[region] >= MARKED]
    frames = [draw.pixels(boxes[region], picture.size) for region in marked]
    for frame in frames:
        draw.outline(pen, frame, (*draw.rgb(draw.PALETTE[0].glow), 255), 4, shadow=True)
    lit = Image.alpha_composite(lit, over)
    taken: list[draw.Frame] = []
    for region, frame in zip(marked, frames, strict=True):
        if step.found[region] < CERTAIN:
            draw.tag(lit, f"{100 * step.found[region]:.0f} %", draw.PALETTE[0].glow, frame, taken, draw.NOTE - 3)
    return lit.convert("RGB")
