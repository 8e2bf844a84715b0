"""The hierarchical model as a user has it: trained on three tasks in one run, evaluated on each, asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("few_foils")
SMALL = ("dim=8", "lstm_dim=4", "word_dim=6", "layers=2", "retrieval_layer=1", "grounding_layer=1", "answering_layer=2")


def test_a_joint_run_is_trained_and_evaluated_on_every_part(saccade: Run, tmp_path: Path) -> None:
    run, figures = tmp_path / "run", tmp_path / "figures.json"
    words = ("data=world", "pictures=20", "steps=6", "batch_size=4", "task.cycle=1", "task.matching.batch=2", *SMALL)
    code, _, err = saccade("train", "hierarchical", *words, "-o", run)
    assert code == 0, err
    code, out, err = saccade("eval", run, "pictures=20", "--json", figures)
    assert code == 0, err
    (found,) = json.loads(figures.read_text())["results"].values()
    for figure in ("mean", "matching_rsum", "grounding_accuracy", "answering_accuracy"):
        assert figure in found
        assert figure in out
