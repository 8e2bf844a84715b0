"""`saccade world make | show | info`."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from typer.testing import CliRunner

from saccade.cli.world import app
from saccade.world import World, open_world


def test_make_prints_the_splits_and_the_rate(tmp_path: Path) -> None:
    words = [
        "make",
        "pictures=10",
        "hard_groups=1",
        "novel=1",
        "size=32",
        "--workers",
        "1",
        "--out",
        str(tmp_path / "w"),
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "a minute" in result.output
    assert len(open_world(tmp_path / "w").split("train")) == 8


def test_show_draws_a_sheet_of_any_split(world: World, tmp_path: Path) -> None:
    for split in ("test", "hard"):
        out = tmp_path / f"{split}.png"
        result = CliRunner().invoke(
            app, ["show", str(world.folder), "--split", split, "--count", "4", "--out", str(out)]
        )
        assert result.exit_code == 0, result.output
        with Image.open(out) as sheet:
            assert sheet.width > 1000
            assert len(sheet.convert("RGB").getcolors(1 << 24) or []) > 1000


def test_info_counts_and_checks(world: World) -> None:
    result = CliRunner().invoke(app, ["info", str(world.folder), "--check"])
    assert result.exit_code == 0, result.output
    assert "every byte is as written" in result.output
    assert "words" in result.output
