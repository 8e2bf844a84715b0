"""`saccade world make | show | questions | concepts | info`."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from typer.testing import CliRunner

from saccade.cli.world import app
from saccade.core.errors import SaccadeError
from saccade.world import World, open_world
from saccade.world.questions.make import KINDS
from saccade.world.questions.metaconcepts import METACONCEPTS


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


def test_questions_shows_every_kind_with_its_program(world: World) -> None:
    words = ["questions", str(world.folder), "--split", "train"]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for kind in KINDS:
        assert kind in result.output
    assert "(scene)" in result.output
    one = CliRunner().invoke(app, [*words, "--kind", "query_colour", "--count", "2"], env={"COLUMNS": "200"})
    assert one.output.count("query_colour") == one.output.count("query[colour]") == 2


def test_questions_and_concepts_print_what_the_words_alone_say(world: World) -> None:
    words = ["questions", str(world.folder), "--balance", "--scenes", "20", "--kind", "exist"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    header, row = result.output.splitlines()
    assert header.split()[:6] == ["kind", "questions", "answers", "uniform", "majority", "question"]
    assert header.split()[-2:] == ["picture", "only"]
    assert row.split()[0:4:3] == ["exist", "50.0"]
    result = CliRunner().invoke(app, ["concepts", "--balance"])
    assert [line.split()[3] for line in result.output.splitlines()[1:]] == ["50.0"] * 5


def test_concepts_prints_each_kind_in_turn() -> None:
    result = CliRunner().invoke(app, ["concepts", "--count", "5"], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.output.splitlines()[1:]] == list(METACONCEPTS)
    assert isinstance(CliRunner().invoke(app, ["concepts", "--kind", "antonym"]).exception, SaccadeError)
    assert isinstance(CliRunner().invoke(app, ["questions", "--split", "devv"]).exception, SaccadeError)
