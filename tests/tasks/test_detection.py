"""Detection as a task: the bottom-up detector and the world's, trained by the one trainer, from folder to extractor."""

from __future__ import annotations

import csv
import json
import runpy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import saccade
from saccade.cli import app
from saccade.core.config import to_dict
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig, FeatureStore
from saccade.metrics.detection import found_boxes
from saccade.models.detectors import BottomUp, Labels, WorldDetector
from saccade.tasks.detection.task import bottomup_figures, label_names, open_boxes, world_figures
from saccade.training.run import run_config, train_run
from saccade.vision import load_extractor
from saccade.vision.boxes import UNKNOWN
from saccade.vision.detectors.bottomup import bottomup_loss
from saccade.vision.detectors.world import WorldExtractorConfig, WorldNetwork, load_world_extractor, world_loss
from saccade.vision.grid import cell_boxes
from tests.vision.conftest import TINY, Rectangles, make_rectangles
from tests.vision.tiny_detector import CONFIG, boxed, tiny_detector

WIDTH, HEIGHT = 80, 60
COLOURS = {"apple": (200, 30, 30), "leaf": (30, 160, 50)}
Drawn = tuple[Image.Image, str, tuple[int, int, int, int]]


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


@pytest.fixture(scope="module")
def rectangles() -> Rectangles:
    return make_rectangles(96)


@pytest.fixture(scope="module")
def more_rectangles() -> Rectangles:
    return make_rectangles(48, seed=5)


@pytest.fixture
def tiny_network() -> WorldNetwork:
    torch.manual_seed(0)
    return WorldNetwork(TINY)


def train(folder: Path, *words: str, resume: bool = False) -> Any:
    """Train a detector of a few channels; the words are as after `saccade train bottomup`."""
    small = {key: value for key, value in to_dict(CONFIG).items() if key not in ("classes", "attributes", "predicates")}
    settings = [f"model.{key}={json.dumps(value)}" for key, value in small.items()]
    counts = ["class_count=3", "attribute_count=3", "batch_size=4", "epochs=1", "learning_rate=5e-3"]
    fixed = ["precision=fp32", "accelerator=cpu", "prefetch=0"]
    return train_run(run_config("bottomup", [*settings, *counts, *fixed, *words]), folder, resume)


def logged(folder: Path, split: str) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["split"] == split]


def facts(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "best" / "config.json").read_text())
    return found


def test_a_folder_of_coco_becomes_a_detector_that_every_command_takes(tmp_path: Path) -> None:
    root, run = coco_layout(tmp_path / "coco"), tmp_path / "run"
    config = DataConfig("coco", root)
    sizes = [(len(s.pictures), s.box_count) for s in (open_boxes(config, name) for name in ("train2017", "val2017"))]
    assert sizes == [(17, 16), (5, 4)]
    result = train(run, "data=coco", f"root={root}", "data.train_split=train2017", "data.dev_split=val2017")
    assert set(result.best) >= {"recall_10", "object_top1", "map"}
    described = facts(run)
    assert described["config"]["classes"] == ["apple", "leaf"]
    assert described["config"]["attributes"] == []
    assert not (run / "best" / "vocabulary.json").exists()

    photos = root / "val2017"
    regions = load_extractor(f"bottomup:{run}@12").describe([photos / f"{0:012}.jpg"])[0]
    assert {region.text for region in regions[:-1]} <= {"apple", "leaf"}  # the last is the whole picture
    command = ["extract", str(photos), "-o", str(tmp_path / "store"), "--regions", f"bottomup:{run}@12"]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert FeatureStore.open(tmp_path / "store").get(3).features.shape == (13, described["config"]["dim"])
    command = ["detect", str(photos / f"{0:012}.jpg"), "--extractor", f"bottomup:{run}", "-o", str(tmp_path / "a.png")]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert Image.open(tmp_path / "a.png").width > 0
    command = ["eval", str(run), "--split", "val2017", "--json", str(tmp_path / "eval.json")]
    printed = CliRunner().invoke(app, command)
    assert printed.exit_code == 0, printed.output
    assert "5 pictures, 4 boxes" in " ".join(printed.output.split())


def test_a_folder_of_visual_genome_teaches_names_and_attributes(tmp_path: Path) -> None:
    root, run = visual_genome_layout(tmp_path / "vg"), tmp_path / "run"
    limited = DataConfig("visual_genome", root, limit=30)
    assert [len(open_boxes(limited, split).pictures) for split in ("train", "dev")] == [30, 2]
    result = train(run, "data=visual_genome", f"root={root}", "limit=30", "class_count=3")
    assert facts(run)["config"]["classes"] == ["apple", "leaf"]
    assert set(facts(run)["config"]["attributes"]) == {"wide", "tall"}
    assert "attribute_top1" in result.best
    assert load_extractor(f"bottomup:{run}").dim == CONFIG.dim


def test_a_mistyped_backbone_is_named_before_any_picture_is_opened(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match='no backbone "wrold"; did you mean "world"'):
        train(tmp_path / "run", "data=coco", f"root={tmp_path / 'nowhere'}", "model.backbone=wrold")


def test_data_without_boxes_and_without_a_folder_is_said() -> None:
    with pytest.raises(SaccadeError, match='did you mean "coco"'):
        open_boxes(DataConfig("cocoa"), "train")
    with pytest.raises(SaccadeError, match="needs a folder: give root="):
        open_boxes(DataConfig("flickr8k"), "train")


def test_a_run_on_the_world_learns_resumes_exactly_and_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    words = ["data=world", "pictures=60", "data.seed=1", "batch_size=16", "log_every=1", "model.backbone_lr_scale=0.5"]
    words += ["schedule=constant"]  # one that does not depend on how long the run is to be
    result = train(tmp_path / "whole", *words, "epochs=2")
    losses = [float(row["loss"]) for row in logged(tmp_path / "whole", "train")]
    assert len(losses) == 6
    assert sum(losses[3:]) < sum(losses[:3])
    assert 0 <= result.best["recall_10"] <= 1
    train(tmp_path / "parts", *words, "steps=3")
    again = train(tmp_path / "parts", *words, "epochs=2", resume=True)
    assert again.last == result.last
    detector = saccade.load(tmp_path / "whole")
    assert len(detector.model.config.classes) > 3
    picture = open_boxes(DataConfig("world", pictures=60, seed=1), "dev").pictures[0].path
    named = load_extractor(f"bottomup:{tmp_path / 'whole'}")
    torch.testing.assert_close(detector.extract(picture).boxes, named.extract([picture]).boxes)
    assert [r.text for r in detector.detect(picture)[0]] == [r.text for r in named.describe([picture])[0]]


def test_the_worlds_detector_trains_from_world_to_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    small = ["model.channels=[8,12,16,16]", "model.map_dim=16", "model.roi_dim=16", "model.hidden=32"]
    words = [*small, "pictures=60", "epochs=5", "batch_size=16", "learning_rate=5e-3", "data.seed=1"]
    run, fixed = tmp_path / "run", ["precision=fp32", "accelerator=cpu", "prefetch=0", "log_every=3"]
    config = run_config("world_extractor", [*words, *fixed])
    result = train_run(config, run)
    losses = [float(row["loss"]) for row in logged(run, "train")]
    assert losses[-1] < 0.85 * losses[0]
    assert len(open_boxes(config.data, "train").pictures) == 48
    assert {"recall", "overlap", "kind", "colour", "size", "material", "all_four"} <= set(result.best)
    extractor = load_world_extractor(run)
    assert extractor.config.channels == (8, 12, 16, 16)
    assert load_extractor(f"world:{run}").digest == extractor.digest
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures: x -->\nold\n<!-- end of figures -->\nafter\n")
    pack = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "pack_weights.py"))["main"]
    pack(run, tmp_path / "packed", docs=page)
    packed = json.loads((tmp_path / "packed" / "config.json").read_text())
    assert {"recall", "all_four"} <= set(packed["figures"]["test"])
    assert packed["command"].startswith("saccade train world_extractor")
    assert load_world_extractor(tmp_path / "packed").config == extractor.config
    lines = page.read_text().splitlines()
    assert lines[:2] + lines[-2:] == ["before", "<!-- figures: x -->", "<!-- end of figures -->", "after"]
    assert any(line.startswith("| kind |") for line in lines)
    assert "old" not in lines
    assert saccade.load(run).detect(open_boxes(config.data, "test").pictures[0].path)[0][-1].box == (0, 0, 1, 1)
    with pytest.raises(SaccadeError, match="learns from the world alone"):
        saccade.load(run).model.tensors([Labelled(np.zeros((4, 4, 3), np.uint8), np.zeros((0, 4)), (), ())])


def test_labels_of_the_extractor_cover_the_world() -> None:
    assert load_world_extractor().config.labels == WorldDetector.with_labels(WorldExtractorConfig(), Labels()).labels


def test_a_few_steps_of_bottomup_find_and_name_most_rectangles(rectangles: Any, more_rectangles: Any) -> None:
    network, truth = tiny_detector().train(), boxed(rectangles)
    optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3)
    losses = []
    for step in range(60):
        losses_of_step = bottomup_loss(network, truth.select(torch.arange(16) + 16 * (step % 6)))
        loss = torch.stack(list(losses_of_step.values())).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-9:]) < 0.5 * sum(losses[:9])
    unseen = boxed(more_rectangles)
    figures = bottomup_figures(network, unseen, counts=(4, 10))
    grid = torch.cat([cell_boxes(n, n) for n in (7, 3, 1)])
    there = torch.ones(1, len(grid), dtype=torch.bool)
    by_grid = float(found_boxes(grid, there, unseen.boxes, unseen.real).sum() / unseen.real.sum())
    assert figures["recall_10"] > max(0.7, by_grid + 0.1)
    assert figures["object_top1"] > 0.8
    assert figures["attribute_top1"] > 0.8
    assert figures["map"] > 0.4


def test_a_few_steps_of_the_worlds_detector_find_and_name_most_rectangles(
    tiny_network: WorldNetwork, rectangles: Any, more_rectangles: Any
) -> None:
    torch.manual_seed(0)
    optimiser = torch.optim.AdamW(tiny_network.parameters(), lr=1e-2)
    losses = []
    for step in range(60):
        batch = rectangles.labelled.select(torch.arange(32) + 32 * (step % 3))
        loss = torch.stack(list(world_loss(tiny_network, batch).values())).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-6:]) < 0.5 * sum(losses[:6])
    figures = world_figures(tiny_network, more_rectangles.labelled)
    assert figures["recall"] > 0.7
    assert figures["colour"] > 0.8
    assert figures["kind"] > 0.8
    assert figures["background"] > 0.9
    assert figures["overlap"] > 0.6


@dataclass(frozen=True)
class Labelled:
    path: np.ndarray
    boxes: np.ndarray
    names: tuple[str, ...]
    attributes: tuple[tuple[str, ...], ...]
    said: tuple[tuple[str, ...], ...] = ()
    relations: tuple[tuple[int, str, int], ...] = ()


def test_pictures_become_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = [0.1, 0.1, 0.2, 0.2], [0.0, 0.0, 1.0, 0.5]
    boxes = np.array([small, large], dtype=np.float32)
    dogs = Labelled(np.full((9, 5, 3), 7, np.uint8), boxes, ("dog", "yeti"), (("wet",), ()))
    crowd = Labelled(
        np.zeros((4, 4, 3), np.uint8),
        boxes[[0, 0, 1]],
        ("dog",) * 3,
        (("wet", "odd"), ("wet",), ()),
        (),
        ((2, "on", 0), (1, "sitting on", 2), (0, "eating", 2)),
    )
    empty = Labelled(np.zeros((4, 4, 3), np.uint8), np.zeros((0, 4), np.float32), (), ())
    names = label_names([dogs, crowd, empty], 2, 2)
    assert names == (("dog",), ("wet",), ("eating", "on", "sitting on"))
    monkeypatch.setattr("saccade.models.detectors.MAX_THINGS", 2)
    model = BottomUp(replace(CONFIG, size=8, classes=names[0], attributes=names[1], predicates=("on",)))
    found = model.tensors([dogs, crowd, empty])
    assert found.pixels.shape == (3, 8, 8, 3)
    assert found.real.tolist() == [[True, True], [True, True], [False, False]]
    assert found.boxes[1, 0].tolist() == large  # of a crowded picture the largest
    assert found.labels[:2].tolist() == [[UNKNOWN, 1], [1, 1]]
    assert found.attributes[1, 1].tolist() == [1, *[UNKNOWN] * 5]
    assert found.relations[1, :3].tolist() == [
        [0, 1, 1],
        [1, 0, UNKNOWN],
        [UNKNOWN] * 3,
    ]  # by the largest boxes' places
    with pytest.raises(SaccadeError, match="no name stands on 9 boxes"):
        label_names([dogs], 9, 9)
