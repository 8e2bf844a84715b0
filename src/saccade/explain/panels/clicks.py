"""Why a click is expected, drawn: the item as users see it, what each of its modalities did for the prediction, what
all of them say alike, and the behaviours that the prediction looked back at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.core.errors import SaccadeError
from saccade.explain import draw

SIDE, SMALL, SHOWN = 330, 128, 8  # of the item's picture and of a behaviour's; behaviours that are shown
NAME, BAR, FIGURE = 220, 330, 130  # widths: of a modality's name, of half of its bar, of its figure
LINE = 58
HEIGHT = SIDE + SMALL + 150
INVARIANT = "said by all alike"


@dataclass(frozen=True, eq=False)
class Behaviour:
    """A behaviour: the item's look (if there is one) and title, what was done, and its weight."""

    image: UInt8[Array, "height width 3"] | None
    title: str
    kind: str
    weight: float


@dataclass(frozen=True, eq=False)
class ClickPicture:
    """One candidate: its probability, and of each modality the effect on the logit and the share of the vector."""

    image: UInt8[Array, "height width 3"] | None
    title: str
    probability: float
    modalities: tuple[str, ...]
    effects: Float[Array, " modality"]
    gates: Float[Array, " modality"]  # nan: the model has none
    shares: Float[Array, " part"]  # of the modalities, then of the invariant part
    history: tuple[Behaviour, ...]

    def __post_init__(self) -> None:
        if not len(self.modalities) == len(self.effects) == len(self.gates) == len(self.shares) - 1:
            raise SaccadeError(f"{len(self.modalities)} modalities need as many effects and gates, and one share more")


def save_clicks(candidates: tuple[ClickPicture, ...], path: Path | str, title: str = "") -> Path:
    """As .png, .jpg or .webp."""
    draw.check_format(path, "a picture of predicted clicks")
    return draw.save_drawing(draw_clicks(candidates, title), path, "a picture of predicted clicks")


def draw_clicks(candidates: tuple[ClickPicture, ...], title: str = "") -> Image.Image:
    """One below the other; bars of effects are on one scale. Drawn at twice the size it is meant to be seen at."""
    wide = 2 * draw.MARGIN + SIDE + draw.GUTTER + NAME + 2 * BAR + 2 * FIGURE + 220
    heading = draw.CAPTION + draw.GAP if title else 0
    high = 2 * draw.MARGIN + heading + len(candidates) * HEIGHT
    sheet = Image.new("RGB", (wide, high), draw.PAPER)
    pen = ImageDraw.Draw(sheet)
    if title:
        draw.write(pen, (draw.MARGIN, draw.MARGIN + 26), title, draw.CAPTION, draw.INK, room=wide - 2 * draw.MARGIN)
    largest = max((float(np.abs(one.effects).max(initial=0)) for one in candidates), default=0) or 1.0
    for number, one in enumerate(candidates):
        top = draw.MARGIN + heading + number * HEIGHT
        if number:
            pen.line((draw.MARGIN, top - 30, wide - draw.MARGIN, top - 30), fill=draw.RULE, width=3)
        _draw_one(sheet, pen, one, top, wide, largest)
    return sheet


def _draw_one(
    sheet: Image.Image, pen: ImageDraw.ImageDraw, one: ClickPicture, top: int, wide: int, largest: float
) -> None:
    _picture(sheet, pen, one.image, draw.MARGIN, top, SIDE)
    left = draw.MARGIN + SIDE + draw.GUTTER
    room = wide - draw.MARGIN - left
    draw.write(pen, (left, top + 30), one.title or "(no title)", draw.LABEL, draw.INK, room=room - 260)
    said = f"click {100 * one.probability:.1f} %"
    draw.write(pen, (wide - draw.MARGIN, top + 30), said, draw.LABEL, draw.PALETTE[0].ink, "rs", room=250)
    y, middle = top + 72, left + NAME + BAR
    right = middle + BAR + FIGURE + 20
    for x, text, anchor in ((middle, "what the logit would lose", "ms"), (right + 110, "share of the vector", "ms")):
        draw.write(pen, (x, y), text, draw.NOTE, draw.FAINT, anchor, room=2 * BAR)
    names = [*one.modalities, INVARIANT]
    for n, name in enumerate(names):
        y = top + 90 + n * min(LINE, (SIDE - 80) // len(names))
        tone = draw.PALETTE[n % 4].ink if n < len(one.modalities) else draw.PALETTE[6].ink
        draw.write(pen, (left, y + 26), name, draw.NOTE + 2, draw.INK, room=NAME - 10)
        if n < len(one.modalities):
            effect = float(one.effects[n])
            reach = round(BAR * effect / largest)
            pen.rectangle((min(middle, middle + reach), y + 4, max(middle, middle + reach), y + 32), fill=tone)
            place = (middle + max(reach, 0) + 10, y + 28)
            draw.write(pen, place, f"{effect:+.2f}", draw.NOTE, draw.FAINT, room=FIGURE)
        share = float(one.shares[n])
        if np.isfinite(share):
            pen.rectangle((right, y + 4, right + round(180 * share), y + 32), fill=tone)
            gate = f"{100 * share:.0f} %"
            if n < len(one.modalities) and np.isfinite(one.gates[n]):
                gate += f"   gate {one.gates[n]:+.2f}"
            draw.write(pen, (right + round(180 * share) + 10, y + 28), gate, draw.NOTE, draw.FAINT, room=300)
    pen.line((middle, top + 86, middle, top + 90 + len(names) * LINE - 20), fill=draw.RULE, width=2)
    _draw_history(sheet, pen, one.history, top + SIDE + 40, wide)


def _draw_history(
    sheet: Image.Image, pen: ImageDraw.ImageDraw, history: tuple[Behaviour, ...], top: int, wide: int
) -> None:
    """The behaviours of the largest weights, in their order."""
    if not history:
        draw.write(pen, (draw.MARGIN, top + 40), "no behaviours before", draw.NOTE, draw.FAINT, room=wide)
        return
    kept = sorted(sorted(range(len(history)), key=lambda n: -abs(history[n].weight))[:SHOWN])
    largest = max(abs(history[n].weight) for n in kept) or 1.0
    cell = (wide - 2 * draw.MARGIN) // SHOWN
    for place, n in enumerate(kept):
        looked, x = history[n], draw.MARGIN + place * cell
        _picture(sheet, pen, looked.image, x, top, SMALL)
        if looked.image is None:
            draw.write(pen, (x + 6, top + SMALL // 2), looked.title, 19, draw.FAINT, room=SMALL - 12)
        length = round((SMALL - 4) * abs(looked.weight) / largest)
        pen.rectangle((x, top + SMALL + 8, x + max(length, 2), top + SMALL + 18), fill=draw.PALETTE[1].ink)
        text = f"{looked.kind} {100 * looked.weight:.0f} %"
        draw.write(pen, (x, top + SMALL + 44), text, draw.NOTE - 2, draw.FAINT, room=cell - 8)


def _picture(
    sheet: Image.Image,
    pen: ImageDraw.ImageDraw,
    image: UInt8[Array, "height width 3"] | None,
    x: int,
    y: int,
    side: int,
) -> None:
    if image is None:
        pen.rounded_rectangle((x, y, x + side, y + side), 14, outline=draw.RULE, width=3)
        return
    shown = Image.fromarray(image)
    shown.thumbnail((side, side), Image.Resampling.LANCZOS)
    if max(shown.size) < side:
        factor = side / max(shown.size)
        shown = shown.resize((round(shown.width * factor), round(shown.height * factor)), Image.Resampling.LANCZOS)
    draw.paste_rounded(sheet, shown, x, y)
