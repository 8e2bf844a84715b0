"""Matchers on videos: trained and measured as on pictures, with the protocol in the result."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from saccade.batch import FrameBatch
from saccade.cli import app
from saccade.data import Caption, DataConfig, FeatureStore, StoreWriter, write_captions
from saccade.data.datasets.videos.frames import strip
from saccade.features import open_in_memory, open_split
from saccade.models import Matcher, load_model
from saccade.tasks.matching.evaluate import protocol


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve videos whose features are their own number, with two captions each that say it."""
    folder = tmp_path_factory.mktemp("videos") / "store"
    draw = np.random.default_rng(0)
    with StoreWriter(folder, 8) as writer:
        for n in range(12):
            frames = np.eye(8, dtype=np.float32)[[n % 8]] + 0.1 * draw.standard_normal((3 + n % 3, 8)).astype(
                np.float32
            )
            writer.append(f"{n}.mp4", frames, strip(len(frames)), seconds=2.0 + n)
    splits = {n: "train" if n < 8 else "dev" if n < 10 else "test" for n in range(12)}
    texts = [(n, f"video w{n % 8} {word}") for n in range(12) for word in ("one", "two")]
    write_captions(folder / "captions.jsonl", [Caption(f"{n}.mp4", text, splits[n]) for n, text in texts])
    return folder


def test_the_protocol_says_what_figures_depend_on(videos: Path) -> None:
    config = DataConfig("store", videos)
    for data in (open_split(config, "test"), open_in_memory(config, "test")):
        title, facts = protocol(data)
        assert (
            title
            == "2 videos of 12 to 13 s (mean 12.5) as 4 to 5 frames, 4 texts (2 a video); ties count against the model"
        )
        assert facts["captions_each"] == [2, 2]
        assert facts["seconds"] == [12.0, 12.5, 13.0]
        assert facts["ties"] == "count against the model"


def test_a_matcher_trains_on_videos_and_is_measured(videos: Path, tmp_path: Path) -> None:
    command = ["train", "vse", "data=store", f"root={videos}", "dim=16", "word_dim=8", "epochs=2", "batch_size=8"]
    assert CliRunner().invoke(app, [*command, "min_count=1", "--out", str(tmp_path / "run")]).exit_code == 0
    words = ["eval", str(tmp_path / "run"), "--split", "test", "--json", str(tmp_path / "found.json")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    assert json.loads((tmp_path / "found.json").read_text())["protocol"]["frames"] == [4, 5]
    model = load_model(tmp_path / "run", Matcher)
    batch = FeatureStore.open(videos).batch([0, 1, 2])
    assert isinstance(batch, FrameBatch)
    texts = model.encode_texts(model.read(["video w1 one", "video w2 two"]))
    with torch.no_grad():
        plain = model.similarity(model.encode_images(batch), texts)
        torch.testing.assert_close(model.similarity(model.encode_images(batch.pad(5)), texts), plain)
