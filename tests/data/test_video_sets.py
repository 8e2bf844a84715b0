"""Readers of video data sets as published, with their features in every way in which these come."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from typer.testing import CliRunner
from video_samples import (
    activitynet_folder,
    charades_folder,
    highlights_folder,
    msrvtt_folder,
    msvd_folder,
    tacos_folder,
)

from saccade.batch import FrameBatch
from saccade.cli import app
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig, StoreWriter
from saccade.data.datasets.videos.frames import strip
from saccade.data.records import CaptionedVideos, Moments
from saccade.data.registry import DATA_SETS, open_records, recognise


def open_set(name: str, root: Path, split: str, annotation: Any = "captions") -> Any:
    return open_records(DataConfig(name, root), split, annotation)


@pytest.fixture
def msvd(tmp_path: Path) -> Path:
    return msvd_folder(tmp_path)


def test_msvd_splits_are_of_whole_source_videos(msvd: Path) -> None:
    found = recognise(msvd)
    assert found is not None
    assert found.name == "msvd"
    parts = {split: open_set("msvd", msvd, split) for split in ("train", "dev", "test", "test_clean")}
    assert len(parts["train"].images) + len(parts["dev"].images) == 30
    assert 0 < len(parts["dev"].images) < 10
    assert tuple(parts["test"].images.ids) == ("video0000000_9_12", "other_0_4")
    assert tuple(parts["test_clean"].images.ids) == ("other_0_4",)
    assert len(open_set("msvd", msvd, "train+dev").texts) == 60
    batch = parts["test"].images.batch([0, 1])
    assert isinstance(batch, FrameBatch)
    assert batch.seconds is not None
    assert batch.seconds.tolist() == [10.0, 2.0]
    torch.testing.assert_close(batch.times[1, :2], torch.tensor([[0.0, 0.4], [0.4, 0.8]]))
    assert batch.features[:, 0, 0].tolist() == [30.0, 31.0]


def test_msvd_as_published(tmp_path: Path) -> None:
    lines = [f"clip{n}_0_5 a dog number {n} barks\n" for n in range(1400) for _ in (0, 1)]
    (tmp_path / "AllVideoDescriptions.txt").write_text("# a comment\n\n" + "".join(lines))
    (tmp_path / "YouTubeClips").mkdir()
    (tmp_path / "YouTubeClips" / "clip1300_0_5.avi").touch()
    counts = {split: open_set("msvd", tmp_path, split) for split in ("train", "val", "test")}
    assert {split: len(data.ids) for split, data in counts.items()} == {"train": 1200, "val": 100, "test": 100}
    assert isinstance(counts["test"], CaptionedVideos)
    assert counts["test"].paths[0].name == "clip1300_0_5.avi"
    assert counts["test"].seconds[0] == 5.0


def test_msrvtt_splits_are_protocols(tmp_path: Path) -> None:
    msrvtt_folder(tmp_path)
    assert {split: len(open_set("msrvtt", tmp_path, split).texts) for split in ("train", "val", "test")} == {
        "train": 6,
        "val": 3,
        "test": 3,
    }
    assert open_set("msrvtt", tmp_path, "test_1k_a").texts == ("one sentence",)
    assert open_set("msrvtt", tmp_path, "train_9k").ids == ("video0", "video2")
    assert open_set("msrvtt", tmp_path, "test").seconds == (10.5,)
    with pytest.raises(SaccadeError, match='no split "train_7k"'):
        open_set("msrvtt", tmp_path, "train_7k")


def test_moments_keep_every_sentence_and_mend_its_span(tmp_path: Path) -> None:
    charades_folder(tmp_path)
    data = open_set("charades_sta", tmp_path, "train", "moments")
    assert isinstance(data, Moments)
    assert data.spans == (((1.0, 4.5),), ((7.0, 8.0),), ((5.0, 20.0),))
    assert data.pictures.ids == ("AAAAA", "BBBBB")
    activitynet_folder(tmp_path)
    data = open_set("activitynet", tmp_path, "val", "moments")
    assert data.texts == ("one.", "two.")
    assert data.spans == (((0.0, 10.0),), ((20.0, 20.01),))
    tacos_folder(tmp_path)
    assert open_set("tacos", tmp_path, "test", "moments").spans == (((2.0, 4.0),),)
    highlights_folder(tmp_path)
    data = open_set("qvhighlights", tmp_path, "val", "moments")
    assert data.spans == (((0.0, 10.0), (40.0, 60.0)),)
    checked = CliRunner().invoke(app, ["data", "check", str(tmp_path), "--as", "charades_sta"])
    assert checked.exit_code == 0
    assert re.search(r"train\W+2\W+3\W", checked.output)
    assert "videos" in checked.output


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("AAAAA 1.0##a person", 'line 1: "VIDEO start end##sentence" was expected'),
        ("AAAAA one two##a person", 'line 1: "VIDEO start end##sentence" was expected'),
        ("AAAAA nan 2##a person", "a number was expected"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, expected: str) -> None:
    (tmp_path / "charades_sta_train.txt").write_text(line + "\n")
    with pytest.raises(SaccadeError, match=expected):
        open_set("charades_sta", tmp_path, "train", "moments")


@pytest.mark.parametrize("form", ["hdf5", "c3d", "npy", "i3d", "store"])
def test_frame_features_as_they_are_published(tmp_path: Path, form: str) -> None:
    (tmp_path / "charades_sta_test.txt").write_text("AAAAA 1.0 4.0##a person opens a door.\n")
    (tmp_path / "charades_durations.json").write_text(json.dumps({"AAAAA": 12.0}))
    frames = np.random.default_rng(0).random((6, 4), np.float32)
    if form in ("hdf5", "c3d"):
        with h5py.File(tmp_path / "charades.hdf5", "w") as file:
            file["AAAAA/c3d_features" if form == "c3d" else "AAAAA"] = frames
    elif form == "store":
        with StoreWriter(tmp_path / "features", 4) as writer:
            writer.append("AAAAA", frames, strip(6), seconds=12.0)
    else:
        (tmp_path / "features").mkdir()
        np.save(tmp_path / "features" / "AAAAA.npy", frames if form == "npy" else frames[:, None, None])
    data = open_set("charades_sta", tmp_path, "test", "moments")
    video = data.images.batch([0])
    assert isinstance(video, FrameBatch)
    np.testing.assert_array_equal(video.features[0].numpy(), frames)
    np.testing.assert_allclose(video.times[0].numpy(), [[2 * n, 2 * n + 2] for n in range(6)], atol=1e-5)


def test_a_video_without_features_is_named(msvd: Path) -> None:
    np.savez(msvd / "features_5.npz", ids=np.array(["other_0_4"]), features=np.zeros((1, 5, 4), np.float16))
    with pytest.raises(SaccadeError, match="no features of 1 of the 2 videos of msvd/test, for one video0000000_9_12"):
        open_set("msvd", msvd, "test")


def test_the_registry_knows_every_set_of_videos() -> None:
    names = {"msvd", "msrvtt", "charades_sta", "tacos", "activitynet", "qvhighlights", "world_videos"}
    assert names <= DATA_SETS.keys()
