"""Matchers that learn to see: the extractor trained with the rest, from photo files to `saccade eval` and
`saccade.load`.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from toy_photos import make_photos
from toy_training import same_weights

import saccade
from saccade.batch import PairBatch
from saccade.cli import main
from saccade.core.errors import SaccadeError
from saccade.data import CaptionedImages
from saccade.features import open_split
from saccade.metrics import recall
from saccade.models import Matcher, load_model
from saccade.tasks.matching.evaluate import ensemble_of, similarity_table
from saccade.tasks.matching.task import MatchingTask
from saccade.training import Trainer
from saccade.training.run import RunConfig, load_run_config, run_config, run_parts, train_run
from saccade.vision.extractors import trainable_backbone
from saccade.vision.grid import GridNetwork

EXTRACTOR = "grid:world@16"  # 4 × 4 cells
FROZEN = ("stem", "fine")  # its first two parts
SMALL = ["dim=12", "word_dim=8", "min_count=1", "batch_size=4", "accelerator=cpu", "learning_rate=0.003"]
TUNED = [f"extractor={EXTRACTOR}", "backbone.train=true", "freeze=2", "lr_scale=0.5", "items=pictures"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("data") / "photos")


def settings(photos: Path, *words: str, system: str = "scan", tuned: bool = True) -> RunConfig:
    given = ["data=coco_mini", f"root={photos}", *SMALL, *(TUNED if tuned else [f"extractor={EXTRACTOR}"]), *words]
    return run_config(system, given)


def train(config: RunConfig, folder: Path, resume: bool = False) -> None:
    train_run(config, folder, resume, Console(quiet=True))


def saccade_command(*words: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["saccade", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
    assert not end.value.code


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tuned run by the command line."""
    folder = tmp_path_factory.mktemp("runs") / "tuned"
    words = ["data=coco_mini", f"root={photos}", *SMALL, *TUNED, "epochs=3"]
    saccade_command("train", "scan", *words, "-o", folder)
    return folder


@pytest.fixture(scope="module")
def plain_run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same photos through an extractor that stays as it is."""
    folder = tmp_path_factory.mktemp("runs") / "plain"
    train(settings(photos, "epochs=2", system="vse", tuned=False), folder)
    return folder


def seen_of(model: Matcher) -> GridNetwork:
    assert model.backbone is not None
    return model.backbone


def dev_split(photos: Path, size: int | None = 16) -> CaptionedImages:
    config = settings(photos)
    return open_split(config.data, "dev", size)


def fresh(config: RunConfig) -> tuple[Matcher, MatchingTask]:
    """The model and task that `train_run` begins with."""
    backbone = trainable_backbone(config.data.extractor)
    data = [open_split(config.data, split, backbone.size) for split in ("train", "dev")]
    return run_parts(config, data[0], data[1], backbone)[:2]


def test_frozen_parts_stay_bit_by_bit_and_the_others_learn(run: Path) -> None:
    before = trainable_backbone(EXTRACTOR).state_dict()
    after = seen_of(load_model(run / "last", Matcher)).state_dict()
    assert before.keys() == after.keys()
    for name, value in after.items():
        frozen = name.split(".")[1] in FROZEN  # backbone.stem…
        assert torch.equal(value, before[name]) == frozen, name
    assert any(name.split(".")[1] in FROZEN for name in after)


def test_the_extractor_learns_at_its_own_rate(photos: Path, tmp_path: Path) -> None:
    """Adam's first step moves each weight by the learning rate, whatever its gradient."""
    config = settings(photos, "steps=1", "learning_rate=0.001", "lr_scale=0.25", "schedule=constant")
    start, _ = fresh(config)
    train(config, tmp_path)
    after = load_model(tmp_path / "last", Matcher).state_dict()
    moved = {name: (after[name] - value).abs().max().item() for name, value in start.state_dict().items()}
    frozen = {name for name, value in start.named_parameters() if not value.requires_grad}
    assert frozen
    for name, most in moved.items():
        own = 0.0 if name in frozen else 0.00025 if name.startswith("backbone.") else 0.001
        assert most == pytest.approx(own, rel=0.02), name


@pytest.mark.parametrize("system", ["scan", "vse"])
def test_a_saved_model_sees_as_it_did(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """It needs its own weights and no others."""
    config = settings(photos, "steps=2", "average=0", system=system)
    model, task = fresh(config)
    Trainer(config.trainer, tmp_path, Console(quiet=True)).fit(model, task)
    expected = similarity_table(model, task.dev)
    described = json.loads((tmp_path / "last" / "config.json").read_text())
    assert described["backbone"] == EXTRACTOR
    assert described["config"]["region_dim"] == seen_of(model).dim

    def refuse(*_: object) -> None:
        raise AssertionError("the extractor's first weights were looked for")

    monkeypatch.setattr("saccade.vision.detectors.world.load_world_extractor", refuse)
    loaded = load_model(tmp_path / "last", Matcher)
    assert np.array_equal(similarity_table(loaded, task.dev), expected)
    loaded.save_pretrained(tmp_path / "again")
    again = load_model(tmp_path / "again", Matcher)
    assert same_weights(again.state_dict(), loaded.state_dict())


def test_scores_of_files_are_those_of_eval(run: Path, photos: Path, tmp_path: Path) -> None:
    data = dev_split(photos)
    table = similarity_table(load_model(run, Matcher), data)
    assert table.std() > 1e-3
    paths = [photos / "images" / name for name in data.images.ids]
    model = saccade.load(run)
    np.testing.assert_allclose(model.score(paths, data.texts), table, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.score(paths[3], data.texts[2]), table[3:4, 2:3], rtol=1e-4, atol=1e-5)
    saccade_command("eval", run, "--split", "dev", "--json", tmp_path / "eval.json")
    results = json.loads((tmp_path / "eval.json").read_text())["results"]
    assert results[str(run)] == recall(table, data.image_of_text)
    assert len(model.explain(paths[0], data.texts[0]).words)


def test_the_words_of_eval(run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`split=dev` is `--split dev`, and the photos may have moved."""
    moved = shutil.copytree(photos, tmp_path / "moved")
    saccade_command("eval", run, "--split", "dev", "--json", tmp_path / "option.json")
    saccade_command("eval", run, "split=dev", f"root={moved}", "--json", tmp_path / "word.json")
    assert (tmp_path / "option.json").read_text() == (tmp_path / "word.json").read_text()
    assert "coco_mini/dev: 6 pictures, 12 texts" in capsys.readouterr().out
    saccade_command("eval", run, "split=dev", "limit=3", "--json", tmp_path / "fewer.json")
    assert "coco_mini/dev: 3 pictures" in capsys.readouterr().out
    saccade_command("eval", run, "split=train", "--json", tmp_path / "train.json")
    assert json.loads((tmp_path / "train.json").read_text())["split"] == "train"


def test_models_that_see_differently_are_evaluated_side_by_side(
    run: Path, plain_run: Path, photos: Path, tmp_path: Path
) -> None:
    saccade_command("eval", run, plain_run, "split=dev", "--ensemble", "--json", tmp_path / "both.json")
    results = json.loads((tmp_path / "both.json").read_text())["results"]
    tuned = similarity_table(load_model(run, Matcher), dev_split(photos))
    plain = similarity_table(load_model(plain_run, Matcher), dev_split(photos, None))
    owners = dev_split(photos).image_of_text
    assert results[str(run)] == recall(tuned, owners)
    assert results[str(plain_run)] == recall(plain, owners)
    assert results["ensemble"] == recall(ensemble_of([tuned, plain]), owners)


def test_an_extractor_that_stays_is_remembered_by_name(plain_run: Path, photos: Path) -> None:
    model = saccade.load(plain_run)
    assert (model.model.extractor, model.model.backbone) == (EXTRACTOR, None)
    data = dev_split(photos, None)
    paths = [photos / "images" / name for name in data.images.ids]
    table = similarity_table(model.model, data)
    np.testing.assert_allclose(model.score(paths, data.texts), table, atol=2e-3)  # features are kept as float16


class Killed(BaseException):
    """No handler of ordinary errors catches it."""


def test_a_tuned_run_that_was_killed_ends_as_if_it_had_not(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "steps=9",
        "evaluate_every=2",
        "checkpoint_every=3",
        "schedule=cosine",
        "warmup_steps=2",
        "optimiser=adamw",
    ]
    chance = [
        "dropout=0.2",
        "word_dropout=0.3",
        "hard_negative_ramp_steps=4",
        "average=0.9",
        "precision=bf16",
        "weight_decay=0.01",
    ]
    config = settings(photos, *words, *chance)
    train(config, tmp_path / "straight")
    loss = MatchingTask.loss
    deaths = [7, 4, 2]

    def mortal(self: MatchingTask, model: nn.Module, batch: PairBatch, step: int) -> tuple[Tensor, dict[str, float]]:
        if deaths and step == deaths[-1]:
            deaths.pop()
            raise Killed
        return loss(self, model, batch, step)

    monkeypatch.setattr(MatchingTask, "loss", mortal)
    killed = tmp_path / "killed"
    for resume in (False, True, True):
        with pytest.raises(Killed):
            train(load_run_config(killed) if resume else config, killed, resume)
    train(load_run_config(killed), killed, resume=True)
    one, other = (torch.load(tmp_path / name / "last.ckpt", weights_only=True) for name in ("straight", "killed"))
    for part in ("model", "average"):
        assert same_weights(one[part], other[part]), part
    for name in ("best", "last"):
        models = [load_model(tmp_path / run / name, Matcher).state_dict() for run in ("straight", "killed")]
        assert same_weights(*models)
    first, second = (rows_without_time(tmp_path / name / "metrics.csv") for name in ("straight", "killed"))
    assert first == second


def rows_without_time(path: Path) -> list[list[str]]:
    rows = [line.split(",") for line in path.read_text().splitlines()]
    seconds = rows[0].index("seconds")
    return [row[:seconds] + row[seconds + 1 :] for row in rows]


def test_training_varies_the_pictures_and_evaluation_does_not(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(photos)
    model, task = fresh(config)
    shown: list[Tensor] = []
    see = seen_of(model).map

    def watched(pixels: Tensor) -> Tensor:
        shown.append(pixels)
        return see(pixels)

    monkeypatch.setattr(seen_of(model), "map", watched)
    batch = task.batch([0, 1, 2])
    task.loss(model, batch, 0)
    task.loss(model, batch, 1)
    assert shown[0].shape == batch.images.pixels.shape  # type: ignore[union-attr]
    assert not torch.equal(shown[0], shown[1])
    shown.clear()
    task.evaluate(model)
    (pixels,) = shown
    assert torch.equal(pixels, task.dev.images.batch(range(6)).pixels)  # type: ignore[union-attr]


def sentence(words: Sequence[str], photos: Path, folder: Path) -> str:
    with pytest.raises(SaccadeError) as caught:
        train(settings(photos, *words), folder)
    assert not (folder / "config.yaml").exists()
    return str(caught.value)


def test_what_cannot_be_tuned(photos: Path, tmp_path: Path) -> None:
    told = sentence(["extractor=bottomup"], photos, tmp_path)
    assert told == 'the extractor "bottomup" cannot be trained through a matching loss: only grid extractors can'
    told = sentence(["extractor=world"], photos, tmp_path)
    assert 'the extractor "world" cannot be trained' in told
    features = tmp_path / "features"
    features.mkdir()
    np.save(features / "train_ims.npy", np.zeros((2, 3, 8), np.float32))
    (features / "train_caps.txt").write_text("a red cube\n" * 10)
    told = sentence(["data=precomp", f"root={features}"], photos, tmp_path)
    assert told.startswith("data=precomp holds features, and a model that sees for itself needs photos: give ")
    told = sentence(["freeze=6"], photos, tmp_path)
    assert told == f"backbone.freeze=6 leaves nothing of the extractor {EXTRACTOR} to train: it has 6 parts"
    assert "backbone.freeze counts parts" in sentence(["freeze=-1"], photos, tmp_path)
    assert "backbone.train=false leaves the extractor as it is" in sentence(["lr_scale=0"], photos, tmp_path)
    assert "dropout must be at least 0 and less than 1" in sentence(["model.dropout=1.5"], photos, tmp_path)
    assert "augment.crop must be" in sentence(["crop=0"], photos, tmp_path)


def test_a_matcher_of_regions_has_no_extractor_for_pixels(plain_run: Path, photos: Path) -> None:
    with pytest.raises(SaccadeError, match="trained on regions and has no extractor of its own for pixels"):
        similarity_table(load_model(plain_run, Matcher), dev_split(photos))


@pytest.mark.parametrize("system", ["scan", "vse"])
def test_the_recipe_for_flickr8k_holds_and_words_go_over_it(system: str) -> None:
    config = run_config(system, ["data=flickr8k", "backbone.train=false"])
    assert config == dataclasses.replace(
        run_config(system, ["data=flickr8k"]), backbone=dataclasses.replace(config.backbone, train=False)
    )
    assert run_config(system, ["data=flickr8k"]).backbone.train
    assert config.backbone.freeze < len(trainable_backbone(config.data.extractor, pretrained=False).backbone.parts)
