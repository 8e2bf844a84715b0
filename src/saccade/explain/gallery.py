"""A gallery: many explanations on one page that can be mailed, printed or opened offline."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from saccade.errors import SaccadeError
from saccade.explain.explanation import Explanation
from saccade.explain.figure import match_figure
from saccade.explain.page import write_page
from saccade.files import write_text


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
        '<p class="note">Hover, tap or focus a word to light up what it looks at. Words that share a colour look at '
        f"the same place; the stronger the underline, {_underline(explanations)}.</p>"
    )
    body = "\n".join([f"<header><h1>{escape(title)}</h1>{lead}{hint}</header>", *items])
    write_text(path, write_page(title, body))
    return path


def _underline(explanations: list[Explanation]) -> str:
    """What a strong underline means on this page."""
    told = "the surer the captioner was of the word", "the better the word found it"
    kinds = {explanation.said for explanation in explanations}
    return told[0] if kinds == {True} else told[1] if kinds == {False} else f"{told[1]}, or {told[0]}"
