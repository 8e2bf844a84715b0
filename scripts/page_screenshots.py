"""The pictures of docs/serve.md: the page of `saccade serve`, as Chromium shows it, on the photographs of photos/.

python scripts/page_screenshots.py          # needs Playwright and Chromium; a minute
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from saccade.search.index import Index
from saccade.serve.app import make_app
from saccade.serve.config import Limits, ServeConfig
from saccade.serve.offer import Offer, open_indices, open_models
from saccade.serve.run import bound_socket, make_server

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "pictures"
LIMITS = Limits(rate=1000, burst=1000)
MODELS = ("scan-flickr8k", "show_attend_tell-flickr8k", "updown_vqa-flickr8k")
QUERY = "/?q=two+people+ride+horses+on+the+beach"
WIDE = {"viewport": {"width": 1180, "height": 760}, "reduced_motion": "reduce"}
PHONE = {
    "viewport": {"width": 390, "height": 780},
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
    "reduced_motion": "reduce",
}


@contextmanager
def served(photos: Path) -> Iterator[str]:
    """The page's address, on an index of the photos by two models."""
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / "photos", Path(folder) / "photos-small"]
        for place, model in zip(places, ("scan-flickr8k", "scan-small"), strict=True):
            with Index.create(place, model) as made:
                made.update(photos)
        seen = lambda name, size: None  # noqa: E731
        offer = Offer(open_indices(places, "cpu", LIMITS, seen), open_models(MODELS, "cpu", LIMITS, seen))
        config, ready = ServeConfig(port=0, limits=LIMITS), threading.Event()
        with bound_socket(config) as bound:
            server = make_server(make_app(offer, config), config, ready.set)
            thread = threading.Thread(target=server.run, args=([bound],))
            thread.start()
            ready.wait()
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
            server.should_exit = True
            thread.join()


def keep(page: Page, out: Path, name: str) -> None:
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(250)
    with Image.open(io.BytesIO(page.screenshot())) as shot:
        shot.convert("RGB").save(out / f"serve-{name}.webp", quality=82, method=6)
    print(f"{out / f'serve-{name}.webp'}: {(out / f'serve-{name}.webp').stat().st_size:,} bytes")


def take(browser: Browser, at: str, photos: Path, out: Path) -> None:
    def page(address: str, options: dict[str, object], **more: object) -> Page:
        opened = browser.new_context(**{**options, **more}).new_page()  # type: ignore[arg-type]
        opened.goto(at + address)
        return opened

    shown = page(QUERY, WIDE)
    shown.locator("#columns[aria-busy=false] .card").first.wait_for()
    keep(shown, out, "search")
    shown.locator(".card > .open").first.click()
    shown.locator("#detail button.word", has_text="horses").hover()
    keep(shown, out, "word")
    two = page("/?q=a+man+on+a+motorcycle&second=photos-small", WIDE, color_scheme="dark")
    two.locator("#columns[aria-busy=false] .card").first.wait_for()
    keep(two, out, "two-models")
    phone = page(QUERY, PHONE)
    phone.locator("#columns[aria-busy=false] .card").first.wait_for()
    phone.locator(".card > .open").first.click()
    phone.locator("#detail button.word", has_text="beach").tap()
    keep(phone, out, "phone")
    asked = page("/?tab=ask", WIDE, color_scheme="light")
    asked.locator("#file").set_input_files(photos / "000000214753.jpg")
    asked.locator("#text").fill("where are the people?")
    asked.get_by_role("button", name="Ask", exact=True).click()
    asked.locator(".answers").wait_for()
    asked.set_viewport_size({"width": 1180, "height": 1180})
    keep(asked, out, "ask")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    photos = ROOT / "photos"
    with served(photos) as at, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        take(browser, at, photos, given.out)
        browser.close()


if __name__ == "__main__":
    main()
