"""The whole picture of an explanation: the strip, and below it a panel for what only some models give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image, ImageDraw

from saccade.explain import draw
from saccade.explain.explanation import Explanation
from saccade.explain.panels.gates import draw_gates
from saccade.explain.panels.links import draw_affinity, draw_graphs
from saccade.explain.panels.strip import draw_steps, draw_strip

ROOM = 2200  # the width of a panel that stands alone
MIN_ROOM = 1560  # … and the least it needs beneath a narrow strip
HEADING = 110


@dataclass(frozen=True)
class Panel:
    """One way to show an explanation, with the sentence that says how to read it."""

    name: str
    note: str
    draw: Callable[[Explanation, int], Image.Image]  # at a width in pixels


STEPS = Panel(
    "Step by step",
    "the model attends several times, each row is one step; the bar is the share of the strongest region, an arrow "
    "shows that it moved",
    draw_steps,
)
GATES = Panel(
    "Gates of the regions",
    "how far each region lets in what it found in the sentence: the brighter and thicker its box, the further",
    draw_gates,
)
GRAPHS = Panel(
    "Two graphs",
    "the regions that words chose, the words, and the strongest links of each; a colour joins words and their region",
    draw_graphs,
)
AFFINITY = Panel(
    "Which region takes from which",
    "the strongest links between regions, each arrow from the region that gives to the one that takes",
    draw_affinity,
)


def find_panels(explanation: Explanation) -> tuple[Panel, ...]:
    """What this explanation can show beside the strip. Words' gates are in the strip itself."""
    found = []
    if explanation.steps is not None:
        found.append(STEPS)
    if explanation.region_gate is not None:
        found.append(GATES)
    if explanation.word_links is not None:
        found.append(GRAPHS)
    elif explanation.region_links is not None and len(explanation.boxes) > 1:
        found.append(AFFINITY)
    return tuple(found)


def draw_explanation(explanation: Explanation) -> Image.Image:
    """The strip (the picture, its caption, a lit tile for each word) and below it what else the model says.

    That is a panel of its own for repeated steps, for regions' gates, and for graphs of words and regions. Of a long
    sentence the first words are drawn (`MAX_WORDS`).
    """
    explanation = explanation.shortened()
    strip = draw_strip(explanation)
    room = max(strip.width - 2 * draw.MARGIN, MIN_ROOM)
    parts = [draw_panel(panel, explanation, room) for panel in find_panels(explanation)]
    if not parts:
        return strip
    wide = max(strip.width, *(part.width for part in parts))
    sheet = Image.new("RGB", (wide, strip.height + sum(part.height for part in parts)), draw.PAPER)
    sheet.paste(strip, (0, 0))
    y = strip.height
    for part in parts:
        ImageDraw.Draw(sheet).rectangle((draw.MARGIN, y - 2, wide - draw.MARGIN, y), draw.RULE)
        sheet.paste(part, (0, y))
        y += part.height
    return sheet


def draw_panel(panel: Panel, explanation: Explanation, room: int = ROOM) -> Image.Image:
    """One panel under its name, with a margin around it."""
    drawn = panel.draw(explanation, room)
    wide = max(drawn.width, room)
    sheet = Image.new("RGB", (wide + 2 * draw.MARGIN, drawn.height + HEADING + 2 * draw.MARGIN - 12), draw.PAPER)
    sheet.paste(drawn, (draw.MARGIN, draw.MARGIN + HEADING - 12))
    pen = ImageDraw.Draw(sheet)
    draw.write(pen, (draw.MARGIN, draw.MARGIN + 22), panel.name, draw.LABEL + 2, draw.INK)
    draw.write(pen, (draw.MARGIN, draw.MARGIN + 60), panel.note, draw.NOTE + 2, room=wide)
    return sheet
