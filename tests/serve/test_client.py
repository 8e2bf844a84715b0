"""`saccade.open_index`: the same answers from an index on this machine and from a service, shown in notebooks."""

from __future__ import annotations

import html
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from served import EASY, listening, make_offer

import saccade
from saccade.core.errors import SaccadeError
from saccade.search.client import IndexClient
from saccade.serve.config import ServeConfig

TEXT = "a large red cube"


@pytest.fixture(scope="module")
def local(shelf: Path) -> Iterator[IndexClient]:
    with saccade.open_index(shelf / "toys") as client:
        yield client


def test_a_service_answers_as_the_index_does(live: str, local: IndexClient, shelf: Path) -> None:
    with saccade.open_index(live) as remote:
        assert len(remote) == len(local)
        assert "toys" in repr(remote)
        for asked in (
            {"text": TEXT, "top": 4},
            {"text": f"{TEXT} -sphere", "plus": ["a cube"], "where": "width > 100", "exact": True},
            {"like_id": "01.png", "region": (0.0, 0.0, 0.5, 0.5), "top": 3},
        ):
            here, there = local.query(**asked), remote.query(**asked)
            assert [hit.id for hit in here] == [hit.id for hit in there]
            np.testing.assert_allclose([hit.score for hit in here], [hit.score for hit in there], atol=1e-5)
            assert [hit.words for hit in here] == [hit.words for hit in there] or asked.get("like_id")
            assert here.found.total == there.found.total
            assert there[0].probability == pytest.approx(here[0].probability) if here[0].probability else True
        photo = shelf / "photos" / "01.png"
        for client in (local, remote):
            found = client.query(like=photo, top=3)
            assert {hit.id for hit in found[:2]} == {"01.png", "same.png"}
        why, reason = local.explain("02.png", TEXT), remote.explain("02.png", TEXT)
        assert why.words == reason.words
        np.testing.assert_allclose(reason.weights, why.weights, atol=1e-4)
        np.testing.assert_allclose(reason.boxes, why.boxes, atol=1e-3)
        assert reason.score == pytest.approx(why.score, abs=1e-5)
        assert reason.unknown == why.unknown
        assert reason.image.shape == why.image.shape


def test_another_index_of_the_service_by_its_name(live: str) -> None:
    other = saccade.open_index(live, name="toys-other")
    found = other.query(TEXT, top=3)
    assert not found.found.fits
    assert "probably nothing here fits" in repr(found)
    with pytest.raises(SaccadeError, match="there are: toys, toys-other"):
        saccade.open_index(live, name="elsewhere")


def test_a_notebook_shows_pictures_and_fetches_nothing(local: IndexClient, live: str) -> None:
    for client in (local, saccade.open_index(live)):
        shown = client.query(TEXT, top=2)._repr_html_()
        assert re.fullmatch(r'<iframe sandbox="allow-scripts" [^<>]*></iframe>', shown)
        page = html.unescape(shown.split('srcdoc="')[1])
        assert page.count("data:image/jpeg;base64,") >= 2
        assert "data:image/png;base64," in page  # heat maps
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
        assert "Content-Security-Policy" in page
    like = local.query(like_id="01.png", top=2)._repr_html_()
    assert html.unescape(like).count("data:image/jpeg;base64,") == 2
    assert "Nothing found" in local.query(TEXT, where="width > 100000")._repr_html_()


def test_what_a_picture_is_called_is_no_markup(local: IndexClient) -> None:
    """Ids come from file names, or from a server."""
    found = local.query(like_id="01.png", top=1)
    hit = found.found.hits[0]
    vars(hit)["id"] = '"><script>alert(1)</script>'  # frozen, but not for this
    page = found.page.__func__(_WithThumbnail(found))  # type: ignore[attr-defined]
    assert "<script>alert" not in page


class _WithThumbnail:
    """An answer whose client has a picture for any id."""

    def __init__(self, answer: object) -> None:
        self.query, self.found = answer.query, answer.found  # type: ignore[attr-defined]
        self.client = self

    def thumbnail(self, id: str) -> bytes:
        return b"jpeg"

    def explanations(self, most: int) -> list[object]:
        return []


def test_keys_are_sent_and_never_passed_on(shelf: Path) -> None:
    config = ServeConfig(port=0, limits=EASY, api_keys=("sesame-0123456789",))
    with listening(make_offer(shelf), config) as address:
        assert len(saccade.open_index(address, key="sesame-0123456789").query(TEXT, top=2)) == 2
        with pytest.raises(SaccadeError, match="API key"):
            saccade.open_index(address)

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/stolen")
            self.end_headers()
            asked.append(self.path)

        def log_message(self, *_: object) -> None:
            pass

    asked: list[str] = []
    with http.server.HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        with pytest.raises(SaccadeError, match="302"):
            saccade.open_index(f"http://127.0.0.1:{server.server_address[1]}", key="secret")
        server.shutdown()
    assert asked == ["/models"]


def test_mistakes_are_told_in_the_services_own_words(live: str, local: IndexClient, tmp_path: Path) -> None:
    remote = saccade.open_index(live)
    for client in (local, remote):
        with pytest.raises(SaccadeError, match="colour"):
            client.query(TEXT, where="colour = 'red'")
        with pytest.raises(SaccadeError, match="sentence or a picture"):
            client.query()
    with pytest.raises(SaccadeError, match="one sentence and a condition"):
        remote.query(like=np.zeros((9, 9, 3), np.uint8), minus=["a ball"])
    with pytest.raises(SaccadeError, match="does not answer"):
        saccade.open_index("http://127.0.0.1:9")
    with pytest.raises(SaccadeError, match="no address"):
        saccade.open_index("http://me:secret@127.0.0.1")
    with pytest.raises(SaccadeError, match="leave model= out"):
        saccade.open_index(live, "scan-flickr8k")
    with pytest.raises(SaccadeError, match="no service"):
        saccade.open_index(tmp_path, key="x")
    with pytest.raises(SaccadeError, match="no index"):
        saccade.open_index(tmp_path)
