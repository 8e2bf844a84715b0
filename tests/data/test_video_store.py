"""A store of videos: a row is a film strip with its length, and everything that reads regions reads frames."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_pictures import folder_bytes, make_pictures, write_store

from saccade.batch import FrameBatch, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.data import FeatureStore, StoreWriter
from saccade.data.datasets.videos.frames import strip
from saccade.data.formats.collection import convert, open_collection
from saccade.data.store.sources import RegionsInMemory


def write_videos(folder: Path, lengths: list[float], shard_rows: int = 2) -> Path:
    with StoreWriter(folder, 3, shard_rows=shard_rows) as writer:
        for n, seconds in enumerate(lengths):
            frames = np.full((n + 2, 3), n, np.float32)
            if f"clip-{n}.mp4" not in writer.done:
                writer.append(f"clip-{n}.mp4", frames, strip(n + 2), 64, 48, seconds=seconds)
    return folder


def test_rows_keep_their_length_and_batches_are_of_frames(tmp_path: Path) -> None:
    store = FeatureStore.open(write_videos(tmp_path / "s", [2.0, 3600.125, 0.5]))
    store.verify()
    assert [store.get(i).seconds for i in range(3)] == [2.0, 3600.125, 0.5]
    batch = store.batch([1, 0])
    assert isinstance(batch, FrameBatch)
    assert batch.seconds is not None
    torch.testing.assert_close(batch.seconds, torch.tensor([3600.125, 2.0]))
    torch.testing.assert_close(batch.times[1, :2], torch.tensor([[0.0, 1.0], [1.0, 2.0]]))
    np.testing.assert_allclose(store.get(1).times, np.array([[0, 1], [1, 2], [2, 3]]) * 3600.125 / 3, atol=1e-3)
    held = RegionsInMemory(store)
    assert isinstance(held.batch([2, 1]), FrameBatch)
    torch.testing.assert_close(held.batch([2, 1]).features, store.batch([2, 1]).features)


def test_a_resumed_store_has_the_same_bytes(tmp_path: Path) -> None:
    whole = write_videos(tmp_path / "whole", [1.0, 2.0, 3.0])
    write_videos(tmp_path / "parts", [1.0])
    write_videos(tmp_path / "parts", [1.0, 2.0, 3.0])
    assert folder_bytes(whole) == folder_bytes(tmp_path / "parts")


def test_a_store_of_pictures_is_kept_as_before(tmp_path: Path) -> None:
    folder = write_store(tmp_path / "s", make_pictures(3))
    assert "videos" not in json.loads((folder / "manifest.json").read_text())
    assert FeatureStore.open(folder).get(0).seconds is None
    assert type(FeatureStore.open(folder).batch([0])) is RegionBatch


def test_pictures_and_videos_do_not_mix(tmp_path: Path) -> None:
    writer = StoreWriter(write_videos(tmp_path / "s", [1.0]), 3, shard_rows=2)
    with pytest.raises(SaccadeError, match=r'"a.jpg": .* holds videos, and this is a picture'):
        writer.append("a.jpg", np.zeros((1, 3)), np.zeros((1, 4)))
    with pytest.raises(SaccadeError, match="has no length"):
        writer.append("b.mp4", np.zeros((1, 3)), strip(1), seconds=0.0)


def test_a_copy_keeps_the_lengths(tmp_path: Path) -> None:
    convert(open_collection(write_videos(tmp_path / "s", [1.5, 2.5])), tmp_path / "copy", "store")
    assert [video.seconds for video in FeatureStore.open(tmp_path / "copy")] == [1.5, 2.5]
