"""CLEVR (Johnson et al. 2017): questions about drawn scenes, with the programs that answer them.

`CLEVR_v1.0/`: `questions/CLEVR_train_questions.json` and its kin, and `images/train/` and so on. CLEVR-CoGenT is laid
out alike (trainA, valA, valB …). Test questions have neither answers nor programs. The kinds are the paper's five:
count, exist, compare_integer, compare_attribute, query.

Programs are brought into the steps of `saccade.batch.Step`. Things are compared, not what was asked of them:
"equal_color" of two colours becomes "equal" of the two things, "greater_than" of two counts becomes "more" of the two
sets; "unique", which passes on its one thing, goes; "shape" and "color" are "kind" and "colour".
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

FOLDER_HOLDS = "questions/CLEVR_train_questions.json … and images/train/ …, as in CLEVR_v1.0/"
ATTRIBUTES = {"color": "colour", "shape": "kind", "size": "size", "material": "material"}
RELATIONS = {"left": "left of", "right": "right of", "front": "in front of", "behind": "behind"}
COMPARISONS = {"equal_integer": "as_many", "less_than": "fewer", "greater_than": "more"}
KINDS = {**dict.fromkeys(COMPARISONS.values(), "compare_integer"), "equal": "compare_attribute"}  # others: the op
_OPS = "scene unique relate union intersect count exist filter query same equal as_many fewer more"
OPS = frozenset(_OPS.split())
INPUTS = {"scene": 0, "union": 2, "intersect": 2, "equal": 2, "as_many": 2, "fewer": 2, "more": 2}  # of others: 1
_FILE = re.compile(r"\w*?CLEVR_(\w+)_questions\.json(?:\.gz)?")


def open_clevr(split: str, root: Path | None) -> Questions[CaptionedPhotos]:
    """One split (train, dev or val, test; trainA … of CoGenT) or a sum of them."""
    folder = _inner(need_root(root, "clevr", FOLDER_HOLDS))
    files = _files(folder)
    if not files:
        raise SaccadeError(f"{folder} has no questions: CLEVR is {FOLDER_HOLDS}")
    parts = sorted(chosen_splits(split, files, folder))
    photos = PhotoFolder(*(folder / "images" / part for part in parts))
    rows = (row for part in parts for row in _read(files[part], part if len(parts) > 1 else ""))
    return questions_about("clevr", split, rows, photos, folder)


def clevr_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    return {"questions": tuple(_files(_inner(folder)))}


def _inner(folder: Path) -> Path:
    """The archive's own folder, where it was unpacked into another."""
    return folder if (folder / "questions").is_dir() or not (folder / "CLEVR_v1.0").is_dir() else folder / "CLEVR_v1.0"


def _files(folder: Path) -> dict[str, Path]:
    matches = [(_FILE.fullmatch(path.name), path) for path in sorted((folder / "questions").glob("*.json*"))]
    return {match.group(1): path for match, path in matches if match}


def _read(path: Path, prefix: str) -> Iterator[QuestionRow]:
    """`prefix`: numbers begin with 0 in each split, so that those of several need one."""
    steps: dict[Step, Step] = {}  # equal steps are kept once
    for key, position, item in read_items(path):
        if key != "questions":
            continue
        entry = JsonEntry.of(item, f"{path}, questions[{position}]")
        id = f"{prefix}{entry.whole('question_index') if 'question_index' in entry else position}"
        answers = (entry.text("answer"),) if "answer" in entry else ()
        program = _program(entry) if "program" in entry else ()
        kind = KINDS.get(program[-1].op, program[-1].op) if program else ""
        shared = tuple(steps.setdefault(step, step) for step in program)
        yield QuestionRow(id, entry.text("image_filename"), entry.text("question").strip(), answers, kind, shared)


def _program(entry: JsonEntry) -> Program:
    steps: list[Step] = []
    last: list[int] = []  # of each step of the data set, our step with its result
    for given in entry.entries("program"):
        function = given.text("function" if "function" in given else "type")
        values = given.texts("value_inputs" if "value_inputs" in given else "side_inputs")
        inputs = tuple(last[n] for n in step_inputs(given, "inputs", len(last)))
        verb, _, about = function.partition("_")
        op, argument = COMPARISONS.get(function, verb), ATTRIBUTES.get(about, "")
        if op == "filter":
            argument = values[0] if len(values) == 1 else ""
        elif op == "relate":
            argument = RELATIONS.get(values[0], values[0]) if len(values) == 1 else ""
        wants_argument = op in ("filter", "relate", "same", "query", "equal")
        if op not in OPS or len(inputs) != INPUTS.get(op, 1) or wants_argument != bool(argument):
            raise SaccadeError(f'{given.where}: "{function[:40]}" is no step of CLEVR with these inputs')
        if op in ("equal", *COMPARISONS.values()):  # of the things that were asked about or counted
            if any(steps[n].op not in ("query", "count") for n in inputs):
                raise SaccadeError(f'{given.where}: "{function[:40]}" compares attributes or counts alone')
            inputs = tuple(steps[n].inputs[0] for n in inputs)
        if op == "unique":
            last.append(inputs[0])
        else:
            steps.append(Step(op, inputs, argument))
            last.append(len(steps) - 1)
    if not last:
        raise SaccadeError(f'{entry.where}: "program" has no steps')
    return _needed(steps[: last[-1] + 1])


def _needed(steps: list[Step]) -> Program:
    """The steps that the last one rests on, in their order."""
    wanted = {len(steps) - 1}
    for n in reversed(range(len(steps))):
        wanted |= set(steps[n].inputs) if n in wanted else set()
    place = {n: position for position, n in enumerate(sorted(wanted))}
    return tuple(steps[n]._replace(inputs=tuple(place[i] for i in steps[n].inputs)) for n in sorted(wanted))
