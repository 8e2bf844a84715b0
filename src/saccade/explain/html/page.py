"""The shell of every page Saccade writes: one file, no outside resources, light and dark, fit for print."""

from __future__ import annotations

import base64
import hashlib
from html import escape

from saccade.explain.draw.palette import PALETTE

_TONES = "".join(f".c{i}{{--tone:{colour.ink};--glow:{colour.glow}}}" for i, colour in enumerate(PALETTE))
_TONES_DARK = "".join(f".c{i}{{--tone:{colour.glow}}}" for i, colour in enumerate(PALETTE))

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
