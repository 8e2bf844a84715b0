"""No verb writes over a file that it reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from saccade.cli import OPTIONS, WRITTEN, WRITTEN_BY
from toy_runs import make_features, make_run

Saccade = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A photo under three names and one that the verbs choose themselves, captions, a parse and a run."""
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (40, 30), "red").save(tmp_path / "photos" / "a.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "photos" / "a.png")
    (tmp_path / "twin.png").hardlink_to(tmp_path / "photos" / "a.png")
    for name in ("regions.png", "why.png"):
        Image.new("RGB", (40, 30), "blue").save(tmp_path / name)
    (tmp_path / "list.txt").write_text("photos/a.png\n")
    (tmp_path / "said.json").write_text('[{"image_id": 1, "caption": "a dog"}]')
    (tmp_path / "said.txt").write_text("a dog runs\n")
    make_run(tmp_path / "run", make_features(tmp_path / "features"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("detect photos/a.png -o photos/a.png", "photos/a.png"),
        ("detect photos/a.png -o link.png", "link.png"),
        ("detect link.png -o twin.png", "twin.png"),
        ("detect photos -o twin.png", "twin.png"),
        ("detect regions.png", "regions.png"),
        ("explain why.png a-dog", "why.png"),
        ("explain photos/a.png a-dog -o twin.png", "twin.png"),
        ("graph photos/a.png -o photos/a.png", "photos/a.png"),
        ("densecap photos -o photos/a.png", "photos/a.png"),
        ("densecap photos/a.png --json twin.png", "twin.png"),
        ("caption photos/a.png --attention link.png", "link.png"),
        ("caption list.txt --json link.png", "link.png"),
        ("caption photos --attention photos", "photos/a.png"),
        ("parse -f said.txt -o said.txt", "said.txt"),
        ("parse -f said.txt --picture said.txt", "said.txt"),
        ("metrics score said.json said.json --each said.json", "said.json"),
        ("eval run --json run/best/config.json", "run/best/config.json"),
        ("eval run --captions run/config.yaml", "run/config.yaml"),
        ("eval run root=features --json features/test_caps.txt", "features/test_caps.txt"),
        ("leaderboard run -o run/config.yaml", "run/config.yaml"),
        ("leaderboard --from said.json --json said.json", "said.json"),
        ("calibrate run -o run/best/model.safetensors", "run/best/model.safetensors"),
        ("verify scan said.json --json said.json", "said.json"),
    ],
)
def test_what_is_read_is_not_written(place: Path, saccade: Saccade, words: str, kept: str) -> None:
    before = (place / kept).read_bytes()
    code, _, error = saccade(*words.split())
    assert (code, len(error.strip().splitlines())) == (2, 1)
    assert "is read, so it cannot be written: name another" in error
    assert (place / kept).read_bytes() == before


def test_a_file_beside_what_is_read_is_written_again(place: Path, saccade: Saccade) -> None:
    for _ in range(2):
        assert saccade("parse", "-f", "said.txt", "-o", "parses.conllu")[0] == 0
        assert saccade("eval", "run", "--json", "run/figures.json", "--device", "cpu")[0] == 0


def test_every_option_that_says_where_to_write_is_checked() -> None:
    """A new option whose help says that it writes or draws must be known as one."""
    telling = ("Write ", "Where to draw", "Draw what", "Draw how", "Draw the scene graph", "Draw rsum", "Keep what a")
    for command, options in OPTIONS.items():
        for name, (_, told) in options.items():
            if told.startswith(telling):
                assert name in (*WRITTEN, *WRITTEN_BY.get(command, ())), (command, name)
