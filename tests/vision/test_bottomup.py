"""The bottom-up extractor: the rule's regions with the picture last, any number on demand, kept and opened again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_detector import CONFIG, TinyBackbone, boxed, tiny_detector

from saccade.core.errors import SaccadeError
from saccade.vision import load_extractor
from saccade.vision.boxes import iou
from saccade.vision.detectors.bottomup import (
    BottomUpExtractor,
    BottomUpNetwork,
    bottomup_loss,
    load_bottomup,
    open_extractor,
)
from saccade.vision.roi import mean_under, points_inside, roi_bilinear


@pytest.fixture(scope="module")
def extractor(rectangles: Any) -> BottomUpExtractor:
    """Taught for a moment, so that it has opinions."""
    network = tiny_detector().train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3)
    for _ in range(12):
        loss = torch.stack(list(bottomup_loss(network, boxed(rectangles).select(slice(0, 16))).values())).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return BottomUpExtractor(network)


def test_the_rules_regions_and_the_whole_picture_last(extractor: BottomUpExtractor, rectangles: Any) -> None:
    found = extractor.extract(list(rectangles.pixels[:9]), batch_size=4)
    assert found.features.shape[2] == extractor.dim == CONFIG.dim
    counts = found.mask.sum(dim=1)
    assert ((counts >= CONFIG.least + 1) & (counts <= CONFIG.most + 1)).all()
    for i, count in enumerate(counts.tolist()):
        assert found.boxes[i, count - 1].tolist() == [0, 0, 1, 1]
        assert found.scores is not None
        assert found.scores[i, count - 1] == 1
        assert ((found.scores[i, : count - 1] >= 0) & (found.scores[i, : count - 1] < 1)).all()
    assert (found.features >= 0).all()
    assert ((found.boxes >= 0) & (found.boxes <= 1)).all()


def test_a_picture_is_seen_the_same_alone_and_in_company(extractor: BottomUpExtractor, rectangles: Any) -> None:
    together = extractor.extract(list(rectangles.pixels[:5]))
    for i in range(5):
        alone = extractor.extract([rectangles.pixels[i]])
        real = together.mask[i]
        torch.testing.assert_close(alone.boxes[0][alone.mask[0]], together.boxes[i][real], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(alone.features[0][alone.mask[0]], together.features[i][real], atol=1e-4, rtol=1e-3)


def test_given_the_boxes_it_found_it_sees_what_it_saw(extractor: BottomUpExtractor, rectangles: Any) -> None:
    pictures = list(rectangles.pixels[:3])
    found = extractor.extract(pictures)
    boxes = [found.boxes[i][found.mask[i]].numpy() for i in range(3)]
    again = extractor.extract(pictures, boxes)
    assert torch.equal(again.mask, found.mask)
    torch.testing.assert_close(again.features, found.features, atol=1e-5, rtol=1e-4)
    with pytest.raises(SaccadeError, match="3 pictures but 2 arrays"):
        extractor.extract(pictures, boxes[:2])
    with pytest.raises(SaccadeError, match="box 0 is"):
        extractor.extract(pictures[:1], [np.array([[0.5, 0.5, 0.4, 0.6]])])


def test_things_are_named_and_the_picture_is_not(extractor: BottomUpExtractor, rectangles: Any) -> None:
    pictures = list(rectangles.pixels[:4])
    described, seen = extractor.describe(pictures), extractor.extract(pictures)
    assert [len(d) for d in described] == seen.mask.sum(dim=1).tolist()
    for picture in described:
        assert picture[-1].labels == {}
        for region in picture[:-1]:
            assert region.labels["kind"] in CONFIG.classes
            assert set(region.labels) <= {"kind", "attribute"}
            assert region.labels.get("attribute", "red") in CONFIG.attributes
    by_box = extractor.describe(pictures[:1], [np.array([[0.1, 0.1, 0.5, 0.5]])])
    assert by_box[0][0].score == 1
    assert "kind" in by_box[0][0].labels


def test_kept_and_opened_again_with_any_number(extractor: BottomUpExtractor, rectangles: Any, tmp_path: Path) -> None:
    extractor.save(tmp_path / "kept", {"command": "x"})
    plain = load_extractor(f"bottomup:{tmp_path / 'kept'}")
    assert plain.digest == extractor.digest
    assert plain.name == f"bottomup:{tmp_path / 'kept'}"
    before, after = extractor.extract(list(rectangles.pixels[:4])), plain.extract(list(rectangles.pixels[:4]))
    boxes = [before.boxes[i][before.mask[i]].numpy() for i in range(4)]
    same = plain.extract(list(rectangles.pixels[:4]), boxes)
    torch.testing.assert_close(same.features, before.features, atol=2e-2, rtol=2e-2)  # float16 on disk
    five = load_extractor(f"bottomup:{tmp_path / 'kept'}@5")
    assert five.extract(list(rectangles.pixels[:4])).mask.sum(dim=1).tolist() == [6] * 4
    ranged = load_extractor(f"bottomup:{tmp_path / 'kept'}@3-4")
    assert set(ranged.extract(list(rectangles.pixels[:4])).mask.sum(dim=1).tolist()) <= {4, 5}
    assert len({plain.digest, five.digest, ranged.digest}) == 3
    assert load_extractor(five.name).digest == five.digest
    assert after.mask.any()


def test_what_cannot_be_opened_is_said(extractor: BottomUpExtractor, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match="holds no detector"):
        open_extractor(str(tmp_path))
    with pytest.raises(SaccadeError, match="is missing"):
        load_bottomup(tmp_path / "none")
    extractor.save(tmp_path)
    for count in ("0", "9-3"):
        with pytest.raises(SaccadeError, match="at least 1, and the larger number last"):
            open_extractor(f"{tmp_path}@{count}")
    for folder in ("@-5", "@5-", "@²", "@many"):  # no numbers: part of the folder's name
        with pytest.raises(SaccadeError, match=f"{folder} holds no detector"):
            open_extractor(f"{tmp_path}{folder}")
    facts = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model": "bottomup", "config": {**facts["config"], "dim": 40}}))
    with pytest.raises(SaccadeError, match="does not fit the network"):
        load_bottomup(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model": "bottomup", "config": {"dimm": 40}}))
    with pytest.raises(SaccadeError, match='did you mean "dim"'):
        load_bottomup(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(SaccadeError, match='must hold a "config"'):
        load_bottomup(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(facts))
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SaccadeError, match="damaged or cut short"):
        load_bottomup(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**facts, "model": "densecap"}))
    with pytest.raises(SaccadeError, match="holds a model of densecap, a bottomup was asked for"):
        load_bottomup(tmp_path)


def test_points_of_padded_regions_are_those_of_flat_ones() -> None:
    torch.manual_seed(0)
    maps, low = torch.randn(3, 4, 6, 5), torch.rand(3, 2, 2) * 0.5
    boxes = torch.cat([low, low + 0.3], dim=2)
    flat = roi_bilinear(maps, boxes.flatten(0, 1), torch.arange(3).repeat_interleave(2), size=5)
    torch.testing.assert_close(points_inside(maps, boxes, 5), flat)


def test_the_mean_under_a_box_is_that_of_the_cells_it_covers() -> None:
    torch.manual_seed(0)
    maps = torch.randn(2, 3, 4, 5)
    cells = torch.tensor([[0.2, 0.25, 0.8, 0.75], [0.0, 0.0, 1.0, 1.0], [0.4, 0.25, 0.5, 0.5], [0.7, 0.9, 0.7, 0.9]])
    found = mean_under(maps, cells.expand(2, 4, 4))
    torch.testing.assert_close(found[:, 0], maps[:, :, 1:3, 1:4].mean(dim=(2, 3)))
    torch.testing.assert_close(found[:, 1], maps.mean(dim=(2, 3)))
    torch.testing.assert_close(found[:, 2], maps[:, :, 1, 2])
    torch.testing.assert_close(found[:, 3], maps[:, :, 3, 3])  # without extent: the cell it lies in


def test_the_backbones_normalisation_is_never_trained() -> None:
    network = tiny_detector().train()
    assert network.training
    assert not network.backbone.training


def test_things_may_be_selected_whatever_they_are_called(extractor: BottomUpExtractor, rectangles: Any) -> None:
    """By the other rule no two regions of a picture overlap by more than a half, of whatever class they are."""
    network, config = extractor.network, extractor.config
    maps = network.maps(torch.from_numpy(rectangles.pixels[:6]))
    by_class = network.detect(maps, config.candidates, config.proposals)
    try:
        network.config = replace(config, select_by="thing")
        by_thing = network.detect(maps, config.candidates, config.proposals)
        assert BottomUpExtractor(network).digest != extractor.digest
    finally:
        network.config = config
    torch.testing.assert_close(by_thing.boxes, by_class.boxes)
    kept = by_thing.confidence > 0
    assert kept.any(dim=1).all()
    assert ((by_thing.confidence <= 1 - by_thing.probabilities[..., 0] + 1e-6) | ~kept).all()
    for boxes, own in zip(by_thing.boxes, kept, strict=True):
        overlap = iou(boxes[own], boxes[own]).fill_diagonal_(0)
        assert (overlap <= 0.5).all()


def test_a_region_may_have_the_means_of_all_the_backbones_maps() -> None:
    torch.manual_seed(0)
    pixels = torch.randint(0, 255, (1, 64, 64, 3), dtype=torch.uint8)
    box, half = torch.tensor([[[0.0, 0.0, 0.5, 0.5]]]), CONFIG.dim // 2
    for under in ("last", "all"):
        network = BottomUpNetwork(replace(CONFIG, under=under), TinyBackbone()).eval()
        maps = network.maps(pixels)
        assert len(maps.under) == (1 if under == "last" else len(network.backbone.channels))
        other = network.vectors(maps._replace(under=(maps.under[0] + 1, *maps.under[1:])), box)
        assert not torch.equal(network.vectors(maps, box)[..., half:], other[..., half:])
        assert torch.equal(network.vectors(maps, box)[..., :half], other[..., :half])
