"""A model on the backbone of a model of the package: what it leaves as it was is neither trained nor kept twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.core.weights import read_weights, write_weights
from saccade.language import Vocabulary
from saccade.models import Scan, ScanConfig, load_model
from saccade.models.detectors import BottomUp, Detector
from saccade.training import TrainerConfig
from saccade.training.optimiser import RunningAverage, make_optimiser
from saccade.training.run import start_from
from saccade.vision.backbones import tuned
from saccade.vision.backbones.base import load_backbone
from saccade.vision.backbones.dinov2 import Dinov2, Dinov2Config
from saccade.vision.detectors.bottomup import BottomUpConfig, load_bottomup
from saccade.vision.extractors import trainable_backbone
from tests.vision.conftest import make_rectangles
from tests.vision.tiny_detector import CONFIG, boxed

RECTANGLES = make_rectangles(4)
TINY = Dinov2Config(dim=16, depth=4, heads=2, mlp_ratio=2, patch=8, positions=4, registers=1)
FREEZE = 3  # the patches and two of four blocks
SHARED = ("embed.", "blocks.0.", "blocks.1.")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one model, `eyes`, in bytes."""
    (tmp_path / "package" / "eyes").mkdir(parents=True)
    monkeypatch.setattr(tuned, "SHIPPED", tmp_path / "package")
    monkeypatch.setattr("saccade.vision.backbones.dinov2.Dinov2Config", lambda: TINY)
    write_eyes(tmp_path / "package" / "eyes", seed=0)
    return tmp_path / "package"


def write_eyes(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    state = {f"backbone.backbone.{key}": value for key, value in Dinov2("dinov2-s", TINY).state_dict().items()}
    write_weights(folder / "model.safetensors", {**state, "words.weight": torch.randn(3, 4)}, "int8")
    (folder / "config.json").write_text(json.dumps({"model": "scan", "backbone": "grid:dinov2-s@64/8"}))


def settings(place: str = "eyes", freeze: int = FREEZE) -> BottomUpConfig:
    return replace(CONFIG, backbone=f"tuned:{place}:2+4", backbone_freeze=freeze, stride=8)


def trained(config: BottomUpConfig) -> tuple[BottomUp, BottomUp]:
    """After three steps with weight decay: the model, and its running average."""
    torch.manual_seed(1)
    model = BottomUp(config)
    model.begin()
    recipe = TrainerConfig(optimiser="adamw", learning_rate=0.01, weight_decay=0.1)
    optimiser, average = make_optimiser(recipe, model), RunningAverage(model, 0.9)
    for step in range(3):
        torch.stack(list(model.train().losses(boxed(RECTANGLES)).values())).sum().backward()
        optimiser.step()
        optimiser.zero_grad()
        average.update(step)
    assert isinstance(average.model, BottomUp)
    return model, average.model


def test_frozen_parts_keep_every_bit_and_the_rest_learns(package: Path) -> None:
    lent = {key.removeprefix(tuned.PREFIX): v for key, v in read_weights(package / "eyes" / tuned.WEIGHTS).items()}
    for model in trained(settings()):
        for key, value in model.network.backbone.state_dict().items():
            assert torch.equal(value, lent[key]) == key.startswith(SHARED), key
    still = BottomUp(replace(settings(freeze=0), backbone_lr_scale=0.0))
    assert len(make_optimiser(TrainerConfig(), still).param_groups) == 2  # the heads' matrices and vectors


def test_a_freeze_that_leaves_nothing_is_refused(package: Path) -> None:
    with pytest.raises(SaccadeError, match="backbone_freeze=6 leaves nothing of the backbone"):
        BottomUp(settings(freeze=6))
    with pytest.raises(SaccadeError, match="backbone_freeze counts parts of a backbone"):
        settings(freeze=-1)


def test_folders_leave_what_is_shared_to_the_package(package: Path, tmp_path: Path) -> None:
    model, pictures = trained(settings())[1].eval(), list(RECTANGLES.pixels)
    model.save_pretrained(tmp_path / "model")
    model.as_extractor().save(tmp_path / "packed", form="int8")
    for folder, prefix in ((tmp_path / "model", "network.backbone."), (tmp_path / "packed", "backbone.")):
        kept = [key.removeprefix(prefix) for key in read_weights(folder / tuned.WEIGHTS) if key.startswith(prefix)]
        assert kept, "the blocks it has trained are its own"
        assert not [key for key in kept if key.startswith(SHARED)]
        assert read_json(folder / "config.json")["base"]["model"] == "eyes"
    again = Detector.from_pretrained(str(tmp_path / "model"))
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key
    packed = load_bottomup(tmp_path / "packed")
    for key, value in packed.network.backbone.state_dict().items():
        if key.startswith(SHARED):  # in float32 as they were lent, and not rounded again
            assert torch.equal(value, model.network.backbone.state_dict()[key]), key
    whole = [torch.tensor([[0.0, 0.0, 1.0, 1.0]]).numpy()] * len(pictures)
    before, after = (e.extract(pictures, whole).features for e in (model.as_extractor(), packed))
    torch.testing.assert_close(before, after, atol=0.05, rtol=0.05)
    fresh = BottomUp(settings("eyes"))
    start_from(fresh, tmp_path / "model")
    assert torch.equal(fresh.network.backbone.embed.positions, model.network.backbone.embed.positions)


def test_a_base_that_is_missing_or_another_is_said(package: Path, tmp_path: Path) -> None:
    model = trained(settings())[0]
    model.save_pretrained(tmp_path / "model")
    model.as_extractor().save(tmp_path / "packed")
    digest = load_bottomup(tmp_path / "packed").digest
    write_eyes(package / "eyes", seed=5)
    for folder in ("model", "packed"):
        with pytest.raises(SaccadeError, match=r"shares weights with the model eyes .* has another of that name"):
            load_bottomup(tmp_path / folder)
    with pytest.raises(SaccadeError, match="has another of that name"):
        Detector.from_pretrained(str(tmp_path / "model"))
    described = read_json(tmp_path / "packed" / "config.json")
    for base, said in (({"model": "nose"}, "has none of that name"), ({"model": "../eyes"}, "must name a model")):
        (tmp_path / "packed" / "config.json").write_text(json.dumps({**described, "base": base}))
        with pytest.raises(SaccadeError, match=said):
            load_bottomup(tmp_path / "packed")
    model.as_extractor().save(tmp_path / "packed")  # beside the other base: what differs is its own now
    assert load_bottomup(tmp_path / "packed").digest != digest


def test_a_backbone_from_a_folder_is_kept_whole(package: Path, tmp_path: Path) -> None:
    (package / "eyes").rename(tmp_path / "mine")
    trained(settings(str(tmp_path / "mine")))[0].save_pretrained(tmp_path / "model")
    assert "base" not in read_json(tmp_path / "model" / "config.json")
    assert any("blocks.0." in key for key in read_weights(tmp_path / "model" / tuned.WEIGHTS))


def test_a_matcher_keeps_what_differs_from_the_model_it_started_from(package: Path, tmp_path: Path) -> None:
    """Of all its weights; and where that model shares some with a third, they are found there."""

    def matcher(extractor: str) -> Scan:
        model = Scan(ScanConfig(region_dim=TINY.dim, word_dim=4, dim=8), Vocabulary.build(["a dog runs"], 1))
        model.backbone = trainable_backbone(extractor)
        return model

    matcher("grid:tuned:eyes@64/8").save_pretrained(package / "large")
    small = matcher("grid:tuned:large@32/4")
    start_from(small, package / "large")
    changed = ("regions.", "backbone.backbone.blocks.3.")
    with torch.no_grad():
        for key, value in small.named_parameters():
            if key.startswith(changed):
                value += 1
    small.save_pretrained(tmp_path / "small")
    kept = read_weights(tmp_path / "small" / tuned.WEIGHTS)
    assert kept.keys() == {key for key, _ in small.named_parameters() if key.startswith(changed)}
    again, lent = load_model(tmp_path / "small"), load_backbone(f"tuned:{tmp_path / 'small'}").state_dict()
    for key, value in small.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key
        if key.startswith(tuned.PREFIX):
            assert torch.equal(lent[key.removeprefix(tuned.PREFIX)], value), key
