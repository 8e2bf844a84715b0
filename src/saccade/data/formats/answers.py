"""Answers in VQA's results format, [{"question_id": 1, "answer": "yes"}, …], and what they are held against.

The truth is a file of VQA's annotations, or a split of any folder whose data set has questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.core.files import write_json
from saccade.data.datasets.questions.vqa import read_annotations
from saccade.data.registry import DataConfig, find_photos, names_with, open_records, recognise
from saccade.data.text_files import JsonEntry, read_items


@dataclass(frozen=True)
class Truth:
    """What people said to each question, by its id."""

    name: str  # where it is from, for people
    answers: dict[str, tuple[str, ...]]
    kinds: dict[str, str]


def write_answers(path: Path, answers: Mapping[str, str]) -> None:
    """A results file; ids that are whole numbers are written as such, as the official evaluator wants them."""
    rows = [{"question_id": int(id) if _is_number(id) else id, "answer": said} for id, said in answers.items()]
    write_json(path, rows)


def _is_number(id: str) -> bool:
    return id.isascii() and id.isdecimal() and len(id) < 19 and str(int(id)) == id


def read_answers(path: Path) -> dict[str, str]:
    """A results file: question → answer. Raises: SaccadeError if it is none, or answers a question twice."""
    found: dict[str, str] = {}
    for key, position, item in read_items(path):
        if key:
            raise SaccadeError(f'{path} is no results file: a list of {{"question_id": …, "answer": …}} was expected')
        entry = JsonEntry.of(item, f"{path}, item {position}")
        value = entry.values.get("question_id")
        id = value if isinstance(value, str) else str(entry.whole("question_id"))
        if id in found:
            raise SaccadeError(f"{entry.where}: the question {id[:40]} is answered a second time")
        found[id] = entry.text("answer")
    if not found:
        raise SaccadeError(f"{path} holds no answers")
    return found


def read_truth(path: Path, split: str | None = None, name: str | None = None) -> Truth:
    """VQA's annotations, or a split of a folder: of the data set `name`, or of the one that its files tell.

    Raises: SaccadeError if the folder is of no data set with questions, or no split was named.
    """
    if not path.is_dir():
        found = read_annotations(path)
        return Truth(
            str(path), {id: given for id, (given, _) in found.items()}, {id: k for id, (_, k) in found.items()}
        )
    row = find_photos(name) if name is not None else recognise(path, ("photos",))
    if row is None or "questions" not in row.readers:
        known = ", ".join(each for each in names_with("questions"))
        raise SaccadeError(f"{path} is no folder with questions that is known by its files: name it by --as ({known})")
    if split is None:
        raise SaccadeError(f"{path} is {row.title}, which has splits: say which by --split (dev, test …)")
    asked = open_records(DataConfig(row.name, path), split, "questions")
    answers = dict(zip(asked.ids, asked.answers, strict=True))
    return Truth(f"{row.name}, {split}", answers, dict(zip(asked.ids, asked.kinds, strict=True)))


def check_known(answers: Mapping[str, str], truth: Truth, path: Path) -> None:
    """Raises: SaccadeError if one answers a question that nobody asked."""
    unknown = next((id for id in answers if id not in truth.answers), None)
    if unknown is not None:
        raise SaccadeError(
            f"{path} answers the question {unknown[:40]}, which is not in {truth.name} "
            f"(it has {next(iter(truth.answers))}, for one)"
        )
