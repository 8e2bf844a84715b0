"""Sides of a claim that start from a run trained for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_claims import toy_claim

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.lab.claims import run as lab_run
from saccade.lab.claims.plan import Request, Run, plan
from saccade.lab.claims.run import train_and_measure
from saccade.training.run import load_run_config, run_config
from toy_runs import make_features

VARIANTS: dict[str, Any] = {
    "pre-trained": {"before": {"system": "interbert"}},
    "few": {"before": {"system": "interbert"}, "settings": ["train_limit=100"]},
    "without words": {"before": {"system": "interbert", "settings": ["word_weight=0"]}},
    "scratch": {},
}


def test_sides_share_the_run_they_start_from() -> None:
    claim = toy_claim(system="interbert_matching", variants=VARIANTS, expect=["pre-trained > scratch"])
    sides = plan([claim], Request(("world",), seeds=2))
    runs = [side.search[0] for side in sides]
    assert len({run.name for run in runs}) == 4
    first, few, wordless, scratch = runs
    assert scratch.before is None
    assert first.before is not None
    assert few.before is not None
    assert wordless.before is not None
    assert first.before.name == few.before.name != wordless.before.name
    assert first.before.config.system == "interbert"
    assert first.before.config.data.train_limit is None
    second = sides[0].by_rate[1.0][1]
    assert second.before is not None
    assert second.before.seed == second.seed == 1


@pytest.mark.parametrize(
    ("before", "sentence"),
    [("interbert", "must be a mapping"), ({"settings": []}, "system must be text"), ({"system": "nobody"}, "no model")],
)
def test_what_comes_before_must_be_a_system(before: Any, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        toy_claim(variants={"a": {"before": before}, "b": {}}, expect=["a > b"])


def test_a_side_is_trained_from_it_and_it_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = make_features(tmp_path / "features", ("train", "dev", "test"))
    words = [
        *("data=precomp", f"root={features}", "accelerator=cpu", "steps=2", "batch_size=4", "dim=8", "heads=2"),
        *("image_heads=2", "hidden=8", "image_hidden=8", "pooled_dim=8", "layers=1", "text_layers=0", "image_layers=0"),
        *("max_words=20", "vocabulary_size=130", "schedule=constant"),
    ]
    before = Run("precomp/pre", run_config("interbert", [*words, "region_target=features"]), ())
    own = Run("precomp/one", run_config("interbert_matching", words), ("test",), before=before)
    trained = []
    really = lab_run.train_run

    def counted(config: Any, folder: Path, **options: Any) -> Any:
        trained.append(folder.name)
        return really(config, folder, **options)

    monkeypatch.setattr(lab_run, "train_run", counted)
    train_and_measure(own, tmp_path / "runs", lean=True)
    train_and_measure(replace(own, name="precomp/two"), tmp_path / "runs", lean=True)
    assert trained == ["pre", "one", "two"]
    assert load_run_config(tmp_path / "runs" / "precomp" / "one").start == tmp_path / "runs" / "precomp" / "pre"
    assert read_json(tmp_path / "runs" / "precomp" / "one" / "measured.json")["steps"] == 2
