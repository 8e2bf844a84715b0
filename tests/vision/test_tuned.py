"""The backbone of a trained model as a backbone for others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import saccade
from saccade.core.errors import SaccadeError
from saccade.core.weights import write_weights
from saccade.vision import load_extractor
from saccade.vision.backbones.base import load_backbone
from saccade.vision.grid import GridConfig, GridNetwork

PICTURE = np.random.default_rng(0).integers(0, 255, (90, 120, 3), dtype=np.uint8)


def test_its_features_are_those_that_the_model_sees() -> None:
    tuned = load_extractor("grid:tuned:scan-flickr8k@336/12")
    assert tuned.name == "grid:tuned:scan-flickr8k@336/12"
    seen = saccade.load("scan-flickr8k").extract([PICTURE])
    np.testing.assert_array_equal(tuned.extract([PICTURE]).features, seen.features)
    coarse = load_extractor("grid:tuned:scan-flickr8k@224/3").extract([PICTURE])
    assert coarse.features.shape == (1, 9, tuned.dim)


def test_what_has_no_such_backbone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match="tuned:FOLDER was expected"):
        load_backbone("tuned")
    with pytest.raises(SaccadeError, match="none is no model folder"):
        load_backbone("tuned:none")
    (tmp_path / "config.json").write_text(json.dumps({"model": "scan", "config": {}}))
    with pytest.raises(SaccadeError, match="holds no model whose backbone was trained along"):
        load_backbone(f"tuned:{tmp_path}")
    (tmp_path / "config.json").write_text(json.dumps({"model": "scan", "backbone": "grid:../../etc"}))
    with pytest.raises(SaccadeError, match="there is no backbone"):
        load_backbone(f"tuned:{tmp_path}")


def test_the_maps_of_several_blocks_of_a_dinov2(tmp_path: Path) -> None:
    grid = GridNetwork(GridConfig("dinov2-s", 28), pretrained=False)
    described = {"model": "scan", "backbone": grid.name}
    (tmp_path / "config.json").write_text(json.dumps(described))
    write_weights(tmp_path / "model.safetensors", {f"backbone.{key}": v for key, v in grid.state_dict().items()})
    pixels = grid.backbone.normalise(torch.zeros(1, 28, 28, 3, dtype=torch.uint8))
    maps = load_backbone(f"tuned:{tmp_path}:6+12")(pixels)
    assert len(maps) == 2
    torch.testing.assert_close(maps[-1], grid.backbone.eval()(pixels)[-1])
    assert len(load_backbone(f"tuned:{tmp_path}:3")(pixels)) == 1  # the blocks after it are left out
