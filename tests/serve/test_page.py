"""The page in a browser, as a user sees it, by axe-core's rules too."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from served import EASY, listening, make_offer

from saccade.explain.draw import PALETTE
from saccade.serve.config import Limits, ServeConfig
from saccade.serve.offer import Offer, all_uses, open_indices, open_models
from saccade.serve.schemas import TaskAnswer, TaskOffered

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FOUND = next((path for name in BROWSERS if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(FOUND is None, reason=f"no browser is installed: none of {', '.join(BROWSERS)}")

ROOT = Path(__file__).parents[2]
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
QUERY = "/?q=a+red+cube+left+of+a+blue+ball"
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=FOUND, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def visit(browser: Browser, live: str) -> Iterator[Open]:
    """`visit("/?q=…", color_scheme="dark")`: a page; nothing on it may go wrong, and nothing come from elsewhere."""
    contexts, troubles = [], list[str]()

    def open(address: str = "/", at: str = live, quiet: bool = True, **options: Any) -> Page:
        size = {"width": 1280, "height": 900}
        context = browser.new_context(**{"viewport": size, "reduced_motion": "reduce", **options})
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        if quiet:
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.on("console", lambda said: troubles.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: None if _is_own(asked.url, at) else troubles.append(f"fetched {asked.url}"))
        page.goto(at + address)
        return page

    yield open
    for context in contexts:
        context.close()
    assert troubles == []


def _is_own(url: str, at: str) -> bool:
    return url.startswith((at, "data:", f"blob:{at}"))


def cards(page: Page) -> Any:
    return page.locator(".card > .open")


def found(page: Page) -> Page:
    page.locator("#columns[aria-busy=false] .card").first.wait_for()
    return page


def looked_at(page: Page) -> Page:
    """The first picture, opened."""
    cards(page).first.click()
    expect(page.locator("#detail .stage > img").first).not_to_have_js_property("naturalWidth", 0)
    return page


def test_a_sentence_finds_pictures_with_scores_and_stands_in_the_address(visit: Open) -> None:
    page = visit()
    expect(page.locator(".empty")).to_contain_text("26 pictures")
    page.keyboard.press("/")
    page.keyboard.type("a red cube")
    page.keyboard.press("Enter")
    found(page)
    expect(page).to_have_url(re.compile(re.escape("q=a+red+cube")))
    assert page.title() == "a red cube · Saccade"
    assert re.search(r"\d %", cards(page).first.inner_text())
    assert "score 0." in (cards(page).first.get_attribute("aria-label") or "")
    expect(page.get_by_role("status").first).to_contain_text("pictures by scan")
    again = found(visit(page.url.replace(page.url.split("/?")[0], "")))
    assert cards(again).first.get_attribute("aria-label") == cards(page).first.get_attribute("aria-label")
    page.get_by_role("link", name="Caption").click()
    expect(page.locator("#task h1")).to_have_text("Say what is in a picture")
    page.go_back()
    expect(page.locator("#q")).to_have_value("a red cube")


def test_the_threshold_hides_what_scores_less(visit: Open) -> None:
    page = found(visit(QUERY))
    every = cards(page).count()
    slider = page.get_by_role("slider", name="Least score shown")
    slider.focus()
    for _ in range(6):
        page.keyboard.press("PageUp")
    expect(page.locator(".gate .read")).to_contain_text("score ≥")
    assert 0 < cards(page).count() < every
    expect(page).to_have_url(re.compile(re.escape("min=")))
    shared = found(visit(page.url.replace(page.url.split("/?")[0], "")))
    assert cards(shared).count() == cards(page).count()
    expect(page.locator(".gate line")).to_have_count(1)


def test_a_line_says_below_which_probably_nothing_fits(visit: Open) -> None:
    page = found(visit(QUERY + "&index=toys-other"))
    expect(page.locator(".notice.bad")).to_contain_text("Probably nothing here fits")
    assert page.locator(".card.below").count() == cards(page).count()


def test_a_word_lights_its_places_and_a_place_its_words(visit: Open) -> None:
    page = looked_at(found(visit(QUERY)))
    dialog = page.get_by_role("dialog", name="A picture and why it was found")
    word = dialog.locator("button.word", has_text="cube")
    word.hover()
    expect(dialog.locator(".stage")).to_have_class("stage lit")
    assert (dialog.locator(".heat").get_attribute("src") or "").startswith("data:image/png")
    assert dialog.locator(".stage rect").count() >= 1
    expect(dialog.locator("p.here")).to_contain_text("“cube” looks here")
    box = dialog.locator(".stage rect").first.bounding_box()
    assert box is not None
    for shift in (-1, 0):  # a pointer that does not move tells a page nothing, and it may lie there already
        page.mouse.move(box["x"] + box["width"] / 2 + shift, box["y"] + box["height"] / 2)
    expect(dialog.locator(".word.near").first).to_be_visible()
    expect(dialog.locator("p.here")).to_contain_text(re.compile("here: |no word"))
    dialog.get_by_label("all regions").check()
    expect(dialog.locator(".tags span").nth(4)).to_be_visible()  # the regions by name, beside the places
    assert dialog.locator(".adds li").count() == 5  # red, cube, left, blue, ball: words that show something
    expect(page).to_have_url(re.compile(re.escape("open=toys")))
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page).not_to_have_url(re.compile("open="))  # which changes a moment after it


def test_a_word_lights_frames_of_a_video(visit: Open, films: Path) -> None:
    offer = Offer(open_indices([films], "cpu", EASY, lambda name, size: None), [])
    with listening(offer, ServeConfig(port=0, limits=EASY)) as address:
        page = looked_at(found(visit("/?q=the+red+cube", at=address)))
        assert (page.locator("#detail .stage > img").first.get_attribute("src") or "").startswith("data:image/jpeg")
        page.locator("#detail button.word", has_text="cube").hover()
        expect(page.locator("#detail .stage")).to_have_class("stage lit")
        assert page.locator("#detail .stage rect").count() >= 1
        expect(page.get_by_role("button", name="Search by this part")).to_have_count(0)  # of a film there is none


def test_words_that_the_model_does_not_know_are_grey(visit: Open) -> None:
    page = found(visit("/?q=a+red+zebra"))
    cards(page).first.click()
    expect(page.locator("#detail .word.missing")).to_have_text("zebra")
    expect(page.locator("#detail .adds .missing")).to_contain_text("unknown")


def test_the_keyboard_goes_through_results_and_words(visit: Open) -> None:
    page = found(visit(QUERY))
    cards(page).first.focus()
    page.keyboard.press("ArrowRight")
    second = cards(page).nth(1)
    expect(second).to_be_focused()
    page.keyboard.press("Enter")
    page.locator("#detail button.word").first.wait_for()
    title = page.locator("#detail h2").inner_text()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#detail h2")).not_to_have_text(title)
    page.locator("#detail button.word").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#detail button.word").nth(1)).to_be_focused()
    expect(page.locator("#detail .stage")).to_have_class("stage lit")


def test_a_drawn_part_of_a_picture_is_searched_by(visit: Open) -> None:
    page = found(visit(QUERY))
    looked_at(page)
    stage = page.locator("#detail .stage").bounding_box()
    assert stage is not None
    expect(page.get_by_role("button", name="Search by this part")).to_be_disabled()
    page.mouse.move(stage["x"] + 0.3 * stage["width"], stage["y"] + 0.3 * stage["height"])
    page.mouse.down()
    page.mouse.move(stage["x"] + 0.7 * stage["width"], stage["y"] + 0.7 * stage["height"], steps=4)
    page.mouse.up()
    page.get_by_role("button", name="Search by this part").click()
    found(page)
    expect(page.locator("#like")).to_contain_text("like this part of")
    expect(page).to_have_url(re.compile(re.escape("region=0.3")))
    page.get_by_role("button", name="Leave out").click()
    expect(page.locator(".empty")).to_contain_text("26 pictures")


def test_copies_stand_apart_from_similar_pictures(visit: Open) -> None:
    page = found(visit("/?like=01.png"))
    expect(page.locator(".divider").first).to_have_text("The picture and its copies")
    expect(page.locator(".divider").nth(1)).to_have_text("Merely similar")
    names = [card.get_attribute("data-id") for card in page.locator(".card").all()[:2]]
    assert sorted(map(str, names)) == ["01.png", "same.png"]
    page = found(visit(QUERY))
    badge = page.locator(".badge").first
    expect(badge).to_have_text("+1 copy")
    before = cards(page).count()
    badge.click()
    assert cards(page).count() == before + 1


def test_what_is_asked_before_the_service_has_told_what_it_offers_is_not_lost(visit: Open, shelf: Path) -> None:
    page, held = visit(), list[Any]()
    page.route("**/models", lambda route: held.append(route))  # a function: it is given an attribute
    page.reload(wait_until="domcontentloaded")
    page.locator("#byfile").set_input_files(shelf / "photos" / "04.png")
    page.wait_for_function("document.querySelector('#byfile').value === ''")  # taken in
    for route in held:
        route.continue_()
    assert "like" in found(page).locator("#like").inner_text()


def test_a_picture_of_ones_own_is_searched_by(visit: Open, shelf: Path) -> None:
    page = visit()
    page.locator("#byfile").set_input_files(shelf / "photos" / "04.png")
    found(page)
    assert page.locator(".card").first.get_attribute("data-id") == "04.png"
    expect(page.locator("#like")).to_contain_text("like 04.png")


def test_a_part_of_ones_own_picture_is_searched_by(visit: Open, shelf: Path) -> None:
    page = visit()
    page.locator("#byfile").set_input_files(shelf / "photos" / "04.png")
    whole = [card.get_attribute("aria-label") for card in cards(found(page)).all()]
    page.get_by_role("button", name="Choose a part of the picture").click()
    stage = page.locator("#detail .stage").bounding_box()
    assert stage is not None
    page.mouse.move(stage["x"] + 0.2 * stage["width"], stage["y"] + 0.2 * stage["height"])
    page.mouse.down()
    page.mouse.move(stage["x"] + 0.6 * stage["width"], stage["y"] + 0.8 * stage["height"], steps=4)
    page.mouse.up()
    page.get_by_role("button", name="Search by this part").click()
    expect(page.locator("#detail")).to_be_hidden()
    expect(page).to_have_url(re.compile(re.escape("region=0.2")))
    assert [card.get_attribute("aria-label") for card in cards(found(page)).all()] != whole
    expect(page.locator("#like")).to_contain_text("like this part of 04.png")
    expect(page.locator("#like i")).to_be_visible()


def test_filters_narrow_the_search(visit: Open) -> None:
    page = found(visit(QUERY))
    page.locator("#facets summary", has_text="folder").click()
    page.get_by_label("more").check()
    expect(page.locator(".facts")).to_contain_text("of 8 pictures")
    expect(page).to_have_url(re.compile(re.escape("f=folder%3Amore")))
    expect(page.locator("#facets summary").first).to_have_text("folder · 1")
    page.locator("#facets summary", has_text="rating").click()
    page.locator("#facets details[data-column=rating] input").first.check()
    expect(page.locator(".facts")).to_contain_text(re.compile("of [1-7] pictures"))
    page = visit(QUERY + "&where=width+%3E+1000")
    expect(page.locator(".column .empty")).to_have_text("No picture passes these filters.")


def test_what_the_extractor_sees_is_a_filter(visit: Open) -> None:
    page = found(visit(QUERY))
    page.locator("#facets summary", has_text="labels").click()
    first = page.locator("#facets details[data-column=labels] label").first
    number = first.locator(".n").inner_text()
    first.locator("input").check()
    expect(page.locator(".facts")).to_contain_text(f"of {number} pictures")
    shared = found(visit(page.url.replace(page.url.split("/?")[0], "")))  # whoever gets the link sees the same
    expect(shared.locator(".facts")).to_contain_text(f"of {number} pictures")


def test_two_models_answer_side_by_side(visit: Open) -> None:
    page = found(visit(QUERY))
    page.get_by_label("Second index, shown beside the first").select_option("toys-other")
    expect(page.locator(".column")).to_have_count(2)
    assert page.locator(".column h2").all_inner_texts() == ["scan", "other"]
    one, other = (page.locator(".column").nth(n).bounding_box() for n in (0, 1))
    assert one is not None
    assert other is not None
    assert other["x"] > one["x"] + one["width"]


@pytest.mark.parametrize(
    ("verb", "text"), [("score", "a red cube"), ("ground", "a red cube and a ball"), ("caption", "")]
)
def test_a_tab_uses_a_model_on_a_picture_of_ones_own(visit: Open, shelf: Path, verb: str, text: str) -> None:
    page = visit(f"/?tab={verb}")
    run = page.get_by_role("button", name=verb.capitalize(), exact=True)
    run.click()
    expect(page.get_by_role("alert").filter(has_text="Choose a picture first.")).to_be_visible()
    page.get_by_label("Choose a picture").first.set_input_files(shelf / "photos" / "04.png")
    if text:
        page.locator("#text").fill(text)
    run.click()
    expect(page.get_by_role("list", name="What the model says").locator("> li").first).to_be_visible()
    page.locator("button.word").first.hover()
    expect(page.locator(".stage")).to_have_class("stage lit")
    assert page.locator("#camera").get_attribute("capture") == "environment"


def test_the_video_tab_finds_moments(visit: Open, tmp_path: Path) -> None:
    import numpy as np

    from saccade.vision.videos import write_video

    frames = [np.full((64, 64, 3), 20 * n, np.uint8) for n in range(8)]
    write_video(tmp_path / "a.mp4", frames, 4)
    page = visit("/?tab=moment")
    page.get_by_label("Choose a video").first.set_input_files(tmp_path / "a.mp4")
    page.locator("#text").fill("a red cube")
    page.get_by_role("button", name="Moment", exact=True).click()
    expect(page.locator(".answers li").first).to_contain_text("0:0")
    expect(page.get_by_role("img", name="How well each piece of the video fits")).to_be_visible()


BOX = [0.2, 0.2, 0.6, 0.6]
LINES: dict[str, dict[str, Any]] = {  # what a line of a task has beside its text
    "refer": {"boxes": [BOX], "probability": 0.7},
    "detect": {"boxes": [BOX], "score": 0.9},
    "densecap": {"boxes": [BOX], "score": -1.2},
    "relations": {"boxes": [BOX, [0.5, 0.5, 0.9, 0.9]], "probability": 0.4},
    "ask": {"probability": 0.9, "details": ["filter red", "count"]},
    "parse": {"details": ["filter red", "count"]},
    "moment": {"span": [0.5, 1.5], "score": 0.3},
}


@pytest.mark.parametrize("verb", sorted(all_uses()))
def test_every_tab_shows_what_its_task_says(visit: Open, shelf: Path, tmp_path: Path, verb: str) -> None:
    """Models of most tasks take minutes to train: what they say is written here, in the schema's own terms."""
    use = all_uses()[verb]
    told = {name: value for name, value in vars(use).items() if name != "run"}
    TaskOffered.model_validate({**told, "models": ["toy"]})
    plain = {"score": None, "probability": None, "boxes": [], "span": None, "details": []}
    video = use.medium == "video"
    shown = png_address(shelf / "photos" / "04.png") if use.medium == "picture" else None
    lines = [{"text": f"line {n}", **plain, **LINES.get(verb, {"score": 0.5})} for n in (1, 2)]
    answer = {"model": "toy", "lines": lines, "explanation": None, "picture": shown}
    answer |= {"seconds": 2.0 if video else None, "curve": [0.1, 0.9, 0.2] if video else []}
    TaskAnswer.model_validate(answer)
    page = visit()

    def offered(route: Any) -> None:
        known = route.fetch().json()
        route.fulfill(json={**known, "tasks": [{**told, "models": ["toy"]}]})

    page.route("**/models", offered)
    page.route(f"**/{verb}", lambda route: route.fulfill(json=answer))
    page.goto(f"{page.url}?tab={verb}")
    expect(page.locator("#task h1")).to_have_text(use.does)
    assert page.locator("#tabs a").all_inner_texts() == ["Search", verb.capitalize()]
    if use.medium != "none":
        (tmp_path / "a.mp4").write_bytes(b"whatever it is, the service has answered")
        page.locator("#file").set_input_files(tmp_path / "a.mp4" if video else shelf / "photos" / "04.png")
    if use.text:
        page.locator("#text").fill(use.example or "a red cube")
    page.get_by_role("button", name=verb.capitalize(), exact=True).click()
    said = page.get_by_role("list", name="What the model says").locator("> li")
    expect(said).to_have_count(2)
    expect(said.first).to_contain_text("0:00.5 to 0:01.5" if video else "line 1")
    if "boxes" in LINES.get(verb, {}):
        expect(page.locator(".stage rect")).to_have_count(2 * len(LINES[verb]["boxes"]))
        said.first.hover()
        expect(page.locator(".stage rect")).to_have_count(len(LINES[verb]["boxes"]))
    for step in LINES.get(verb, {}).get("details", ()):
        expect(said.first).to_contain_text(step)
    assert page.evaluate(RULES) == []


def png_address(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def test_what_goes_wrong_is_said(visit: Open, shelf: Path, tmp_path: Path) -> None:
    page = visit("/?q=zzzz+qqqq", quiet=False)
    expect(page.locator("#alert")).to_contain_text("zzzz")
    page = visit(QUERY + "&where=nonsense+%3D", quiet=False)
    expect(page.locator("#alert")).to_contain_text("nonsense")
    (tmp_path / "no.png").write_bytes(b"no picture")
    page = visit("/?tab=caption", quiet=False)
    page.get_by_label("Choose a picture").first.set_input_files(tmp_path / "no.png")
    page.get_by_role("button", name="Caption", exact=True).click()
    expect(page.locator("#task .error")).to_contain_text("the upload is not a picture")
    page.route("**/caption", lambda route: route.abort())
    page.get_by_role("button", name="Caption", exact=True).click()
    expect(page.locator("#task .error")).to_contain_text("does not answer")


def test_a_service_with_a_key_asks_for_it(visit: Open, shelf: Path) -> None:
    key = "a-key-of-many-letters"
    limits = Limits(rate=1e4, burst=1e4)
    with listening(make_offer(shelf, limits), ServeConfig(port=0, api_keys=(key,), limits=limits)) as address:
        page = visit(QUERY, at=address, quiet=False)
        field = page.get_by_label("API key")
        field.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#login-error")).to_contain_text("no key of this service")
        field.fill(key)
        page.keyboard.press("Enter")
        found(page)
        expect(page.locator(".card img").first).not_to_have_js_property("naturalWidth", 0)  # by the session


def test_without_an_index_the_page_has_the_tabs_alone(visit: Open, shelf: Path) -> None:
    models = open_models([str(shelf / "captioner")], "cpu", EASY, lambda name, size: None)
    with listening(Offer([], models), ServeConfig(port=0, limits=EASY)) as address:
        page = visit(at=address)
        expect(page.locator("#task h1")).to_have_text("Say what is in a picture")
        assert page.locator("#tabs a").all_inner_texts() == ["Caption"]
        expect(page.locator("#search")).to_be_hidden()


def test_on_a_phone_nothing_is_wider_than_the_screen(visit: Open) -> None:
    phone = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
    for address in ("/?tab=ground", QUERY + "&second=toys-other"):
        page = visit(address, **phone)
        if "q=" in address:
            found(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page = visit("/?tab=ground", **phone)
    expect(page.locator("label.camera")).to_be_visible()
    page = found(visit(QUERY, **phone))
    cards(page).first.tap()
    page.locator("#detail button.word").nth(1).tap()
    expect(page.locator("#detail .stage")).to_have_class("stage lit")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_dark_and_light_follow_the_system_or_the_button(visit: Open) -> None:
    light, dark = "rgb(253, 253, 252)", "rgb(17, 21, 24)"
    for scheme, colour in (("light", light), ("dark", dark)):
        page = visit(color_scheme=scheme)
        page.locator("#q").wait_for()
        expect(page.locator("body")).to_have_css("background-color", colour)
    page.get_by_role("button", name="Colours: as the system").click()
    expect(page.locator("body")).to_have_css("background-color", light)
    page.reload()
    expect(page.get_by_role("button", name="Colours: light")).to_be_visible()
    expect(page.locator("body")).to_have_css("background-color", light)


RULES = Path(__file__).with_name("rules.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_has_a_name_and_can_be_read(
    visit: Open, shelf: Path, scheme: str, record_property: Callable[[str, object], None]
) -> None:
    """Names, alternatives, headings, contrast: rules of our own, and axe-core's."""
    page = found(visit(QUERY + "&second=toys-other", color_scheme=scheme, bypass_csp=True))
    assert faults(page) == []
    looked_at(page)
    assert faults(page) == []
    for verb in ("ground", "caption", "moment"):
        page = visit(f"/?tab={verb}", color_scheme=scheme, bypass_csp=True)
        page.locator("#file").wait_for(state="attached")
        assert faults(page) == []
    record_property("accessibility", "axe-core")


def faults(page: Page) -> list[str]:
    told: list[str] = page.evaluate(RULES)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    broken = page.evaluate("axe.run(document).then((found) => found.violations)")
    return told + [f"{one['id']}: {one['nodes'][0]['html'][:100]}" for one in broken]


def test_the_page_is_painted_before_anything_was_asked(visit: Open) -> None:
    """The form stands in the page itself: the first paint waits for no answer of the service."""
    page = visit()
    page.locator("#q").wait_for()
    order = page.evaluate("performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)")
    assert order.index("/page/style.css") < order.index("/models")
    assert page.evaluate("performance.getEntriesByType('paint').length") > 0


def test_colours_of_words_are_those_of_the_drawings() -> None:
    style = (ROOT / "src" / "saccade" / "serve" / "page" / "style.css").read_text(encoding="utf-8")
    for number, colour in enumerate(PALETTE):
        assert f"--c{number}: {colour.ink};" in style
        assert f"--c{number}: {colour.glow};" in style
        assert f".stage rect.c{number} {{ stroke: {colour.glow}; }}" in style
