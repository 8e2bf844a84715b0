"""VQA v2 (Goyal et al. 2017; the files of VQA v1 are alike): questions about COCO's photos, ten answers to each.

`v2_OpenEnded_mscoco_train2014_questions.json` and its kin, `v2_mscoco_train2014_annotations.json` and its kin, in the
folder or in annotations/ or questions/, and the photos in `train2014/`, `val2014/` and `test2015/`, also within
images/; folders of 2017 fit as well. The answers to the test questions (test2015, test-dev2015) are kept by the
benchmark's server: these splits are read without. Kinds are those of the official figures: yes/no, number, other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.folder import PhotoFolder
from saccade.data.datasets.questions.rows import QuestionRow, questions_about
from saccade.data.records import CaptionedPhotos, Questions
from saccade.data.registry import chosen_splits, need_root
from saccade.data.text_files import JsonEntry, read_items

FOLDER_HOLDS = (
    "v2_OpenEnded_mscoco_train2014_questions.json …, v2_mscoco_train2014_annotations.json …, and the photos in "
    "images/train2014/ …"
)
PLACES = (".", "annotations", "Annotations", "questions", "Questions")
_QUESTIONS = re.compile(r"(v2_)?OpenEnded_mscoco_([\w-]+)_questions\.json(?:\.gz)?")
_ANNOTATIONS = re.compile(r"(v2_)?mscoco_([\w-]+)_annotations\.json(?:\.gz)?")
Answered = tuple[tuple[str, ...], str]  # what annotators said, and the type of answer


def open_vqa(split: str, root: Path | None) -> Questions[CaptionedPhotos]:
    """One split: train, dev (val2014), test, test-dev, or a sum of them."""
    folder = need_root(root, "vqa_v2", FOLDER_HOLDS)
    files = _files(folder, _QUESTIONS)
    if not files:
        raise SaccadeError(f"{folder} has no questions: VQA v2 is {FOLDER_HOLDS}")
    parts = sorted(chosen_splits(split, files, folder))
    photos = PhotoFolder(*dict.fromkeys(place for part in parts for place in _photo_folders(folder, part)))
    rows = (row for part in parts for row in _read(folder, files[part], part, photos))
    return questions_about("vqa_v2", split, rows, photos, folder)


def vqa_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    return {"questions": tuple(_files(folder, _QUESTIONS))}


def _read(folder: Path, path: Path, split: str, photos: PhotoFolder) -> Iterator[QuestionRow]:
    answered: dict[str, Answered] | None = None
    if not split.startswith("test"):
        annotations = _files(folder, _ANNOTATIONS).get(split)
        if annotations is None:
            raise SaccadeError(
                f"{folder / f'v2_mscoco_{split}_annotations.json'} is missing: it holds the answers, and is to be had "
                "from visualqa.org"
            )
        answered = read_annotations(annotations)
    subset = split.replace("test-dev", "test")
    for key, position, item in read_items(path):
        if key != "questions":
            continue
        entry = JsonEntry.of(item, f"{path}, questions[{position}]")
        id, number = str(entry.whole("question_id")), f"{entry.whole('image_id'):012}.jpg"
        if answered is not None and id not in answered:
            raise SaccadeError(f"{entry.where}: the question {id} has no answers in the file of annotations")
        name = f"COCO_{subset}_{number}"
        photo = number if name not in photos.names and number in photos.names else name
        answers, kind = answered[id] if answered is not None else ((), "")
        yield QuestionRow(id, photo, entry.text("question").strip(), answers, kind)


def read_annotations(path: Path) -> dict[str, Answered]:
    """`v2_mscoco_val2014_annotations.json`: by question what annotators said, and the type of answer."""
    found: dict[str, Answered] = {}
    for key, position, item in read_items(path):
        if key != "annotations":
            continue
        entry = JsonEntry.of(item, f"{path}, annotations[{position}]")
        id = str(entry.whole("question_id"))
        if id in found:
            raise SaccadeError(f"{entry.where}: the question {id} occurs a second time")
        answers = tuple(sys.intern(answer.text("answer")) for answer in entry.entries("answers"))
        if not answers:
            raise SaccadeError(f"{entry.where}: nobody answered the question {id}")
        found[id] = answers, sys.intern(entry.text("answer_type"))
    if not found:
        raise SaccadeError(f'{path} is no file of annotations of VQA: it has no "annotations"')
    return found


def _files(folder: Path, pattern: re.Pattern[str]) -> dict[str, Path]:
    """By split; of v1 and v2 the newer."""
    there = [path for place in PLACES if (folder / place).is_dir() for path in sorted((folder / place).iterdir())]
    matches = [(match, path) for path in there if (match := pattern.fullmatch(path.name))]
    return {match.group(2): path for match, path in sorted(matches, key=lambda pair: bool(pair[0].group(1)))}


def _photo_folders(root: Path, split: str) -> tuple[Path, ...]:
    """Those of the split; or those of 2017, which cut the same photos in another way; or images/ itself."""
    subset = split.replace("test-dev", "test")
    for names in ((subset,), ("train2017", "val2017", "test2017")):
        found = [place / name for place in (root / "images", root) for name in names if (place / name).is_dir()]
        if found:
            return tuple(found)
    return (root / "images" if (root / "images").is_dir() else root / "images" / subset,)
