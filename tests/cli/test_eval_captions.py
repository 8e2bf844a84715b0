"""`saccade eval` of captioners: metrics of what they say, its file, and what does not go together."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from saccade.cli.models import next_steps
from saccade.core.files import read_json, write_json
from saccade.decoding import DecodingConfig
from saccade.metrics import CAPTION_METRICS, caption_report
from saccade.tasks import find_task
from saccade.tasks.captioning.evaluate import LANGUAGE, own_decoding
from saccade.tasks.evaluator import results_files
from saccade.training.run import load_run_config
from saccade.training.trainer import FitResult
from toy_runs import IMAGES, SENTENCES, make_features, make_run, saccade_command


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    features = make_features(tmp_path / "features")
    for system in ("updown", "adaptive", "scan"):
        make_run(tmp_path / system, features, system)
    return tmp_path


def test_the_figures_are_those_of_the_captions_that_are_kept(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["updown", "--split", "test", "--num-beams", "2", "--captions", "said.json", "--json", "figures.json"]
    assert saccade_command("eval", *words) == 0
    printed = capsys.readouterr().out
    said = json.loads(Path("said.json").read_text())
    assert len(said) == IMAGES
    wanted = caption_report([row["caption"] for row in said], [SENTENCES[i * 5 : i * 5 + 5] for i in range(IMAGES)])
    told = json.loads(Path("figures.json").read_text())
    assert (told["split"], told["pictures"]) == ("test", IMAGES)
    found = told["results"]["updown"]
    for name, label in CAPTION_METRICS.items():
        if name != "meteor":  # which may know synonyms here
            assert found[name] == pytest.approx(100 * wanted[name])
        assert label in printed
    assert {name: found["language"][name] for name in LANGUAGE} == pytest.approx({n: wanted[n] for n in LANGUAGE})
    assert (found["decoding"]["strategy"], found["decoding"]["num_beams"]) == ("beam", 2)
    assert "beam search of 2" in printed
    assert "meteor matches by" in printed


def test_several_captioners_stand_side_by_side_and_keep_a_file_each(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert saccade_command("eval", "updown", "adaptive", "--captions", "said.json", "--json", "figures.json") == 0
    assert Path("said-updown.json").exists()
    assert Path("said-adaptive.json").exists()
    assert list(json.loads(Path("figures.json").read_text())["results"]) == ["updown", "adaptive"]
    assert "greedy" in capsys.readouterr().out  # as in the runs' own evaluations
    files = results_files(Path("a/said.json"), ["x/best", "y/best"])
    assert list(files.values()) == [Path("a/said-1.json"), Path("a/said-2.json")]


def test_captions_are_found_as_in_the_run_unless_told_otherwise(runs: Path) -> None:
    make_run(runs / "other", runs / "features", "updown", ("task.decoding.strategy=beam", "task.decoding.num_beams=4"))
    found = own_decoding(load_run_config("other").task)
    assert (found.strategy, found.num_beams) == ("beam", 4)
    assert own_decoding(None) == DecodingConfig(strategy="greedy")
    assert saccade_command("eval", "other/best", "data=precomp", "root=features", "--json", "figures.json") == 0
    (told,) = json.loads(Path("figures.json").read_text())["results"].values()
    assert told["decoding"]["strategy"] == "greedy"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["scan", "updown"], "scan is a matcher and updown a captioner"),
        (["scan", "--num-beams", "3"], "--num-beams is for captioners, and scan is a matcher"),
        (["updown", "--folds", "2"], "--folds is for matchers, and updown is a captioner"),
        (["updown", "adaptive", "--ensemble"], "--ensemble is for matchers, and updown is a captioner"),
        (["scan", "--captions", "said.json"], "--captions is for captioners"),
        (["updown", "--split", "tset"], "tset"),
        (["updown", "nothing"], "nothing is no model folder"),
    ],
)
def test_what_does_not_go_together_is_told(
    words: list[str], sentence: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert saccade_command("eval", *words) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert sentence in told


def test_training_closes_with_the_figure_that_chose_the_best_and_what_to_do_next(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no test split, nobody knows what made the features, and the folder's name has all that breaks words."""
    make_features(runs / "train", ("train", "dev"))
    sizes = ["dim=8", "word_dim=4", "attention_dim=4", "min_count=1", "steps=3", "batch_size=10", "accelerator=cpu"]
    folder = "my run's=1"
    assert saccade_command("train", "updown", "data=precomp", f"root={runs / 'train'}", "-o", folder, *sizes) == 0
    printed = capsys.readouterr().out
    assert "best at step 3: cider_d " in printed
    (command,) = [line.removeprefix("next: ") for line in printed.splitlines() if line.startswith("next: ")]
    words = shlex.split(command)
    assert words == ["saccade", "eval", folder, "--split", "dev", "--num-beams", "5"]
    assert saccade_command(*words[1:]) == 0


def test_a_captioner_that_can_read_photos_is_offered_some(runs: Path) -> None:
    config = load_run_config("updown").data
    described = read_json(runs / "updown" / "best" / "config.json")
    write_json(runs / "updown" / "best" / "config.json", {**described, "extractor": "grid"})
    assert list(next_steps(find_task("captioning"), config, Path("updown"))) == [
        "saccade eval updown --num-beams 5",
        "saccade caption PHOTO --model updown --attention why.png",
    ]


def test_a_headline_has_the_choice_and_a_few_figures() -> None:
    recalls = {f"{way}_r{k}": 1.0 for way in ("i2t", "t2i") for k in (1, 5, 10)} | {"rsum": 6.0}
    result = FitResult(recalls, 1, recalls, 1, 1.0, False, "rsum")
    assert list(result.headline()) == ["rsum", "i2t_r1", "t2i_r1"]
    captions = {"bleu4": 1.0, "cider_d": 2.0}
    assert list(FitResult(captions, 1, captions, 1, 1.0, False, "cider_d").headline()) == ["cider_d", "bleu4"]
    assert FitResult({}, 0, {}, 0, 1.0, False, "rsum").headline() == {}
