"""GQA (Hudson, Manning 2019): questions made from the scene graphs of Visual Genome's photos, with their programs.

`train_balanced_questions.json`, `val_balanced_questions.json`, `testdev_…` and so on, in the folder or in questions/,
and the photos in `images/`. The files with all questions, not the balanced part, are splits of their own (`val_all`;
`train_all` is a folder of ten files). The kind of a question is its structural type: query, verify, logical, choose,
compare. The test and challenge splits have questions alone.

Programs are the data set's `semantic` in the steps of `saccade.batch.Step`: "select: dog" is all things, filtered.
Steps that have no counterpart there keep their names ("choose color", "common", a relation read from its object).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from saccade.batch import Program, Step
from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.folder import PhotoFolder
from saccade.data.datasets.questions.rows import QuestionRow, questions_about, step_inputs
from saccade.data.records import CaptionedPhotos, Questions
from saccade.data.registry import chosen_splits, need_root
from saccade.data.text_files import JsonEntry, read_items

FOLDER_HOLDS = "train_balanced_questions.json, val_balanced_questions.json … and images/"
ATTRIBUTES = {"color": "colour", "name": "kind"}  # what our programs call them
_FILE = re.compile(r"(\w+?)_(balanced|all)_questions(?:_\d+)?\.json(?:\.gz)?")
_THINGS = re.compile(r"\s*\([\d,\s-]*\)$")  # behind an argument: the numbers of the things it means


def open_gqa(split: str, root: Path | None) -> Questions[CaptionedPhotos]:
    """One split (train, dev or val, testdev, test; train_all …) or a sum of them."""
    folder = need_root(root, "gqa", FOLDER_HOLDS)
    files = _files(folder)
    if not files:
        raise SaccadeError(f"{folder} has no questions: GQA is {FOLDER_HOLDS}")
    parts = sorted(chosen_splits(split, files, folder))
    rows = (row for part in parts for path in files[part] for row in _read(path))
    return questions_about("gqa", split, rows, PhotoFolder(folder / "images"), folder)


def gqa_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    return {"questions": tuple(_files(folder))}


def _files(folder: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for place in (folder, *(p for p in sorted(folder.iterdir()) if p.is_dir() and "questions" in p.name)):
        for path in sorted([*place.glob("*_questions*.json*"), *place.glob("*_questions/*_questions*.json*")]):
            if match := _FILE.fullmatch(path.name):
                name = match.group(1) + ("_all" if match.group(2) == "all" else "")
                found.setdefault(name, []).append(path)
    return {name: list(dict.fromkeys(paths)) for name, paths in found.items()}


def _read(path: Path) -> Iterator[QuestionRow]:
    steps: dict[Step, Step] = {}  # equal steps are kept once
    for id, _, item in read_items(path):
        entry = JsonEntry.of(item, f"{path}, {id[:40]}")
        kind = entry.entry("types").text("structural") if "types" in entry else ""
        answers = (entry.text("answer"),) if "answer" in entry else ()
        program = tuple(steps.setdefault(step, step) for step in _program(entry)) if "semantic" in entry else ()
        yield QuestionRow(id, f"{entry.text('imageId')}.jpg", entry.text("question").strip(), answers, kind, program)


def _program(entry: JsonEntry) -> Program:
    steps: list[Step] = []
    last: list[int] = []  # of each step of the data set, our step with its result

    def add(op: str, inputs: tuple[int, ...] = (), argument: str = "") -> tuple[int]:
        steps.append(Step(op, inputs, argument))
        return (len(steps) - 1,)

    for given in entry.entries("semantic"):
        operation, argument = given.text("operation"), _THINGS.sub("", given.text("argument"))
        inputs = tuple(last[n] for n in step_inputs(given, "dependencies", len(last)))
        verb, _, about = operation.partition(" ")
        attribute = ATTRIBUTES.get(about, about)
        relation = argument.split(",")  # a thing's name or "_", the relation, which end of it is sought
        if verb == "select" and not inputs:
            found = add("scene") if argument == "scene" else add("filter", add("scene"), argument)
        elif verb == "filter" and len(inputs) == 1:
            found = add("filter", inputs, argument)
        elif operation in ("relate", "verify rel") and len(inputs) == 1 and len(relation) == 3 and relation[2] == "s":
            found = add("relate", inputs, relation[1])
            found = found if relation[0] == "_" else add("filter", found, relation[0])
            found = add("exist", found) if verb == "verify" else found
        elif verb == "verify" and about != "rel" and len(inputs) == 1:
            found = add("exist", add("filter", inputs, argument))
        elif operation == "query" and len(inputs) == 1:
            found = add("query", inputs, ATTRIBUTES.get(argument, argument))
        elif verb in ("same", "different") and about and len(inputs) == 2:
            found = add("equal", inputs, attribute)
            found = add("not", found) if verb == "different" else found
        elif operation in ("exist", "and", "or"):
            found = add(operation, inputs)
        else:
            found = add(operation, inputs, argument)
        last.append(found[0])
    return tuple(steps)
