"""Extractors of videos: a frame's vector, clips by pooling, and clip networks of transformers, tiny and random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from toy_videos import grey, write

from saccade.batch import FrameBatch, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.vision import load_extractor
from saccade.vision.videos import Footage
from saccade.vision.videos.frames import FrameConfig, FrameExtractor, frame_config, pooled


@pytest.mark.parametrize(
    "name",
    [
        "frames:grid",
        "frames:world,rate=4,places=4",
        "frames:grid:dinov2-s@224/8,count=20",
        "frames:grid,rate=0.5,window=4,pool=max",
    ],
)
def test_the_name_says_all(name: str) -> None:
    assert frame_config(name.removeprefix("frames:")).name == name


def test_a_name_that_cannot_be_is_one_sentence() -> None:
    for argument, expected in (("grid,rate=x", "rate=x is no number"), ("grid,pool=sum", 'no pool "sum"')):
        with pytest.raises(SaccadeError, match=expected):
            frame_config(argument)
    with pytest.raises(SaccadeError, match="sees videos"):
        load_extractor("frames:frames:world")


def test_a_frame_is_the_mean_of_place_times_region() -> None:
    torch.manual_seed(0)
    boxes = torch.tensor([[[0.0, 0, 0.25, 1], [0.75, 0, 1.0, 1], [0.25, 0, 0.5, 1]]])
    mask = torch.tensor([[True, True, True]])
    regions = RegionBatch(torch.randn(1, 3, 5), mask, boxes)
    torch.testing.assert_close(pooled(regions), regions.features.mean(dim=1))
    found = pooled(regions, 2).view(2, 5) * 3
    torch.testing.assert_close(found[0], regions.features[0, 0] + 0.75 * regions.features[0, 2])
    torch.testing.assert_close(found[1], regions.features[0, 1] + 0.25 * regions.features[0, 2])
    torch.testing.assert_close(pooled(regions.pad(4), 2), pooled(regions, 2))


def test_frames_and_clips_of_a_file(tmp_path: Path) -> None:
    inner = load_extractor("world")
    path = write(tmp_path / "a.mp4")
    frames = FrameExtractor(FrameConfig("world", rate=4), inner).extract([path])
    assert isinstance(frames, FrameBatch)
    assert frames.features.shape == (1, 12, inner.dim)
    assert frames.ids == (str(path),)
    torch.testing.assert_close(frames.times[0, -1], torch.tensor([2.75, 3.0]))
    clips = FrameExtractor(FrameConfig("world", rate=4, window=5), inner).extract([path])
    assert isinstance(clips, FrameBatch)
    torch.testing.assert_close(clips.features[0, 0], frames.features[0, :5].mean(dim=0))
    torch.testing.assert_close(clips.features[0, 2], frames.features[0, 10:].mean(dim=0))
    torch.testing.assert_close(clips.times[0], torch.tensor([[0.0, 1.25], [1.25, 2.5], [2.5, 3.0]]))
    with pytest.raises(SaccadeError, match="this is a picture"):
        FrameExtractor(FrameConfig("world"), inner).extract([grey(0)])


def test_a_picture_that_stands_still_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    extractor = FrameExtractor(FrameConfig("world"))
    seen: list[int] = []
    look = extractor._vectors
    monkeypatch.setattr(extractor, "_vectors", lambda frames: seen.append(len(frames)) or look(frames))
    frames = np.stack([grey(n) for n in (1, 1, 2, 2, 2, 1)])
    found = extractor.extract([Footage.evenly(frames, 3.0)]).features[0]
    assert seen == [3]
    torch.testing.assert_close(found, found[[0, 0, 2, 2, 2, 5]])
    torch.testing.assert_close(found[0], found[5])
    assert not torch.allclose(found[0], found[2])


@pytest.mark.parametrize("kind", ["VideoMAE", "Timesformer"])
def test_clip_networks_of_transformers(tmp_path: Path, kind: str) -> None:
    size: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(image_size=32, patch_size=16, num_frames=4, **size)
    network = getattr(transformers, f"{kind}Model")(config).eval()
    network.save_pretrained(tmp_path / "net")
    extractor = load_extractor(f"clips:hf:{tmp_path / 'net'},rate=2")
    pixels = np.random.default_rng(0).integers(0, 255, (6, 32, 32, 3), np.uint8)
    found = extractor.extract([Footage.evenly(pixels, 3.0)])
    assert isinstance(found, FrameBatch)
    assert found.features.shape == (1, 2, 16)
    torch.testing.assert_close(found.times[0], torch.tensor([[0.0, 2.0], [2.0, 3.0]]))
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    seen = (torch.from_numpy(pixels[[4, 5, 5, 5]]).float() / 255 - mean) / std  # the last clip is filled up
    with torch.no_grad():
        expected = network(seen.permute(0, 3, 1, 2)[None]).last_hidden_state.mean(dim=1)
    torch.testing.assert_close(found.features[0, 1:], expected, atol=1e-5, rtol=1e-4)
    with pytest.raises(SaccadeError, match="clips:hf:HUB/NAME"):
        load_extractor("clips:grid")


def test_bfloat16_is_that_of_the_inner_extractor() -> None:
    plain, half = (load_extractor("frames:grid:efficientnet-lite0@64", precision=p) for p in ("fp32", "bf16"))
    assert (plain.precision, half.precision) == ("fp32", "bf16")
    assert plain.digest != half.digest
