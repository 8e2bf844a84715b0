"""Small folders of video data sets as published, for the tests of readers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

COLUMNS = "split\tclip\tstart_s\tend_s\tn\tcaption\n"
CLIPS = [("train", f"video{n:07d}_2_{6 + n}") for n in range(30)] + [
    ("test", "video0000000_9_12"),
    ("test", "other_0_4"),
]


def msvd_folder(root: Path) -> Path:
    rows = [
        f"{split}\t{clip}\t2\t{int(clip.rsplit('_')[-1])}\t{n}\tA man {n} runs.\n"
        for split, clip in CLIPS
        for n in (0, 1)
    ]
    (root / "captions.tsv").write_text(COLUMNS + "".join(rows))
    features = np.arange(len(CLIPS), dtype=np.float16)[:, None, None] * np.ones((1, 5, 4), np.float16)
    np.savez(root / "features_5.npz", ids=np.array([clip for _, clip in CLIPS]), features=features)
    return root


def msrvtt_folder(root: Path) -> Path:
    videos = [
        {"video_id": f"video{n}", "split": split, "start time": 1.0, "end time": 11.5}
        for n, split in enumerate(["train", "train", "validate", "test"])
    ]
    sentences = [{"video_id": f"video{n}", "caption": f"sentence {k} of {n}"} for n in range(4) for k in range(3)]
    (root / "MSRVTT_data.json").write_text(json.dumps({"videos": videos, "sentences": sentences}))
    (root / "MSRVTT_JSFUSION_test.csv").write_text("key,vid_key,video_id,sentence\nret0,msr3,video3,one sentence\n")
    (root / "MSRVTT_train.9k.csv").write_text("video_id\nvideo0\nvideo2\n")
    return root


def charades_folder(root: Path) -> Path:
    (root / "charades_sta_train.txt").write_text(
        "AAAAA 1.0 4.5##a person opens a door.\nAAAAA 8.0 7.0##a person sits.\nBBBBB 5.0 40.0##somebody eats.\n"
    )
    (root / "charades_durations.json").write_text(json.dumps({"AAAAA": 30.5, "BBBBB": 20}))
    return root


def activitynet_folder(root: Path) -> Path:
    times = {"v_1": {"duration": 50.5, "timestamps": [[0, 10], [20, 20]], "sentences": ["one.", " two."]}}
    (root / "activitynet_val.json").write_text(json.dumps(times))
    return root


def tacos_folder(root: Path) -> Path:
    frames = {"s1.avi": {"fps": 25, "num_frames": 500, "timestamps": [[50, 100]], "sentences": ["he cuts"]}}
    (root / "tacos_test.json").write_text(json.dumps(frames))
    return root


def highlights_folder(root: Path) -> Path:
    line = {"qid": 1, "query": "a cat", "vid": "x_0_150", "duration": 150, "relevant_windows": [[0, 10], [40, 60]]}
    (root / "highlight_val_release.jsonl").write_text(json.dumps(line) + "\n")
    return root
