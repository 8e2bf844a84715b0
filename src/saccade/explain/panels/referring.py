"""Which box a text means, drawn: the picture lit where it may be, and for a dialog a panel after every turn.

Candidates are numbered, the likeliest first; what is no longer likely goes dark.
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

SIDE, ALONE, COLUMNS = 460, 900, 4  # of a panel among others, and of one alone; panels in a row
TITLE, FOOT = 60, 30  # room above and below a panel
DARK = 0.3  # of the picture's brightness, where nothing is meant
EQUAL = 0.999  # of the likeliest: as likely
NUMBERED = 0.05  # the probability from which on a candidate has its number


@dataclass(frozen=True, eq=False)
class ReferralPicture:
    """A picture, the boxes to choose among, and how likely each is after every step that is shown."""

    image: UInt8[Array, "height width 3"]
    boxes: Float[Array, "candidate 4"]  # x1, y1, x2, y2 in 0..1
    steps: tuple[str, ...]  # what was said
    chances: Float[Array, "step candidate"]
    title: str = ""

    def __post_init__(self) -> None:
        if self.chances.shape != (len(self.steps), len(self.boxes)) or not self.steps or not len(self.boxes):
            raise SaccadeError(
                f"{len(self.steps)} steps over {len(self.boxes)} boxes need as many probabilities, not "
                f"{self.chances.shape}"
            )

    def save(self, path: Path | str) -> Path:
        """As .png, .jpg or .webp."""
        draw.check_format(path, "a picture of what is meant")
        return draw.save_drawing(draw_referral(self), path, "a picture of what is meant")


def draw_referral(referral: ReferralPicture) -> Image.Image:
    """Drawn at twice the size it is meant to be seen at."""
    count = len(referral.steps)
    side = ALONE if count == 1 else SIDE
    size = draw.size_like(referral.image.shape[1] / referral.image.shape[0], side, side * 1.25)
    picture = Image.fromarray(referral.image).resize(size, Image.Resampling.LANCZOS)
    columns = min(count, COLUMNS)
    high = TITLE + size[1] + FOOT
    heading = draw.CAPTION + draw.GAP if referral.title else 0
    wide = 2 * draw.MARGIN + columns * (size[0] + draw.GAP) - draw.GAP
    rows = -(-count // columns)
    sheet = Image.new("RGB", (wide, 2 * draw.MARGIN + heading + rows * high - FOOT), draw.PAPER)
    pen = ImageDraw.Draw(sheet)
    if referral.title:
        place = draw.MARGIN, draw.MARGIN + 30
        draw.write(pen, place, referral.title, draw.CAPTION, draw.INK, room=wide - 2 * draw.MARGIN)
    order = np.argsort(-referral.chances[-1], kind="stable")
    number = {int(candidate): n for n, candidate in enumerate(order, start=1)}
    for n, (said, chances) in enumerate(zip(referral.steps, referral.chances, strict=True)):
        x = draw.MARGIN + n % columns * (size[0] + draw.GAP)
        y = draw.MARGIN + heading + n // columns * high
        draw.write(pen, (x, y + TITLE - 18), said, draw.LABEL - 4, draw.INK, room=size[0])
        draw.paste_rounded(sheet, _panel(picture, referral.boxes, chances, number), x, y + TITLE)
    return sheet


def _panel(
    picture: Image.Image,
    boxes: Float[Array, "candidate 4"],
    chances: Float[Array, " candidate"],
    number: dict[int, int],
) -> Image.Image:
    """Each candidate as bright as it is likely, beside the likeliest; that one has a strong outline."""
    share = chances / max(float(chances.max()), 1e-9)
    known = bool(share.min() < EQUAL)  # or nothing was said yet
    frames = [draw.pixels(box, picture.size) for box in boxes]
    light = np.full((picture.height, picture.width, 1), DARK)
    for (left, top, right, bottom), own in sorted(zip(frames, share, strict=True), key=lambda pair: float(pair[1])):
        part = light[top:bottom, left:right]
        part[:] = np.maximum(part, DARK + (1 - DARK) * own)
    lit = Image.fromarray((np.asarray(picture) * light).astype(np.uint8)).convert("RGBA")
    over = Image.new("RGBA", picture.size)
    pen = ImageDraw.Draw(over)
    order = [int(i) for i in np.argsort(share, kind="stable")]
    for i in order:  # the likeliest on top
        best = known and bool(share[i] > EQUAL)
        tone = draw.rgb(draw.PALETTE[0].glow if best else draw.PAPER)
        draw.outline(pen, frames[i], (*tone, round(60 + 195 * share[i])), 5 if best else 2, shadow=best)
    lit = Image.alpha_composite(lit, over)
    taken: list[draw.Frame] = []
    for i in reversed(order):
        if known and chances[i] >= NUMBERED:
            colour = draw.PALETTE[0].glow if share[i] > EQUAL else draw.RULE
            draw.tag(lit, f"{number[i]}   {100 * chances[i]:.0f} %", colour, frames[i], taken, draw.NOTE - 5)
    return lit.convert("RGB")
