"""What readers of questions share: rows of questions become a split, and a part of the pictures is held out for dev."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from saccade.batch import Program
from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.folder import PhotoFolder, has_words
from saccade.data.records import CaptionedPhotos, Questions
from saccade.data.text_files import JsonEntry


class QuestionRow(NamedTuple):
    """A row of a data set."""

    id: str
    photo: str  # the file's name in the folder of photos
    text: str
    answers: tuple[str, ...] = ()
    kind: str = ""
    program: Program = ()


def questions_about(
    name: str, split: str, rows: Iterable[QuestionRow], folder: PhotoFolder, where: object
) -> Questions[CaptionedPhotos]:
    """The questions of a split, pictures in the order in which they are first asked about.

    Raises: SaccadeError if there is none, an id comes twice, a question has no words or a photo is not in the folder.
    """
    photos: dict[str, int] = {}
    seen: set[str] = set()
    kept: list[QuestionRow] = []
    for row in rows:
        if row.id in seen:
            raise SaccadeError(f"{where}: the question {row.id[:40]} occurs a second time")
        if not has_words(row.text):
            raise SaccadeError(f"{where}: the question {row.id[:40]} has no words")
        seen.add(row.id)
        photos.setdefault(row.photo, len(photos))
        kept.append(row)
    if not kept:
        raise SaccadeError(f'{where} has no questions of the split "{split}"')
    pictures = CaptionedPhotos(
        name=name,
        split=split,
        ids=tuple(photos),
        paths=tuple(folder.path(photo, where) for photo in photos),
        texts=tuple(row.text for row in kept),
        image_of_text=np.array([photos[row.photo] for row in kept], dtype=np.int64),
    )
    programs = tuple(row.program for row in kept)
    return Questions(
        pictures,
        tuple(row.answers for row in kept),
        tuple(row.kind for row in kept),
        tuple(row.id for row in kept),
        programs if any(programs) else (),
    )


def with_dev(split: str, photo: str, one_in: int) -> str:
    """The split of a photo where there is no dev split: about one training photo in so many is of "dev" instead.

    The checksum of its name without its ending decides, so that it is the same whatever else is in the folder.
    """
    stem = PurePosixPath(photo).stem.encode(errors="replace")
    return "dev" if split == "train" and zlib.crc32(stem) % one_in == 0 else split


def step_inputs(step: JsonEntry, key: str, before: int) -> tuple[int, ...]:
    """The earlier steps that a step of a program takes its input from. Raises: SaccadeError if one is not earlier."""
    found = step.list(key)
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < before for n in found):
        raise SaccadeError(f'{step.where}: "{key}" must name earlier steps')
    return tuple(found)
