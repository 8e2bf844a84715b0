"""Explanations on a page: hover, tap or focus a word, and the picture lights up where it attends.

Without scripts a figure is complete too: every word has its tile, as in the drawn strip. A gallery is many figures on
one page that can be mailed, printed or opened offline: one file, no outside resources, light and dark.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterable
from html import escape
from importlib import resources
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.core.files import write_text
from saccade.explain import draw
from saccade.explain.explanation import Explanation, is_content, shares
from saccade.explain.panels.compose import draw_explanation, draw_panel, find_panels
from saccade.explain.panels.strip import top_regions


def packaged(name: str) -> str:
    """A style sheet or a script that lies beside this file."""
    return resources.files("saccade.explain.html").joinpath(name).read_text(encoding="utf-8")


def write_page(title: str, body: str, style: str = "") -> str:
    """A whole HTML document. `body` is markup; `title` is text.

    The content policy lets only our own script run and nothing be fetched, so a caption can do no harm even if some
    markup escaped our escaping.
    """
    script, sheet = packaged("figure.js"), packaged("figure.css")
    tones = "".join(f".c{i}{{--tone:{colour.ink};--glow:{colour.glow}}}" for i, colour in enumerate(draw.PALETTE))
    dark = "".join(f"html .c{i}{{--tone:{colour.glow}}}" for i, colour in enumerate(draw.PALETTE))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n<title>'
        f"{escape(title)}</title>\n<style>{tones}{sheet.replace('/* tones of the palette */', dark)}{style}</style>\n"
        f"</head>\n<body>\n<main>\n{body}\n</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )


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


def match_figure(explanation: Explanation) -> str:
    """The figure as HTML markup; `saccade.explain.html.figure` has the style and the script it needs."""
    height, wide = explanation.image.shape[:2]
    hue = {word: f" c{draw.PALETTE.index(colour)}" for word, colour in explanation.colours.items()}
    picture = picture_uri(explanation.image)
    sentence = escape(" ".join(explanation.words), quote=True)
    tiles = "".join(
        _tile(explanation, word, hue.get(word, ""))
        for word, text in enumerate(explanation.words)
        if any(c.isalnum() for c in text)
    )
    share = explanation.share
    framed = "" if share is None else f" · framed bars: {share.note}"
    return (
        f'<figure class="match" style="--picture:url({picture})">\n'
        f'<div class="stage" role="img" aria-label="{sentence}" style="aspect-ratio:{wide}/{height}">'
        f'<div class="light"></div>{_places(explanation)}'
        f'<svg class="boxes" viewBox="0 0 1000 1000" preserveAspectRatio="none"></svg></div>\n'
        f'<figcaption><p class="sentence">{_sentence(explanation, hue)}</p>\n'
        f'<p class="score">{escape(explanation.score_note + framed)}</p>\n{_steps(explanation)}'
        f'<ol class="tiles">{tiles}</ol></figcaption>\n{_panels(explanation)}</figure>'
    )


def _sentence(explanation: Explanation, hue: dict[int, str]) -> str:
    scores = explanation.strengths
    parts = []
    for word, text in enumerate(explanation.words):
        space = "" if word == 0 or draw.joins_left(text) else " "
        if not any(c.isalnum() for c in text):
            parts.append(f"{space}<span>{escape(text)}</span>")
            continue
        strength = "" if scores is None else f' style="--strength:{scores[word]:.3f}"'
        parts.append(
            f'{space}<button type="button" class="word{hue.get(word, "")}" data-word="{word}" aria-pressed="false"'
            f"{strength}>{escape(text)}</button>"
        )
    return "".join(parts)


def _steps(explanation: Explanation) -> str:
    """Buttons that show one step at a time, where the model attended several times; they appear with the script."""
    if explanation.steps is None:
        return ""
    names = ["together", *(f"step {step + 1}" for step in range(len(explanation.steps)))]
    buttons = "".join(
        f'<button type="button" class="step" data-step="{n}" aria-pressed="{"false" if n else "true"}">{name}</button>'
        for n, name in enumerate(names)
    )
    return f'<div class="steps" hidden role="group" aria-label="which step the tiles show">{buttons}</div>\n'


def _panels(explanation: Explanation) -> str:
    """The drawn panels, as they lie below a strip."""
    return "".join(
        f'<div class="panel"><img alt="{escape(f"{panel.name}: {panel.note}", quote=True)}" src="'
        f'{_data_uri(draw_panel(panel, explanation), "WEBP", "image/webp", quality=86, method=2)}"></div>\n'
        for panel in find_panels(explanation)
    )


def _tile(explanation: Explanation, word: int, hue: str) -> str:
    height, wide = explanation.image.shape[:2]
    scale = LIGHT_SIDE / max(height, wide)
    size = max(1, round(height * scale)), max(1, round(wide * scale))
    lights = f"--light:url({light_uri(explanation.heat(word, size))})"
    boxes = _boxes(explanation, explanation.weights[word])
    if explanation.steps is not None:
        for number, weights in enumerate(explanation.steps[:, word], start=1):
            lights += f";--light{number}:url({light_uri(draw.spread(weights, explanation.boxes, size))})"
            boxes += _boxes(explanation, weights, number)
    kind = "content" if is_content(explanation.words[word]) else "function"
    scores = explanation.strengths
    gauge = ""
    if scores is not None and explanation.word_score is not None:
        gauge = (
            f'<span class="gauge" style="--strength:{scores[word]:.3f}"><i></i></span>'
            f'<span class="sr">score {explanation.word_score[word]:.2f}</span>'
        )
    share = explanation.share
    if share is not None:
        gauge += (
            f'<span class="gauge gate" style="--strength:{share.values[word]:.3f}"><i></i></span>'
            f'<span class="sr">{share.name} {share.values[word]:.2f}</span>'
        )
    return (
        f'<li class="tile {kind}{hue}" data-word="{word}" style="{lights}">'
        f'<span class="thumb" style="aspect-ratio:{wide}/{height}">{boxes}</span>'
        f'<span class="name">{escape(explanation.words[word])}</span>{gauge}</li>\n'
    )


def _boxes(explanation: Explanation, weights: Float[Array, " region"], step: int = 0) -> str:
    """A word's strongest boxes at one step; those of step 0, all steps together, are shown first."""
    share = shares(weights[None])[0]
    drawn = ""
    for region in top_regions(share):
        strength = float(share[region] / share.max())
        drawn += _rect(explanation.boxes[region], 1 + strength, 0.25 + 0.75 * strength**2)
    which = f' data-step="{step}"' + " hidden" * bool(step)
    return f'<svg{which} viewBox="0 0 1000 1000" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'


def _rect(box: Float[Array, " 4"], stroke: float, opacity: float, kind: str = "") -> str:
    left, top, right, bottom = np.clip(box, 0, 1) * 1000
    name = f' class="{kind}"' if kind else ""
    return (
        f'<rect{name} x="{left:.0f}" y="{top:.0f}" width="{max(right - left, 1):.0f}" '
        f'height="{max(bottom - top, 1):.0f}" stroke-width="{stroke:.1f}" stroke-opacity="{opacity:.2f}"/>'
    )


def _places(explanation: Explanation) -> str:
    """Each place's box and the tag that names its words."""
    height, wide = explanation.image.shape[:2]
    stage = _NOMINAL, max(40, round(_NOMINAL * height / wide))
    surest = max((place.strength for place in explanation.places), default=1.0)
    boxes, tags, taken = "", "", list[draw.Frame]()
    for place in explanation.places:
        strength, hue = place.strength / surest, draw.PALETTE.index(place.colour)
        boxes += _rect(place.box, 3.5 + 2 * strength, 1.0, "rim")
        boxes += _rect(place.box, 1.0 + 1.5 * strength, 0.5 + 0.5 * strength, f"c{hue}")
        text, _ = draw.fit(explanation.label(place), 13, 0.7 * _NOMINAL, smallest=13)
        plate = round(1.2 * draw.width(text, 13)) + 18, 22  # readers' fonts differ: room for a wide one
        x, y = draw.free_spot(draw.pixels(place.box, stage), plate, stage, taken)
        taken.append((x, y, x + plate[0], y + plate[1]))
        tags += (
            f'<span class="tag c{hue}" style="left:{100 * x / stage[0]:.1f}%;top:{100 * y / stage[1]:.1f}%">'
            f"{escape(text)}</span>"
        )
    return f'<svg class="places" viewBox="0 0 1000 1000" preserveAspectRatio="none">{boxes}</svg>{tags}'


def save_explanation(explanation: Explanation, path: Path | str) -> Path:
    """Write the picture (.png, .jpg, .webp) or an interactive page (.html); the file is whole or absent.

    Raises: SaccadeError if `path` ends otherwise or cannot be written.
    """
    if draw.check_format(path, "an explanation", (".html",)) == ".html":
        return write_gallery([explanation], path, explanation.title or "Why this picture")
    return draw.save_drawing(draw_explanation(explanation), path, "an explanation")


def write_gallery(explanations: Iterable[Explanation], path: Path | str, title: str, intro: str = "") -> Path:
    """Write one self-contained HTML file; `title`, `intro` and all captions are plain text and are escaped."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise SaccadeError(f"{path}: a gallery is saved as .html, not {path.suffix or 'a bare name'}")
    explanations = list(explanations)
    items = [
        f"<article>\n{f'<h3>{escape(e.title)}</h3>' if e.title else ''}\n{match_figure(e)}\n</article>"
        for e in explanations
    ]
    if not items:
        raise SaccadeError(f"{path}: a gallery needs at least one explanation")
    lead = f'<p class="lead">{escape(intro)}</p>' if intro else ""
    hint = (
        '<p class="note">Hover, tap or focus a word to light up what it attends to. Words of one colour attend to '
        f"the same place; the stronger the underline, {_underline(explanations)}.</p>"
    )
    body = "\n".join([f"<header><h1>{escape(title)}</h1>{lead}{hint}</header>", *items])
    write_text(path, write_page(title, body))
    return path


def _underline(explanations: list[Explanation]) -> str:
    """What a strong underline means on this page."""
    meanings = "the surer the captioner was of the word", "the better the word found it"
    kinds = {explanation.generated for explanation in explanations}
    return meanings[0] if kinds == {True} else meanings[1] if kinds == {False} else f"{meanings[1]}, or {meanings[0]}"
