"""MSVD (Chen, Dolan 2011): short YouTube clips with about forty sentences each, written by as many people.

As tables: `captions.tsv.gz` (split, clip, where it lies in its YouTube video, number, sentence) beside frame
features or videos. As published: `AllVideoDescriptions.txt` ("CLIP sentence" a line) and `YouTubeClips/`, in the splits
of Venugopalan et al. 2015, by the order in which clips are described: 1,200, 100 and 670.

Where the tables name no dev split, about a tenth of the YouTube videos of train is: clips of one video look alike, so
that all of them are in one split. `test_clean` are the clips of test whose YouTube video is in no other split.

For finding moments, four to ten clips of a split, of as many YouTube videos, are put one after the other, a frame a
second: a sentence about one of them happens exactly there. Every sentence is asked once, and every clip has eight
neighbourhoods, drawn by `seed`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.data.datasets.questions.rows import with_dev
from saccade.data.datasets.videos.frames import VideoText, captioned_videos
from saccade.data.records import CaptionedImages, CaptionedVideos, Moments, PictureRegions, RegionSource, Span
from saccade.data.registry import need_root
from saccade.data.text_files import as_number, find_file, read_lines, read_table

FOLDER_HOLDS = "captions.tsv.gz and frame features, or as published AllVideoDescriptions.txt and YouTubeClips/"
COLUMNS = ("split", "clip", "start_s", "end_s", "n", "caption")
PUBLISHED = (("train", 1200), ("val", 100), ("test", 670))  # clips
HELD_OUT = 10  # one YouTube video in so many is dev
CLEAN = "test_clean"
JOINED = 4, 10  # clips that are put one after the other
NEIGHBOURHOODS = 8  # of every clip
PLACES = ("videos", "YouTubeClips")


def open_msvd(split: str, root: Path | None) -> CaptionedImages | CaptionedVideos:
    """One split (train, dev or val, test, test_clean) or a sum of them."""
    folder = need_root(root, "msvd", FOLDER_HOLDS)
    rows = list(_read(folder))
    if CLEAN in split.split("+"):
        others = {_source(row.video) for row in rows if row.split != "test"}
        rows = [replace(row, split=CLEAN) if _clean(row, others) else row for row in rows]
    return captioned_videos("msvd", split, rows, folder, PLACES)[0]


def open_msvd_moments(split: str, root: Path | None, seed: int = 0) -> Moments[CaptionedImages]:
    """The clips of a split one after the other, and when each sentence happens.

    Raises: SaccadeError if there are no frame features, or fewer clips than are put together.
    """
    clips = open_msvd(split, root)
    if not isinstance(clips, CaptionedImages):
        raise SaccadeError(f"{root} has no frame features: moments of MSVD are made of clips, frame by frame")
    if len({_source(id) for id in clips.images.ids}) < JOINED[1]:
        raise SaccadeError(f"{root}: {split} has fewer YouTube videos than the {JOINED[1]} that are put together")
    joined = JoinedClips(clips.regions, neighbourhoods(clips.images.ids, seed, split))
    texts, owners, spans = list[str](), list[int](), list[tuple[Span, ...]]()
    met = [0] * len(clips.images)
    for video, own in enumerate(joined.clips):
        edges = joined.edges(video)
        for place, clip in enumerate(own):
            for text in clips.texts_of_image[clip][met[clip] :: NEIGHBOURHOODS]:
                texts.append(clips.texts[text])
                owners.append(video)
                spans.append(((edges[place], edges[place + 1]),))
            met[clip] += 1
    pictures = CaptionedImages("msvd", split, joined, tuple(texts), np.array(owners, np.int64), clips.extractor)
    return Moments(pictures, tuple(spans))


def neighbourhoods(ids: Sequence[str], seed: int, split: str) -> list[tuple[int, ...]]:
    """Clips that are put together, no two of one YouTube video; every clip is in as many rows."""
    draw = np.random.default_rng([seed, zlib.crc32(split.encode())])
    found: list[tuple[int, ...]] = []
    for _ in range(NEIGHBOURHOODS):
        left = draw.permutation(len(ids)).tolist()
        while left:
            row: list[int] = []
            wanted = int(draw.integers(JOINED[0], JOINED[1] + 1))
            for clip in left:
                if len(row) < wanted and _source(ids[clip]) not in {_source(ids[other]) for other in row}:
                    row.append(clip)
            left = [clip for clip in left if clip not in row]
            if len(row) < JOINED[0]:  # what is left at the end goes to rows that there are
                rows = [n for n, own in enumerate(found) if not set(own) & set(row)]
                for clip in row:
                    others = [n for n in rows if _source(ids[clip]) not in {_source(ids[o]) for o in found[n]}]
                    shortest = min(others or rows, key=lambda n: len(found[n]))
                    found[shortest] = (*found[shortest], clip)
            else:
                found.append(tuple(row))
    return found


class JoinedClips(RegionSource):
    """Videos made of clips one after the other, a frame a second."""

    def __init__(self, source: RegionSource, clips: Sequence[tuple[int, ...]]) -> None:
        self.source, self.clips = source, clips
        self.lengths = {clip: source.get(clip).seconds or 1.0 for own in clips for clip in own}

    @property
    def ids(self) -> Sequence[str]:
        return ["+".join(self.source.ids[clip] for clip in own) for own in self.clips]

    @property
    def dim(self) -> int:
        return self.source.dim

    def edges(self, index: int) -> list[float]:
        """When each clip begins, and the last ends, in seconds."""
        return [0.0, *np.cumsum([self.lengths[clip] for clip in self.clips[index]]).tolist()]

    def get(self, index: int) -> PictureRegions:
        features, times, edges = list[np.ndarray](), list[np.ndarray](), self.edges(index)
        for place, clip in enumerate(self.clips[index]):
            found = self.source.get(clip)
            count = max(1, round(self.lengths[clip]))
            middles = (np.arange(count) + 0.5) / count
            features.append(found.features[np.searchsorted(found.boxes[:, 2], middles).clip(0, len(found.boxes) - 1)])
            cuts = np.linspace(edges[place], edges[place + 1], count + 1)
            times.append(np.stack([cuts[:-1], cuts[1:]], axis=1))
        shares = np.concatenate(times) / edges[-1]
        zeros, ones = np.zeros(len(shares)), np.ones(len(shares))
        boxes = np.stack([shares[:, 0], zeros, shares[:, 1], ones], axis=1).astype(np.float32)
        return PictureRegions(self.ids[index], np.concatenate(features), boxes, seconds=edges[-1])


def msvd_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    splits = tuple(dict.fromkeys(row.split for row in _read(folder)))
    return {"captions": splits}


def is_msvd(path: Path) -> bool:
    """By the published sentences, or by the columns of the table."""
    if not path.is_dir():
        return False
    table = find_file(path, "captions.tsv.gz")
    columns = next(read_lines(table), (1, ""))[1] if table is not None else ""
    return columns.split("\t") == list(COLUMNS) or find_file(path, "AllVideoDescriptions.txt") is not None


def _clean(row: VideoText, others: set[str]) -> bool:
    return row.split == "test" and _source(row.video) not in others


def _source(clip: str) -> str:
    """The YouTube video that a clip was cut from: "xBePrplM4OA_6_18" begins with its name."""
    return clip.rsplit("_", 2)[0]


def _read(folder: Path) -> Iterator[VideoText]:
    table = find_file(folder, "captions.tsv.gz")
    if table is None:
        yield from _read_published(folder)
        return
    rows = list(read_table(table, COLUMNS))
    named = {fields[0] for _, fields in rows}
    for line, (split, clip, start, end, _, text) in rows:
        where = f"{table}, line {line}"
        try:
            seconds = as_number(float(end), where) - as_number(float(start), where)
        except ValueError as error:
            raise SaccadeError(f"{where}: numbers of seconds were expected, not {start!r} and {end!r}") from error
        if not seconds > 0:
            raise SaccadeError(f"{where}: the clip ends at {end} before it begins at {start}")
        own = split if named & {"dev", "val"} else with_dev(split, _source(clip), HELD_OUT)
        yield VideoText(clip, own, text, seconds=seconds)


def _read_published(folder: Path) -> Iterator[VideoText]:
    path = find_file(folder, "AllVideoDescriptions.txt")
    if path is None:
        raise SaccadeError(f"{folder} has no sentences: MSVD is {FOLDER_HOLDS}")
    lines = [(n, *line.partition(" ")) for n, line in read_lines(path) if line.strip() and not line.startswith("#")]
    order = {clip: n for n, clip in enumerate(dict.fromkeys(line[1] for line in lines))}
    for number, clip, blank, text in lines:
        if not blank:
            raise SaccadeError(f"{path}, line {number}: a clip and a sentence were expected")
        place, parts = order[clip], iter(PUBLISHED)
        split, count = next(parts)
        while place >= count and split != "test":
            place -= count
            split, count = next(parts)
        yield VideoText(clip, split, text, seconds=_cut_length(clip))


def _cut_length(clip: str) -> float | None:
    """ "xBePrplM4OA_6_18" is twelve seconds long."""
    _, start, end = clip.rsplit("_", 2) if clip.count("_") >= 2 else ("", "", "")
    known = start.isdecimal() and end.isdecimal() and int(end) > int(start)
    return float(int(end) - int(start)) if known else None
