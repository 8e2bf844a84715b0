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
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.core.files import write_text
from saccade.explain import draw
from saccade.explain.explanation import (
    Explanation,
    Place,
    colour_of_word,
    find_places,
    is_content,
    label,
    score_note,
    share_of_words,
    shares,
    strengths,
)
from saccade.explain.panels.compose import draw_explanation, draw_panel, find_panels
from saccade.explain.panels.strip import top_regions

_TONES = "".join(f".c{i}{{--tone:{colour.ink};--glow:{colour.glow}}}" for i, colour in enumerate(draw.PALETTE))
_TONES_DARK = "".join(f".c{i}{{--tone:{colour.glow}}}" for i, colour in enumerate(draw.PALETTE))

STYLE = (
    """
:root{color-scheme:light dark;--paper:#fff;--panel:#f6f7f8;--ink:#1b2127;--soft:#5f6a74;--rule:#dfe4e8;--right:#00785a;
--wrong:#b3372b;--accent:#0069ab;--bar:#d9eaf6;--serif:"Iowan Old Style","Palatino Linotype",Palatino,Georgia,serif;
--sans:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 var(--sans)}
main{max-width:1160px;margin:0 auto;padding:3rem 1.5rem 5rem}
h1{font:600 2.5rem/1.15 var(--serif);margin:0 0 .6rem;letter-spacing:-.01em;text-wrap:balance}
h2{font:600 1.6rem/1.25 var(--serif);margin:4rem 0 .4rem}
h3{font:500 1.12rem/1.4 var(--sans);margin:0 0 .8rem}
p{margin:.4rem 0 1rem;max-width:46rem}
.lead{font-size:1.15rem;color:var(--soft);max-width:44rem}
.note{color:var(--soft);font-size:.9rem}
a{color:var(--accent)}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
article{padding:1.8rem 0;border-top:1px solid var(--rule)}
figure{margin:0}
.match{display:grid;grid-template-columns:minmax(240px,380px) 1fr;gap:1.2rem 2.2rem;align-items:start}
.stage{position:sticky;top:1rem;width:100%;border-radius:10px;overflow:hidden;
background:#111 var(--picture) center/100% 100%;
print-color-adjust:exact;-webkit-print-color-adjust:exact}
.stage>*{position:absolute;inset:0;width:100%;height:100%}
.light{opacity:0;transition:opacity .18s;background:center/100% 100% no-repeat}
.lit .light{opacity:1}
.places{transition:opacity .18s}
.lit .places{opacity:0}
.stage .tag{position:absolute;inset:auto;width:auto;height:auto;padding:.05rem .42rem;border-radius:.35rem;
background:var(--glow);color:#11161b;font-size:.8rem;line-height:1.45;white-space:nowrap;transition:opacity .18s}
.lit .tag{opacity:0}
rect{fill:none;vector-effect:non-scaling-stroke;stroke:var(--glow,#fff)}
.rim{stroke:#0b0d0f;stroke-opacity:.55}
.sentence{font-size:1.42rem;line-height:1.75;margin:0;max-width:none;color:var(--soft)}
.word{all:unset;color:var(--tone,inherit);cursor:pointer;padding:0 .06em;
border-bottom:calc(1px + 3px*var(--strength,0)) solid transparent;border-bottom-color:var(--tone,transparent);
line-height:1.2}
.word.on{background:var(--ink);color:var(--paper)}
.word:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.score{margin:.2rem 0 1rem;color:var(--soft);font-size:.9rem;font-variant-numeric:tabular-nums}
.tiles{list-style:none;display:flex;flex-wrap:wrap;align-items:end;gap:.7rem .6rem;margin:0;padding:0}
.tile{width:104px;cursor:default;color:var(--soft);font-size:.86rem;line-height:1.3}
.tile.content{color:var(--tone,var(--ink))}
.tile.function{width:64px;font-size:.78rem}
.tile.function .thumb{opacity:.5}
.tile.function rect{stroke-width:1px}
.thumb{position:relative;display:block;border-radius:6px;overflow:hidden;
background:var(--light) center/100% 100% no-repeat,var(--picture) center/100% 100%;
print-color-adjust:exact;-webkit-print-color-adjust:exact}
.thumb svg{position:absolute;inset:0;width:100%;height:100%}
.tile.on .thumb{box-shadow:0 0 0 2px var(--paper),0 0 0 4px var(--tone,var(--ink))}
.name{display:block;margin-top:.28rem;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.gauge{display:block;height:3px;border-radius:2px;background:var(--rule);overflow:hidden;print-color-adjust:exact}
.gauge i{display:block;height:100%;width:calc(100%*var(--strength));background:currentColor}
.gate{height:9px;margin-top:3px;border:1px solid;background:none}
.steps{display:flex;flex-wrap:wrap;gap:.3rem;margin:0 0 1rem}
.step{all:unset;cursor:pointer;padding:.1rem .7rem;border:1px solid var(--rule);border-radius:1rem;font-size:.86rem;
color:var(--soft)}
.step[aria-pressed=true]{background:var(--ink);border-color:var(--ink);color:var(--paper)}
.step:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.thumb svg[hidden],.steps[hidden]{display:none}
.panel{grid-column:1/-1;overflow-x:auto;border-top:1px solid var(--rule)}
.panel img{display:block;width:100%;min-width:44rem;background:#fff}
.sr{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@media (max-width:720px){main{padding:2rem 1rem 3rem}.match{grid-template-columns:1fr}
.stage{position:relative;top:0}h1{font-size:2rem}}
@media (prefers-color-scheme:dark){:root{--paper:#12161a;--panel:#1b2126;--ink:#e8ecef;--soft:#98a4ae;--rule:#2d353c;
--right:#35dbab;--wrong:#ff8f7a;--accent:#58b7f5;--bar:#1c3447}"""
    + _TONES_DARK.replace(".c", "html .c")
    + """}
@media (prefers-reduced-motion:reduce){*{transition:none!important}}
@media print{:root{--paper:#fff;--panel:#fff;--ink:#000;--soft:#444;--rule:#bbb}body{font-size:11pt}
article,.match,tr{break-inside:avoid}main{max-width:none;padding:0}}
"""
)

SCRIPT = """
document.querySelectorAll('.match').forEach(function (match) {
  var light = match.querySelector('.light'), boxes = match.querySelector('.boxes');
  var words = Array.from(match.querySelectorAll('.word')), tiles = Array.from(match.querySelectorAll('.tile'));
  var steps = Array.from(match.querySelectorAll('.step'));
  var together = tiles.map(function (tile) { return tile.style.getPropertyValue('--light'); });
  var pinned = null;
  function show(word) {
    match.classList.toggle('lit', word !== null);
    words.concat(tiles).forEach(function (part) { part.classList.toggle('on', part.dataset.word === word); });
    words.forEach(function (part) { part.setAttribute('aria-pressed', part.dataset.word === pinned); });
    boxes.replaceChildren();
    tiles.forEach(function (tile) {
      if (tile.dataset.word !== word) return;
      light.style.backgroundImage = tile.style.getPropertyValue('--light');
      var drawn = tile.querySelector('svg:not([hidden])').cloneNode(true);
      boxes.setAttribute('class', 'boxes ' + (tile.className.match(/c\\d/) || ['']).join(''));
      while (drawn.firstChild) boxes.appendChild(drawn.firstChild);
    });
  }
  words.concat(tiles).forEach(function (part) {
    part.addEventListener('pointerenter', function () { show(part.dataset.word); });
    part.addEventListener('pointerleave', function () { show(pinned); });
    part.addEventListener('click', function () {
      pinned = pinned === part.dataset.word ? null : part.dataset.word;
      show(pinned);
    });
  });
  steps.forEach(function (button) {
    button.parentElement.hidden = false;
    button.addEventListener('click', function () {
      var step = button.dataset.step;
      steps.forEach(function (other) { other.setAttribute('aria-pressed', other === button); });
      tiles.forEach(function (tile, i) {
        var light = step === '0' ? together[i] : tile.style.getPropertyValue('--light' + step);
        tile.style.setProperty('--light', light);
        tile.querySelectorAll('svg').forEach(function (boxes) {
          boxes.toggleAttribute('hidden', boxes.dataset.step !== step);
        });
      });
      show(pinned);
    });
  });
  words.forEach(function (part, i) {
    part.addEventListener('focus', function () { if (part.matches(':focus-visible')) show(part.dataset.word); });
    part.addEventListener('blur', function () { show(pinned); });
    part.addEventListener('keydown', function (event) {
      var step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
      if (step && words[i + step]) { event.preventDefault(); words[i + step].focus(); }
      if (event.key === 'Escape') { pinned = null; show(null); }
    });
  });
});
"""


def write_page(title: str, body: str, style: str = "") -> str:
    """A whole HTML document. `body` is markup; `title` is text.

    The content policy lets only our own script run and nothing be fetched, so a caption can do no harm even if some
    markup escaped our escaping.
    """
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_TONES}{STYLE}{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
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
    places = find_places(explanation)
    hue = {word: f" c{draw.PALETTE.index(colour)}" for word, colour in colour_of_word(places).items()}
    picture = picture_uri(explanation.image)
    sentence = escape(" ".join(explanation.words), quote=True)
    tiles = "".join(
        _tile(explanation, word, hue.get(word, ""))
        for word, text in enumerate(explanation.words)
        if any(c.isalnum() for c in text)
    )
    share = share_of_words(explanation)
    framed = "" if share is None else f" · framed bars: {share.note}"
    return (
        f'<figure class="match" style="--picture:url({picture})">\n'
        f'<div class="stage" role="img" aria-label="{sentence}" style="aspect-ratio:{wide}/{height}">'
        f'<div class="light"></div>{_places(explanation, places)}'
        f'<svg class="boxes" viewBox="0 0 1000 1000" preserveAspectRatio="none"></svg></div>\n'
        f'<figcaption><p class="sentence">{_sentence(explanation, hue)}</p>\n'
        f'<p class="score">{escape(score_note(explanation) + framed)}</p>\n{_steps(explanation)}'
        f'<ol class="tiles">{tiles}</ol></figcaption>\n{_panels(explanation)}</figure>'
    )


def _sentence(explanation: Explanation, hue: dict[int, str]) -> str:
    scores = strengths(explanation)
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
    scores = strengths(explanation)
    gauge = ""
    if scores is not None and explanation.word_score is not None:
        gauge = (
            f'<span class="gauge" style="--strength:{scores[word]:.3f}"><i></i></span>'
            f'<span class="sr">score {explanation.word_score[word]:.2f}</span>'
        )
    share = share_of_words(explanation)
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


def _places(explanation: Explanation, places: tuple[Place, ...]) -> str:
    """Each place's box and the tag that names its words."""
    height, wide = explanation.image.shape[:2]
    stage = _NOMINAL, max(40, round(_NOMINAL * height / wide))
    surest = max((place.strength for place in places), default=1.0)
    boxes, tags = "", ""
    taken: list[tuple[int, int, int, int]] = []
    for place in places:
        strength, hue = place.strength / surest, draw.PALETTE.index(place.colour)
        boxes += _rect(place.box, 3.5 + 2 * strength, 1.0, "rim")
        boxes += _rect(place.box, 1.0 + 1.5 * strength, 0.5 + 0.5 * strength, f"c{hue}")
        text, _ = draw.fit(label(explanation, place), 13, 0.7 * _NOMINAL, smallest=13)
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
