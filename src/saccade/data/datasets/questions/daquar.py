"""DAQUAR (Malinowski, Fritz 2014): questions that people asked about the indoor photos of NYU Depth v2.

Either as a table: `qa.tsv` with split, image, question, answer, and `images/`; or as published: question and answer
line by line in `qa.894.raw.train.txt` and `…test.txt` (or `qa.37.raw.…`, the part with 37 kinds of things, read where
the whole is not there), and the photos in `nyu_depth_images/`. Published questions end in "in the image3 ?", which
names the photo and is cut off. An answer is one thing or several, separated by commas.

There are train and test; dev is about a tenth of the training photos, which are then not in train. The data set has no
types of question: those here go by its words, "how many" and "colour".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.folder import PhotoFolder, first_folder
from saccade.data.datasets.questions.rows import QuestionRow, questions_about, with_dev
from saccade.data.records import CaptionedPhotos, Questions
from saccade.data.registry import chosen_splits, need_root
from saccade.data.text_files import find_file, read_lines, read_table

FOLDER_HOLDS = "qa.tsv and images/, or as published qa.894.raw.train.txt, qa.894.raw.test.txt and nyu_depth_images/"
SIZES = ("894", "37")  # how many kinds of things answers may name: all, or the smaller set
HELD_OUT = 10  # one training photo in so many is dev
_PHOTO = re.compile(r"\bimage\d+\b")
_TAIL = re.compile(r"\s*\b(?:(?:in|on|of)\s+)?(?:the\s+|this\s+)?image\d+\b")


def open_daquar(split: str, root: Path | None) -> Questions[CaptionedPhotos]:
    """One split (train, dev, test) or a sum of them; answers are single strings, "chair, table" where they are two."""
    folder = need_root(root, "daquar", FOLDER_HOLDS)
    photos = PhotoFolder(first_folder(folder, ("images", "nyu_depth_images")))
    rows = list(_read_table(folder) if find_file(folder, "qa.tsv") else _read_published(folder, photos))
    wanted = chosen_splits(split, {part for part, _ in rows}, folder)
    return questions_about("daquar", split, (row for part, row in rows if part in wanted), photos, folder)


def daquar_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    photos = PhotoFolder(first_folder(folder, ("images", "nyu_depth_images")))
    rows = _read_table(folder) if find_file(folder, "qa.tsv") else _read_published(folder, photos)
    return {"questions": tuple(dict.fromkeys(part for part, _ in rows))}


def _read_table(folder: Path) -> Iterator[tuple[str, QuestionRow]]:
    path = find_file(folder, "qa.tsv")
    assert path is not None
    counts: dict[str, int] = {}
    for line, (split, photo, text, answer) in read_table(path, ("split", "image", "question", "answer")):
        counts[split] = counts.get(split, 0) + 1
        yield (
            with_dev(split, photo, HELD_OUT),
            _question_row(f"{split}{counts[split]}", photo, text, answer, f"{path}, line {line}"),
        )


def _read_published(folder: Path, photos: PhotoFolder) -> Iterator[tuple[str, QuestionRow]]:
    files = next((files for size in SIZES if (files := _published_files(folder, size))), {})
    if not files:
        raise SaccadeError(f"{folder} has no questions: DAQUAR is {FOLDER_HOLDS}")
    endings = {name.rpartition(".")[0]: name for name in photos.names}
    for split, path in files.items():
        lines = [(number, line.strip()) for number, line in read_lines(path) if line.strip()]
        if len(lines) % 2:
            raise SaccadeError(f"{path} ends with a question that has no answer: copy it again")
        for n, ((line, text), (_, answer)) in enumerate(zip(lines[::2], lines[1::2], strict=True), start=1):
            found = _PHOTO.search(text)
            if found is None:
                raise SaccadeError(f'{path}, line {line}: a question about "the image3" was expected')
            photo = endings.get(found.group(), f"{found.group()}.png")
            short = _TAIL.sub("", text).strip(" ?")
            yield (
                with_dev(split, photo, HELD_OUT),
                _question_row(f"{split}{n}", photo, short, answer, f"{path}, line {line}"),
            )


def _published_files(folder: Path, size: str) -> dict[str, Path]:
    """By split; beside train and test there is "reduced.test", 25 photos of the smaller set."""
    matches = [(re.fullmatch(rf"qa\.{size}\.raw\.([\w.]+)\.txt", path.name), path) for path in sorted(folder.iterdir())]
    return {match.group(1): path for match, path in matches if match}


def _question_row(id: str, photo: str, text: str, answer: str, where: str) -> QuestionRow:
    if not answer.strip():
        raise SaccadeError(f"{where}: the answer is empty")
    words = text.lower()
    kind = "number" if "how many" in words else "colour" if re.search(r"\bcolou?rs?\b", words) else "object"
    return QuestionRow(id, photo, text.strip(), (answer.strip(),), kind)
