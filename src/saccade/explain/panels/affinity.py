"""Which region takes from which: the strongest links between regions, on the picture and one by one."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageDraw

from saccade.explain.draw.curves import Brush, bend, middle, smooth_layer
from saccade.explain.draw.marks import (
    GUTTER,
    LABEL,
    MAX_CUT_ASPECT,
    NOTE,
    bar,
    cut,
    font,
    outline,
    paste_rounded,
    pixels,
    size_like,
    tag,
    width,
)
from saccade.explain.draw.palette import FAINT, INK, PAPER, RULE, rgb
from saccade.explain.explanation import Explanation
from saccade.explain.reading import SAME_PLACE, overlap

PICTURE_SIDE, CUT, SMALL_CUT = 760, 128, 104  # sides of the picture, of the regions of a link, of the regions in order
MAX_CUT_WIDTH, ARROW = round(MAX_CUT_ASPECT * CUT), 110  # room for a region and for the arrow of a link
MIN_SLOT, MAX_SLOT = 2 * MAX_CUT_WIDTH + ARROW + 200, 2 * MAX_CUT_WIDTH + ARROW + 420  # of a link by itself
LINKS = 6
GIVES, AGAINST = "#ffb84d", "#58b7f5"  # amber: a link that adds; blue: one that takes away
ON_PAPER = {GIVES: "#b06f00", AGAINST: "#0069ab"}
HUB = "#ffffff"

Link = tuple[int, int, float]  # the region that takes, the one that gives, how much


def draw_affinity(explanation: Explanation, room: int) -> Image.Image:
    """Left the picture with its links, right each link by itself, and below the regions in the model's order."""
    size = size_like(explanation.image.shape[1] / explanation.image.shape[0], PICTURE_SIDE, PICTURE_SIDE * 1.25)
    source = Image.fromarray(explanation.image)
    links = strongest_links(explanation)
    picture = draw_links(source.resize(size, Image.Resampling.LANCZOS), explanation, links)
    beside = _draw_list(explanation, source, links, room - size[0] - GUTTER)
    sheet = Image.new("RGB", (room, max(picture.height, beside.height)), PAPER)
    paste_rounded(sheet, picture, 0, 0)
    sheet.paste(beside, (size[0] + GUTTER, 0))
    return sheet


def strongest_links(explanation: Explanation, most: int = LINKS) -> list[Link]:
    """The links of the largest size, strongest first.

    A place with itself says little, and so does a second link between two places that already have one: both are left
    out, unless there is nothing else.
    """
    assert explanation.region_links is not None
    links, boxes = explanation.region_links, explanation.boxes
    order = np.argsort(-np.abs(links), axis=None, kind="stable")
    pairs = [(int(i), int(j)) for i, j in zip(*np.unravel_index(order, links.shape), strict=True) if i != j]
    pairs = [(i, j) for i, j in pairs if links[i, j] != 0]

    def same(one: int, other: int) -> bool:
        return one == other or overlap(boxes[one], boxes[other]) >= SAME_PLACE

    kept: list[Link] = []
    for i, j in pairs:
        if len(kept) == most:
            break
        if same(i, j) or any((same(i, a) and same(j, b)) or (same(i, b) and same(j, a)) for a, b, _ in kept):
            continue
        kept.append((i, j, float(links[i, j])))
    return kept or [(i, j, float(links[i, j])) for i, j in pairs[:1]]


def find_hub(explanation: Explanation) -> int:
    """The region with the largest links, given and taken, in all."""
    assert explanation.region_links is not None
    size = np.abs(explanation.region_links)
    np.fill_diagonal(size, 0.0)
    return int((size.sum(axis=0) + size.sum(axis=1)).argmax())


def draw_links(picture: Image.Image, explanation: Explanation, links: list[Link]) -> Image.Image:
    """The linked regions' boxes with their numbers, and arrows from the giving to the taking region."""
    drawn = Image.blend(picture, Image.new("RGB", picture.size, "#11161b"), 0.3).convert("RGBA")
    hub = find_hub(explanation)
    shown = sorted({region for i, j, _ in links for region in (i, j)} | {hub})
    frames = {region: pixels(explanation.boxes[region], picture.size) for region in shown}
    boxes = Image.new("RGBA", drawn.size)
    for region, frame in frames.items():
        strong = region == hub
        tone = (*rgb(HUB), 255 if strong else 150)
        outline(ImageDraw.Draw(boxes), frame, tone, 7 if strong else 2, shadow=strong)
    peak = max((abs(value) for _, _, value in links), default=1.0)

    def paint(brush: Brush) -> None:
        for taker, giver, value in reversed(links):  # the strongest last, on top
            tone = GIVES if value > 0 else AGAINST
            path = bend(middle(frames[giver]), middle(frames[taker]))
            brush.arrow(_short_of(path, 16), (tone, tone), 2 + 8 * abs(value) / peak, rim=2)
        for region, frame in frames.items():
            brush.dot(middle(frame), 12 if region == hub else 8, HUB, "#11161b", 3)

    drawn = Image.alpha_composite(Image.alpha_composite(drawn, boxes), smooth_layer(drawn.size, paint))
    names = Image.new("RGBA", drawn.size)
    taken = [(round(x - 14), round(y - 14), round(x + 14), round(y + 14)) for x, y in map(middle, frames.values())]
    for region in sorted(shown, key=lambda r: r != hub):
        text = f"{region + 1} most connected" if region == hub else str(region + 1)
        tag(names, text, "#ffffff" if region == hub else "#d7dde2", frames[region], taken)
    return Image.alpha_composite(drawn, names).convert("RGB")


def _short_of(path: np.ndarray, room: float) -> np.ndarray:
    """A path without its last `room` pixels, so that an arrow's head stands beside a node, not on it."""
    away = np.hypot(*(path - path[-1]).T)
    keep = int(np.flatnonzero(away >= room).max(initial=0)) + 1
    return path[: max(keep, 2)]


def _draw_list(explanation: Explanation, source: Image.Image, links: list[Link], room: int) -> Image.Image:
    """Each link by itself: what gives, an arrow, what takes, how much; two columns where there is room."""
    peak = max((abs(value) for _, _, value in links), default=1.0)
    columns = 2 if room >= 2 * MIN_SLOT + GUTTER else 1
    slot = min((room - GUTTER * (columns - 1)) // columns, MAX_SLOT)
    rows = -(-len(links) // columns)
    against = any(value < 0 for _, _, value in links)
    scored = explanation.region_score is not None
    sheet = Image.new("RGB", (room, rows * (CUT + 30) + 50 * against + (SMALL_CUT + 110) * scored), PAPER)
    pen = ImageDraw.Draw(sheet)
    decimals = max(2, 1 - math.floor(math.log10(peak)))  # two digits of the strongest, however small
    for number, (taker, giver, value) in enumerate(links):
        x, y = number // rows * (slot + GUTTER), number % rows * (CUT + 30)
        tone = ON_PAPER[GIVES if value > 0 else AGAINST]
        one, other = _piece(source, explanation, giver, CUT), _piece(source, explanation, taker, CUT)
        paste_rounded(sheet, one, x + MAX_CUT_WIDTH - one.width, y)  # beside the arrow: arrows stand in line
        x += MAX_CUT_WIDTH
        _draw_arrow(sheet, (x + 12, y + CUT // 2), tone, 2 + 8 * abs(value) / peak)
        paste_rounded(sheet, other, x + ARROW, y)
        x += ARROW + MAX_CUT_WIDTH + 24
        text = f"{value:.{decimals}f}"
        stop = number // rows * (slot + GUTTER) + slot
        pen.text((stop, y + CUT / 2 + 8), text, FAINT, font(text, NOTE), anchor="rs")
        stop -= round(width(f"-{peak:.{decimals}f}", NOTE)) + 14
        bar(pen, x, stop, y + CUT // 2 - 3, RULE)
        bar(pen, x, x + round((stop - x) * abs(value) / peak), y + CUT // 2 - 3, tone)
    y = rows * (CUT + 30)
    if against:
        text = "blue: a link below zero, the region takes the opposite"
        pen.text((MAX_CUT_WIDTH, y + 22), text, ON_PAPER[AGAINST], font(text, NOTE + 2), anchor="ls")
        y += 50
    if scored:
        _draw_order(sheet, source, explanation, y)
    return sheet


def _draw_arrow(sheet: Image.Image, at: tuple[int, int], tone: str, thickness: float) -> None:
    path = np.stack([np.linspace(0, ARROW - 24, 20), np.full(20, 20.0)], axis=1)
    layer = smooth_layer((ARROW, 40), lambda brush: brush.arrow(path, (tone, tone), thickness))
    sheet.paste(layer, (at[0], at[1] - 20), layer)


def _draw_order(sheet: Image.Image, source: Image.Image, explanation: Explanation, y: int) -> None:
    """The regions in the order in which the model takes them in, each with its score, as many as there is room for."""
    assert explanation.region_score is not None
    scores, pen = explanation.region_score, ImageDraw.Draw(sheet)
    text = "the regions in the model's order, with their scores"
    pen.text((0, y + 26), text, INK, font(text, LABEL - 4), anchor="ls")
    peak = max(float(np.abs(scores).max()), 1e-9)
    x = 0
    for region in range(len(scores)):
        piece = _piece(source, explanation, region, SMALL_CUT)
        if x + piece.width > sheet.width:
            break
        paste_rounded(sheet, piece, x, y + 44)
        bar(pen, x, x + piece.width, y + SMALL_CUT + 56, RULE)
        filled = round(piece.width * max(float(scores[region]), 0.0) / peak)
        bar(pen, x, x + filled, y + SMALL_CUT + 56, ON_PAPER[GIVES])
        x += piece.width + 14


def _piece(source: Image.Image, explanation: Explanation, region: int, height: int) -> Image.Image:
    """A region cut out, with its number."""
    piece = cut(source, explanation.boxes[region], height)
    over = Image.new("RGBA", piece.size)
    tag(over, str(region + 1), "#eef2f5", (0, 30, 8, 38), [], NOTE - 3)
    return Image.alpha_composite(piece.convert("RGBA"), over).convert("RGB")
