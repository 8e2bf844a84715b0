"""What readers of video data sets share: the frame features of a folder, or its video files, and rows with sentences.

Features are looked for first: a feature store (`features/manifest.json`), HDF5 (`features.hdf5`, or the only one there
is), a folder of arrays, one a video (`features/VIDEO.npy`), or one table `features*.npz` with `ids` and `features`
[video, frame, dim]. C3D and I3D features are published in all of these ways. Where a file says nothing of time, its
rows are pieces of equal length, from the beginning of a video to its end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.data.datasets.photos.folder import first_folder, has_words
from saccade.data.formats.arrays import is_npz_folder
from saccade.data.formats.collection import open_arrays
from saccade.data.formats.regions import check_features
from saccade.data.records import (
    CaptionedImages,
    CaptionedVideos,
    Moments,
    PictureRegions,
    RegionSource,
    RegionSubset,
    Span,
)
from saccade.data.registry import chosen_splits
from saccade.data.store.arrow import FeatureStore
from saccade.data.store.sources import WrappedRegions
from saccade.data.text_files import as_text
from saccade.vision.pictures import VIDEO_SUFFIXES

FEATURES = "features"  # the name of a file or folder of frame features


@dataclass(frozen=True)
class VideoText:
    """A line of a data set: a sentence, the video it is about, and when it happens there."""

    video: str
    split: str
    text: str
    spans: tuple[Span, ...] = ()  # in seconds; none: it is about all of the video
    seconds: float | None = None  # how long the video is, where that is known


def strip(count: int) -> Float32[np.ndarray, "frame 4"]:
    """The pieces of a film strip of so many frames of equal length."""
    edges = np.linspace(0, 1, count + 1, dtype=np.float32)
    return np.stack([edges[:-1], np.zeros(count, np.float32), edges[1:], np.ones(count, np.float32)], axis=1)


class FrameStrips(WrappedRegions):
    """Features of frames from a file that knows nothing of time, as film strips of videos that are so long."""

    def __init__(self, source: RegionSource, seconds: Mapping[str, float]) -> None:
        super().__init__(source)
        self.seconds = seconds

    def get(self, index: int) -> PictureRegions:
        found = self.source.get(index)
        if found.seconds is not None:
            return found
        frames = found.features
        seconds = self.seconds.get(found.id) or float(len(frames))
        return PictureRegions(found.id, frames, strip(len(frames)), seconds=seconds)


class FrameTable(RegionSource):
    """One .npz of all videos: `ids`, and `features` [video, frame, dim]."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _arrays(self) -> tuple[tuple[str, ...], np.ndarray]:
        found = read_npz(self.path)
        ids, features = found.get("ids"), found.get("features")
        if ids is None or features is None or ids.ndim != 1 or features.ndim != 3 or len(ids) != len(features):
            raise SaccadeError(f"{self.path}: ids [video] and features [video, frame, dim] were expected")
        return tuple(map(str, ids.tolist())), features

    @property
    def ids(self) -> Sequence[str]:
        return self._arrays[0]

    @property
    def dim(self) -> int:
        return int(self._arrays[1].shape[2])

    def get(self, index: int) -> PictureRegions:
        id, frames = self.ids[index], self._arrays[1][index]
        kept = check_features(frames, self.dim, "float32", f'{self.path}: video "{id}"')
        return PictureRegions(id, kept, strip(len(kept)))

    def __reduce__(self) -> tuple[type[FrameTable], tuple[Path]]:  # a loader's worker process reads the file itself
        return FrameTable, (self.path,)


def find_features(folder: Path) -> RegionSource | None:
    """The frame features of a folder; None where it has none."""
    own = folder / FEATURES
    if (own / "manifest.json").is_file():
        return FeatureStore.open(own)
    if is_npz_folder(own):
        return open_arrays(own)
    tables = sorted(folder.glob(f"{FEATURES}*.npz"))
    if tables:
        return FrameTable(tables[0])
    files = sorted(p for p in folder.iterdir() if p.suffix in (".h5", ".hdf5"))
    named = [path for path in files if path.stem == FEATURES] or files
    if len(named) > 1:
        names = ", ".join(path.name for path in named[:3])
        raise SaccadeError(
            f"{folder} has several files of features ({names}): call the one that is meant {FEATURES}.hdf5"
        )
    return open_arrays(named[0]) if named else None


def video_files(folders: Iterable[Path]) -> dict[str, Path]:
    """The video files of some folders by their names without endings."""
    found: dict[str, Path] = {}
    for folder in folders:
        if folder.is_dir():
            with explain_os_errors(folder, "read"):
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            paths = (Path(entry.path) for entry in entries)
            found |= {path.stem: path for path in paths if path.suffix.lower() in VIDEO_SUFFIXES}
    return found


def captioned_videos(
    name: str, split: str, rows: Iterable[VideoText], folder: Path, places: Sequence[str] = ("videos",)
) -> tuple[CaptionedImages | CaptionedVideos, tuple[tuple[Span, ...], ...]]:
    """The videos of a split with their sentences, in the order of the rows, and when each sentence happens.

    Frame features if the folder has any, video files otherwise, which lie in one of `places`.
    """
    listed = list(rows)
    for row in listed:
        for text in (row.video, row.split, row.text):
            as_text(text, f"{folder}: a text")
    wanted = chosen_splits(split, {row.split for row in listed}, folder)
    kept = [row for row in listed if row.split in wanted and has_words(row.text)]
    ids = tuple(dict.fromkeys(row.video for row in kept))
    place = {id: n for n, id in enumerate(ids)}
    texts, owners = tuple(row.text.strip() for row in kept), np.array([place[row.video] for row in kept], np.int64)
    seconds = {row.video: row.seconds for row in kept if row.seconds is not None}
    spans = tuple(row.spans for row in kept)
    features = find_features(folder)
    if features is not None:
        position = {id: n for n, id in reversed(list(enumerate(features.ids)))}
        lost = [id for id in ids if id not in position]
        if lost:
            raise SaccadeError(
                f"{folder} has no features of {len(lost)} of the {len(ids)} videos of {name}/{split}, for one {lost[0]}"
            )
        images = RegionSubset(FrameStrips(features, seconds), [position[id] for id in ids])
        return CaptionedImages(name, split, images, texts, owners, getattr(features, "extractor", None)), spans
    there = video_files(folder / place for place in places)
    where = first_folder(folder, places)
    paths = tuple(there.get(id) or there.get(Path(id).stem) or where / f"{id}.mp4" for id in ids)
    return CaptionedVideos(name, split, ids, paths, texts, owners, seconds=tuple(seconds.get(id) for id in ids)), spans


def video_moments(
    name: str, split: str, rows: Iterable[VideoText], folder: Path, places: Sequence[str] = ("videos",)
) -> Moments[CaptionedImages | CaptionedVideos]:
    """As `captioned_videos`, for sentences that all have a span."""
    return Moments(*captioned_videos(name, split, rows, folder, places))
