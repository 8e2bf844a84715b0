"""Referring as a user has it: trained, evaluated among true and proposed boxes, asked by expression and by dialog."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from saccade.tasks.predict import load
from saccade.tasks.referring.predict import PictureReferrer
from saccade.world import WorldConfig, make_world
from toy_runs import saccade_command

Run = Callable[..., tuple[int, str, str]]
WORDS = ("data=world", "pictures=40", "steps=3", "batch_size=8", "checkpoint_every=0")
SMALL = ("dim=8", "text_dim=8", "word_dim=8", "attention_dim=8", "referring_dim=8", "category_dim=4")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("refer") / "run"
    assert saccade_command("train", "plan", *WORDS, *SMALL, "-o", folder) == 0
    return folder


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = make_world(WorldConfig(pictures=40))
    part = world.split("dev")
    number = max(range(len(part)), key=lambda n: len(part.scene(n).things))
    path: Path = tmp_path_factory.mktemp("pictures") / "scene.png"
    Image.fromarray(part.image(number)).save(path)
    return path


def test_true_and_proposed_boxes_are_chosen_among(saccade: Run, run: Path, tmp_path: Path) -> None:
    for words, among in (((), "the data set's boxes"), (("--proposed",), "proposed boxes")):
        code, out, err = saccade("eval", run, "pictures=40", "--json", tmp_path / "figures.json", *words)
        assert code == 0, err
        assert "at random" in out
        found = json.loads((tmp_path / "figures.json").read_text())
        assert found["among"].startswith(among)
        assert {"accuracy", "expressions", "dialogs", "accuracy_ordinal"} <= found["results"][str(run)].keys()
    assert found["results"]["upper bound"]["accuracy"] > 80


def test_an_expression_ranks_what_a_detector_finds(saccade: Run, run: Path, picture: Path, tmp_path: Path) -> None:
    drawn = tmp_path / "which.png"
    code, out, err = saccade("refer", picture, "the small red thing", "--model", run, "-o", drawn, "--top", 3)
    assert code == 0, err
    rows = out.splitlines()
    assert rows[0].split()[0] == "1"
    assert rows[-1] == f"the picture is in {drawn}"
    assert len(rows) <= 4
    chances = [float(row.split()[1]) for row in rows[:-1]]
    assert chances == sorted(chances, reverse=True)
    with Image.open(drawn) as shown:
        assert min(shown.size) > 400


def test_boxes_of_ones_own_are_the_candidates(saccade: Run, run: Path, picture: Path, tmp_path: Path) -> None:
    given = tmp_path / "boxes.json"
    given.write_text(json.dumps({"scene.png": [[0, 0, 64, 64], [64, 64, 128, 128]]}))
    code, out, err = saccade("refer", picture, "the cube", "--model", run, "--boxes", given, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert sorted(one["box"] for one in found) == [[0, 0, 64, 64], [64, 64, 128, 128]]
    assert sum(one["probability"] for one in found) == pytest.approx(1)
    code, out, _ = saccade("refer", picture, "the cube", "--model", run, "--boxes", given)
    assert sorted(row.partition("  (")[2] for row in out.splitlines()) == ["0, 0, 64, 64)", "64, 64, 128, 128)"]


def test_a_dialog_narrows_turn_by_turn(
    saccade: Run, run: Path, picture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, drawn = tmp_path / "turns.txt", tmp_path / "turns.png"
    turns.write_text("is it red? no\n\nis it a cube? yes\n")
    code, of_file, err = saccade("refer", picture, "--dialog", turns, "--model", run, "-o", drawn)
    assert code == 0, err
    with Image.open(drawn) as shown:
        assert shown.width > 3 * 300  # before, and after each turn
    pairs = tmp_path / "turns.json"
    pairs.write_text(json.dumps([["is it red?", "no"], ["is it a cube", "yes"]]))
    code, of_pairs, err = saccade("refer", picture, "--dialog", pairs, "--model", run)
    assert code == 0, err
    assert of_pairs.splitlines() == of_file.splitlines()[:-1]
    typed = "is it red? no\nit is a cube\nis it a cube? yes\n\nis it large? no\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    code, out, err = saccade("refer", picture, "--dialog", "-", "--model", run)
    assert code == 0
    assert 'note: left out: a question ending in "?"' in err
    assert "after 2: " in err
    assert "after 3: " not in err  # an empty line ends it
    assert out.splitlines() == of_file.splitlines()[:-1]


def test_every_step_is_shown_by_explain(run: Path, picture: Path) -> None:
    referrer = load(run, kind=PictureReferrer)
    found = referrer.explain(picture, "the small cube")
    assert found.words[:3] == ("the", "small", "cube")
    assert found.words[3].startswith("→ ")
    assert found.weights.sum(axis=1) == pytest.approx([1] * 4)
    assert referrer.explain(picture, "is it red? no\nis it a cube? yes").words[0] == "is it red? no"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "give either an expression"),
        (("the cube", "--dialog", "-"), "give either an expression"),
        (("--dialog", "missing.txt", "--model", "RUN"), "missing.txt"),
        (("--dialog", "empty.txt", "--model", "RUN"), "empty.txt holds no dialog"),
        (("--dialog", "bare.txt", "--model", "RUN"), 'bare.txt, line 3: a question ending in "?" and its answer'),
        (("--dialog", "open.txt", "--model", "RUN"), "open.txt is not valid JSON: "),
        (("--dialog", "open.txt", "--model", "RUN"), "at line 2"),
        (("--dialog", "pairs.json", "--model", "RUN"), 'pairs.json, pair 2: ["is it red?", "yes"] was expected, not'),
        (("zzz qqq", "--model", "RUN"), "zzz"),
        (("the cube", "--model", "RUN", "--detector", "grid:world/4"), "finds no things to choose among"),
        (("the cube", "--model", "RUN", "--boxes", "none.json"), "has boxes for none of the 1 pictures"),
        (
            ("the cube", "--model", "RUN", "--boxes", "outside.json"),
            "outside.json, scene.png: the box (64, 64, 500, 128) leaves the picture of 128 × 128 pixels",
        ),
        (("the cube", "--model", "RUN", "-o", "which.txt"), "which.txt"),
    ],
)
def test_mistakes_get_one_sentence(
    words: tuple[str, ...],
    sentence: str,
    saccade: Run,
    run: Path,
    picture: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("\n")
    Path("bare.txt").write_text("is it red? no\n\nit is a cube\n")
    Path("open.txt").write_text('[["is it red?", "no"],\n["is it a cube?", yes]]')
    Path("pairs.json").write_text('[["is it red?", "no"], ["is it a cube?"]]')
    Path("none.json").write_text(json.dumps({"other.png": [[0, 0, 1, 1]]}))
    Path("outside.json").write_text(json.dumps({"scene.png": [[0, 0, 64, 64], [64, 64, 500, 128]]}))
    given = sorted(path.name for path in tmp_path.iterdir())
    code, _, err = saccade("refer", picture, *(str(run) if word == "RUN" else word for word in words))
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == given
