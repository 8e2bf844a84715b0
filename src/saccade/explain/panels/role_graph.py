"""A role graph drawn: the sentence on top, its actions beneath, and beneath them the entities, each with the
role that it plays for the actions it hangs on."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw

from saccade.explain import draw
from saccade.explain.explanation import MAX_WORDS
from saccade.language.parsing.roles import RoleGraph

MARGIN, GAP = 48, 40
NAME, ROLE, CAPTION = 32, 22, 30
BOX, LEVEL, LINE_HEIGHT = 92, 164, 44
EVENT, ACTION, ENTITY, LINE = "#e3f2e6", "#fff1d0", "#eef1fb", "#5b6673"
EDGES = {EVENT: "#2e7d32", ACTION: "#b26a00", ENTITY: "#3f51b5"}
MIN_WIDTH, MAX_NAME = 900, 420
MAX_NODES = 16  # of a kind; of a larger graph, its first ones


def draw_role_graph(graph: RoleGraph) -> Image.Image:
    """Drawn at twice the size it is meant to be seen at."""
    rows = [
        [n for n, node in enumerate(graph.nodes) if node.is_action is action][:MAX_NODES] for action in (True, False)
    ]
    text = {n: draw.fit(graph.words(graph.nodes[n]), NAME, MAX_NAME, smallest=NAME)[0] for row in rows for n in row}
    texts = {n: max(draw.width(words, NAME) + 44, draw.width("ARGM-LOC", ROLE) + 44) for n, words in text.items()}
    widths = [sum(texts[n] + GAP for n in row) - GAP for row in rows]
    wide = round(max(MIN_WIDTH, *widths, 0)) + 2 * MARGIN
    words = list(graph.tokens)
    words = [*words[:MAX_WORDS], f"… and {len(words) - MAX_WORDS:,} more words"] if len(words) > MAX_WORDS else words
    lines = draw.break_lines(tuple(words), CAPTION, wide - 2 * MARGIN - 40) if words else []
    below = MARGIN + len(lines) * LINE_HEIGHT + 24
    place: dict[int, tuple[float, float, float]] = {}  # middle, top, half of the width
    x = (wide - widths[1]) / 2
    for n in rows[1]:
        place[n] = x + texts[n] / 2, below + 2 * LEVEL - BOX, texts[n] / 2
        x += texts[n] + GAP
    _place_actions(graph, rows[0], texts, place, wide, below + LEVEL - BOX)
    drawn = Image.new("RGB", (wide, round(below + LEVEL * (2 if rows[1] else 1) + MARGIN)), draw.PAPER)
    pen = ImageDraw.Draw(drawn)
    for n in rows[0]:
        pen.line((place[n][0], below, place[n][0], place[n][1]), LINE, 3)
    for action, entity, _ in graph.edges:
        if action in place and entity in place:
            (x1, y1, _), (x2, y2, _) = place[action], place[entity]
            pen.line((x1, y1 + BOX, x2, y2), LINE, 3)
    pen.rounded_rectangle((MARGIN / 2, MARGIN / 2, wide - MARGIN / 2, below), 14, EVENT, EDGES[EVENT], 3)
    for row_number, line in enumerate(lines):
        for index, x, _ in line:
            at = MARGIN + 20 + x, MARGIN + 22 + row_number * LINE_HEIGHT
            draw.write(pen, at, words[index], CAPTION, draw.INK, room=wide - 2 * MARGIN)
    for n, (x, y, half) in place.items():
        colour = ACTION if graph.nodes[n].is_action else ENTITY
        pen.rounded_rectangle((x - half, y, x + half, y + BOX), 14, colour, EDGES[colour], 3)
        draw.write(pen, (x, y + 22), graph.nodes[n].role, ROLE, EDGES[colour], "mm")
        draw.write(pen, (x, y + BOX - 30), text[n], NAME, draw.INK, "mm")
    return drawn


def _place_actions(
    graph: RoleGraph,
    actions: list[int],
    widths: dict[int, float],
    place: dict[int, tuple[float, float, float]],
    wide: float,
    top: float,
) -> None:
    """Each over the middle of its entities, as far as others leave it room."""
    x = float(MARGIN)
    left = sum(widths[n] + GAP for n in actions)  # that the rest still needs
    for n in actions:
        below = [place[entity][0] for action, entity, _ in graph.edges if action == n and entity in place]
        middle = sum(below) / len(below) if below else x + widths[n] / 2
        start = min(max(x, middle - widths[n] / 2), wide - MARGIN + GAP - left)
        place[n] = start + widths[n] / 2, top, widths[n] / 2
        x, left = start + widths[n] + GAP, left - widths[n] - GAP


def save_role_graph(graph: RoleGraph, path: Path | str) -> Path:
    return draw.save_drawing(draw_role_graph(graph), path, "a role graph")
