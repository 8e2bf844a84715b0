"""Two graphs side by side: the regions that words chose, and the sentence; a colour joins words and their region.

The sentence has its words in reading order, arches for their links, and below them the regions that phrases matched.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.explain.draw.curves import Brush, arch, bend, drop, middle, smooth_layer, through
from saccade.explain.draw.marks import (
    CAPTION,
    GUTTER,
    NOTE,
    bar,
    cut,
    fit,
    font,
    joins_left,
    outline,
    paste_rounded,
    pixels,
    size_like,
    tag,
    width,
)
from saccade.explain.draw.palette import FAINT, INK, PAPER, RULE, Colour, rgb
from saccade.explain.explanation import Explanation
from saccade.explain.reading import Place, colour_of_word, find_places, is_content, label, strengths

PICTURE_SIDE = 700  # the side of a square picture
CUT = 150  # the height of a matched region below its words
MIN_TYPE = 28  # of the sentence, before it goes on in another line
FAINTEST = 0.125  # a link weaker than this part of the strongest is not drawn
PLAIN = "#9aa5ae"  # words without a region

Edge = tuple[int, int, float]  # two nodes and the strength of their link, 0..1


def draw_graphs(explanation: Explanation, room: int) -> Image.Image:
    """Left the picture with its graph, right the sentence with its own and the matched regions beneath."""
    places = find_places(explanation)
    size = size_like(explanation.image.shape[1] / explanation.image.shape[0], PICTURE_SIDE, PICTURE_SIDE * 1.25)
    source = Image.fromarray(explanation.image)
    picture = draw_region_graph(source.resize(size, Image.Resampling.LANCZOS), explanation, places)
    sentence = draw_word_graph(explanation, places, max(room - size[0] - GUTTER, 400))
    high = max(picture.height, sentence.height)
    sheet = Image.new("RGB", (room, high), PAPER)
    paste_rounded(sheet, picture, 0, 0)
    sheet.paste(sentence, (size[0] + GUTTER, max(0, (picture.height - sentence.height) // 2)))
    return sheet


def region_edges(explanation: Explanation, places: tuple[Place, ...]) -> list[Edge]:
    """Links between the drawn regions, as positions in `places`."""
    if explanation.region_links is None or len(places) < 2:
        return []
    nodes = [place.region for place in places]
    return strongest(explanation.region_links[np.ix_(nodes, nodes)], len(nodes) + 1)


def draw_region_graph(picture: Image.Image, explanation: Explanation, places: tuple[Place, ...]) -> Image.Image:
    """The picture with a node in the middle of each place's box, and the links between them."""
    drawn = Image.blend(picture, Image.new("RGB", picture.size, "#11161b"), 0.28).convert("RGBA")
    frames = [pixels(place.box, picture.size) for place in places]
    boxes = Image.new("RGBA", drawn.size)
    for place, frame in zip(places, frames, strict=True):
        outline(ImageDraw.Draw(boxes), frame, (*rgb(place.colour.glow), 255), 4, shadow=True)

    def paint(brush: Brush) -> None:
        for one, other, strength in region_edges(explanation, places):
            tones = places[one].colour.glow, places[other].colour.glow
            brush.stroke(bend(middle(frames[one]), middle(frames[other]), 0.1), tones, 2 + 9 * strength, rim=2)
        for place, frame in zip(places, frames, strict=True):
            brush.dot(middle(frame), 13, place.colour.glow, "#11161b", 4)

    drawn = Image.alpha_composite(Image.alpha_composite(drawn, boxes), smooth_layer(drawn.size, paint))
    names = Image.new("RGBA", drawn.size)
    taken = [(round(x - 18), round(y - 18), round(x + 18), round(y + 18)) for x, y in map(middle, frames)]
    for place, frame in zip(places, frames, strict=True):
        tag(names, label(explanation, place), place.colour.glow, frame, taken)
    return Image.alpha_composite(drawn, names).convert("RGB")


def strongest(links: Float[Array, "node node"], most: int) -> list[Edge]:
    """The links to draw, either way between two nodes, weakest first: the strongest, and each node's strongest."""
    both = np.triu(np.maximum(links, links.T), 1)
    peak = float(both.max(initial=0.0))
    if peak <= 0:
        return []
    pairs = sorted(zip(*np.nonzero(both >= FAINTEST * peak), strict=True), key=lambda pair: -both[pair])
    kept, met = [], set[int]()
    for number, (one, other) in enumerate(pairs):
        if number < most or one not in met or other not in met:
            kept.append((int(one), int(other), float(both[one, other] / peak)))
            met |= {one, other}
    return kept[::-1]


def word_edges(explanation: Explanation) -> list[Edge]:
    """Links between words; punctuation takes no part."""
    assert explanation.word_links is not None
    spoken = np.array([any(c.isalnum() for c in word) for word in explanation.words])
    links = np.where(spoken[:, None] & spoken, explanation.word_links, 0.0)
    return strongest(links, len(explanation.words))


def draw_word_graph(explanation: Explanation, places: tuple[Place, ...], room: int) -> Image.Image:
    """The words in reading order, arches for their links, and below them the region each phrase matched."""
    words, colours = explanation.words, colour_of_word(places)
    size, lines = lay_words(words, room - 8)
    edges = word_edges(explanation)
    line_of = {word: number for number, line in enumerate(lines) for word, _, _ in line}
    spot = {word: (x, x + wide) for line in lines for word, x, wide in line}
    homes = [max(range(len(lines)), key=lambda n: sum(line_of[w] == n for w in place.words)) for place in places]
    baselines, y = [], 0
    for number in range(len(lines)):
        spans = [abs(_mid(spot[a]) - _mid(spot[b])) for a, b, _ in edges if line_of[a] == line_of[b] == number]
        y += round(_rise(max(spans, default=0.0))) + size + 24
        baselines.append(y)
        y += CUT + 130 if number in homes else 70
    sheet = Image.new("RGB", (room, y), PAPER)

    def top(word: int) -> tuple[float, float]:
        return _mid(spot[word]), baselines[line_of[word]] - size - 6.0

    def paint(brush: Brush) -> None:
        for one, other, strength in edges:
            tones = _ink(colours, one), _ink(colours, other)
            start, stop = top(one), top(other)
            if line_of[one] == line_of[other]:
                path = arch(start, stop, _rise(stop[0] - start[0]))
            else:
                below = np.array([start[0], baselines[line_of[one]] + 14.0])
                path = through(below, np.array([stop[0], below[1]]), np.array(stop))
            brush.stroke(path, tones, 1.5 + 4.5 * strength)
        for word in {w for one, other, _ in edges for w in (one, other)}:
            brush.dot(top(word), 6, _ink(colours, word))

    sheet.paste(layer := smooth_layer(sheet.size, paint), (0, 0), layer)
    pen = ImageDraw.Draw(sheet)
    for word, (x, _) in spot.items():
        colour, (text, fitted) = colours.get(word), fit(words[word], size, room)
        tone = colour.ink if colour else (INK if is_content(text) else FAINT)
        pen.text((x, baselines[line_of[word]]), text, tone, font(text, fitted), anchor="ls")
    for number, baseline in enumerate(baselines):
        here = [place for place, home in zip(places, homes, strict=True) if home == number]
        _draw_matches(sheet, explanation, here, {w: s for w, s in spot.items() if line_of[w] == number}, baseline)
    return sheet


def lay_words(words: tuple[str, ...], room: int) -> tuple[int, list[list[tuple[int, float, float]]]]:
    """Size of type, and lines of (word, x, width): smaller type first, then more lines; a short line is spaced out."""
    for size in range(CAPTION, MIN_TYPE - 1, -2):
        lines = _lines(words, size, room)
        if len(lines) == 1:
            more = min((room - lines[0][-1][1] - lines[0][-1][2]) / max(1, len(words) - 1), 1.1 * size)
            return size, [[(index, x + more * number, wide) for number, (index, x, wide) in enumerate(lines[0])]]
    size = next(size for size in range(CAPTION, MIN_TYPE - 1, -2) if len(_lines(words, size, room)) == len(lines))
    for narrower in range(95, 40, -5):  # lines of about the same length, so that no word stands alone
        tried = _lines(words, size, room * narrower / 100)
        if len(tried) > len(lines) or any(x + wide > room for line in tried for _, x, wide in line):
            break
        lines = tried
    return size, lines


def _lines(words: tuple[str, ...], size: int, room: float) -> list[list[tuple[int, float, float]]]:
    lines: list[list[tuple[int, float, float]]] = [[]]
    x = 0.0
    for index, word in enumerate(words):
        wide, gap = min(width(word, size), room), 4.0 if joins_left(word) else 0.9 * size  # each word is a node
        if lines[-1] and x + gap + wide > room:
            lines.append([])
        x = x + gap if lines[-1] else 0.0
        lines[-1].append((index, x, wide))
        x += wide
    return lines


def _draw_matches(
    sheet: Image.Image,
    explanation: Explanation,
    places: list[Place],
    spot: dict[int, tuple[float, float]],
    baseline: int,
) -> None:
    """Each place's words underlined, with lines down to its region and the score of the phrase."""
    source, pen = Image.fromarray(explanation.image), ImageDraw.Draw(sheet)
    pieces = [cut(source, place.box, CUT) for place in places]
    wanted = [np.mean([_mid(spot[w]) for w in place.words if w in spot]) for place in places]
    lefts = spread_out([float(w) for w in wanted], [piece.width for piece in pieces], sheet.width)
    for place, piece, left in zip(places, pieces, lefts, strict=True):
        top, tone = baseline + 74, place.colour.ink

        stems = [_mid(spot[word]) for word in place.words if word in spot]
        layer = _draw_stems(stems, left + piece.width / 2, tone, (sheet.width, 76))
        sheet.paste(layer, (0, baseline), layer)
        for word in place.words:
            if word in spot:
                x, stop = spot[word]
                pen.rounded_rectangle((x, baseline + 12, stop, baseline + 17), 2, tone)
        paste_rounded(sheet, piece, round(left), top)
        _draw_score(pen, explanation, place, round(left), piece.width, top + CUT)


def _draw_stems(starts: list[float], stop: float, tone: str, size: tuple[int, int]) -> Image.Image:
    """Lines from words down to the region they share."""

    def paint(brush: Brush) -> None:
        for start in starts:
            brush.stroke(drop((start, 18.0), (stop, size[1])), (tone, tone), 3)

    return smooth_layer(size, paint)


def _draw_score(
    pen: ImageDraw.ImageDraw, explanation: Explanation, place: Place, left: int, wide: int, floor: int
) -> None:
    scores = strengths(explanation)
    if scores is None or explanation.word_score is None:
        return
    words = list(place.words)
    number = f"{explanation.word_score[words].mean():.2f}"
    pen.text((left + wide, floor + 34), number, FAINT, font(number, NOTE), anchor="rs")
    end = left + wide - round(width("0.00", NOTE)) - 10
    bar(pen, left, end, floor + 23, RULE)
    bar(pen, left, left + round((end - left) * float(scores[words].mean())), floor + 23, place.colour.ink)


def spread_out(middles: list[float], widths: list[int], room: int, gap: int = 22) -> list[float]:
    """Left edges of things that want to stand around their middles, moved apart until none lies on another."""
    order = sorted(range(len(middles)), key=lambda i: middles[i])
    lefts = [0.0] * len(middles)
    edge = 0.0
    for i in order:
        lefts[i] = max(middles[i] - widths[i] / 2, edge)
        edge = lefts[i] + widths[i] + gap
    edge = float(room)
    for i in reversed(order):  # … and back, where the last one has left the sheet
        lefts[i] = min(lefts[i], edge - widths[i])
        edge = lefts[i] - gap
    return lefts


def _mid(span: tuple[float, float]) -> float:
    return (span[0] + span[1]) / 2


def _rise(span: float) -> float:
    """How high an arch over so wide a span is."""
    return min(24 + 0.3 * abs(span), 300.0)


def _ink(colours: dict[int, Colour], word: int) -> str:
    return colours[word].ink if word in colours else PLAIN
