"""The golden of VQA accuracy in folders of other sizes, and in broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from saccade.core.errors import SaccadeError
from saccade.interop import GOLDENS

CASE = {"question_id": 1, "prediction": "a cat", "answers": ["cat", "Cat.", "dog"], "expected_accuracy": 1 / 3}


def verify(folder: Path, cases: Any) -> list[tuple[str, bool]]:
    (folder / "cases.json").write_text(json.dumps(cases))
    (case,) = GOLDENS["vqa_accuracy"].verify(folder)
    return [(stage.stage, stage.holds) for stage in case.stages]


def test_other_numbers_of_annotators_and_fewer_keys_are_fine(tmp_path: Path) -> None:
    """Two of three agree: (2 · 1/3 + 1 · 2/3) / 3; one alone is left out of its own question."""
    wanted = (2 * (1 / 3) + 2 / 3) / 3
    alone = CASE | {"question_id": 2, "answers": ["a cat"], "expected_accuracy": 0.0}
    stages = verify(tmp_path, {"cases": [CASE | {"expected_accuracy": wanted}, alone]})
    assert stages == [("expected_accuracy 1", True), ("expected_accuracy 2", True)]


def test_what_is_wrong_or_unknown_fails(tmp_path: Path) -> None:
    (tmp_path / "butd_preprocess_answer.json").write_text(json.dumps({"the cat": "the cat"}))
    found = dict(verify(tmp_path, {"cases": [CASE | {"surprise": [1, [2]]}], "overall": 3}))
    assert set(found.values()) == {False}
    assert len(found) == 4


@pytest.mark.parametrize(
    "cases",
    [
        *([], {}, {"cases": []}, {"cases": [1]}, {"cases": [{}]}),
        {"cases": [CASE | {"answers": []}]},
        {"cases": [CASE | {"answers": [1]}]},
        {"cases": [CASE, CASE | {"note": "x"}]},
        {"cases": [CASE, CASE | {"expected_accuracy": "x"}]},
        {"cases": [CASE | {"expected_accuracy": None}]},
        {"cases": [CASE | {"expected_accuracy": "1"}]},
        {"cases": [CASE | {"normalised_prediction": 1}]},
        {"cases": [CASE | {"expected_accuracy": [1, 2]}]},
        {"cases": [{k: v for k, v in CASE.items() if k != "question_id"}]},
    ],
)
def test_a_broken_file_gives_one_sentence(cases: Any, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError) as caught:
        verify(tmp_path, cases)
    assert "cases" in str(caught.value)
    assert "\n" not in str(caught.value)
