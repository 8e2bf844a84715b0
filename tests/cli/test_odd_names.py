"""Names with line breaks, terminal commands and marks of direction, in what verbs print and draw."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from saccade.cli import app
from saccade.cli.options import figure_table
from toy_runs import saccade_command

ODD = "two\nlines\t\x1b[31m\u202egpj.png"
SHOWN = "two\\nlines\\t\\x1b[31m\\u202egpj.png"


def photo(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((24, 32, 3), np.uint8)).save(path, format="PNG")
    return path


def is_plain(text: str) -> bool:
    return all(char == "\n" or unicodedata.category(char) not in ("Cc", "Cf") for char in text)


@pytest.mark.parametrize("verb", ["detect", "graph"])
def test_names_are_spelt_out_in_tables_and_drawings(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    photos = [photo(tmp_path / ODD), *([photo(tmp_path / f"2{ODD}")] if verb == "detect" else [])]
    out = tmp_path / f"out{ODD}"
    result = CliRunner().invoke(app, [verb, *map(str, photos), "-e", "world", "-o", str(out)], env={"COLUMNS": "400"})
    assert result.exit_code == 0, result.output
    assert is_plain(result.output)
    assert SHOWN in result.output
    assert f"out{SHOWN}" in result.output
    assert out.exists()


def test_an_error_is_one_line_whatever_the_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert saccade_command("explain", tmp_path / ODD, "a dog", "--model", tmp_path / f"run{ODD}") == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert is_plain(told)
    assert SHOWN in told


def test_headings_of_several_lines_stay_so() -> None:
    table = figure_table("a\nb", ("\n\nmodel", "picture\nR@1", "x\x1b[31m"))
    assert [column.header for column in table.columns] == ["\n\nmodel", "picture\nR@1", "x\\x1b[31m"]
    assert table.title == "a\\nb"
