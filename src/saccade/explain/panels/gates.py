"""Gates of regions: the picture with every region's box as bright and thick as its gate is open."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from saccade.explain import draw
from saccade.explain.explanation import Explanation

PICTURE_SIDE, CUT = 640, 190  # the side of a square picture; the height of a region cut out of it
OPEN, ON_PAPER = "#ffc44d", "#b06f00"  # amber, on pictures and on paper
LEGEND = (0.1, 0.5, 0.9)


def draw_gates(explanation: Explanation, room: int) -> Image.Image:
    """Left the picture and a legend, right the regions that let in most and least."""
    assert explanation.region_gate is not None
    gates, source = explanation.region_gate, Image.fromarray(explanation.image)
    drawn = gated_picture(explanation.picture(PICTURE_SIDE), explanation)
    left = drawn.width + draw.GUTTER
    order = [int(i) for i in np.argsort(-gates, kind="stable")]
    half = (len(order) + 1) // 2
    rows = [("open: these let in most", order[:half]), ("shut: these let in least", order[half:][::-1])]
    high = max(drawn.height + 74, 2 * (CUT + 130))
    sheet = Image.new("RGB", (room, high), draw.PAPER)
    pen = ImageDraw.Draw(sheet)
    draw.paste_rounded(sheet, drawn, 0, 0)
    for number, openness in enumerate(LEGEND):  # boxes on dark ground, as they would lie on the picture
        swatch = Image.new("RGBA", (64, 44), (*(round(110 * (0.35 + 0.65 * openness)) for _ in "rgb"), 255))
        line = Image.new("RGBA", swatch.size)
        thickness, opacity = marks(openness)
        draw.outline(ImageDraw.Draw(line), (6, 6, 57, 37), (*draw.rgb(OPEN), opacity), thickness, shadow=False)
        x, y, text = 150 * number, drawn.height + 26, f"{openness:.1f}"
        draw.paste_rounded(sheet, Image.alpha_composite(swatch, line).convert("RGB"), x, y)
        draw.write(pen, (x + 78, y + 31), text, draw.NOTE + 2)
    y = 0
    for name, regions in rows:
        if not regions:
            continue
        draw.write(pen, (left, y + 24), name, draw.LABEL - 4, draw.INK)
        x = left
        for region in regions:
            piece = draw.cut(source, explanation.boxes[region], CUT)
            if x + piece.width > room:
                break
            draw.paste_rounded(sheet, piece, x, y + 46)
            draw.write(pen, (x + piece.width, y + 46 + CUT + 33), f"{gates[region]:.2f}", draw.NOTE, draw.FAINT, "rs")
            end = x + piece.width - round(draw.width("0.00", draw.NOTE)) - 10
            draw.gate(pen, x, max(end, x + 24), y + 46 + CUT + 17, float(gates[region]), ON_PAPER)
            x += piece.width + draw.GAP
        y += CUT + 130
    return sheet


def gated_picture(picture: Image.Image, explanation: Explanation) -> Image.Image:
    """Every box in the strength of its gate, the most open on top; what no open box covers is dimmed."""
    assert explanation.region_gate is not None
    gates = explanation.region_gate
    covered = np.zeros((picture.height, picture.width))
    over = Image.new("RGBA", picture.size)
    pen = ImageDraw.Draw(over)
    for region in np.argsort(gates, kind="stable"):
        left, top, right, bottom = frame = draw.pixels(explanation.boxes[region], picture.size)
        covered[top:bottom, left:right] = np.maximum(covered[top:bottom, left:right], gates[region])
        thickness, opacity = marks(float(gates[region]))
        draw.outline(pen, frame, (*draw.rgb(OPEN), opacity), thickness, shadow=False)
    bright = (0.35 + 0.65 * covered)[..., None]
    dimmed = Image.fromarray((np.asarray(picture) * bright).round().astype(np.uint8))
    return Image.alpha_composite(dimmed.convert("RGBA"), over).convert("RGB")


def marks(openness: float) -> tuple[int, int]:
    """Thickness and opacity of a box's line."""
    return max(1, round(1 + 6 * openness)), round(30 + 225 * openness)
