"""A scene graph drawn: things in the order of the sentence, what they are like beneath, arrows between them above.

That of a picture stands below the picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.explain import draw
from saccade.explain.explanation import MAX_WORDS
from saccade.explain.panels.regions import RegionPicture, draw_regions
from saccade.language.parsing.scene_graph import Object, SceneGraph
from saccade.vision import PictureGraph

MARGIN, GAP = 48, 56
NAME, WORD, CAPTION = 34, 26, 30
BOX, PILL, LEVEL = 72, 44, 62  # heights: of a thing, of an attribute, of a line above another
FIELD, EDGE, SAID, LINE = "#eef1fb", "#3f51b5", "#fff1d0", "#5b6673"
MIN_WIDTH = 900  # room for the sentence
MAX_THINGS, MAX_SAID, MAX_NAME = 20, 8, 420  # things, attributes of each, and the width of a name


@dataclass(frozen=True)
class _Arrow:
    """From a thing to another (by number), at a height over the boxes, with its words."""

    start: int
    end: int
    text: str
    level: int


def draw_scene_graph(graph: SceneGraph, caption: str = "") -> Image.Image:
    """Drawn at twice the size it is meant to be seen at. Of a large graph, its first things."""
    more = len(graph.objects) - MAX_THINGS
    graph = _first(graph)
    arrows = _arrows(graph)
    boxes = _boxes(graph, arrows)
    wide = max(MIN_WIDTH, round(max((right for _, right in boxes.values()), default=0)) + MARGIN)
    words = caption.split()
    words = [*words[:MAX_WORDS], f"… and {len(words) - MAX_WORDS:,} more words"] if len(words) > MAX_WORDS else words
    lines = draw.break_lines(tuple(words), CAPTION, wide - 2 * MARGIN) if words else []
    lines = draw.in_visual_order(lines, words, wide - 2 * MARGIN)
    above = MARGIN + len(lines) * 44 + (24 if lines else 0)
    top = above + (max((a.level for a in arrows), default=0)) * LEVEL + (30 if arrows else 0)
    said = {t: [_cut(a.word, WORD) for a in graph.attributes if a.object == t] for t in graph.objects}
    most = max(map(len, said.values()), default=0)
    foot = top + BOX + most * (PILL + 10) + MARGIN
    drawn = Image.new("RGB", (wide, foot + (MARGIN if more > 0 else 0)), draw.PAPER)
    pen = ImageDraw.Draw(drawn)
    if more > 0:
        draw.write(pen, (MARGIN, foot), f"… and {more:,} more thing{'s' if more > 1 else ''}", WORD)
    for row, line in enumerate(lines):
        for index, x, _ in line:
            draw.write(
                pen, (MARGIN + x, MARGIN + 30 + row * 44), words[index], CAPTION, draw.INK, room=wide - 2 * MARGIN
            )
    if not graph.objects:
        draw.write(pen, (MARGIN, top + 40), "no things", WORD)
    for thing, (left, right) in boxes.items():
        pen.rounded_rectangle((left, top, right, top + BOX), 14, FIELD, EDGE, 3)
        middle = (left + right) / 2
        draw.write(pen, (middle, top + BOX / 2 + 2), _cut(thing.name, NAME), NAME, draw.INK, "mm")
        for n, word in enumerate(said[thing]):
            y = top + BOX + 10 + n * (PILL + 10)
            half = draw.width(word, WORD) / 2 + 20
            pen.rounded_rectangle((middle - half, y, middle + half, y + PILL), PILL / 2, SAID, draw.RULE, 2)
            draw.write(pen, (middle, y + PILL / 2 + 1), word, WORD, draw.INK, "mm")
    _draw_arrows(pen, arrows, list(boxes.values()), top)
    return drawn


def draw_picture_graph(image: UInt8[Array, "height width 3"], graph: PictureGraph) -> Image.Image:
    """The photo with the graph's things in it, and the graph beneath; both call a second man "man 2"."""
    words = graph.words(numbered=True)
    boxes = np.array([region.box for region in graph.regions]).reshape(-1, 4)
    scores = np.array([region.score for region in graph.regions])
    photo = draw_regions(RegionPicture(image, boxes, tuple(thing.name for thing in words.objects), scores), top=0)
    below = draw_scene_graph(words)
    drawn = Image.new(
        "RGB", (max(photo.width + 2 * MARGIN, below.width), photo.height + below.height + MARGIN), draw.PAPER
    )
    draw.paste_rounded(drawn, photo, (drawn.width - photo.width) // 2, MARGIN)
    drawn.paste(below, ((drawn.width - below.width) // 2, photo.height + MARGIN))
    return drawn


def save_scene_graph(graph: SceneGraph, path: Path | str, caption: str = "") -> Path:
    return draw.save_drawing(draw_scene_graph(graph, caption), path, "a scene graph")


def _first(graph: SceneGraph) -> SceneGraph:
    kept = graph.objects[:MAX_THINGS]
    attributes = (islice((a for a in graph.attributes if a.object == thing), MAX_SAID) for thing in kept)
    relations = (r for r in graph.relations if r.subject in kept and r.object in kept)
    return SceneGraph(kept, tuple(chain.from_iterable(attributes)), tuple(relations))


def _cut(text: str, size: int) -> str:
    return draw.fit(text, size, MAX_NAME, smallest=size)[0]


def _arrows(graph: SceneGraph) -> list[_Arrow]:
    """Short arrows low, long ones over them; no two share a height where they would meet."""
    number = {thing: n for n, thing in enumerate(graph.objects)}
    wanted = [(number[r.subject], number[r.object], _cut(" ".join(r.predicate), WORD)) for r in graph.relations]
    placed: list[_Arrow] = []
    for start, end, text in sorted(wanted, key=lambda w: abs(w[0] - w[1])):
        low, high = min(start, end), max(start, end)
        over = [a.level for a in placed if min(a.start, a.end) < high and max(a.start, a.end) > low]
        level = next(n for n in range(1, len(over) + 2) if n not in over)
        placed.append(_Arrow(start, end, text, level))
    return placed


def _boxes(graph: SceneGraph, arrows: list[_Arrow]) -> dict[Object, tuple[float, float]]:
    """Left and right of each thing: far enough apart that the words of every arrow fit over it."""
    boxes: dict[Object, tuple[float, float]] = {}
    middles: list[float] = []
    x = float(MARGIN)
    for n, thing in enumerate(graph.objects):
        said = [_cut(a.word, WORD) for a in graph.attributes if a.object == thing]
        wide = max(
            [draw.width(_cut(thing.name, NAME), NAME) + 48, *(draw.width(word, WORD) + 40 for word in said), 110.0]
        )
        for arrow in arrows:
            if max(arrow.start, arrow.end) == n:
                other = min(arrow.start, arrow.end)
                x = max(x, middles[other] + draw.width(arrow.text, WORD) + 110 - wide / 2)
        boxes[thing] = (x, x + wide)
        middles.append(x + wide / 2)
        x += wide + GAP
    return boxes


def _draw_arrows(pen: ImageDraw.ImageDraw, arrows: list[_Arrow], boxes: list[tuple[float, float]], top: int) -> None:
    """Up from one thing, across, and down to the other; arrows of one thing leave and arrive side by side."""
    ports: dict[tuple[int, int], float] = {}
    for thing, (left, right) in enumerate(boxes):
        ends = [(n, a) for n, a in enumerate(arrows) if thing in (a.start, a.end)]
        # those to the left of the thing at its left; of them the highest innermost, so that lines do not cross
        key = {n: (1, -a.level) if a.start + a.end > 2 * thing else (0, a.level) for n, a in ends}
        order = sorted((n for n, _ in ends), key=lambda n: key[n])
        step = min(34.0, (right - left - 40) / max(len(order), 1))
        for at, n in enumerate(order):
            ports[n, thing] = (left + right) / 2 + (at - (len(order) - 1) / 2) * step
    for n, arrow in enumerate(arrows):
        x1, x2 = ports[n, arrow.start], ports[n, arrow.end]
        y = top - 14 - arrow.level * LEVEL + LEVEL / 2
        turn = 14 if x2 > x1 else -14
        pen.line((x1, top, x1, y + 14), LINE, 3)
        pen.line((x1 + turn, y, x2 - turn, y), LINE, 3)
        pen.line((x2, y + 14, x2, top - 14), LINE, 3)
        for x, side in ((x1, turn), (x2, -turn)):
            start = 180 if side > 0 else 270
            corner = (min(x, x + 2 * side), y - 1, max(x, x + 2 * side), y + 28)
            pen.arc(corner, start, start + 90, LINE, 3)
        pen.polygon([(x2, top - 1), (x2 - 9, top - 18), (x2 + 9, top - 18)], LINE)
        half, middle = draw.width(arrow.text, WORD) / 2 + 8, (x1 + x2) / 2
        pen.rectangle((middle - half, y - 18, middle + half, y + 18), draw.PAPER)
        draw.write(pen, (middle, y), arrow.text, WORD, draw.INK, "mm")
