"""The strip: a picture with its caption, then one tile per word with the light on what the word looks at.

Where a model says how far a word lets in what it found (its gate), or how much of the attention went to no region (the
sentinel's share), a second bar beneath the word shows that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.explain.draw.heat import illuminate, spread
from saccade.explain.draw.marks import (
    CAPTION,
    GAP,
    GUTTER,
    LABEL,
    MARGIN,
    NOTE,
    bar,
    break_lines,
    fit,
    font,
    gate,
    outline,
    paste_rounded,
    pixels,
    size_like,
    tag,
    width,
)
from saccade.explain.draw.palette import FAINT, INK, PAPER, RULE, Colour, rgb
from saccade.explain.explanation import Explanation
from saccade.explain.reading import (
    Place,
    chooses,
    colour_of_word,
    find_places,
    is_content,
    label,
    score_note,
    share_of_words,
    shares,
    strengths,
)

PICTURE_SIDE, TILE, SMALL = (
    760,
    288,
    172,
)  # a square picture, a content word's tile, a function word's
UNDER_TILE, GATE = 92, 34  # word and score bar beneath a tile; the gate's bar beneath them
MIN_SLOT = 136  # a tile's word and score need this much room, however slim the picture
COLUMNS = range(2, 9)
SHAPE = 2.4  # the width over height that a strip tends to
BOXES_PER_WORD = 3


@dataclass(frozen=True)
class Cell:
    """One word's tile: where it stands and how large its picture is."""

    word: int
    x: int
    size: tuple[int, int]  # width, height
    content: bool


def draw_strip(explanation: Explanation) -> Image.Image:
    """The whole strip as an RGB picture."""
    places = find_places(explanation)
    colours = colour_of_word(places)
    aspect = explanation.image.shape[1] / explanation.image.shape[0]
    large = size_like(aspect, PICTURE_SIDE, PICTURE_SIDE * 1.25)
    column = max(large[0], PICTURE_SIDE * 3 // 4)
    lines = break_lines(explanation.words, CAPTION, column)
    gated = share_of_words(explanation) is not None
    foot = UNDER_TILE + GATE * gated
    left_size = column, large[1] + 40 + len(lines) * int(CAPTION * 1.5) + 44 + 40 * gated
    rows = arrange(explanation.words, aspect, left_size, foot)
    grid = extent(rows, foot)
    heading = 64 if explanation.title else 0

    total = (
        2 * MARGIN + column + (GUTTER + grid[0] if rows else 0),
        2 * MARGIN + heading + max(left_size[1], grid[1]),
    )
    sheet = Image.new("RGB", total, PAPER)
    pen = ImageDraw.Draw(sheet)
    if explanation.title:
        text, size = fit(explanation.title, LABEL, total[0] - 2 * MARGIN)
        pen.text((MARGIN, MARGIN + 26), text, FAINT, font(text, size), anchor="ls")

    top = MARGIN + heading
    source = Image.fromarray(explanation.image)
    paste_rounded(sheet, with_places(source.resize(large, Image.Resampling.LANCZOS), explanation, places), MARGIN, top)
    draw_caption(pen, explanation, lines, colours, (MARGIN, top + large[1] + 40), column)

    left, floor = MARGIN + column + GUTTER, top
    sizes = {cell.size for row in rows for cell in row}
    picture_of_size = {size: source.resize(size, Image.Resampling.LANCZOS) for size in sizes}
    for row in rows:
        floor += max(cell.size[1] for cell in row)  # the line the row's pictures stand on
        for cell in row:
            weights, colour = explanation.weights[cell.word], colours.get(cell.word)
            tile = draw_tile(picture_of_size[cell.size], weights, explanation.boxes, cell.content, colour)
            paste_rounded(sheet, tile, left + cell.x, floor - cell.size[1])
            draw_foot(pen, explanation, cell, colour, left + cell.x, floor)
        floor += foot + GAP
    return sheet


def arrange(words: tuple[str, ...], aspect: float, beside: tuple[int, int], foot: int = UNDER_TILE) -> list[list[Cell]]:
    """Rows of tiles in the sentence's order, in the number of columns that gives the whole a pleasant shape.

    `beside` is the size of the large picture with its caption. Punctuation gets no tile.
    """
    shown = [i for i, word in enumerate(words) if any(c.isalnum() for c in word)]
    sizes = {
        i: size_like(aspect, side, 1.6 * side) for i in shown for side in [TILE if is_content(words[i]) else SMALL]
    }

    def rows_within(room: int) -> list[list[Cell]]:
        rows: list[list[Cell]] = []
        x = room + 1
        for word in shown:
            slot = max(sizes[word][0], MIN_SLOT)
            if x + slot > room:
                rows.append([])
                x = 0
            rows[-1].append(Cell(word, x, sizes[word], is_content(words[word])))
            x += slot + GAP
        return rows

    def misshapen(rows: list[list[Cell]]) -> float:
        wide, high = extent(rows, foot)
        return abs(math.log((beside[0] + GUTTER + wide) / max(beside[1], high) / SHAPE))

    step = max(size_like(aspect, TILE, 1.6 * TILE)[0], MIN_SLOT) + GAP
    return min((rows_within(columns * step) for columns in COLUMNS), key=misshapen)


def extent(rows: list[list[Cell]], foot: int = UNDER_TILE) -> tuple[int, int]:
    """Width and height that the rows of tiles need, each with a foot so high."""
    wide = max((max(row[-1].size[0], MIN_SLOT) + row[-1].x for row in rows), default=0)
    return wide, sum(max(cell.size[1] for cell in row) + foot + GAP for row in rows) - GAP


def draw_tile(
    picture: Image.Image,
    weights: Float[Array, " region"],
    boxes: Float[Array, "region 4"],
    content: bool,
    colour: Colour | None,
) -> Image.Image:
    """The picture lit where a word attends, its strongest boxes outlined; a function word's tile is paler."""
    wide, high = picture.size
    tile = Image.fromarray(illuminate(np.asarray(picture), spread(weights, boxes, (high, wide))))
    share = shares(weights[None])[0]
    outlines = Image.new("RGBA", tile.size)
    pen = ImageDraw.Draw(outlines)
    for region in top_regions(share):
        strength = float(share[region] / share.max())
        frame = pixels(boxes[region], tile.size)
        tone = (*rgb(colour.glow if colour else "#ffffff"), round(255 * (0.25 + 0.75 * strength**2)))
        outline(pen, frame, tone, max(2, round((4 if content else 2) * strength)), shadow=False)
    tile = Image.alpha_composite(tile.convert("RGBA"), outlines).convert("RGB")
    return tile if content else Image.blend(tile, Image.new("RGB", tile.size, PAPER), 0.45)


def draw_foot(
    pen: ImageDraw.ImageDraw, explanation: Explanation, cell: Cell, colour: Colour | None, x: int, y: int
) -> None:
    """The word beneath its tile; as bars, how well it found its regions and how far it lets them in."""
    room = max(cell.size[0], MIN_SLOT)
    ink = colour.ink if colour else (INK if cell.content else FAINT)
    text, size = fit(explanation.words[cell.word], LABEL if cell.content else LABEL - 5, room)
    pen.text((x, y + 42), text, ink, font(text, size), anchor="ls")
    scores = strengths(explanation)
    end = x + room - round(width("0.00", NOTE)) - 14
    if scores is not None and explanation.word_score is not None:
        number = f"{explanation.word_score[cell.word]:.2f}"
        pen.text((x + room, y + 71), number, FAINT, font(number, NOTE), anchor="rs")
        bar(pen, x, end, y + 60, RULE)
        bar(pen, x, x + round((end - x) * float(scores[cell.word])), y + 60, ink)
    share = share_of_words(explanation)
    if share is not None:
        openness = float(share.values[cell.word])
        number = f"{openness:.2f}"
        pen.text((x + room, y + 71 + GATE), number, FAINT, font(number, NOTE), anchor="rs")
        gate(pen, x, end, y + 55 + GATE, openness, ink)


def draw_caption(
    pen: ImageDraw.ImageDraw,
    explanation: Explanation,
    lines: list[list[tuple[int, float, float]]],
    colours: dict[int, Colour],
    at: tuple[int, int],
    room: int,
) -> None:
    """The sentence under the picture: words in the colour of their place, underlined as strongly as they matched."""
    scores = strengths(explanation)
    x, y = at
    for number, line in enumerate(lines):
        baseline = y + number * int(CAPTION * 1.5) + CAPTION
        for word, offset, length in line:
            colour = colours.get(word)
            text, size = fit(explanation.words[word], CAPTION, room)
            tone = colour.ink if colour else (INK if is_content(text) else FAINT)
            pen.text((x + offset, baseline), text, tone, font(text, size), anchor="ls")
            strength = 1.0 if scores is None else float(scores[word])
            thickness = round(6 * strength)
            if colour and thickness:
                span = (x + offset, baseline + 12, x + offset + min(length, room) - 1, baseline + 11 + thickness)
                pen.rectangle(span, colour.ink)
    foot = y + len(lines) * int(CAPTION * 1.5) + 36
    note, size = fit(score_note(explanation), NOTE + 2, room)
    pen.text((x, foot), note, FAINT, font(note, size), anchor="ls")
    share = share_of_words(explanation)
    if share is not None:
        gate(pen, x, x + 80, foot + 24, 0.6, FAINT)
        note, size = fit(share.note, NOTE + 2, room - 98)
        pen.text((x + 98, foot + 40), note, FAINT, font(note, size), anchor="ls")


def with_places(picture: Image.Image, explanation: Explanation, places: tuple[Place, ...]) -> Image.Image:
    """The large picture with each place's box and a tag that names its words."""
    drawn = picture.convert("RGBA")
    over = Image.new("RGBA", drawn.size)
    pen = ImageDraw.Draw(over)
    taken: list[tuple[int, int, int, int]] = []
    surest = max((place.strength for place in places), default=1.0)
    for place in places:
        strength = place.strength / surest
        tone = (*rgb(place.colour.glow), round(255 * (0.5 + 0.5 * strength)))
        outline(pen, pixels(place.box, drawn.size), tone, round(2 + 3 * strength), shadow=True)
    for place in places:  # tags after all boxes, so that no line crosses a word
        tag(over, label(explanation, place), place.colour.glow, pixels(place.box, drawn.size), taken)
    return Image.alpha_composite(drawn, over).convert("RGB")


def top_regions(share: Float[Array, " region"]) -> list[int]:
    """The few regions a word looks at most, faintest first (drawn first), none below a third of the strongest."""
    if not chooses(share):  # all alike: whichever were drawn would be an accident
        return []
    order = np.argsort(-share, kind="stable")[:BOXES_PER_WORD]
    return [int(r) for r in order if share[r] > 0 and share[r] >= share.max() / 3][::-1]
