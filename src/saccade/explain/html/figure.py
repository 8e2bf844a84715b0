"""Explanations on a page: hover, tap or focus a word, and the picture lights up where it attends.

Without scripts a figure is complete too: every word has its tile, as in the drawn strip. A gallery is many figures on
one page that can be mailed, printed or opened offline: one file, no outside resources, light and dark.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.core.files import write_text
from saccade.core.text import escaped
from saccade.explain import draw
from saccade.explain.explanation import Explanation
from saccade.explain.panels.compose import draw_explanation, draw_panel, find_panels

PICTURE_SIDE = 512  # the longer side of an embedded picture
LIGHT_SIDE = 72  # heat maps are smooth: the browser enlarges them without loss
_NOMINAL = 380  # the width, in CSS pixels, at which tags are placed


def picture_uri(image: UInt8[Array, "height width 3"], side: int = PICTURE_SIDE) -> str:
    """The picture as an embedded JPEG, its longer side `side`; small ones are enlarged here, smoothly."""
    height, wide = image.shape[:2]
    scale = side / max(height, wide)
    size = max(1, round(wide * scale)), max(1, round(height * scale))
    picture = Image.fromarray(image).resize(size, Image.Resampling.LANCZOS)
    return _data_uri(picture, "JPEG", "image/jpeg", quality=84)


def light_uri(heat: Float[Array, "height width"]) -> str:
    """A heat map as a small PNG whose palette carries both the colour and how much of the picture it hides."""
    colours, opacity = draw.colour_table()
    picture = Image.fromarray((heat * 63).round().astype(np.uint8) * 4)
    picture.putpalette(colours.tobytes())
    return _data_uri(picture, "PNG", "image/png", transparency=opacity.tobytes(), optimize=True)


def _data_uri(picture: Image.Image, kind: str, mime: str, **options: object) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return f"data:{mime};base64,{base64.b64encode(buffer.getvalue()).decode()}"


@cache
def templates() -> Any:
    """The pages and their parts in this folder; all text that goes into them is escaped."""
    from jinja2 import Environment, PackageLoader

    made = Environment(loader=PackageLoader("saccade.explain", "html"), autoescape=True)
    script = str(made.loader.get_source(made, "figure.js")[0])  # type: ignore[union-attr]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    made.globals |= {"script": script, "digest": digest, "palette": draw.PALETTE, "joins_left": draw.joins_left}
    made.filters |= {"zip": zip, "escaped": escaped}
    made.globals |= {"picture_uri": picture_uri, "match_figure": match_figure}
    return made


def write_page(template: str, title: str, **values: Any) -> str:
    """A whole HTML document.

    Its content policy lets only our own script run and nothing be fetched, so a caption can do no harm even if some
    markup escaped the escaping.
    """
    return str(templates().get_template(template).render(title=title, **values)) + "\n"


def match_figure(explanation: Explanation) -> str:
    """The figure as HTML markup; `figure.css` and `figure.js` are the style and the script it needs."""
    explanation = explanation.shortened()
    height, wide = explanation.image.shape[:2]
    scale = LIGHT_SIDE / max(height, wide)
    size = max(1, round(height * scale)), max(1, round(wide * scale))
    steps = [explanation.weights, *(() if explanation.steps is None else explanation.steps)]  # all together come first
    views = {
        word: [
            (light_uri(draw.spread(w[word], explanation.boxes, size)), _boxes(explanation, word, w[word]))
            for w in steps
        ]
        for word, text in enumerate(explanation.words)
        if any(c.isalnum() for c in text)
    }
    panels = [
        (panel, _data_uri(draw_panel(panel, explanation), "WEBP", "image/webp", quality=86, method=2))
        for panel in find_panels(explanation)
    ]
    hue_of = {word: f" c{draw.PALETTE.index(colour)}" for word, colour in explanation.colours.items()}
    hues = {word: hue_of.get(word, "") for word in views}
    places, tags = _places(explanation)
    values = {"shape": f"{wide}/{height}", "views": views, "hues": hues, "places": places, "tags": tags}
    return str(templates().get_template("figure.html").render(e=explanation, panels=panels, **values))


def _boxes(explanation: Explanation, word: int, weights: Float[Array, " region"]) -> str:
    """A word's strongest boxes at one step."""
    found = explanation.outlines(word, weights)
    return "".join(_rect(box, 1 + strength, 0.25 + 0.75 * strength**2) for box, strength in found)


def _rect(box: Float[Array, " 4"], stroke: float, opacity: float, kind: str = "") -> str:
    left, top, right, bottom = np.clip(box, 0, 1) * 1000
    name = f' class="{kind}"' if kind else ""
    return (
        f'<rect{name} x="{left:.0f}" y="{top:.0f}" width="{max(right - left, 1):.0f}" '
        f'height="{max(bottom - top, 1):.0f}" stroke-width="{stroke:.1f}" stroke-opacity="{opacity:.2f}"/>'
    )


def _places(explanation: Explanation) -> tuple[str, list[tuple[int, float, float, str]]]:
    """Each place's box, and the tags that name their words: hue, left and top in percent, text."""
    height, wide = explanation.image.shape[:2]
    stage = _NOMINAL, max(40, round(_NOMINAL * height / wide))
    surest = max((place.strength for place in explanation.places), default=1.0)
    boxes, tags, taken = "", [], list[draw.Frame]()
    for place in explanation.places:
        strength, hue = place.strength / surest, draw.PALETTE.index(place.colour)
        boxes += _rect(place.box, 3.5 + 2 * strength, 1.0, "rim")
        boxes += _rect(place.box, 1.0 + 1.5 * strength, 0.5 + 0.5 * strength, f"c{hue}")
        text, _ = draw.fit(explanation.label(place), 13, 0.7 * _NOMINAL, smallest=13)
        plate = round(1.2 * draw.width(text, 13)) + 18, 22  # readers' fonts differ: room for a wide one
        x, y = draw.free_spot(draw.pixels(place.box, stage), plate, stage, taken)
        taken.append((x, y, x + plate[0], y + plate[1]))
        tags.append((hue, 100 * x / stage[0], 100 * y / stage[1], text))
    return boxes, tags


def save_explanation(explanation: Explanation, path: Path | str) -> Path:
    """Write the picture (.png, .jpg, .webp) or an interactive page (.html); the file is whole or absent.

    Raises: SaccadeError if `path` ends otherwise or cannot be written.
    """
    if draw.check_format(path, "an explanation", (".html",)) == ".html":
        return write_gallery([explanation], path, explanation.title or "Why this picture")
    return draw.save_drawing(draw_explanation(explanation), path, "an explanation")


def write_gallery(explanations: Iterable[Explanation], path: Path | str, title: str, intro: str = "") -> Path:
    """Write one self-contained HTML file; `title`, `intro` and all captions are plain text and are escaped."""
    path, explanations = Path(path), list(explanations)
    if path.suffix.lower() not in (".html", ".htm"):
        raise SaccadeError(f"{path}: a gallery is saved as .html, not {path.suffix or 'a bare name'}")
    if not explanations:
        raise SaccadeError(f"{path}: a gallery needs at least one explanation")
    meanings = {False: "the better the word found it", True: "the surer the captioner was of the word"}
    underline = ", or ".join(meanings[kind] for kind in sorted({e.generated for e in explanations}))
    write_text(path, write_page("gallery.html", title, intro=intro, explanations=explanations, underline=underline))
    return path
