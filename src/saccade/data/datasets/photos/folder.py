"""What readers of photo data sets share: a folder of photos, and a list of photos with sentences cut into splits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.data.records import CaptionedPhotos
from saccade.data.registry import chosen_splits
from saccade.data.text_files import as_text, find_file, read_lines


class NoCaptions(SaccadeError):
    """A split whose sentences are not in the folder: held back by whoever gave it away, which is no fault."""


@dataclass(frozen=True)
class Photo:
    """A line of a data set: a photo, the split it belongs to, its sentences."""

    name: str  # the file's name in the folder of photos, and the photo's id
    split: str
    texts: tuple[str, ...] = ()
    size: tuple[int, int] | None = None  # (width, height) of the original, where the file was made smaller


class PhotoFolder:
    """The photos of one folder or several, listed once: 100,000 photos must not ask the disk 100,000 times."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders
        for folder in folders:
            if not folder.is_dir():
                raise SaccadeError(f"{folder} is not a folder: the photos were expected there")

    @cached_property
    def names(self) -> dict[str, Path]:
        """Each file's name and the folder it is in."""
        found: dict[str, Path] = {}
        for folder in self.folders:
            with explain_os_errors(folder, "read"):
                found |= {entry.name: folder for entry in os.scandir(folder)}
        return found

    def path(self, name: str, where: object) -> Path:
        """The photo's path. Raises: SaccadeError if `where` names a photo that is not there."""
        if name not in self.names:
            raise SaccadeError(f"{self.folders[0] / name} is missing: {where} names it")
        return self.names[name] / name


def captioned_photos(
    name: str, split: str, photos: Iterable[Photo], folder: PhotoFolder, where: object
) -> CaptionedPhotos:
    """The photos of a split with their sentences.

    Raises: SaccadeError if a photo has none, or is not in the folder.

    A sentence without a letter or digit (Flickr's crowd left a few lone full stops) says nothing and is left out.
    """
    photos = list(photos)
    for photo in photos:
        for text in (photo.name, photo.split, *photo.texts):
            as_text(text, f"{where}: a text")
    wanted = chosen_splits(split, {photo.split for photo in photos}, where)
    chosen = [photo for photo in photos if photo.split in wanted]
    spoken = [tuple(text for text in photo.texts if has_words(text)) for photo in chosen]
    mute = [photo for photo, texts in zip(chosen, spoken, strict=True) if not texts]
    if mute:
        raise SaccadeError(f"{where} has no caption for {len(mute)} of {len(chosen)} photos, for one {mute[0].name}")
    sizes = [photo.size for photo in chosen if photo.size is not None]
    return CaptionedPhotos(
        name=name,
        split=split,
        ids=tuple(photo.name for photo in chosen),
        paths=tuple(folder.path(photo.name, where) for photo in chosen),
        texts=tuple(text for texts in spoken for text in texts),
        image_of_text=np.repeat(np.arange(len(chosen), dtype=np.int64), [len(texts) for texts in spoken]),
        sizes=tuple(sizes) if len(sizes) == len(chosen) else (),
    )


def has_words(text: str) -> bool:
    """Whether there is a word in it."""
    return any(letter.isalnum() for letter in text)


def group_texts(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """(photo, sentence) pairs as the sentences of each photo, in order."""
    texts: dict[str, list[str]] = {}
    for name, text in pairs:
        texts.setdefault(name, []).append(text)
    return {name: tuple(found) for name, found in texts.items()}


def read_split_lists(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Photo → split from lists of photos, one a line, by split: {"train": "train.txt"}; not all need be there."""
    return {
        name: split
        for split, file in files.items()
        if (found := find_file(folder, file)) is not None
        for _, line in read_lines(found)
        if (name := line.strip())
    }


def first_folder(root: Path, names: Sequence[str]) -> Path:
    """The first of these folders that is there; the first name where none is, so that the error names it."""
    return next((root / name for name in names if (root / name).is_dir()), root / names[0])
