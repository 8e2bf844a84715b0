"""MSR-VTT (Xu et al. 2016): 10,000 clips of the web with twenty sentences each.

`MSRVTT_data.json`, or `train_val_videodatainfo.json` and `test_videodatainfo.json`: {"videos": [{"video_id", "split",
"start time", "end time"}], "sentences": [{"video_id", "caption"}]}. Videos lie in `videos/`, `TrainValVideo/`,
`TestVideo/` or `videos/all/`, or frame features beside the files (`frames.py` says how).

A split is a protocol: train, val and test are the official 6,513, 497 and 2,990 clips with all sentences ("full");
test_1k_a are the 1,000 pairs of `MSRVTT_JSFUSION_test.csv` (Yu et al. 2018), one sentence a clip, and train_9k and
train_7k the lists `MSRVTT_train.9k.csv` and `MSRVTT_train.7k.csv` that models are trained on for it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.data.datasets.videos.frames import VideoText, captioned_videos
from saccade.data.records import CaptionedImages, CaptionedVideos
from saccade.data.registry import need_root
from saccade.data.text_files import JsonEntry, find_file, read_json_file, read_lines

FOLDER_HOLDS = "MSRVTT_data.json, or train_val_videodatainfo.json and test_videodatainfo.json"
WHOLE = ("MSRVTT_data.json", "annotation/MSR_VTT.json", "train_val_videodatainfo.json", "test_videodatainfo.json")
PAIRS = "MSRVTT_JSFUSION_test.csv"
LISTS = {"train_9k": "MSRVTT_train.9k.csv", "train_7k": "MSRVTT_train.7k.csv"}
PLACES = ("videos", "videos/all", "TrainValVideo", "TestVideo")


def open_msrvtt(split: str, root: Path | None) -> CaptionedImages | CaptionedVideos:
    """One split (train, val, test, test_1k_a, train_9k, train_7k), or a sum of them."""
    folder = need_root(root, "msrvtt", FOLDER_HOLDS)
    return captioned_videos("msrvtt", split, _rows(folder, split), folder, PLACES)[0]


def msrvtt_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    rows = list(_clips(folder))
    lists = [split for split, name in {"test_1k_a": PAIRS, **LISTS}.items() if find_file(folder, name)]
    return {"captions": (*dict.fromkeys(row.split for row in rows), *lists)}


def _rows(folder: Path, split: str) -> Iterator[VideoText]:
    """The official splits, and where a list is asked for its clips alone."""
    rows = list(_clips(folder))
    yield from rows
    seconds = {row.video: row.seconds for row in rows}
    for name in split.split("+"):
        file = LISTS.get(name) or (PAIRS if name == "test_1k_a" else None)
        path = None if file is None else find_file(folder, file)
        if path is None:
            continue
        listed = list(_table(path))
        if name == "test_1k_a":
            yield from (VideoText(video, name, text, seconds=seconds.get(video)) for video, text in listed)
        else:
            kept = {video for video, _ in listed}
            yield from (VideoText(row.video, name, row.text, seconds=row.seconds) for row in rows if row.video in kept)


def _table(path: Path) -> Iterator[tuple[str, str]]:
    """(video, sentence) of each row; a list of videos has no sentences."""
    for number, row in enumerate(csv.DictReader(line for _, line in read_lines(path)), start=2):
        video, text = row.get("video_id"), row.get("sentence", "")
        if not video or (path.name.startswith(PAIRS) and not text):
            raise SaccadeError(f"{path}, line {number}: a video_id was expected, and a sentence where there are pairs")
        yield video, text


def _clips(folder: Path) -> Iterator[VideoText]:
    paths = [path for name in WHOLE if (path := find_file(folder, name))]
    if not paths:
        raise SaccadeError(f"{folder} has no sentences: MSR-VTT is {FOLDER_HOLDS}")
    for path in paths:
        whole = JsonEntry.of(read_json_file(path), str(path))
        facts: dict[str, tuple[str, float | None]] = {}
        for video in whole.entries("videos"):
            known = "start time" in video and "end time" in video
            seconds = video.number("end time") - video.number("start time") if known else 0.0
            split = video.text("split")
            facts[video.text("video_id")] = "val" if split == "validate" else split, seconds if seconds > 0 else None
        for sentence in whole.entries("sentences"):
            id = sentence.text("video_id")
            if id not in facts:
                raise SaccadeError(f'{sentence.where}: there is no video "{id}"')
            split, length = facts[id]
            yield VideoText(id, split, sentence.text("caption"), seconds=length)
