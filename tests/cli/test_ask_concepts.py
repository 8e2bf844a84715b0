"""Concept learners and their parser as a user has them: trained, evaluated, asked, drawn and put to claims."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from saccade.data import DataConfig
from saccade.features import open_questions
from saccade.world import make_world
from saccade.world.store import WorldConfig

Run = Callable[..., tuple[int, str, str]]
SMALL = ("data=world", "pictures=20", "epochs=1", "checkpoint_every=0")
ABOUT_CONCEPTS = "is red the same kind of thing as green?"
pytestmark = pytest.mark.usefixtures("few_foils")


def test_a_concept_learner_is_trained_asked_drawn_and_evaluated_with_a_parser(saccade: Run, tmp_path: Path) -> None:
    run, parser, picture = tmp_path / "vcml", tmp_path / "parser", tmp_path / "toys.png"
    assert saccade("train", "vcml", *SMALL, "hidden=8", "dim=8", "-o", run)[0] == 0
    assert saccade("train", "program_parser", *SMALL, "word_dim=8", "dim=8", "-o", parser)[0] == 0
    Image.fromarray(make_world(WorldConfig(pictures=20)).split("test").image(0)).save(picture)

    code, out, _ = saccade("ask", picture, "how many cubes are there?", "-m", run, "-o", tmp_path / "steps.png")
    assert code == 0
    assert "1  all things → " in out
    assert "3  how many in 2? → " in out
    assert Image.open(tmp_path / "steps.png").width > 800
    code, out, _ = saccade("ask", ABOUT_CONCEPTS, "-m", run, "-o", tmp_path / "map.png", "--json")
    assert code == 0
    assert {answer["text"] for answer in json.loads(out)} == {"yes", "no"}
    assert Image.open(tmp_path / "map.png").width > 1500

    code, out, _ = saccade("eval", run, "--parser", parser, "--json", tmp_path / "figures.json")
    assert code == 0
    figures = json.loads((tmp_path / "figures.json").read_text())["results"][str(run)]
    assert 0 <= figures["parsed_exactly"] < 50  # an epoch of few questions teaches nothing
    assert figures["accuracy"] < 50  # and so it is asked something else
    code, out, _ = saccade("eval", parser)
    assert code == 0
    assert "valid" in out

    for words, sentence in (
        ((picture, "is the cube there?", "-m", run), '"is the cube there?" is not worded as the questions'),
        (("what colour is the cube?", "-m", run), "about a picture: give one before the question"),
        ((picture, "is there a cube?", "-m", run, "--parser", run), "vcml is no parser"),
        ((picture, "is there a cube?", "-m", parser), "makes programs of questions"),
        ((picture, "is there a cube?", "-m", run, "-o", tmp_path / "steps.gif"), "is saved as one of"),
        ((picture, "is there a cube?", "-m", run, "-o", tmp_path / "steps.html"), "is saved as one of"),
    ):
        code, out, err = saccade("ask", *words)
        assert code == 2
        assert sentence in err
        assert err.count("\n") == 1
        assert not out
    assert not (tmp_path / "steps.gif").exists()


def test_the_true_boxes_are_those_of_the_things_and_the_picture() -> None:
    found = open_questions(DataConfig("world", pictures=20, extractor="true-boxes"), "test")
    part = make_world(WorldConfig(pictures=20)).split("test")
    assert found.pictures.extractor == "true-boxes"
    for n in range(len(part)):
        boxes = found.pictures.regions.get(n).boxes
        assert boxes[:-1] == pytest.approx(part.boxes(n), abs=1e-3)
        assert boxes[-1] == pytest.approx([0, 0, 1, 1])


def test_claims_of_concept_learners_run_from_end_to_end(saccade: Run, tmp_path: Path) -> None:
    names = ("vcml-biased", "vcml-zero-shot")
    small = ("pictures=20", "epochs=1", "hidden=4", "dim=4")
    words = ("--data", "world", "--seeds", 1, "--rate", 1, *small, "--runs", tmp_path / "runs", "-o", tmp_path / "out")
    code, out, err = saccade("claims", *names, *words)
    assert code == 0, err
    for name in names:
        assert f"{name} on world, test: " in out
        assert (tmp_path / "out" / f"{name}.md").is_file()
    assert len(list((tmp_path / "runs" / "world").iterdir())) == 4
