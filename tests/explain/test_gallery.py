from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.explain import Explanation, save_explanation, write_gallery
from saccade.explain.draw import illuminate, spread
from saccade.explain.html.figure import light_uri, match_figure, picture_uri
from saccade.explain.panels.compose import find_panels

Make = Callable[..., Explanation]
NASTY = '<script>alert("x")</script>'


class Tags(HTMLParser):
    """Every tag of a page, and a check that all are closed."""

    VOID = frozenset({"meta", "img", "rect"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.seen)


def decode(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition("base64,")[2])))


def test_pages_are_well_formed_and_need_nothing_from_outside(make: Make, tmp_path: Path) -> None:
    page = write_gallery([make(), make(height=40, width=90)], tmp_path / "g.html", "Why", "An intro.").read_text()
    tags = Tags(page)
    assert tags.count("figure") == 2
    assert tags.count("script") == 1
    addresses = [value for _, attributes in tags.seen for key, value in attributes.items() if key in ("src", "href")]
    assert all(a is not None and a.startswith("data:") for a in addresses)
    assert "http" not in page.replace("http-equiv", "")
    assert set(re.findall(r"url\((\w+):", page)) == {"data"}


def test_all_text_is_escaped(make: Make, tmp_path: Path) -> None:
    explanation = replace(make((NASTY, '"onload=x', "&amp;")), title=NASTY)
    page = write_gallery([explanation], tmp_path / "g.html", NASTY, NASTY).read_text()
    tags = Tags(page)
    assert tags.count("script") == 1
    assert not any(key.startswith("on") for _, attributes in tags.seen for key in attributes)
    assert "&lt;script&gt;" in page
    assert "&amp;amp;" in page


def test_the_content_policy_allows_exactly_our_script(make: Make, tmp_path: Path) -> None:
    page = write_gallery([make()], tmp_path / "g.html", "Why").read_text()
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page


def test_every_word_can_be_focused_and_has_its_tile(make: Make) -> None:
    tags = Tags(match_figure(make()))
    words = [a["data-word"] for tag, a in tags.seen if tag == "button"]
    tiles = [a["data-word"] for tag, a in tags.seen if tag == "li"]
    assert words == tiles == [str(i) for i in range(8)]  # the full stop is only text


def test_the_light_of_a_page_is_the_light_of_a_strip(make: Make) -> None:
    """Laying the embedded light over the picture gives what `illuminate` paints, within the palette's steps."""
    explanation = make()
    heat = explanation.heat(1)
    picture = Image.fromarray(explanation.image).convert("RGBA")
    light = decode(light_uri(heat)).convert("RGBA")
    laid = np.asarray(Image.alpha_composite(picture, light).convert("RGB")).astype(int)
    painted = illuminate(explanation.image, heat).astype(int)
    assert np.abs(laid - painted).max() <= 8


def test_embedded_pictures_keep_their_shape(make: Make) -> None:
    assert decode(picture_uri(make(height=60, width=120).image, 200)).size == (200, 100)
    assert decode(picture_uri(make(height=1, width=400).image, 200)).size == (200, 1)


@pytest.mark.parametrize("regions", [1, 100])
def test_long_captions_and_any_number_of_regions(make: Make, regions: int) -> None:
    words = tuple(f"word{i}" for i in range(40))
    assert Tags(match_figure(make(words, regions=regions))).count("li") == 40


def test_an_explanation_saves_itself_as_a_page(make: Make, tmp_path: Path) -> None:
    path = save_explanation(make(), tmp_path / "why.html")
    assert Tags(path.read_text()).count("figure") == 1


def test_steps_have_buttons_lights_and_boxes_of_their_own(make: Make, full: Make) -> None:
    explanation = full(make(("red", "ball")), steps=3)
    tags = Tags(match_figure(explanation))
    buttons = [a["data-step"] for _, a in tags.seen if a.get("class") == "step"]
    assert buttons == ["0", "1", "2", "3"]
    assert explanation.steps is not None
    for tile in (a for tag, a in tags.seen if tag == "li"):
        lights = dict(re.findall(r"--light(\d?):url\(([^)]*)\)", tile["style"] or ""))
        assert set(lights) == {"", "1", "2", "3"}
        heat = spread(explanation.steps[1, int(tile["data-word"] or 0)], explanation.boxes, (72, 72))
        assert lights["2"] == light_uri(heat)
    drawings = [a for tag, a in tags.seen if tag == "svg" and "data-step" in a]
    assert [("hidden" in a) for a in drawings] == [False, True, True, True] * 2


def test_gates_are_bars_and_panels_are_pictures_with_words_for_those_who_cannot_see_them(
    make: Make, full: Make
) -> None:
    explanation = full(make(("red", "ball")))
    page = match_figure(explanation)
    tags = Tags(page)
    assert explanation.word_gate is not None
    gauges = [a["style"] for _, a in tags.seen if a.get("class") == "gauge gate"]
    assert gauges == [f"--strength:{gate:.3f}" for gate in explanation.word_gate]
    pictures = [a for tag, a in tags.seen if tag == "img"]
    assert [(a["alt"] or "").partition(":")[0] for a in pictures] == [p.name for p in find_panels(explanation)]
    for a in pictures:
        assert decode(a["src"] or "").width > 1000
    assert Tags(match_figure(make())).count("img") == 0


def test_a_gallery_needs_a_page_name_and_something_to_show(make: Make, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"saved as \.html"):
        write_gallery([make()], tmp_path / "g.png", "Why")
    with pytest.raises(SaccadeError, match="at least one"):
        write_gallery([], tmp_path / "g.html", "Why")
    assert list(tmp_path.iterdir()) == []


def test_a_title_is_one_line_in_reading_order(make: Callable[..., Explanation], tmp_path: Path) -> None:
    page = write_gallery([make()], tmp_path / "page.html", "two\nlines\u202egpj.txt").read_text(encoding="utf-8")
    assert "<h1>two\\nlines\\u202egpj.txt</h1>" in page
    assert "<title>two\\nlines\\u202egpj.txt</title>" in page
