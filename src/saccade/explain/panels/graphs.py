"""Two graphs side by side: the regions that words chose, and the sentence; a colour joins words and their region."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from saccade.explain.draw.curves import Brush, bend, middle, smooth_layer
from saccade.explain.draw.marks import GUTTER, PAPER, outline, paste_rounded, pixels, rgb, size_like, tag
from saccade.explain.panels.word_graph import Edge, draw_word_graph, strongest
from saccade.explain.reading import Place, find_places, label

if TYPE_CHECKING:
    from saccade.explain.explanation import Explanation

LARGE = 700  # the side of a square picture


def draw_graphs(explanation: Explanation, room: int) -> Image.Image:
    """Left the picture with its graph, right the sentence with its own and the matched regions beneath."""
    places = find_places(explanation)
    size = size_like(explanation.image.shape[1] / explanation.image.shape[0], LARGE, LARGE * 1.25)
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
