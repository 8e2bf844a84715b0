"""VQA-RAD (Lau, Gayen, Ben Abacha, Demner-Fushman 2018): clinicians' questions about radiology images.

Either `questions.jsonl` (or .gz; one question a line with qid, image, question, answer, question_type, answer_type,
phrase_type) and `images/`; or as published: `VQA_RAD Dataset Public.json` (or `trainset.json` and `testset.json`, as
others cut it) and `VQA_RAD Image Folder/`. Test questions are those whose phrase_type begins with "test"; many are
about images of the training questions, as in the original. dev is about a fifth of the images with training questions.

The kinds are those that papers report, by answer: closed (yes, no, one of two) and open.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.folder import PhotoFolder, first_folder
from saccade.data.datasets.questions.rows import QuestionRow, questions_about, with_dev
from saccade.data.records import CaptionedPhotos, Questions
from saccade.data.registry import chosen_splits, need_root
from saccade.data.text_files import JsonEntry, find_file, read_items, read_json_lines

FOLDER_HOLDS = (
    'questions.jsonl.gz and images/, or as published "VQA_RAD Dataset Public.json" and "VQA_RAD Image Folder/"'
)
LINES = ("questions.jsonl.gz", "questions_test.jsonl.gz")
PUBLISHED = ("VQA_RAD Dataset Public.json", "trainset.json", "testset.json")
HELD_OUT = 5  # one image in so many is dev, as far as its training questions go
PHOTO_FOLDERS = ("images", "VQA_RAD Image Folder")


def open_vqa_rad(split: str, root: Path | None) -> Questions[CaptionedPhotos]:
    """One split (train, dev, test) or a sum of them."""
    folder = need_root(root, "vqa_rad", FOLDER_HOLDS)
    photos = PhotoFolder(first_folder(folder, PHOTO_FOLDERS))
    rows = list(_read(folder))
    wanted = chosen_splits(split, {part for part, _ in rows}, folder)
    return questions_about("vqa_rad", split, (row for part, row in rows if part in wanted), photos, folder)


def vqa_rad_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    return {"questions": tuple(dict.fromkeys(part for part, _ in _read(folder)))}


def _read(folder: Path) -> Iterator[tuple[str, QuestionRow]]:
    """(split, question) of every file that is there."""
    files = [path for name in (*LINES, *PUBLISHED) if (path := find_file(folder, name))]
    if not files:
        raise SaccadeError(f"{folder} has no questions: VQA-RAD is {FOLDER_HOLDS}")
    for path in files:
        if ".jsonl" in path.name:
            rows: Iterator[tuple[str, Any]] = ((f"{path}, line {n}", value) for n, value in read_json_lines(path))
        else:
            rows = ((f"{path}, {key}[{n}]", value) for key, n, value in read_items(path))
        for where, value in rows:
            entry = JsonEntry.of(value, where)
            photo = entry.text("image" if "image" in entry else "image_name")
            split = "test" if entry.text("phrase_type").startswith("test") else "train"
            answer = _plain(entry, "answer")
            if not answer:
                raise SaccadeError(f"{where}: the answer is empty")
            kind = entry.text("answer_type").strip().lower()
            asked = QuestionRow(_plain(entry, "qid"), photo, entry.text("question").strip(), (answer,), kind)
            yield with_dev(split, photo, HELD_OUT), asked


def _plain(entry: JsonEntry, key: str) -> str:
    """Text, or a whole number as text: the published file has both."""
    value = entry.values.get(key)
    return str(entry.whole(key)) if isinstance(value, int) else entry.text(key).strip()
