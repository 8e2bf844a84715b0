"""Official GSMN checkpoints: what their options mean, and other files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.interop import IMPORTERS, read_checkpoint


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
