"""Step by step: a row of tiles for each step of a model that attends several times, a column for each word."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageDraw

from saccade.explain.draw.curves import Brush, bend, middle, smooth_layer
from saccade.explain.draw.marks import GAP, LABEL, NOTE, bar, fit, font, paste_rounded, pixels, size_like
from saccade.explain.draw.palette import FAINT, INK, PAPER, RULE, Colour
from saccade.explain.explanation import Explanation
from saccade.explain.panels.strip import Cell, draw_tile
from saccade.explain.reading import SAME_PLACE, colour_of_word, find_places, is_content, overlap, shares

TILE, SMALL = 216, 132  # of content words and of function words: smaller than the strip's, there are several rows
GROW, SHRINK = 1.2, 0.74  # tiles may be so much larger or smaller, to fill the width
NARROW = 110  # a column's word needs this much room
NAME = 120  # the column with the names of the steps
BAR, FOOT = 30, 54  # below each tile; below the last row, for the word


def draw_steps(explanation: Explanation, room: int) -> Image.Image:
    """Blocks of columns, each no wider than `room`; a long sentence goes on in the next block."""
    assert explanation.steps is not None
    blocks = arrange_steps(explanation, room)
    source = Image.fromarray(explanation.image)
    colours = colour_of_word(find_places(explanation))
    steps = len(explanation.steps)
    tall = [max(cell.size[1] for cell in block) for block in blocks]
    heights = [steps * (high + BAR) + FOOT for high in tall]
    sheet = Image.new("RGB", (room, sum(heights) + GAP * (len(blocks) - 1)), PAPER)
    pen = ImageDraw.Draw(sheet)
    sizes = {cell.size for block in blocks for cell in block}
    thumbs = {size: source.resize(size, Image.Resampling.LANCZOS) for size in sizes}
    top = 0
    for block, high, height in zip(blocks, tall, heights, strict=True):
        for step in range(steps):
            floor = top + step * (high + BAR) + high  # the line the row's pictures stand on
            name = f"step {step + 1}"
            pen.text((0, floor - high / 2), name, INK, font(name, LABEL - 4), anchor="lm")
            for cell in block:
                tile = draw_step_tile(thumbs[cell.size], explanation, step, cell, colours.get(cell.word))
                paste_rounded(sheet, tile, cell.x, floor - cell.size[1])
                _draw_bar(pen, explanation, step, cell, colours.get(cell.word), floor)
        for cell in block:
            colour = colours.get(cell.word)
            text, size = fit(explanation.words[cell.word], LABEL if cell.content else LABEL - 5, _slot(cell), NOTE - 3)
            ink = colour.ink if colour else (INK if cell.content else FAINT)
            pen.text((cell.x, top + height - FOOT + 28), text, ink, font(text, size), anchor="ls")
        top += height + GAP
    return sheet


def arrange_steps(explanation: Explanation, room: int) -> list[list[Cell]]:
    """Columns in the sentence's order, in as few blocks of about the same width as the room and SHRINK allow."""
    aspect = explanation.image.shape[1] / explanation.image.shape[0]
    words = [i for i, word in enumerate(explanation.words) if any(c.isalnum() for c in word)]
    content = {i: is_content(explanation.words[i]) for i in words}
    within = room - NAME + GAP

    def sizes(scale: float) -> dict[int, tuple[int, int]]:
        sides = {i: scale * (TILE if content[i] else SMALL) for i in words}
        return {i: size_like(aspect, side, 1.6 * side) for i, side in sides.items()}

    def slots_of(size: dict[int, tuple[int, int]]) -> dict[int, int]:
        return {i: max(size[i][0], NARROW) + GAP for i in words}

    count = max(1, math.ceil(sum(slots_of(sizes(SHRINK)).values()) / within))
    for percent in range(round(100 * GROW), round(100 * SHRINK) - 1, -2):  # the largest tiles that need no more blocks
        size = sizes(percent / 100)
        slots = slots_of(size)
        total = sum(slots.values())
        if total + (count - 1) * max(slots.values(), default=0) <= count * within:
            break
    share = total / count
    blocks: list[list[Cell]] = []
    x, before = 0, 0.0
    for word in words:
        # Begin a block where the last has had its share of the sentence, or has no room left.
        if not blocks or x + slots[word] > within or before + slots[word] / 2 > len(blocks) * share:
            blocks.append([])
            x = 0
        blocks[-1].append(Cell(word, NAME + x, size[word], content[word]))
        x += slots[word]
        before += slots[word]
    return blocks or [[Cell(0, NAME, size_like(aspect, SMALL, 1.6 * SMALL), False)]]  # punctuation alone


def draw_step_tile(
    picture: Image.Image, explanation: Explanation, step: int, cell: Cell, colour: Colour | None
) -> Image.Image:
    """A word's tile at one step; where its strongest region is not where it was, an arrow shows the way."""
    assert explanation.steps is not None
    weights, boxes = explanation.steps[step, cell.word], explanation.boxes
    tile = draw_tile(picture, weights, boxes, cell.content, colour)
    if step == 0 or not cell.content:
        return tile
    before, after = int(explanation.steps[step - 1, cell.word].argmax()), int(weights.argmax())
    if overlap(boxes[before], boxes[after]) >= SAME_PLACE:
        return tile
    start, stop = (middle(pixels(boxes[region], tile.size)) for region in (before, after))
    if np.hypot(stop[0] - start[0], stop[1] - start[1]) < 24:  # a box within a box: no way to show
        return tile

    def paint(brush: Brush) -> None:
        brush.arrow(bend(start, stop), ("#ffffff", "#ffffff"), 4, rim=2)

    return Image.alpha_composite(tile.convert("RGBA"), smooth_layer(tile.size, paint)).convert("RGB")


def _draw_bar(
    pen: ImageDraw.ImageDraw, explanation: Explanation, step: int, cell: Cell, colour: Colour | None, floor: int
) -> None:
    """How sharp the attention is: the share of the word's strongest region."""
    assert explanation.steps is not None
    share = float(shares(explanation.steps[step, cell.word][None]).max())
    stop = cell.x + cell.size[0]
    bar(pen, cell.x, stop, floor + 9, RULE)
    bar(pen, cell.x, cell.x + round(cell.size[0] * share), floor + 9, colour.ink if colour else FAINT)


def _slot(cell: Cell) -> int:
    return max(cell.size[0], NARROW)
