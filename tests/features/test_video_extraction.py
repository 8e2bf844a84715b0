"""From a folder of videos to a store of frames: by the command line, resumed, and as splits that models train on."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

sys.path.append(str(Path(__file__).parents[1] / "vision"))
from toy_pictures import folder_bytes
from toy_videos import write

from saccade.batch import FrameBatch
from saccade.cli import app
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig, FeatureStore
from saccade.features import extract, open_moments, open_split
from saccade.features.extraction import list_pictures
from saccade.vision import load_extractor
from saccade.world.videos.films import FilmConfig, draw_frames, make_clips

EXTRACTOR = "frames:world,rate=4,places=2"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    folder = tmp_path / "videos"
    folder.mkdir()
    for name, codec, count in (("a.mp4", "libx264", 24), ("b.avi", "mpeg4", 12), ("c.mkv", "ffv1", 8)):
        write(folder / name, count, codec)
    (folder / "note.txt").write_text("no video")
    return folder


def test_the_command_line_keeps_times_and_names_what_is_broken(videos: Path, tmp_path: Path) -> None:
    (videos / "bad.mp4").write_bytes(b"no video at all" * 20)
    out = tmp_path / "features"
    command = ["extract", str(videos), "-o", str(out), "--regions", "world", "--rate", "4"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "3 videos in" in result.output
    assert "1 broken" in result.output
    store = FeatureStore.open(out)
    assert (store.ids, store.extractor) == (("a.mp4", "b.avi", "c.mkv"), "frames:world,rate=4")
    assert [video.seconds for video in store] == [pytest.approx(s, abs=1e-3) for s in (3.0, 1.5, 1.0)]
    np.testing.assert_allclose(store.get(1).times[-1], [1.25, 1.5], atol=1e-3)
    again = CliRunner().invoke(app, command)
    assert "0 videos in" in again.output
    assert "3 were there" in again.output
    other = CliRunner().invoke(app, [*command[:-2], "--frames", "3"])
    assert isinstance(other.exception, SaccadeError)
    assert 'was begun with the extractor "frames:world,rate=4"' in str(other.exception)


def test_several_processes_and_an_interrupted_run_give_the_same_bytes(videos: Path, tmp_path: Path) -> None:
    extractor, listed = load_extractor(EXTRACTOR), list_pictures([videos], videos=True)
    extract(listed, extractor, tmp_path / "whole", workers=1)
    extract(listed[:1], extractor, tmp_path / "parts", workers=1)
    extract(listed, extractor, tmp_path / "parts", workers=2)
    assert folder_bytes(tmp_path / "whole") == folder_bytes(tmp_path / "parts")


def test_the_worlds_videos_are_frames_of_a_split() -> None:
    data = open_split(DataConfig("world_videos", pictures=20), "test")
    clip = make_clips(FilmConfig(videos=20, hard_groups=1), "test")[1]
    batch = data.images.batch([0, 1])
    assert isinstance(batch, FrameBatch)
    assert batch.seconds is not None
    assert float(batch.seconds[1]) == clip.story.seconds
    assert int(batch.mask[1].sum()) == len(draw_frames(clip.story))
    moments = open_moments(DataConfig("world_videos", pictures=20), "test")
    assert len(moments.images) == 2
    torch.testing.assert_close(moments.images.batch([0, 1]).features, batch.features)
    assert moments.pictures.extractor == "frames:world,rate=4,places=4"


def test_video_files_of_a_data_set_are_extracted(videos: Path, tmp_path: Path) -> None:
    lines = "".join(f"{split}\t{clip}\t0\t3\t0\tA {clip} runs.\n" for split, clip in (("train", "a"), ("val", "b")))
    (tmp_path / "captions.tsv").write_text("split\tclip\tstart_s\tend_s\tn\tcaption\n" + lines)
    config = DataConfig("msvd", tmp_path, extractor="world")
    data = open_split(config, "train")
    assert data.extractor == "frames:world"
    video = data.images.batch([0])
    assert isinstance(video, FrameBatch)
    assert video.features.shape[1] == 6  # two frames a second
    (videos / "b.avi").unlink()
    with pytest.raises(SaccadeError, match=r"b\.mp4 does not exist"):
        open_split(config, "val")
