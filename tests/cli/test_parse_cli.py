"""`saccade parse`: what it prints, writes and draws, and what it says where it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from saccade.cli import app
from saccade.core.errors import SaccadeError
from saccade.language import load_parser


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["parse", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_things_attributes_and_relations_are_printed() -> None:
    printed = run("a brown dog chases two [cats]")
    for line in ("a brown dog chases two [cats]", "dog  brown", "chases two"):
        assert line in printed


def test_files_are_read_and_written(tmp_path: Path) -> None:
    captions = tmp_path / "captions.txt"
    captions.write_text("a dog runs\n\na red ball on a box\n" + "two men sit\n" * 30)
    assert "and 12 more" in run("--file", str(captions), "-o", str(tmp_path / "parses.conllu"))
    texts = ["a dog runs", "a red ball on a box"]
    assert load_parser(f"file:{tmp_path / 'parses.conllu'}").parse(texts) == load_parser("rules").parse(texts)
    run("a red ball on a box", "-o", str(tmp_path / "graphs.json"))
    value = json.loads((tmp_path / "graphs.json").read_text())
    assert value["parser"] == "rules"
    assert value["sentences"][0]["relations"] == [[0, "on", 1]]


def test_a_scene_graph_is_drawn(tmp_path: Path) -> None:
    run("a dog and a cat near a red box", "--picture", str(tmp_path / "graph.png"))
    with Image.open(tmp_path / "graph.png") as picture:
        assert picture.width > 400
        assert len(picture.getcolors(1 << 20) or ()) > 10


def test_semantic_roles_are_printed_written_and_drawn(tmp_path: Path) -> None:
    graphs, drawn = tmp_path / "graphs.json", tmp_path / "roles.png"
    printed = run("--roles", "a man throws a red ball to his dog", "-o", str(graphs), "--picture", str(drawn))
    for line in ("throws", "ARG0  a man", "ARG1  a red ball", "ARG2  to his dog"):
        assert line in printed
    assert "ARG0  a man" in run("--roles", "a man throws a red ball to his dog", "-p", f"roles:{graphs}")
    assert "NOUN  two cars" in run("--roles", "two cars")
    assert "no actions and no things" in run("--roles", "...")
    with Image.open(drawn) as picture:
        assert len(picture.getcolors(1 << 20) or ()) > 10


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "give at least one sentence"),
        ((" ",), "give at least one sentence"),
        (("a dog", "-o", "parses.txt"), "parses.txt"),
        (("a dog", "--picture", "graph.gif"), "graph.gif"),
        (("a dog", "--parser", "rulez"), 'did you mean "rules"'),
        (("a dog", "--roles", "-o", "parses.conllu"), "role graphs"),
        (("a dog", "--roles", "-p", "roles:nowhere.json"), "nowhere.json does not exist"),
        (("a dog", "--roles", "-p", "roles:"), "names a file of role graphs"),
        (("--file", "nowhere.txt"), "nowhere.txt does not exist"),
    ],
)
def test_mistakes_are_answered(words: tuple[str, ...], expected: str) -> None:
    with pytest.raises(SaccadeError, match=expected):
        run(*words)
