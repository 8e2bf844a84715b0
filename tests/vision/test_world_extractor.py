"""The extractor: what `extract` and `describe` promise, saving and loading, the shipped weights, faults."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.vision import load_extractor
from saccade.vision.boxes import geometry
from saccade.vision.detectors.world import (
    REGION_ATTRIBUTES,
    SHIPPED,
    WorldExtractor,
    WorldNetwork,
    load_world_extractor,
)


@pytest.fixture
def extractor(tiny_network: WorldNetwork) -> WorldExtractor:
    torch.nn.init.normal_(tiny_network.proposals.predict.weight, std=0.3)  # untrained, but it proposes something
    with torch.no_grad():
        tiny_network.proposals.predict.bias[0] = 0.0
    return WorldExtractor(tiny_network)


@pytest.fixture(scope="module")
def shipped() -> WorldExtractor:
    return load_world_extractor()


def test_seen_regions_end_with_the_whole_picture(extractor: WorldExtractor, rectangles: Any) -> None:
    seen = extractor.extract(list(rectangles.pixels[:7]), batch_size=3)
    counts = seen.mask.sum(dim=1)
    assert seen.features.shape == (7, int(counts.max()), extractor.dim)
    assert (counts >= 1).all()
    assert (counts <= extractor.config.proposals + 1).all()
    for picture, count in enumerate(counts.tolist()):
        assert seen.boxes[picture, count - 1].tolist() == [0, 0, 1, 1]
        assert not seen.features[picture, count:].any()
    real = seen.boxes[seen.mask]
    assert (real[:, :2] < real[:, 2:]).all()
    assert ((real >= 0) & (real <= 1)).all()


def test_a_picture_looks_the_same_in_any_batch(extractor: WorldExtractor, rectangles: Any) -> None:
    together, alone = extractor.extract(list(rectangles.pixels[:5])), extractor.extract([rectangles.pixels[3]])
    count = int(alone.mask.sum())
    assert int(together.mask[3].sum()) == count
    torch.testing.assert_close(together.features[3, :count], alone.features[0], atol=1e-4, rtol=1e-4)


def test_given_boxes_are_the_regions(extractor: WorldExtractor, rectangles: Any) -> None:
    seen = extractor.extract(list(rectangles.pixels[:6]), boxes=rectangles.found[:6])
    assert seen.mask.sum(dim=1).tolist() == [len(b) for b in rectangles.found[:6]]
    torch.testing.assert_close(seen.boxes[seen.mask], torch.from_numpy(np.concatenate(rectangles.found[:6])))


def test_paths_arrays_and_pillow_images_of_any_mode_look_alike(
    extractor: WorldExtractor, rectangles: Any, tmp_path: Path
) -> None:
    image = Image.fromarray(rectangles.pixels[0])
    image.save(tmp_path / "one.png")
    image.convert("RGBA").save(tmp_path / "two.png")
    seen = extractor.extract([tmp_path / "one.png", str(tmp_path / "two.png")])
    assert seen.ids == (str(tmp_path / "one.png"), str(tmp_path / "two.png"))
    torch.testing.assert_close(seen.features[0], seen.features[1])
    torch.testing.assert_close(extractor.extract([image, rectangles.pixels[0]]).features, seen.features)
    for mode in ("L", "P", "CMYK"):
        assert extractor.extract([image.resize((300, 41)).convert(mode)]).features.isfinite().all()


def test_both_parts_of_a_vector_have_like_spread(extractor: WorldExtractor, rectangles: Any) -> None:
    seen = extractor.extract(list(rectangles.pixels), boxes=rectangles.found)
    vectors = seen.features[seen.mask]
    appearance, place = vectors[:, :-8], vectors[:, -8:]
    torch.testing.assert_close(appearance.std(dim=1, correction=0), torch.ones(len(vectors)), atol=1e-2, rtol=0)
    torch.testing.assert_close(place, geometry(seen.boxes[seen.mask]) * extractor.config.geometry_scale)
    assert 0.5 < float(place.square().mean().sqrt()) < 4


def test_descriptions_go_with_the_regions(extractor: WorldExtractor, rectangles: Any) -> None:
    pictures = list(rectangles.pixels[:4])
    seen, said = extractor.extract(pictures), extractor.describe(pictures)
    assert [len(s) for s in said] == seen.mask.sum(dim=1).tolist()
    thing, whole = extractor.describe(pictures[:1], boxes=[np.array([[0.1, 0.1, 0.5, 0.5]])])[0][0], said[0][-1]
    assert set(thing.labels) == {"kind", "colour", "facing"} <= set(REGION_ATTRIBUTES)
    assert set(whole.labels) == {"background"}
    assert thing.text == f"{thing.labels['colour']} {thing.labels['kind']}"
    assert all(0 < c <= 1 for c in thing.confidence.values())


def test_folding_changes_no_output(tiny_network: WorldNetwork, rectangles: Any) -> None:
    for part in tiny_network.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            assert part.running_mean is not None
            assert part.running_var is not None
            part.running_mean.normal_(std=0.1)
            part.running_var.uniform_(0.5, 2.0)
    pixels = tiny_network.backbone.normalise(torch.from_numpy(rectangles.pixels[:4]))
    tiny_network.eval()
    with torch.no_grad():
        before = tiny_network.backbone.maps(pixels)
        tiny_network.fold_normalisation()
        after = tiny_network.backbone.maps(pixels)
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in tiny_network.modules())
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)


def test_saved_and_loaded_it_sees_the_same(extractor: WorldExtractor, rectangles: Any, tmp_path: Path) -> None:
    extractor.save(tmp_path, {"figures": {"recall": 0.5}})
    first, again = load_world_extractor(tmp_path), load_world_extractor(tmp_path)
    assert first.config == extractor.config
    assert first.digest == extractor.digest == json.loads((tmp_path / "config.json").read_text())["sha256"]
    pictures = list(rectangles.pixels[:4])
    torch.testing.assert_close(first.extract(pictures).features, again.extract(pictures).features)
    given = extractor.extract(pictures, rectangles.found[:4]).features
    torch.testing.assert_close(
        first.extract(pictures, rectangles.found[:4]).features, given, atol=0.05, rtol=0
    )  # float16


def test_no_pictures_give_an_empty_batch(extractor: WorldExtractor) -> None:
    assert len(extractor.extract([])) == 0


def test_wrong_boxes_are_named(extractor: WorldExtractor, rectangles: Any) -> None:
    with pytest.raises(SaccadeError, match="2 pictures but 1 arrays of boxes"):
        extractor.extract(list(rectangles.pixels[:2]), boxes=rectangles.found[:1])
    with pytest.raises(SaccadeError, match=r"picture 1: box 0 is"):
        extractor.extract(list(rectangles.pixels[:2]), boxes=[np.array([[0, 0, 1, 1]]), np.array([[0, 0, 64, 64]])])


def test_the_shipped_extractor_keeps_its_promises(shipped: WorldExtractor, rectangles: Any) -> None:
    files = [SHIPPED / "model.safetensors", SHIPPED / "config.json"]
    assert sum(f.stat().st_size for f in files) <= 5 * 2**20
    assert json.loads(files[1].read_text())["sha256"] == shipped.digest
    assert shipped.dim == 256
    assert shipped.config.proposals == 12
    assert all(shipped.config.labels.values())
    seen = shipped.extract(list(rectangles.pixels[:3]))
    assert seen.features.isfinite().all()
    assert seen.features.shape[2] == 256


def test_missing_and_damaged_extractors_are_named(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r'there is no extractor "wrold"; did you mean "world"\?'):
        load_extractor("wrold")
    with pytest.raises(SaccadeError, match=r"holds no detector: .*`saccade train world_extractor` writes it"):
        load_world_extractor(tmp_path)
    for name in ("model.safetensors", "config.json"):
        shutil.copy(SHIPPED / name, tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(SaccadeError, match="damaged or cut short"):
        load_world_extractor(tmp_path)
    shutil.copy(SHIPPED / "model.safetensors", tmp_path)
    facts = json.loads((tmp_path / "config.json").read_text())
    facts["config"]["hidden"] = 7
    (tmp_path / "config.json").write_text(json.dumps(facts))
    with pytest.raises(SaccadeError, match="does not fit the network"):
        load_world_extractor(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(SaccadeError, match='must hold a "config"'):
        load_world_extractor(tmp_path)
