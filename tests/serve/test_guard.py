"""What a service refuses: strangers, floods, bombs, slow clients, and every way out of the index."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from served import EASY, listening, make_offer

from saccade.core.errors import SaccadeError
from saccade.search.index import Index
from saccade.serve.app import make_app
from saccade.serve.config import Limits, ServeConfig, read_keys
from saccade.serve.guard import SESSION_SECONDS, Buckets, Keys
from saccade.serve.offer import Offer, open_indices
from saccade.serve.pictures import TooLarge, open_bounded

Service = Callable[..., TestClient]
KEY = "a-key-of-many-letters"
SECRET = b"the secret of another folder"


def error(answer: object) -> str:
    return str(answer.json()["error"])  # type: ignore[attr-defined]


# Ways out of the index


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e/%2e%2e/etc/passwd",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "..\\secret.txt",
        "more/../../secret.txt",
        "01.png%00.txt",
        "....//secret.txt",
    ],
)
def test_no_path_leads_out_of_the_index(service: Service, shelf: Path, path: str) -> None:
    (shelf / "secret.txt").write_bytes(SECRET)
    client = service()
    for place in ("/pictures/toys/", "/thumbnails/toys/", "/page/", "/"):
        answer = client.get(place + path)
        assert answer.status_code in (404, 400), answer.text
        assert SECRET not in answer.content
        assert b"root:" not in answer.content


@pytest.fixture
def exchanged(shelf: Path, tmp_path: Path) -> Iterator[tuple[Path, TestClient]]:
    """An index of one photo of its own, and a service of it."""
    (tmp_path / "photos").mkdir()
    photo = tmp_path / "photos" / "a.png"
    shutil.copy(shelf / "photos" / "04.png", photo)
    with Index.create(tmp_path / "index", str(shelf / "scan")) as made:
        made.update(tmp_path / "photos")
    offer = Offer(open_indices([tmp_path / "index"], "cpu", EASY, lambda name, size: None), [])
    yield photo, TestClient(make_app(offer, ServeConfig(limits=EASY)), base_url="http://localhost")
    offer.close()


@pytest.mark.parametrize("how", ["changed", "same size", "link", "pipe", "folder", "gone"])
def test_a_file_that_is_no_longer_what_was_indexed_is_not_served(
    exchanged: tuple[Path, TestClient], how: str, tmp_path: Path
) -> None:
    photo, client = exchanged
    size = photo.stat().st_size
    photo.unlink()
    if how == "changed":
        photo.write_bytes(SECRET)
    elif how == "same size":
        photo.write_bytes(SECRET.ljust(size))
    elif how == "link":
        (tmp_path / "secret.png").write_bytes(SECRET.ljust(size))
        photo.symlink_to(tmp_path / "secret.png")
    elif how == "pipe":
        os.mkfifo(photo)
    elif how == "folder":
        photo.mkdir()
    answer = client.get("/pictures/index/a.png")
    assert (answer.status_code, "since it was indexed" in error(answer)) == (410, True)
    assert SECRET not in answer.content
    assert client.get("/thumbnails/index/a.png").status_code == 200  # which the index itself holds


def test_what_leaves_has_no_notes_of_the_camera(shelf: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    exif = Image.Exif()
    exif[0x010F] = "a camera"
    Image.open(shelf / "photos" / "04.png").save(tmp_path / "photos" / "a.jpg", exif=exif)
    with Index.create(tmp_path / "index", str(shelf / "scan")) as made:
        made.update(tmp_path / "photos")
    offer = Offer(open_indices([tmp_path / "index"], "cpu", EASY, lambda name, size: None), [])
    client = TestClient(make_app(offer, ServeConfig(limits=EASY)), base_url="http://localhost")
    assert b"a camera" in (tmp_path / "photos" / "a.jpg").read_bytes()
    assert b"a camera" not in client.get("/pictures/index/a.jpg").content
    offer.close()


# Bombs and floods


def bomb(side: int) -> bytes:
    """A PNG of a few hundred bytes that says it has `side` × `side` pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8_000, 12_000, 60_000])
def test_a_bomb_is_refused_before_it_unpacks(service: Service, side: int) -> None:
    for address in ("/score", "/search"):
        answer = service().post(address, files={"file": bomb(side)}, data={"text": "a cube"})
        assert answer.status_code == 413
        assert "pixels" in error(answer)


def test_the_limit_of_pixels_is_that_of_the_service(tmp_path: Path) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    assert open_bounded(tmp_path / "a.png", 1200).size == (40, 30)
    with pytest.raises(TooLarge, match="40 × 30"):
        open_bounded(tmp_path / "a.png", 1199)


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n", b"<svg onload='alert(1)'/>"])
def test_what_is_no_picture_is_named_without_a_path(service: Service, content: bytes) -> None:
    answer = service().post("/caption", files={"file": ("../../x.png", content, "image/png")})
    assert answer.status_code == 400
    assert "the upload" in error(answer)
    assert "/tmp" not in answer.text
    assert "saccade-upload" not in answer.text


def test_an_upload_of_a_gigabyte_is_refused_by_its_length(live: str) -> None:
    """Before a byte of it is read."""
    host, port = live.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        head = f"POST /caption HTTP/1.1\r\nHost: {host}\r\nContent-Length: {1 << 30}\r\nContent-Type: image/png\r\n\r\n"
        line.sendall(head.encode())
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 413 ")


def test_an_upload_without_a_length_is_refused_while_it_comes(shelf: Path) -> None:
    limits = Limits(rate=1e4, burst=1e4, upload_bytes=1 << 20)
    with listening(make_offer(shelf, limits), ServeConfig(port=0, limits=limits)) as live:
        host, port = live.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as line:
            line.sendall(
                f"POST /caption HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n"
                'Content-Type: multipart/form-data; boundary="x"\r\n\r\n'.encode()
            )
            head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
            piece = b"%x\r\n%b\r\n"
            line.sendall(piece % (len(head), head))
            for _ in range(limits.upload_bytes >> 16):
                line.sendall(piece % (1 << 16, bytes(1 << 16)))
            assert line.recv(1 << 16).startswith(b"HTTP/1.1 413 ")  # though the upload never ends


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[" * 100_000,
        b'{"ids": "x"}',
        b"null",
        b"\xff\xfe",
        b'{"ids": [1e9]}',
        b'{"index": {}, "ids": []}',
        b"",
    ],
)
def test_malformed_json_is_refused_in_a_sentence(service: Service, body: bytes) -> None:
    answer = service().post("/copies", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert len(error(answer)) > 5
    assert body != b"{" or error(answer).startswith("the body is no JSON: ")


def test_a_query_of_ten_thousand_words_is_refused(service: Service) -> None:
    client = service()
    long = "cube " * 10_000
    for answer in (
        client.get("/search", params={"text": long[:60_000]}),
        client.get("/search", params={"text": "a " * 100}),
        client.get("/explain", params={"text": long, "id": "01.png"}),
        client.post("/score", data={"text": long}),
        client.get("/search", params={"text": "a cube", "minus": [long]}),
        client.get("/search", params={"text": "a cube", "where": long}),
    ):
        assert answer.status_code in (400, 422)
        assert len(answer.content) < 2000


def test_a_client_that_asks_too_often_waits(service: Service) -> None:
    client = service(Limits(rate=0.001, burst=3))
    answers = [client.get("/models") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert int(answers[-1].headers["retry-after"]) > 100
    assert client.get("/healthz").status_code == 200


def test_a_bucket_fills_again_and_forgets_the_quiet() -> None:
    now = [0.0]
    buckets = Buckets(rate=2, burst=2, most=2, clock=lambda: now[0])
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0.5]
    now[0] = 0.5
    assert buckets.take("a") == 0
    assert buckets.take("a") == 0.5
    buckets.take("b")
    buckets.take("c")
    assert buckets.take("a") == 0  # forgotten: three clients are one too many


# Who may ask


def test_a_service_with_keys_answers_those_who_have_one(service: Service) -> None:
    client = service(keys=(KEY, "another-key-of-letters"))
    assert client.get("/models").status_code == 401
    assert client.get("/models", headers={"Authorization": "Bearer wrong-key-of-letters"}).status_code == 401
    assert client.get("/models", headers={"Authorization": f"Bearer {KEY}"}).status_code == 200
    assert client.get("/models", headers={"X-API-Key": "another-key-of-letters"}).status_code == 200
    for path in ("/metrics", "/thumbnails/toys/01.png", "/openapi.json", "/search?text=a+cube"):
        assert client.get(path).status_code == 401
    for path in ("/", "/healthz", "/page/app.js"):
        assert client.get(path).status_code == 200


def test_a_browser_gets_a_session_for_a_key(service: Service) -> None:
    client = service(keys=(KEY,))
    assert client.post("/login", json={"key": "wrong"}).status_code == 401
    entered = client.post("/login", json={"key": KEY})
    assert entered.status_code == 204
    assert "httponly" in entered.headers["set-cookie"].lower()
    assert "samesite=strict" in entered.headers["set-cookie"].lower()
    assert KEY not in entered.headers["set-cookie"]
    assert client.get("/thumbnails/toys/01.png").status_code == 200
    client.cookies.clear()
    client.cookies.set("saccade_session", "made-up")
    assert client.get("/models").status_code == 401


def test_a_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    keys = Keys((KEY,), clock=lambda: now[0])
    cookie = {b"cookie": f"saccade_session={keys.session()}".encode()}
    assert keys.knows(cookie)
    now[0] = SESSION_SECONDS + 1.0
    assert keys.knows(cookie) is None


def test_keys_come_from_files_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text(f"{KEY}\n\n{KEY}2\n")
    monkeypatch.setenv("SACCADE_API_KEYS", f"{KEY}3")
    assert read_keys([f"@{tmp_path / 'keys'}", KEY]) == (f"{KEY}3", KEY, f"{KEY}2")
    with pytest.raises(SaccadeError, match="16 or more"):
        read_keys(["short"])
    with pytest.raises(SaccadeError, match="does not exist"):
        read_keys([f"@{tmp_path / 'none'}"])


def test_another_sites_name_or_form_gets_nothing(service: Service) -> None:
    client = service()
    assert client.get("/models", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/models", headers={"Host": "127.evil.example"}).status_code == 421
    assert client.get("/models", headers={"Host": "127.0.0.1:80"}).status_code == 200
    assert client.get("/models", headers={"Host": "[::1]:80"}).status_code == 200
    crossed = client.post("/copies", json={"ids": []}, headers={"Sec-Fetch-Site": "cross-site"})
    assert crossed.status_code == 403


# Slow clients, and failures


def test_slow_clients_are_let_go_while_others_are_answered(shelf: Path) -> None:
    limits = Limits(rate=1e4, burst=1e4, header_seconds=0.5, body_seconds=0.5)
    with listening(make_offer(shelf, limits), ServeConfig(port=0, limits=limits)) as live:
        host, port = live.removeprefix("http://").split(":")
        slow = [socket.create_connection((host, int(port)), timeout=30) for _ in range(20)]
        for line in slow[:10]:
            line.sendall(b"GET /healthz HTT")
        for line in slow[10:]:
            line.sendall(f"POST /copies HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\r\n{{".encode())
        with socket.create_connection((host, int(port)), timeout=30) as quick:
            quick.sendall(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            assert quick.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        assert all(line.recv(1 << 16) == b"" for line in slow[:10])  # closed
        assert all(line.recv(1 << 16).startswith(b"HTTP/1.1 408 ") for line in slow[10:])
        for line in slow:
            line.close()


def test_what_goes_wrong_inside_is_told_to_nobody(shelf: Path) -> None:
    offer = make_offer(shelf)

    def broken(ids: object) -> None:
        raise RuntimeError("a password of the inside")

    offer.indices["toys"].copies = broken  # type: ignore[assignment, method-assign]
    client = TestClient(
        make_app(offer, ServeConfig(limits=EASY)), base_url="http://localhost", raise_server_exceptions=False
    )
    answer = client.post("/copies", json={"ids": ["01.png", "02.png"]})
    assert answer.status_code == 500
    assert set(json.loads(answer.content)) == {"error"}
    assert "password" not in answer.text
    offer.close()


def test_a_picture_of_many_megapixels_is_shown_small(service: Service, tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.new("RGB", (3000, 2000), "red").save(out, "JPEG")
    said = service().post("/caption", files={"file": out.getvalue()}).json()
    assert len(said["picture"]) < 60_000
