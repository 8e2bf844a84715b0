"""The detector's recipe on annotations in the styles of COCO and Visual Genome: from a folder to an extractor that
works.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_detector import CONFIG
from typer.testing import CliRunner

from saccade.cli import app
from saccade.core.errors import SaccadeError
from saccade.data import FeatureStore
from saccade.vision import load_extractor
from saccade.vision.backbones.base import MODULES

RECIPE = Path(__file__).parents[2] / "recipes" / "bottomup.py"
WIDTH, HEIGHT = 80, 60
COLOURS = {"apple": (200, 30, 30), "leaf": (30, 160, 50)}
Drawn = tuple[Image.Image, str, tuple[int, int, int, int]]


@pytest.fixture(autouse=True)
def _tiny_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODULES, "tiny", "tiny_detector")


def draw(count: int) -> Iterator[Drawn]:
    """Photos with one coloured thing each, its name and its x, y, width, height."""
    dice = np.random.default_rng(4)
    for i in range(count):
        name = ("apple", "leaf")[i % 2]
        w, h = (int(n) for n in dice.integers(20, 40, 2))
        x, y = int(dice.integers(0, WIDTH - w)), int(dice.integers(0, HEIGHT - h))
        picture = Image.new("RGB", (WIDTH, HEIGHT), (120, 120, 120))
        picture.paste(COLOURS[name], (x, y, x + w, y + h))
        yield picture, name, (x, y, w, h)


def coco_layout(root: Path) -> Path:
    (root / "annotations").mkdir(parents=True)
    categories = [{"id": 7, "name": "apple"}, {"id": 3, "name": "leaf"}]
    numbers = {c["name"]: c["id"] for c in categories}
    for split, count in (("train2017", 16), ("val2017", 4)):
        (root / split).mkdir()
        images, annotations = [], []
        for i, (picture, name, box) in enumerate(draw(count)):
            picture.save(root / split / f"{i:012}.jpg")
            images.append({"id": i, "file_name": f"{i:012}.jpg", "width": WIDTH, "height": HEIGHT})
            annotations.append({"image_id": i, "category_id": numbers[name], "bbox": box, "iscrowd": 0})
        annotations.append({"image_id": 0, "category_id": 3, "bbox": [0, 0, 9, 9], "iscrowd": 1})
        images.append({"id": count, "file_name": f"{0:012}.jpg", "width": WIDTH, "height": HEIGHT})  # without boxes
        file = {"images": images, "annotations": annotations, "categories": categories}
        (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(file))
    return root


def visual_genome_layout(root: Path) -> Path:
    (root / "VG_100K").mkdir(parents=True)
    images, things = [], []
    for i, (picture, name, (x, y, w, h)) in enumerate(draw(40), start=1):
        picture.save(root / "VG_100K" / f"{i}.jpg")
        images.append({"image_id": i, "width": WIDTH, "height": HEIGHT})
        thing = {"names": [name], "x": x, "y": y, "w": w, "h": h, "attributes": ["wide" if w > h else "tall"]}
        things.append({"image_id": i, "attributes": [thing]})
    (root / "image_data.json").write_text(json.dumps(images))
    (root / "attributes.json").write_text(json.dumps(things))
    return root


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The recipe with a detector of a few channels."""
    main = runpy.run_path(str(RECIPE))["main"]
    small = replace(CONFIG, classes=(), attributes=())
    monkeypatch.setitem(main.__globals__, "BottomUpConfig", lambda **given: replace(small, **given))

    def run(data: str, root: Path, out: Path, **options: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {"epochs": 1, "size": 64, "batch_size": 4, "backbone": "tiny", "pretrained": False}
        main(data=data, root=root, out=out, device="cpu", class_count=3, attribute_count=3, **settings | options)
        facts: dict[str, Any] = json.loads(next(out.glob("*.json")).read_text())
        return facts

    return run


def test_a_folder_of_coco_becomes_a_detector_that_every_command_takes(recipe: Any, tmp_path: Path) -> None:
    root, out = coco_layout(tmp_path / "coco"), tmp_path / "detector"
    facts = recipe("coco", root, out, split="train2017", test_split="val2017")
    assert facts["config"]["classes"] == ["apple", "leaf"]
    assert facts["config"]["attributes"] == []
    assert facts["pictures"] == {"train2017": 17, "val2017": 5}
    assert facts["boxes"] == {"train2017": 16, "val2017": 4}
    assert set(facts["figures"]["val2017"]) >= {"recall_10", "object_top1", "map"}
    assert {path.name for path in out.iterdir()} == {"bottomup_coco.json", "bottomup_coco.safetensors"}

    photos = root / "val2017"
    regions = load_extractor(f"bottomup:{out}@12").describe([photos / f"{0:012}.jpg"])[0]
    assert {region.text for region in regions[:-1]} <= {"apple", "leaf"}  # the last is the whole picture
    command = ["extract", str(photos), "-o", str(tmp_path / "store"), "--regions", f"bottomup:{out}@12"]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert FeatureStore.open(tmp_path / "store").get(3).features.shape == (13, facts["config"]["dim"])
    command = ["see", str(photos / f"{0:012}.jpg"), "--extractor", f"bottomup:{out}", "-o", str(tmp_path / "seen.png")]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert Image.open(tmp_path / "seen.png").width > 0


def test_a_folder_of_visual_genome_teaches_names_and_attributes(recipe: Any, tmp_path: Path) -> None:
    facts = recipe("visual-genome", visual_genome_layout(tmp_path / "vg"), tmp_path / "detector", pictures=30)
    assert facts["config"]["classes"] == ["apple", "leaf"]
    assert set(facts["config"]["attributes"]) == {"wide", "tall"}
    assert facts["pictures"] == {"train": 30, "dev": 2}
    assert "attribute_top1" in facts["figures"]["dev"]
    assert load_extractor(f"bottomup:{tmp_path / 'detector'}").dim == CONFIG.dim


def test_a_mistyped_backbone_is_named_before_any_picture_is_opened(recipe: Any, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match='no backbone "wrold"; did you mean "world"'):
        recipe("coco", tmp_path / "nowhere", tmp_path / "detector", backbone="wrold")
