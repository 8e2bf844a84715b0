"""Official GSMN checkpoints: every stage is reproduced, a change is caught, bad files are answered with a sentence."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.interop import IMPORTERS, read_checkpoint, verify


@pytest.mark.parametrize(
    "key", ["sims_misaligned_boxes", "adjacency__cap1", "gaussian_weights", "sims_text_graph_other_mode"]
)
def test_a_changed_output_is_caught(golden: Path, tmp_path: Path, key: str) -> None:
    for name in ("sparse.pth.tar", "vocab.json"):
        shutil.copy(golden / "gsmn" / name, tmp_path)
    with np.load(golden / "gsmn" / "sparse.io.npz") as stored:
        np.savez(tmp_path / "sparse.io.npz", **{**stored, key: stored[key] + 1e-3})
    assert [s.stage for case in verify("gsmn", tmp_path) for s in case.stages if not s.holds] == [key]


def test_an_imported_model_passes_no_messages_and_needs_no_parser(golden: Path) -> None:
    model = IMPORTERS["gsmn"](golden / "gsmn" / "sparse.pth.tar")
    assert model.config.text_graph == "sparse"
    assert not model.config.message_passing
    assert (model.config.blocks, model.config.hidden, model.config.kernels) == (8, 16, 8)
    assert model.read(["<word-7> <word-9>"]).links == ()


def changed(golden: Path, path: Path, **options: Any) -> Path:
    checkpoint = read_checkpoint(golden / "gsmn" / "dense.pth.tar")
    for name, value in options.items():
        setattr(checkpoint["opt"], name, value)
    torch.save(checkpoint, path)
    return path


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"feat_dim": 4}, "feat_dim is 4, the official code needs 8"),
        ({"out_dim": 2}, "out_dim is 2, the official code needs 1"),
        ({"hid_dim": 24}, "the weights do not fit the options"),
        ({"is_sparse": "maybe"}, "is_sparse is 'maybe', expected one of False, True"),
    ],
)
def test_options_that_do_not_fit_are_named(
    golden: Path, tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        IMPORTERS["gsmn"](changed(golden, tmp_path / "model.pth.tar", **options))


def test_a_scan_checkpoint_is_no_gsmn(golden: Path) -> None:
    with pytest.raises(SaccadeError, match='"model" has 2 parts, a GSMN checkpoint has 4'):
        IMPORTERS["gsmn"](golden / "scan" / "bigru.pth.tar")
