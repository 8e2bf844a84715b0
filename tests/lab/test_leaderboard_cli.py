"""`saccade leaderboard` and `saccade eval --ensemble`, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toy_runs import make_features, make_run, saccade_command


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs below runs/, and their features."""
    place = tmp_path_factory.mktemp("place")
    features = make_features(place / "features")
    for system in ("scan", "vse"):
        for seed in (0, 1):
            make_run(place / "runs" / f"{system}-{seed}", features, system, seed=seed)
    return place


@pytest.fixture(autouse=True)
def _in_its_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def sentence(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert saccade_command(*words) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    return told.removeprefix("error: ").strip()


def test_without_a_word_all_finished_runs_take_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = tmp_path / "board.md", tmp_path / "board.json", tmp_path / "pictures" / "board.png"
    given = zip(("-o", "--json", "--plot"), files, strict=True)
    assert saccade_command("leaderboard", "--ensembles", *(word for pair in given for word in pair)) == 0
    assert "precomp/test: 6 pictures, 30 texts" in capsys.readouterr().out
    page, values = files[0].read_text(), json.loads(files[1].read_text())
    assert "Made by `saccade leaderboard --ensembles`." in page
    assert "](pictures/board.png)" in page
    assert files[2].exists()
    single = [row for row in values["rows"] if row["kind"] == "single"]
    assert {row["system"]: len(row["models"]) for row in single} == {"scan": 2, "vse": 2}


def test_a_page_is_written_anew_from_figures_measured_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, figures, again = tmp_path / "board.md", tmp_path / "board.json", tmp_path / "again.md"
    assert saccade_command("leaderboard", "runs/scan-0", "runs/vse-0", "-o", first, "--json", figures) == 0
    assert saccade_command("leaderboard", "--from", figures, "-o", again) == 0
    assert again.read_text() == first.read_text()
    capsys.readouterr()
    assert "give no models" in sentence(capsys, "leaderboard", "runs/scan-0", "--from", figures)
    (tmp_path / "other.json").write_text('{"rows": [{}]}')
    assert "other.json is no leaderboard" in sentence(capsys, "leaderboard", "--from", tmp_path / "other.json")


def test_words_choose_models_names_data_and_split(place: Path, tmp_path: Path) -> None:
    out, words = tmp_path / "board.json", [f"root={place / 'features'}", "split=dev"]
    assert saccade_command("leaderboard", "mine=runs/scan-0,runs/scan-1", "runs/vse-0", *words, "--json", out) == 0
    values = json.loads(out.read_text())
    assert (values["data"], values["split"], values["chosen_here"]) == ("precomp", "dev", True)
    assert {(row["system"], row["variant"]) for row in values["rows"]} == {("scan", "mine"), ("vse", "")}
    # a page names data where users keep them, not where they lay
    assert values["command"].endswith("runs/vse-0 root=data/features --split dev")


def test_what_cannot_be_compared_gets_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "runs/nope is no model folder" in sentence(capsys, "leaderboard", "runs/scan-0", "runs/nope")
    told = sentence(capsys, "leaderboard", "runs/scan-0", "flub=3")
    assert told.startswith("flub=3 sets nothing of the data, and 3 is no model folder")
    told = sentence(capsys, "leaderboard", "--runs", tmp_path)
    assert told.startswith(f"there is no finished run of a matching model below {tmp_path}: train one")
    assert "no finished run of a matching model on flickr8k below runs" in sentence(
        capsys, "leaderboard", "data=flickr8k"
    )
    assert "no data set" in sentence(capsys, "leaderboard", "runs/scan-0", "data=flickr9k")


def test_a_task_without_a_benchmark_has_no_leaderboard(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model": "updown"}')
    told = sentence(capsys, "leaderboard", "runs/scan-0", tmp_path)
    assert "is a captioner, and there is no leaderboard of captioners, only of matching models" in told


def test_an_ensemble_of_one_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    told = sentence(capsys, "eval", "runs/scan-0", "--ensemble")
    assert told == "an ensemble needs two models or more, and runs/scan-0 is the only one given"
    assert sentence(capsys, "eval", "runs/scan-0", "runs/scan-0", "--raw") == told  # the same one twice


def test_ways_of_averaging(tmp_path: Path) -> None:
    both, out = ("eval", "runs/scan-0", "runs/vse-0"), tmp_path / "eval.json"

    def ensemble(*words: str) -> dict[str, float]:
        assert saccade_command(*both, *words, "--json", out) == 0
        results: dict[str, dict[str, float]] = json.loads(out.read_text())["results"]
        assert list(results) == ["chance", *both[1:], "ensemble"]
        return results["ensemble"] if words != ("--weights", "1,0") else results["runs/scan-0"]

    assert ensemble("--weights", "1,0") == ensemble("--weights", "2,0")
    assert ensemble("--ensemble") == ensemble("--weights", "3,3")
    assert ensemble("--raw")


def test_folds_and_weights_are_checked_before_anything_is_scored(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a model was scored")

    monkeypatch.setattr("saccade.tasks.matching.evaluate.similarity_table", refuse)
    both = ("eval", "runs/scan-0", "runs/vse-0")
    assert "6 pictures cannot be cut into 4 folds" in sentence(capsys, *both, "--folds", "4")
    assert "numbers with commas" in sentence(capsys, *both, "--weights", "1;2")
    assert "2 models need 2 weights, not 3" in sentence(capsys, *both, "--weights", "1,2,3")
    assert "runs/nope is no model folder" in sentence(capsys, *both, "runs/nope")
    assert '"dim" is no setting of the data' in sentence(capsys, *both, "dim=3")


def test_chance_knows_about_folds(tmp_path: Path) -> None:
    out = tmp_path / "eval.json"
    assert saccade_command("eval", "runs/scan-0", "--folds", "3", "--json", out) == 0
    assert json.loads(out.read_text())["results"]["chance"]["t2i_r1"] == pytest.approx(50.0)  # two pictures a fold


def test_models_lists_systems_and_what_is_shipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert saccade_command("models", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    scan = next(row for row in listed["systems"] if row["name"] == "scan")
    assert scan["task"] == "matching"
    assert {"flickr8k", "world"} <= set(scan["recipes"])
    assert scan["import"]
    shipped = {row["name"]: row for row in listed["trained"]}
    assert shipped["scan-flickr8k"]["parameters"] == 36_700_160
    assert shipped["scan-small"]["parameters"] == 36_700_160, "with those it shares with the other"
    assert shipped["scan-small"]["bytes"] < 200_000
    assert saccade_command("models") == 0
    assert "scan-flickr8k" in capsys.readouterr().out
