"""Sentences about moments of videos: Charades-STA (Gao et al. 2017), TACoS (Regneri et al. 2013), ActivityNet Captions
(Krishna et al. 2017) and QVHighlights (Lei et al. 2021).

    charades_sta   charades_sta_train.txt, _test.txt: "VIDEO start end##sentence"; charades_durations.json, or column
                   `length` of Charades_v1_train.csv and _test.csv: how long each video is
    tacos          train.json, val.json, test.json of 2D-TAN: times as numbers of frames, `fps`, `num_frames`
    activitynet    train.json, and val.json and test.json of 2D-TAN, which are the published val_1.json and val_2.json
    qvhighlights   highlight_train_release.jsonl, _val_, _test_ (which has no times): several windows a sentence

Files may be called tacos_train.json and the like, so that all lie in one folder, and be packed (.gz). Beside them lie
videos, or frame features (`frames.py` says how).

Annotators made slips, and every sentence is kept: a span that runs backwards is turned round, one that ends after its
video is cut there, as 2D-TAN does, and one without length gets a hundredth of a second.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.data.datasets.videos.frames import VideoText, video_moments
from saccade.data.records import CaptionedImages, CaptionedVideos, Moments, Span
from saccade.data.registry import need_root
from saccade.data.text_files import JsonEntry, as_number, find_file, read_json_file, read_json_lines, read_lines

SHORTEST = 0.01  # seconds: the step in which times are published
Times = Callable[[float], float]


@dataclass(frozen=True)
class Layout:
    """Where the sentences of each split lie, and what reads them."""

    files: Mapping[str, tuple[str, ...]]  # by split: any one of these names
    read: Callable[[Path, Path], Iterator[tuple[str, str, tuple[Span, ...], float | None]]]  # folder and file
    places: tuple[str, ...] = ("videos",)


def open_moment_set(name: str, split: str, root: Path | None) -> Moments[CaptionedImages | CaptionedVideos]:
    """One split as published, or a sum of them."""
    layout = LAYOUTS[name]
    folder = need_root(root, name, ", ".join(names[0] for names in layout.files.values()))
    return video_moments(name, split, _rows(name, folder), folder, layout.places)


open_charades_sta, open_tacos, open_activitynet, open_qvhighlights = (
    partial(open_moment_set, name) for name in ("charades_sta", "tacos", "activitynet", "qvhighlights")
)


def moment_splits(name: str, folder: Path) -> dict[str, tuple[str, ...]]:
    """The splits whose file is there."""
    return {"moments": tuple(split for split, names in LAYOUTS[name].files.items() if find_file(folder, *names))}


charades_sta_splits, tacos_splits, activitynet_splits, qvhighlights_splits = (
    partial(moment_splits, name) for name in ("charades_sta", "tacos", "activitynet", "qvhighlights")
)


def _rows(name: str, folder: Path) -> Iterator[VideoText]:
    layout = LAYOUTS[name]
    for split, names in layout.files.items():
        path = find_file(folder, *names)
        for video, text, spans, seconds in layout.read(folder, path) if path else ():
            yield VideoText(video, split, text, tuple(_mended(span, seconds) for span in spans), seconds)


def _mended(span: Span, seconds: float | None) -> Span:
    start, end = sorted(max(time, 0.0) for time in span)
    if seconds is not None and start < seconds:
        end = min(end, seconds)
    return start, max(end, start + SHORTEST)


def _read_charades(folder: Path, path: Path) -> Iterator[tuple[str, str, tuple[Span, ...], float | None]]:
    lengths = _charades_lengths(folder)
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        head, marks, text = line.partition("##")
        parts = head.split()
        if not line.strip():
            continue
        try:
            video, start, end = parts[0], float(parts[1]), float(parts[2])
        except (ValueError, IndexError) as error:
            raise SaccadeError(f'{where}: "VIDEO start end##sentence" was expected') from error
        if not marks:
            raise SaccadeError(f'{where}: "VIDEO start end##sentence" was expected')
        yield video, text, ((as_number(start, where), as_number(end, where)),), lengths.get(video)


def _charades_lengths(folder: Path) -> dict[str, float]:
    path = find_file(folder, "charades_durations.json")
    if path is not None:
        entry = JsonEntry.of(read_json_file(path), str(path))
        return {video: _length(entry.number(video), str(path)) for video in entry.values}
    found: dict[str, float] = {}
    for name in ("Charades_v1_train.csv", "Charades_v1_test.csv"):
        table = find_file(folder, name)
        rows = csv.DictReader(line for _, line in read_lines(table)) if table else ()
        try:
            found |= {row["id"]: _length(float(row["length"]), str(table)) for row in rows}
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise SaccadeError(f"{table}: columns id and length, in seconds, were expected") from error
    return found


def _read_times(_: Path, path: Path) -> Iterator[tuple[str, str, tuple[Span, ...], float | None]]:
    """{video: {"timestamps": [[start, end], …], "sentences": […]}}, in seconds with `duration`, or in frames."""
    videos = JsonEntry.of(read_json_file(path), str(path))
    for video in videos.values:
        entry = videos.entry(video)
        fps = entry.number("fps") if "fps" in entry else 1.0
        if not fps > 0:
            raise SaccadeError(f"{entry.where}: {fps} frames a second")
        seconds = _length(
            entry.number("duration") if "duration" in entry else entry.number("num_frames") / fps, entry.where
        )
        spans, sentences = entry.list("timestamps"), entry.texts("sentences")
        if len(spans) != len(sentences):
            raise SaccadeError(f"{entry.where}: {len(spans)} times and {len(sentences)} sentences")
        for n, sentence in enumerate(sentences):
            start, end = (time / fps for time in _pair(spans[n], f"{entry.where}.timestamps[{n}]"))
            yield video, sentence, ((start, end),), seconds


def _read_highlights(_: Path, path: Path) -> Iterator[tuple[str, str, tuple[Span, ...], float | None]]:
    for number, value in read_json_lines(path):
        entry = JsonEntry.of(value, f"{path}, line {number}")
        if "relevant_windows" not in entry:
            raise SaccadeError(f"{entry.where} has no relevant_windows: the times of this split are not published")
        windows = entry.list("relevant_windows")
        spans = tuple(_pair(window, f"{entry.where}.relevant_windows[{n}]") for n, window in enumerate(windows))
        yield entry.text("vid"), entry.text("query"), spans, _length(entry.number("duration"), entry.where)


def _pair(value: object, where: str) -> Span:
    if not isinstance(value, list) or len(value) != 2:
        raise SaccadeError(f"{where}: a list of two times was expected")
    return as_number(value[0], where), as_number(value[1], where)


def _length(seconds: float, where: str) -> float:
    if not seconds > 0:
        raise SaccadeError(f"{where}: a video of {seconds} seconds has no length")
    return seconds


LAYOUTS = {
    "charades_sta": Layout(
        {split: (f"charades_sta_{split}.txt",) for split in ("train", "test")},
        _read_charades,
        ("videos", "Charades_v1_480", "Charades_v1"),
    ),
    "tacos": Layout(
        {split: (f"tacos_{split}.json", f"{split}.json") for split in ("train", "val", "test")}, _read_times
    ),
    "activitynet": Layout(
        {
            "train": ("activitynet_train.json", "train.json"),
            "val": ("activitynet_val.json", "val.json", "val_1.json"),
            "test": ("activitynet_test.json", "test.json", "val_2.json"),
        },
        _read_times,
    ),
    "qvhighlights": Layout(
        {split: (f"qvhighlights_{split}.jsonl", f"highlight_{split}_release.jsonl") for split in ("train", "val")},
        _read_highlights,
    ),
}
