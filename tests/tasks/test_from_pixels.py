"""Pixel-BERT from the command line: pre-trained and fine-tuned on the world's pixels, its CNN along with the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from saccade.models import PixelBertMatching, load_model
from saccade.vision.extractors import trainable_backbone
from toy_runs import saccade_command

SMALL = [
    *("data=world", "data.pictures=50", "limit=8", "extractor=grid:world~max2/4", "dim=16", "heads=2", "hidden=24"),
    *(
        "layers=1",
        "pooled_dim=16",
        "vocabulary_size=200",
        "max_words=96",
        "rows=4",
        "columns=4",
        "accelerator=cpu",
        "batch_size=8",
    ),
]


def test_the_cnn_learns_in_pretraining_and_goes_on_into_fine_tuning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pre, fine = tmp_path / "pre", tmp_path / "fine"
    assert saccade_command("pretrain", "pixelbert", *SMALL, "samples=6", "steps=2", "--out", pre) == 0
    learned, before = load_model(pre), trainable_backbone("grid:world~max2/4")
    assert learned.backbone is not None
    assert learned.backbone.name == before.name
    own, other = learned.backbone.state_dict(), before.state_dict()
    assert any(not torch.equal(own[name], other[name]) for name in own)
    words = [*SMALL[:4], *SMALL[-2:], "task=matching", f"init={pre}", "wrong_pairs=2", "eval_pictures=4", "steps=1"]
    assert saccade_command("train", "pixelbert", *words, "--out", fine) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "fresh" not in told.partition("started from")[2].partition("epoch")[0]  # the output is that of pre-training
    tuned = load_model(fine)
    assert isinstance(tuned, PixelBertMatching)
    assert (tuned.config.dim, tuned.config.rows, tuned.config.samples) == (16, 4, 0)
    assert tuned.vocabulary == learned.vocabulary


def test_masked_regions_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, "region_weight=1", "region_target=features"]
    assert saccade_command("pretrain", "pixelbert", *words, "--out", tmp_path / "run") == 2
    assert "pixelbert has no output for masked regions" in " ".join(capsys.readouterr().err.split())
