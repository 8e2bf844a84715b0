"""One sweep over every registered detector: gradients, folders, determinism, one picture and many."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade.models import Detector, entries, load_model
from tests.vision.conftest import TINY, make_rectangles
from tests.vision.tiny_detector import CONFIG, boxed

SETTINGS = {"bottomup": replace(CONFIG, under="all", name_weight=0.5), "world_extractor": TINY}
RECTANGLES = make_rectangles(12)
TRUTH: dict[str, Any] = {"bottomup": boxed(RECTANGLES), "world_extractor": RECTANGLES.labelled}


def build(name: str) -> Detector:
    torch.manual_seed(1)
    model = next(e.model for e in entries() if e.name == name)(SETTINGS[name])
    assert isinstance(model, Detector)
    return model


def test_every_registered_detector_is_swept() -> None:
    assert {e.name for e in entries() if issubclass(e.model, Detector)} == set(SETTINGS)


@pytest.mark.parametrize("name", SETTINGS)
class TestEveryDetector:
    def test_the_loss_is_finite_and_its_gradient_reaches_every_parameter(self, name: str) -> None:
        model = build(name).train()
        with torch.no_grad():  # some layers begin at zero, and nothing before them has a gradient then
            for weight in model.parameters():
                weight.add_(0.05 * torch.randn_like(weight))
        loss = torch.stack(list(model.losses(TRUTH[name]).values())).sum()
        assert loss.isfinite()
        loss.backward()
        unlabelled = ("classifiers.facing",) if name == "world_extractor" else ()  # rectangles face nowhere
        silent = [k for k, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
        assert all(any(part in name for part in unlabelled) for name in silent), silent
        grouped = [id(p) for group in model.parameter_groups() for p in group["params"]]
        assert sorted(grouped) == sorted(map(id, model.parameters()))  # every weight, and once

    def test_a_folder_keeps_all_folded_or_not(self, name: str, tmp_path: Path) -> None:
        model, pictures = build(name).eval(), list(RECTANGLES.pixels[:3])
        model.save_pretrained(tmp_path / "plain")
        again = load_model(tmp_path / "plain", Detector)
        found = again.as_extractor().extract(pictures, RECTANGLES.found[:3])
        again.save_pretrained(tmp_path / "folded")
        for loaded in (model, load_model(tmp_path / "folded", Detector)):
            regions = loaded.as_extractor().extract(pictures, RECTANGLES.found[:3])
            torch.testing.assert_close(regions.features, found.features, rtol=1e-4, atol=1e-4)

    def test_it_is_pickled_and_copied(self, name: str) -> None:
        model = build(name).eval()
        for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert all(torch.equal(value, model.state_dict()[key]) for key, value in copied.state_dict().items())
            assert copied.config == model.config

    def test_the_same_seed_gives_the_same_loss(self, name: str) -> None:
        model = build(name).train()
        both = []
        for _ in range(2):
            torch.manual_seed(3)
            both.append(torch.stack(list(model.losses(TRUTH[name]).values())).detach())
        torch.testing.assert_close(*both)
