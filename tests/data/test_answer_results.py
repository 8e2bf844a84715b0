"""Results files of answers, and what `saccade metrics answers` makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from photo_samples import write_value
from question_samples import daquar_table, vqa_annotations, vqa_folder
from typer.testing import CliRunner

from saccade.cli import app
from saccade.core.errors import SaccadeError
from saccade.data.formats.answers import read_answers, read_truth, write_answers


def run(*words: object) -> str:
    result = CliRunner().invoke(app, ["metrics", "answers", *map(str, words)], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0
    return result.output


def values(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed[printed.index("{") :])
    return found


def test_answers_come_back_as_they_were_written(tmp_path: Path) -> None:
    answers = {"42000": "yes", "train7": "table, chair", "007": "café"}
    write_answers(tmp_path / "results.json", answers)
    assert json.loads((tmp_path / "results.json").read_text())[0] == {"question_id": 42000, "answer": "yes"}
    assert read_answers(tmp_path / "results.json") == answers


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ([{"question_id": 1, "answer": "a"}, {"question_id": "1", "answer": "b"}], "question 1 is answered a second"),
        ([{"question_id": 1}], '"answer" is missing, text was expected'),
        ([{"question_id": 1.5, "answer": "a"}], '"question_id" is 1.5, a whole number was expected'),
        ([{"answer": "a"}], '"question_id" is missing'),
        ({"1": "a"}, "no results file"),
        (["a"], "a mapping was expected"),
        ([], "holds no answers"),
    ],
)
def test_what_is_no_results_file_is_refused(value: Any, fault: str, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=fault):
        read_answers(write_value(tmp_path / "results.json", value))


def test_answers_are_scored_against_annotations(tmp_path: Path) -> None:
    truth = write_value(tmp_path / "v2_mscoco_val2014_annotations.json", vqa_annotations())
    results = tmp_path / "results.json"
    write_answers(results, {"42000": "Yes.", "42001": "three", "42002": "a net"})
    found = values(run(results, truth, "--json", "--each", tmp_path / "each.jsonl"))
    assert found["vqa_accuracy"] == pytest.approx((0 + 0.3 + 1) / 3)  # all ten said "yes"
    assert found["vqa_accuracy_normalised"] == pytest.approx((1 + 0.3 + 1) / 3)
    assert found["by_kind"]["number"] == pytest.approx(
        {"questions": 1, "vqa_accuracy": 0.3, "vqa_accuracy_normalised": 0.3}
    )
    lines = [json.loads(line) for line in (tmp_path / "each.jsonl").read_text().splitlines()]
    assert [line["vqa_accuracy"] for line in lines] == pytest.approx([0, 0.3, 1])
    printed = run(results, truth)
    assert "43.33" in printed
    assert "76.67" in printed


def test_answers_are_scored_against_a_split_of_a_folder(tmp_path: Path) -> None:
    root = daquar_table(tmp_path / "daquar")
    results = tmp_path / "results.json"
    write_answers(results, {"train1": "table"})
    found = run(results, root, "--split", "train", "--wordnet", "none", "--json")
    assert "1 of the 2 questions of daquar, train have no answer, which counts as wrong" in found
    assert values(found)["accuracy"] == 0
    write_answers(results, {"test1": "Blanket, pillow"})
    assert values(run(results, root, "--split", "test", "--wordnet", "none", "--json"))["accuracy"] == 1
    assert "pip install saccade[wordnet]" in run(results, root, "--split", "test", "--wordnet", "none")


def test_wups_stands_beside_accuracy_where_there_are_nouns(tmp_path: Path) -> None:
    root = daquar_table(tmp_path / "daquar")
    nouns = tmp_path / "wordnet"
    nouns.mkdir()
    (nouns / "data.noun").write_text(
        "00000001 03 n 01 furniture 0 000 | x\n00000002 03 n 01 desk 0 001 @ 00000001 n 0000 | x\n"
        "00000003 03 n 01 table 0 001 @ 00000001 n 0000 | x\n"
    )
    (nouns / "index.noun").write_text(
        "furniture n 1 0 1 0 00000001\ndesk n 1 1 @ 1 0 00000002\ntable n 1 1 @ 1 0 00000003\n"
    )
    results = tmp_path / "results.json"
    write_answers(results, {"train1": "table", "train2": "2"})
    found = values(run(results, root, "--split", "train", "--wordnet", nouns, "--json"))
    assert (found["accuracy"], found["wups_0.9"], found["wups_0.0"]) == pytest.approx((0.5, 0.525, 0.75))


def test_a_question_that_nobody_asked_is_named(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    write_answers(results, {"7": "yes"})
    truth = write_value(tmp_path / "annotations.json", vqa_annotations())
    with pytest.raises(SaccadeError, match=r"answers the question 7, which is not in .* \(it has 42000, for one\)"):
        run(results, truth)


def test_the_truth_must_be_known_and_have_answers(tmp_path: Path) -> None:
    root = vqa_folder(tmp_path / "vqa")
    with pytest.raises(SaccadeError, match=r"is VQA v2, which has splits: say which by --split"):
        read_truth(root)
    assert read_truth(root, "train").kinds["42001"] == "number"
    with pytest.raises(SaccadeError, match=r"no folder with questions.*--as \(.*daquar.*\)"):
        read_truth(tmp_path, "train")
    with pytest.raises(SaccadeError, match='no photo data set "vqa"'):
        read_truth(tmp_path, "train", "vqa")
    with pytest.raises(SaccadeError, match='it has no "annotations"'):
        read_truth(write_value(tmp_path / "x.json", {"questions": []}))
    results = tmp_path / "results.json"
    write_answers(results, {"42000": "yes"})
    with pytest.raises(SaccadeError, match="no answers to score by"):
        run(results, root, "--split", "test-dev")
