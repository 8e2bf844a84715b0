"""Who takes part in a leaderboard, and under which name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from saccade.core.config import load_yaml, save_yaml
from saccade.core.errors import SaccadeError
from saccade.lab.leaderboard.board import Contender, check_same_data, finished_runs, group_runs, share_data
from toy_runs import make_features, make_run


@pytest.fixture
def features(tmp_path: Path) -> Path:
    return make_features(tmp_path / "data")


def test_runs_that_differ_by_chance_are_one_contender(tmp_path: Path, features: Path) -> None:
    """The seed, the machine and the place of the data do not set runs apart; settings do, and name the variant."""
    moved = shutil.copytree(features, tmp_path / "elsewhere")
    first = make_run(tmp_path / "a", features)
    second = make_run(tmp_path / "b", moved, seed=1, words=("accelerator=cpu",))
    apart = make_run(tmp_path / "c", features, words=("pool=mean", "margin=0.3"))
    baseline = make_run(tmp_path / "d", features, "vse")
    found = group_runs(list(map(str, (first, second, apart, baseline))))
    assert found == [
        Contender("scan", "", (str(first), str(second))),
        Contender("scan", "pool=mean margin=0.3", (str(apart),)),
        Contender("vse", "", (str(baseline),)),
    ]


def test_settings_that_a_system_s_runs_share_are_no_part_of_a_name(tmp_path: Path, features: Path) -> None:
    runs = [make_run(tmp_path / system, features, system, ("epochs=7",)) for system in ("scan", "vse")]
    assert [one.variant for one in group_runs([str(run) for run in runs])] == ["", ""]
    other = make_run(tmp_path / "longer", features, words=("epochs=9",))
    named = group_runs([str(run) for run in (*runs, other)])
    assert [one.variant for one in named] == ["epochs=7", "", "epochs=9"]


def test_named_groups_are_taken_as_given(tmp_path: Path, features: Path) -> None:
    one, other = (str(make_run(tmp_path / name, features, words=(f"pool={name}",))) for name in ("mean", "max"))
    vse = str(make_run(tmp_path / "vse", features, "vse"))
    assert group_runs([], {"mine": [one, other]}) == [Contender("scan", "mine", (one, other))]
    with pytest.raises(SaccadeError, match=r"mine=.* holds models of several systems \(scan, vse\)"):
        group_runs([], {"mine": [one, vse]})


def test_a_model_that_is_no_run_stands_alone(tmp_path: Path, features: Path) -> None:
    best = str(make_run(tmp_path / "run", features) / "best")
    assert group_runs([best]) == [Contender("scan", best, (best,))]


def test_only_finished_runs_of_matchers_are_found(tmp_path: Path, features: Path) -> None:
    runs = tmp_path / "runs"
    whole = make_run(runs / "deep" / "whole", features)
    lean = make_run(runs / "kept-best", features)  # as the claims lab leaves it
    shutil.rmtree(lean / "last")
    training = make_run(runs / "training", features)
    shutil.rmtree(training / "last")
    (training / "last.ckpt").write_bytes(b"")
    weightless = make_run(runs / "weightless", features)
    shutil.rmtree(weightless / "best")
    (runs / "stray").mkdir()
    (runs / "stray" / "config.yaml").write_text("no: run\n")
    assert finished_runs(runs) == sorted([str(whole), str(lean)])
    with pytest.raises(SaccadeError, match="nowhere is not a folder of runs"):
        finished_runs(tmp_path / "nowhere")


def on_other_data(run: Path) -> Path:
    values = load_yaml(run / "config.yaml")
    values["data"] |= {"name": "flickr8k"}
    save_yaml(values, run / "config.yaml")
    return run


def test_found_runs_share_their_data_and_named_ones_must(tmp_path: Path, features: Path) -> None:
    runs = [str(make_run(tmp_path / name, features)) for name in "ab"]
    other = str(on_other_data(make_run(tmp_path / "c", features)))
    kept, data = share_data([other, *runs], None)
    assert (kept, data and data.name) == (runs, "precomp")
    assert share_data([other, *runs], "flickr8k")[0] == [other]
    assert share_data(runs, "coco") == ([], None)
    assert check_same_data(runs) == data
    with pytest.raises(SaccadeError, match=rf"{other} was trained on flickr8k, {runs[0]} on precomp: give data="):
        check_same_data([*runs, other])
