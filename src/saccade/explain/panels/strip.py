"""The strip: a picture with its caption, then one tile per word with the light on what the word attends to.

Where a model says how far a word lets in what it found (its gate), or how much of the attention went to no region (the
sentinel's share), a second bar beneath the word shows that. Where it attends in several steps, a panel has a row of
tiles for each step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.explain import draw
from saccade.explain.explanation import SAME_PLACE, Explanation, overlap, shares

PICTURE_SIDE, TILE, SMALL = 760, 288, 172  # a square picture, a content word's tile, a function word's
UNDER_TILE, GATE = 92, 34  # word and score bar beneath a tile; the gate's bar beneath them
MIN_SLOT = 136  # a tile's word and score need this much room, however slim the picture
COLUMNS = range(2, 9)
SHAPE = 2.4  # the width over height that a strip tends to


@dataclass(frozen=True)
class Cell:
    """One word's tile: where it stands and how large its picture is."""

    word: int
    x: int
    size: tuple[int, int]  # width, height
    content: bool


def draw_strip(explanation: Explanation) -> Image.Image:
    """The whole strip as an RGB picture."""
    aspect = explanation.image.shape[1] / explanation.image.shape[0]
    large = draw.size_like(aspect, PICTURE_SIDE, PICTURE_SIDE * 1.25)
    column = max(large[0], PICTURE_SIDE * 3 // 4)
    lines = draw.break_lines(explanation.names, draw.CAPTION, column)
    lines = draw.in_visual_order(lines, explanation.names, column)
    gated = explanation.share is not None
    foot = UNDER_TILE + GATE * gated
    left_size = column, large[1] + 40 + len(lines) * int(draw.CAPTION * 1.5) + 44 + 40 * gated
    content = [explanation.shows(word) for word in range(len(explanation.words))]
    rows = arrange(explanation.words, content, aspect, left_size, foot)
    grid = extent(rows, foot)
    heading = 64 if explanation.title else 0

    total = (
        2 * draw.MARGIN + column + (draw.GUTTER + grid[0] if rows else 0),
        2 * draw.MARGIN + heading + max(left_size[1], grid[1]),
    )
    sheet = Image.new("RGB", total, draw.PAPER)
    pen = ImageDraw.Draw(sheet)
    if explanation.title:
        draw.write(pen, (draw.MARGIN, draw.MARGIN + 26), explanation.title, draw.LABEL, room=total[0] - 2 * draw.MARGIN)

    top = draw.MARGIN + heading
    source = Image.fromarray(explanation.image)
    picture = with_places(source.resize(large, Image.Resampling.LANCZOS), explanation)
    draw.paste_rounded(sheet, picture, draw.MARGIN, top)
    draw_caption(pen, explanation, lines, (draw.MARGIN, top + large[1] + 40), column)

    left, floor = draw.MARGIN + column + draw.GUTTER, top
    sizes = {cell.size for row in rows for cell in row}
    picture_of_size = {size: source.resize(size, Image.Resampling.LANCZOS) for size in sizes}
    for row in rows:
        floor += max(cell.size[1] for cell in row)  # the line the row's pictures stand on
        for cell in row:
            tile = draw_tile(picture_of_size[cell.size], explanation, cell, explanation.weights[cell.word])
            draw.paste_rounded(sheet, tile, left + cell.x, floor - cell.size[1])
            draw_foot(pen, explanation, cell, left + cell.x, floor)
        floor += foot + draw.GAP
    return sheet


def arrange(
    words: tuple[str, ...], content: Sequence[bool], aspect: float, beside: tuple[int, int], foot: int = UNDER_TILE
) -> list[list[Cell]]:
    """Rows of tiles in the sentence's order, in the number of columns that gives the whole a pleasant shape.

    Words of `content` get larger tiles, punctuation none. `beside` is the size of the large picture with its caption.
    """
    shown = [i for i, word in enumerate(words) if any(c.isalnum() for c in word)]
    sizes = {i: draw.size_like(aspect, side, 1.6 * side) for i in shown for side in [TILE if content[i] else SMALL]}

    def rows_within(room: int) -> list[list[Cell]]:
        rows: list[list[Cell]] = []
        x = room + 1
        for word in shown:
            slot = max(sizes[word][0], MIN_SLOT)
            if x + slot > room:
                rows.append([])
                x = 0
            rows[-1].append(Cell(word, x, sizes[word], content[word]))
            x += slot + draw.GAP
        return rows

    def misshapen(rows: list[list[Cell]]) -> float:
        wide, high = extent(rows, foot)
        return abs(math.log((beside[0] + draw.GUTTER + wide) / max(beside[1], high) / SHAPE))

    step = max(draw.size_like(aspect, TILE, 1.6 * TILE)[0], MIN_SLOT) + draw.GAP
    return min((rows_within(columns * step) for columns in COLUMNS), key=misshapen)


def extent(rows: list[list[Cell]], foot: int = UNDER_TILE) -> tuple[int, int]:
    """Width and height that the rows of tiles need, each with a foot so high."""
    wide = max((max(row[-1].size[0], MIN_SLOT) + row[-1].x for row in rows), default=0)
    return wide, sum(max(cell.size[1] for cell in row) + foot + draw.GAP for row in rows) - draw.GAP


def draw_tile(
    picture: Image.Image, explanation: Explanation, cell: Cell, weights: Float[Array, " region"]
) -> Image.Image:
    """The picture lit where a word attends, its strongest boxes outlined; a function word's tile is paler."""
    boxes, colour = explanation.boxes, explanation.colours.get(cell.word)
    tile = Image.fromarray(draw.illuminate(np.asarray(picture), draw.spread(weights, boxes, picture.size[::-1])))
    outlines = Image.new("RGBA", tile.size)
    pen = ImageDraw.Draw(outlines)
    for box, strength in explanation.outlines(cell.word, weights):
        frame = draw.pixels(box, tile.size)
        tone = (*draw.rgb(colour.glow if colour else "#ffffff"), round(255 * (0.25 + 0.75 * strength**2)))
        draw.outline(pen, frame, tone, max(2, round((4 if cell.content else 2) * strength)), shadow=False)
    tile = Image.alpha_composite(tile.convert("RGBA"), outlines).convert("RGB")
    return tile if cell.content else Image.blend(tile, Image.new("RGB", tile.size, draw.PAPER), 0.45)


def draw_foot(pen: ImageDraw.ImageDraw, explanation: Explanation, cell: Cell, x: int, y: int) -> None:
    """The word beneath its tile; as bars, how well it found its regions and how far it lets them in."""
    room, ink = max(cell.size[0], MIN_SLOT), explanation.ink(cell.word)
    size = draw.LABEL if cell.content else draw.LABEL - 5
    draw.write(pen, (x, y + 42), explanation.names[cell.word], size, ink, room=room)
    end = x + room - round(draw.width("0.00", draw.NOTE)) - 14
    if explanation.strengths is not None and explanation.word_score is not None:
        score, strength = explanation.word_score[cell.word], float(explanation.strengths[cell.word])
        draw.score_bar(pen, x, x + room, y + 60, score, strength, ink, 14)
    if (share := explanation.share) is not None:
        openness = float(share.values[cell.word])
        draw.write(pen, (x + room, y + 71 + GATE), f"{openness:.2f}", draw.NOTE, draw.FAINT, "rs")
        draw.gate(pen, x, end, y + 55 + GATE, openness, ink)


def draw_caption(
    pen: ImageDraw.ImageDraw,
    explanation: Explanation,
    lines: list[list[tuple[int, float, float]]],
    at: tuple[int, int],
    room: int,
) -> None:
    """The sentence under the picture: words in the colour of their place, underlined as strongly as they matched."""
    scores, (x, y) = explanation.strengths, at
    for number, line in enumerate(lines):
        baseline = y + number * int(draw.CAPTION * 1.5) + draw.CAPTION
        for word, offset, length in line:
            tone = explanation.ink(word)
            draw.write(pen, (x + offset, baseline), explanation.names[word], draw.CAPTION, tone, room=room)
            thickness = round(6 * (1.0 if scores is None else float(scores[word])))
            if word in explanation.colours and thickness:
                span = (x + offset, baseline + 12, x + offset + length - 1, baseline + 11 + thickness)
                pen.rectangle(span, tone)
    foot = y + len(lines) * int(draw.CAPTION * 1.5) + 36
    draw.write(pen, (x, foot), explanation.score_note, draw.NOTE + 2, room=room)
    if (share := explanation.share) is not None:
        draw.gate(pen, x, x + 80, foot + 24, 0.6, draw.FAINT)
        draw.write(pen, (x + 98, foot + 40), share.note, draw.NOTE + 2, room=room - 98)


def with_places(picture: Image.Image, explanation: Explanation) -> Image.Image:
    """The large picture with each place's box and a tag that names its words."""
    drawn = picture.convert("RGBA")
    over = Image.new("RGBA", drawn.size)
    pen = ImageDraw.Draw(over)
    places, taken = explanation.places, list[draw.Frame]()
    surest = max((place.strength for place in places), default=1.0)
    for place in places:
        strength = place.strength / surest
        tone = (*draw.rgb(place.colour.glow), round(255 * (0.5 + 0.5 * strength)))
        draw.outline(pen, draw.pixels(place.box, drawn.size), tone, round(2 + 3 * strength), shadow=True)
    for place in places:  # tags after all boxes, so that no line crosses a word
        draw.tag(over, explanation.label(place), place.colour.glow, draw.pixels(place.box, drawn.size), taken)
    return Image.alpha_composite(drawn, over).convert("RGB")


STEP_TILE, SMALL_STEP = 216, 132  # of content and of function words: smaller than the strip's, as there are more rows
GROW, SHRINK = 1.2, 0.74  # tiles may be so much larger or smaller, to fill the width
NARROW = 110  # a column's word needs this much room
NAME = 120  # the column with the names of the steps
BAR, FOOT = 30, 54  # below each tile; below the last row, for the word


def draw_steps(explanation: Explanation, room: int) -> Image.Image:
    """Blocks of columns, each no wider than `room`; a long sentence goes on in the next block."""
    assert explanation.steps is not None
    blocks = arrange_steps(explanation, room)
    source = Image.fromarray(explanation.image)
    steps = len(explanation.steps)
    tall = [max(cell.size[1] for cell in block) for block in blocks]
    heights = [steps * (high + BAR) + FOOT for high in tall]
    sheet = Image.new("RGB", (room, sum(heights) + draw.GAP * (len(blocks) - 1)), draw.PAPER)
    pen = ImageDraw.Draw(sheet)
    sizes = {cell.size for block in blocks for cell in block}
    thumbs = {size: source.resize(size, Image.Resampling.LANCZOS) for size in sizes}
    top = 0
    for block, high, height in zip(blocks, tall, heights, strict=True):
        for step in range(steps):
            floor = top + step * (high + BAR) + high  # the line the row's pictures stand on
            draw.write(pen, (0, floor - high / 2), f"step {step + 1}", draw.LABEL - 4, draw.INK, "lm")
            for cell in block:
                tile = draw_step_tile(thumbs[cell.size], explanation, step, cell)
                draw.paste_rounded(sheet, tile, cell.x, floor - cell.size[1])
                sharpest = float(shares(explanation.steps[step, cell.word][None]).max())  # how sharp the attention is
                tone = explanation.colours[cell.word].ink if cell.word in explanation.colours else draw.FAINT
                draw.bar(pen, cell.x, cell.x + cell.size[0], floor + 9, draw.RULE)
                draw.bar(pen, cell.x, cell.x + round(cell.size[0] * sharpest), floor + 9, tone)
        for cell in block:
            letters, slot = draw.LABEL if cell.content else draw.LABEL - 5, max(cell.size[0], NARROW)
            text, size = draw.fit(explanation.names[cell.word], letters, slot, draw.NOTE - 3)
            draw.write(pen, (cell.x, top + height - FOOT + 28), text, size, explanation.ink(cell.word))
        top += height + draw.GAP
    return sheet


def arrange_steps(explanation: Explanation, room: int) -> list[list[Cell]]:
    """Columns in the sentence's order, in as few blocks of about the same width as the room and SHRINK allow."""
    aspect = explanation.image.shape[1] / explanation.image.shape[0]
    words = [i for i, word in enumerate(explanation.words) if any(c.isalnum() for c in word)]
    content = {i: explanation.shows(i) for i in words}
    within = room - NAME + draw.GAP

    def sizes(scale: float) -> dict[int, tuple[int, int]]:
        sides = {i: scale * (STEP_TILE if content[i] else SMALL_STEP) for i in words}
        return {i: draw.size_like(aspect, side, 1.6 * side) for i, side in sides.items()}

    def slots_of(size: dict[int, tuple[int, int]]) -> dict[int, int]:
        return {i: max(size[i][0], NARROW) + draw.GAP for i in words}

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
    return blocks or [[Cell(0, NAME, draw.size_like(aspect, SMALL_STEP, 1.6 * SMALL_STEP), False)]]  # punctuation alone


def draw_step_tile(picture: Image.Image, explanation: Explanation, step: int, cell: Cell) -> Image.Image:
    """A word's tile at one step; where its strongest region is not where it was, an arrow shows the way."""
    assert explanation.steps is not None
    weights, boxes = explanation.steps[step, cell.word], explanation.boxes
    tile = draw_tile(picture, explanation, cell, weights)
    if step == 0 or not cell.content:
        return tile
    before, after = int(explanation.steps[step - 1, cell.word].argmax()), int(weights.argmax())
    if overlap(boxes[before], boxes[after]) >= SAME_PLACE:
        return tile
    start, stop = (draw.middle(draw.pixels(boxes[region], tile.size)) for region in (before, after))
    if np.hypot(stop[0] - start[0], stop[1] - start[1]) < 24:  # a box within a box: no way to show
        return tile

    brush = draw.Brush(tile.size)
    brush.arrow(draw.bend(start, stop), ("#ffffff", "#ffffff"), 4, rim=2)
    return Image.alpha_composite(tile.convert("RGBA"), brush.layer()).convert("RGB")
