"""Links: which region takes from which, and the graphs of regions and words side by side.

The first panel has the strongest links between regions, on the picture and one by one. The second has the regions that
words chose and the sentence: its words in reading order, arches for their links, and below them the regions that
phrases matched; a colour joins words and their region.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.explain import draw
from saccade.explain.explanation import SAME_PLACE, Explanation, Place, overlap

PICTURE_SIDE, CUT, SMALL_CUT = 760, 128, 104  # sides of the picture, of the regions of a link, of the regions in order
MAX_CUT_WIDTH, ARROW = round(draw.MAX_CUT_ASPECT * CUT), 110  # room for a region and for the arrow of a link
MIN_SLOT, MAX_SLOT = 2 * MAX_CUT_WIDTH + ARROW + 200, 2 * MAX_CUT_WIDTH + ARROW + 420  # of a link by itself
LINKS = 6
GIVES, AGAINST = "#ffb84d", "#58b7f5"  # amber: a link that adds; blue: one that takes away
ON_PAPER = {GIVES: "#b06f00", AGAINST: "#0069ab"}
HUB = "#ffffff"

Link = tuple[int, int, float]  # the region that takes, the one that gives, how much


def draw_affinity(explanation: Explanation, room: int) -> Image.Image:
    """Left the picture with its links, right each link by itself, and below the regions in the model's order."""
    links = strongest_links(explanation)
    picture = draw_links(explanation.picture(PICTURE_SIDE), explanation, links)
    beside = _draw_list(explanation, Image.fromarray(explanation.image), links, room - picture.width - draw.GUTTER)
    sheet = Image.new("RGB", (room, max(picture.height, beside.height)), draw.PAPER)
    draw.paste_rounded(sheet, picture, 0, 0)
    sheet.paste(beside, (picture.width + draw.GUTTER, 0))
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
    hub = find_hub(explanation)
    shown = sorted({region for i, j, _ in links for region in (i, j)} | {hub})
    frames = {region: draw.pixels(explanation.boxes[region], picture.size) for region in shown}
    peak = max((abs(value) for _, _, value in links), default=1.0)
    brush = draw.Brush(picture.size)
    for taker, giver, value in reversed(links):  # the strongest last, on top
        tone = GIVES if value > 0 else AGAINST
        path = draw.bend(draw.middle(frames[giver]), draw.middle(frames[taker]))
        brush.arrow(_short_of(path, 16), (tone, tone), 2 + 8 * abs(value) / peak, rim=2)
    for region, frame in frames.items():
        brush.dot(draw.middle(frame), 12 if region == hub else 8, HUB, "#11161b", 3)
    tones = {region: (*draw.rgb(HUB), 255 if region == hub else 150) for region in shown}
    outlines = [(frames[r], tones[r], 7 if r == hub else 2, r == hub) for r in shown]
    tags = [(f"{hub + 1} most connected", "#ffffff", frames[hub])]
    tags += [(str(r + 1), "#d7dde2", frames[r]) for r in shown if r != hub]
    return _draw_nodes(picture, 0.3, outlines, brush, tags, 14)


def _draw_nodes(
    picture: Image.Image,
    dimmed: float,
    outlines: Sequence[tuple[draw.Frame, tuple[int, ...], int, bool]],
    brush: draw.Brush,
    tags: Sequence[tuple[str, str, draw.Frame]],
    radius: int,
) -> Image.Image:
    """The dimmed picture with boxes, with nodes and lines over them, and with tags that keep clear of the nodes."""
    drawn = Image.blend(picture, Image.new("RGB", picture.size, "#11161b"), dimmed).convert("RGBA")
    boxes, names = Image.new("RGBA", drawn.size), Image.new("RGBA", drawn.size)
    for frame, tone, thickness, shadow in outlines:
        draw.outline(ImageDraw.Draw(boxes), frame, tone, thickness, shadow)
    nodes = [draw.middle(frame) for frame, *_ in outlines]
    taken = [(round(x - radius), round(y - radius), round(x + radius), round(y + radius)) for x, y in nodes]
    for text, colour, frame in tags:
        draw.tag(names, text, colour, frame, taken)
    for layer in (boxes, brush.layer(), names):
        drawn = Image.alpha_composite(drawn, layer)
    return drawn.convert("RGB")


def _short_of(path: np.ndarray, room: float) -> np.ndarray:
    """A path without its last `room` pixels, so that an arrow's head stands beside a node, not on it."""
    away = np.hypot(*(path - path[-1]).T)
    keep = int(np.flatnonzero(away >= room).max(initial=0)) + 1
    return path[: max(keep, 2)]


def _draw_list(explanation: Explanation, source: Image.Image, links: list[Link], room: int) -> Image.Image:
    """Each link by itself: what gives, an arrow, what takes, how much; two columns where there is room."""
    peak = max((abs(value) for _, _, value in links), default=1.0)
    columns = 2 if room >= 2 * MIN_SLOT + draw.GUTTER else 1
    slot = min((room - draw.GUTTER * (columns - 1)) // columns, MAX_SLOT)
    rows = -(-len(links) // columns)
    against = any(value < 0 for _, _, value in links)
    scored = explanation.region_score is not None
    sheet = Image.new("RGB", (room, rows * (CUT + 30) + 50 * against + (SMALL_CUT + 110) * scored), draw.PAPER)
    pen = ImageDraw.Draw(sheet)
    decimals = max(2, 1 - math.floor(math.log10(peak)))  # two digits of the strongest, however small
    for number, (taker, giver, value) in enumerate(links):
        x, y = number // rows * (slot + draw.GUTTER), number % rows * (CUT + 30)
        tone = ON_PAPER[GIVES if value > 0 else AGAINST]
        one, other = _piece(source, explanation, giver, CUT), _piece(source, explanation, taker, CUT)
        draw.paste_rounded(sheet, one, x + MAX_CUT_WIDTH - one.width, y)  # beside the arrow: arrows stand in line
        x += MAX_CUT_WIDTH
        path, brush = np.stack([np.linspace(0, ARROW - 24, 20), np.full(20, 20.0)], axis=1), draw.Brush((ARROW, 40))
        brush.arrow(path, (tone, tone), 2 + 8 * abs(value) / peak)
        sheet.paste(layer := brush.layer(), (x + 12, y + CUT // 2 - 20), layer)
        draw.paste_rounded(sheet, other, x + ARROW, y)
        x += ARROW + MAX_CUT_WIDTH + 24
        text = f"{value:.{decimals}f}"
        stop = number // rows * (slot + draw.GUTTER) + slot
        draw.write(pen, (stop, y + CUT / 2 + 8), text, draw.NOTE, draw.FAINT, "rs")
        stop -= round(draw.width(f"-{peak:.{decimals}f}", draw.NOTE)) + 14
        draw.bar(pen, x, stop, y + CUT // 2 - 3, draw.RULE)
        draw.bar(pen, x, x + round((stop - x) * abs(value) / peak), y + CUT // 2 - 3, tone)
    y = rows * (CUT + 30)
    if against:
        text = "blue: a link below zero, the region takes the opposite"
        draw.write(pen, (MAX_CUT_WIDTH, y + 22), text, draw.NOTE + 2, ON_PAPER[AGAINST])
        y += 50
    if scored:
        _draw_order(sheet, source, explanation, y)
    return sheet


def _draw_order(sheet: Image.Image, source: Image.Image, explanation: Explanation, y: int) -> None:
    """The regions in the order in which the model takes them in, each with its score, as many as there is room for."""
    assert explanation.region_score is not None
    scores, pen = explanation.region_score, ImageDraw.Draw(sheet)
    draw.write(pen, (0, y + 26), "the regions in the model's order, with their scores", draw.LABEL - 4, draw.INK)
    peak = max(float(np.abs(scores).max()), 1e-9)
    x = 0
    for region in range(len(scores)):
        piece = _piece(source, explanation, region, SMALL_CUT)
        if x + piece.width > sheet.width:
            break
        draw.paste_rounded(sheet, piece, x, y + 44)
        draw.bar(pen, x, x + piece.width, y + SMALL_CUT + 56, draw.RULE)
        filled = round(piece.width * max(float(scores[region]), 0.0) / peak)
        draw.bar(pen, x, x + filled, y + SMALL_CUT + 56, ON_PAPER[GIVES])
        x += piece.width + 14


def _piece(source: Image.Image, explanation: Explanation, region: int, height: int) -> Image.Image:
    """A region cut out, with its number."""
    piece = draw.cut(source, explanation.boxes[region], height)
    over = Image.new("RGBA", piece.size)
    draw.tag(over, str(region + 1), "#eef2f5", (0, 30, 8, 38), [], draw.NOTE - 3)
    return Image.alpha_composite(piece.convert("RGBA"), over).convert("RGB")


GRAPH_SIDE = 700  # the side of a square picture
MATCH_CUT = 150  # the height of a matched region below its words
MIN_TYPE = 28  # of the sentence, before it goes on in another line
FAINTEST = 0.125  # a link weaker than this part of the strongest is not drawn
PLAIN = "#9aa5ae"  # words without a region

Edge = tuple[int, int, float]  # two nodes and the strength of their link, 0..1


def draw_graphs(explanation: Explanation, room: int) -> Image.Image:
    """Left the picture with its graph, right the sentence with its own and the matched regions beneath."""
    picture = draw_region_graph(explanation.picture(GRAPH_SIDE), explanation)
    sentence = draw_word_graph(explanation, max(room - picture.width - draw.GUTTER, 400))
    sheet = Image.new("RGB", (room, max(picture.height, sentence.height)), draw.PAPER)
    draw.paste_rounded(sheet, picture, 0, 0)
    sheet.paste(sentence, (picture.width + draw.GUTTER, max(0, (picture.height - sentence.height) // 2)))
    return sheet


def region_edges(explanation: Explanation) -> list[Edge]:
    """Links between the drawn regions, as positions in `places`."""
    nodes = [place.region for place in explanation.places]
    if explanation.region_links is None or len(nodes) < 2:
        return []
    return strongest(explanation.region_links[np.ix_(nodes, nodes)], len(nodes) + 1)


def draw_region_graph(picture: Image.Image, explanation: Explanation) -> Image.Image:
    """The picture with a node in the middle of each place's box, and the links between them."""
    places = explanation.places
    frames = [draw.pixels(place.box, picture.size) for place in places]
    both, brush = list(zip(places, frames, strict=True)), draw.Brush(picture.size)
    for one, other, strength in region_edges(explanation):
        tones = places[one].colour.glow, places[other].colour.glow
        path = draw.bend(draw.middle(frames[one]), draw.middle(frames[other]), 0.1)
        brush.stroke(path, tones, 2 + 9 * strength, rim=2)
    for place, frame in both:
        brush.dot(draw.middle(frame), 13, place.colour.glow, "#11161b", 4)
    outlines = [(frame, (*draw.rgb(place.colour.glow), 255), 4, True) for place, frame in both]
    tags = [(explanation.label(place), place.colour.glow, frame) for place, frame in both]
    return _draw_nodes(picture, 0.28, outlines, brush, tags, 18)


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
    are_words = np.array([any(c.isalnum() for c in word) for word in explanation.words])
    links = np.where(are_words[:, None] & are_words, explanation.word_links, 0.0)
    return strongest(links, len(explanation.words))


def draw_word_graph(explanation: Explanation, room: int) -> Image.Image:
    """The words in reading order, arches for their links, and below them the region each phrase matched."""
    words, places = explanation.names, explanation.places
    inks = {word: colour.ink for word, colour in explanation.colours.items()}
    size, lines = lay_words(words, room - 8)
    lines = draw.in_visual_order(lines, words, room - 8)
    edges = word_edges(explanation)
    line_of = {word: number for number, line in enumerate(lines) for word, _, _ in line}
    spot = {word: (x, x + wide) for line in lines for word, x, wide in line}
    homes = [max(range(len(lines)), key=lambda n: sum(line_of[w] == n for w in place.words)) for place in places]
    baselines, y = [], 0
    for number in range(len(lines)):
        spans = [abs(_mid(spot[a]) - _mid(spot[b])) for a, b, _ in edges if line_of[a] == line_of[b] == number]
        y += round(_rise(max(spans, default=0.0))) + size + 24
        baselines.append(y)
        y += MATCH_CUT + 130 if number in homes else 70
    sheet = Image.new("RGB", (room, y), draw.PAPER)

    def top(word: int) -> tuple[float, float]:
        return _mid(spot[word]), baselines[line_of[word]] - size - 6.0

    brush = draw.Brush(sheet.size)
    for one, other, strength in edges:
        tones = inks.get(one, PLAIN), inks.get(other, PLAIN)
        start, stop = top(one), top(other)
        if line_of[one] == line_of[other]:
            path = draw.arch(start, stop, _rise(stop[0] - start[0]))
        else:
            below = np.array([start[0], baselines[line_of[one]] + 14.0])
            path = draw.through(below, np.array([stop[0], below[1]]), np.array(stop))
        brush.stroke(path, tones, 1.5 + 4.5 * strength)
    for word in {w for one, other, _ in edges for w in (one, other)}:
        brush.dot(top(word), 6, inks.get(word, PLAIN))
    sheet.paste(layer := brush.layer(), (0, 0), layer)
    pen = ImageDraw.Draw(sheet)
    for word, (x, _) in spot.items():
        draw.write(pen, (x, baselines[line_of[word]]), words[word], size, explanation.ink(word), room=room)
    for number, baseline in enumerate(baselines):
        here = [place for place, home in zip(places, homes, strict=True) if home == number]
        _draw_matches(sheet, explanation, here, {w: s for w, s in spot.items() if line_of[w] == number}, baseline)
    return sheet


def lay_words(words: tuple[str, ...], room: int) -> tuple[int, list[list[tuple[int, float, float]]]]:
    """Size of type, and lines of (word, x, width): smaller type first, then more lines; a short line is spaced out."""
    for size in range(draw.CAPTION, MIN_TYPE - 1, -2):
        lines = _lines(words, size, room)
        if len(lines) == 1:
            more = min((room - lines[0][-1][1] - lines[0][-1][2]) / max(1, len(words) - 1), 1.1 * size)
            return size, [[(index, x + more * number, wide) for number, (index, x, wide) in enumerate(lines[0])]]
    size = next(size for size in range(draw.CAPTION, MIN_TYPE - 1, -2) if len(_lines(words, size, room)) == len(lines))
    for narrower in range(95, 40, -5):  # lines of about the same length, so that no word stands alone
        tried = _lines(words, size, room * narrower / 100)
        if len(tried) > len(lines) or any(x + wide > room for line in tried for _, x, wide in line):
            break
        lines = tried
    return size, lines


def _lines(words: tuple[str, ...], size: int, room: float) -> list[list[tuple[int, float, float]]]:
    return draw.break_lines(words, size, room, joined=4.0, apart=0.9 * size)  # each word is a node


def _draw_matches(
    sheet: Image.Image,
    explanation: Explanation,
    places: list[Place],
    spot: dict[int, tuple[float, float]],
    baseline: int,
) -> None:
    """Each place's words underlined, with lines down to its region and the score of the phrase."""
    source, pen = Image.fromarray(explanation.image), ImageDraw.Draw(sheet)
    pieces = [draw.cut(source, place.box, MATCH_CUT) for place in places]
    wanted = [np.mean([_mid(spot[w]) for w in place.words if w in spot]) for place in places]
    lefts = spread_out([float(w) for w in wanted], [piece.width for piece in pieces], sheet.width)
    for place, piece, left in zip(places, pieces, lefts, strict=True):
        top, tone = baseline + 74, place.colour.ink
        brush, here = draw.Brush((sheet.width, 76)), [spot[word] for word in place.words if word in spot]
        for span in here:
            brush.stroke(draw.drop((_mid(span), 18.0), (left + piece.width / 2, 76)), (tone, tone), 3)
        sheet.paste(layer := brush.layer(), (0, baseline), layer)
        for x, stop in here:
            pen.rounded_rectangle((x, baseline + 12, stop, baseline + 17), 2, tone)
        draw.paste_rounded(sheet, piece, round(left), top)
        if explanation.strengths is not None and explanation.word_score is not None:
            words, x = list(place.words), round(left)
            score, share = explanation.word_score[words].mean(), float(explanation.strengths[words].mean())
            draw.score_bar(pen, x, x + piece.width, top + MATCH_CUT + 23, score, share, tone, 10)


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
