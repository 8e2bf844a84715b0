from __future__ import annotations

import csv
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from saccade.batch import PairBatch, RegionBatch, SceneGraphBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.language import Vocabulary
from saccade.models import InterBert, InterBertConfig, InterBertMatching, load_model
from saccade.tasks.pretraining.task import PretrainingConfig, mask_pairs, score_objectives
from saccade.training.run import open_for_training, run_config, train_run
from toy_runs import SMALL_TRANSFORMER, saccade_command

SIZES: dict[str, Any] = {**SMALL_TRANSFORMER, "region_labels": ("cube", "ball")}


def batch_of(images: RegionBatch, texts: TextBatch, index: list[int] | None = None) -> PairBatch:
    return PairBatch(images, texts, torch.arange(4), torch.tensor(index or [0, 1, 2, 3]))


def model_of(vocabulary: Vocabulary, **settings: Any) -> InterBert:
    torch.manual_seed(0)
    return InterBert(InterBertConfig(**{**SIZES, **settings}), vocabulary)


def test_wrong_captions_are_wrong_and_right_ones_their_own(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """Of two captions of one picture neither is a wrong one of it."""
    model = model_of(vocabulary)
    config = PretrainingConfig(wrong_rate=1.0, word_weight=0.0)
    pairs = mask_pairs(model, batch_of(toy_images, toy_texts), config)
    assert not pairs.matched.any()
    assert not (pairs.texts.tokens == toy_texts.tokens).all(dim=1).any()
    assert torch.equal(pairs.images.features, toy_images.features)
    twice = mask_pairs(model, batch_of(toy_images, toy_texts, [7, 7, 7, 7]), config)
    assert twice.matched.all()
    right = mask_pairs(model, batch_of(toy_images, toy_texts), replace(config, wrong_rate=0.0))
    assert right.matched.all()
    assert torch.equal(right.texts.tokens, toy_texts.tokens)


def test_an_objective_without_weight_hides_nothing(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model = model_of(vocabulary)
    everything: dict[str, Any] = {"segment_rate": 1.0, "region_rate": 1.0, "wrong_rate": 1.0}
    for name in ("word", "region", "match"):
        config = PretrainingConfig(**everything, **{f"{name}_weight": 0.0}, region_target="features")
        pairs = mask_pairs(model, batch_of(toy_images, toy_texts), config)
        assert bool((pairs.words >= 0).any()) is (name != "word")
        assert bool(pairs.regions.any()) is (name != "region")
        assert bool(pairs.matched.all()) is (name == "match")
        results = score_objectives(model_of(vocabulary, region_output="features"), pairs, config)
        assert results.losses.keys() == {"word", "region", "match"} - {name}
    with pytest.raises(SaccadeError, match="one of word_weight, region_weight and match_weight"):
        PretrainingConfig(word_weight=0, region_weight=0, match_weight=0)


def test_only_regions_of_true_pairs_that_have_a_class_are_told(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    objects = torch.zeros(toy_images.mask.shape, dtype=torch.long)
    objects[0, 0], objects[1, 1], objects[2, 0] = 4, 5, 5  # a cube, a ball, a ball
    empty = torch.zeros(4, 0, dtype=torch.long)
    graph = SceneGraphBatch(
        *(objects, toy_images.mask, torch.zeros(4, 0, 3, dtype=torch.long), empty.bool()),
        *(empty, torch.zeros(4, 0, 1, dtype=torch.long), torch.zeros(4, 0, 1, dtype=torch.bool)),
    )
    config = PretrainingConfig(region_rate=1.0, wrong_rate=0.0)
    model = model_of(vocabulary).eval()
    pairs = mask_pairs(model, batch_of(replace(toy_images, graph=graph), toy_texts), config)
    assert pairs.target is not None
    assert pairs.target.nonzero().tolist() == [[0, 0, 0], [1, 1, 1], [2, 0, 1]]
    results = score_objectives(model, pairs, config)
    assert results.count["region"] == 3
    wrong = score_objectives(model, replace(pairs, matched=torch.tensor([True, False, False, True])), config)
    assert wrong.count["region"] == 1
    assert wrong.count["match"] == 4


def test_single_regions_and_tokens_are_switches(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """All boxes the same: with one anchor all are hidden, or one in six."""
    same = replace(toy_images, boxes=torch.tensor([0, 0, 1, 1.0]).expand_as(toy_images.boxes))
    model, batch = model_of(vocabulary), batch_of(same, toy_texts)
    shares: dict[str, float] = {}
    for kind in ("overlapping", "single"):
        config = PretrainingConfig(hide_regions=kind, hide_words="tokens", token_rate=0.3)  # type: ignore[arg-type]
        drawn = [mask_pairs(model, batch, config) for _ in range(300)]
        shares[kind] = float(torch.stack([p.regions.float().sum() / same.mask.sum() for p in drawn]).mean())
        words = torch.stack([(p.words >= 0).float().sum() / (toy_texts.mask.sum() - 8) for p in drawn]).mean()
        assert abs(float(words) - 0.3) < 0.03
    assert abs(shares["single"] - 0.15) < 0.03
    assert shares["overlapping"] > 2 * shares["single"]


@pytest.mark.parametrize("setting", ["segment_rate=2", "overlap=-1", "segment_length=0.5", "word_weight=-1"])
def test_a_bad_setting_is_named(setting: str) -> None:
    name, value = setting.split("=")
    with pytest.raises(SaccadeError, match=name):
        PretrainingConfig(**{name: float(value)})  # type: ignore[arg-type]


SMALL = [
    *("dim=16", "heads=2", "image_heads=2", "hidden=24", "image_hidden=24", "pooled_dim=16", "layers=1"),
    *("text_layers=1", "image_layers=1", "max_words=24", "vocabulary_size=130", "dropout=0", "attention_dropout=0"),
]
TRAINER = ["accelerator=cpu", "batch_size=8", "learning_rate=0.005", "schedule=constant", "log_every=5"]


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of two things each, with captions that name them."""
    folder = tmp_path_factory.mktemp("precomp")
    generator, kinds = np.random.default_rng(0), ("cube", "ball", "cone", "ring")
    for split, count in (("train", 16), ("dev", 6), ("test", 6)):
        things = generator.integers(0, 4, (count, 2))
        regions = np.eye(4)[things] + 0.05 * generator.standard_normal((count, 2, 4))
        np.save(folder / f"{split}_ims.npy", regions.astype(np.float32))
        said = [f"a {kinds[a]} and a {kinds[b]}" for a, b in things for _ in range(5)]
        (folder / f"{split}_caps.txt").write_text("\n".join(said) + "\n")
    return folder


def test_a_model_is_pretrained_then_fine_tuned_and_the_curves_are_drawn(
    features: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line: its words and sizes go with the weights; the fresh output alone is new."""
    data, pre, fine = ["data=precomp", f"root={features}"], tmp_path / "pre", tmp_path / "fine"
    words = [*data, *SMALL, *TRAINER, "region_target=features", "steps=30", "accumulate=2"]
    assert saccade_command("pretrain", "interbert", *words, "--out", pre) == 0
    rows = list(csv.DictReader((pre / "metrics.csv").open()))
    losses = {
        name: [float(row[name]) for row in rows if row[name]] for name in ("word_loss", "region_loss", "match_loss")
    }
    assert losses["word_loss"][-1] < losses["word_loss"][0]
    assert saccade_command("curves", pre, "-o", tmp_path / "curves.png") == 0
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert "word_loss" in capsys.readouterr().out
    told = [*data, *TRAINER, "task=matching", f"init={pre}", "steps=10"]
    assert saccade_command("train", "interbert", *told, "--out", fine) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "fresh: choice_out.weight, choice_out.bias" in said
    first, second = load_model(pre), load_model(fine)
    assert isinstance(second, InterBertMatching)
    assert second.vocabulary == first.vocabulary
    assert (second.config.dim, second.config.layers, second.config.heads) == (16, 1, 2)
    assert saccade_command("eval", fine, "--json", tmp_path / "found.json") == 0
    assert read_json(tmp_path / "found.json")["results"][str(fine)]["rsum"] > 0
    assert saccade_command("eval", pre, "--json", tmp_path / "told.json") == 0
    assert 0 <= read_json(tmp_path / "told.json")["results"][str(pre)]["word_accuracy"] <= 100


def test_a_killed_pretraining_goes_on_as_if_it_had_not_stopped(features: Path, tmp_path: Path) -> None:
    """Its word pieces are learned anew, and are the same."""
    words = ["data=precomp", f"root={features}", *SMALL, *TRAINER, "region_target=contrast", "dropout=0.1"]
    quiet = Console(file=StringIO())
    whole = run_config("interbert", [*words, "steps=12"])
    train_run(whole, tmp_path / "whole", console=quiet)
    train_run(run_config("interbert", [*words, "steps=6"]), tmp_path / "killed", console=quiet)
    train_run(whole, tmp_path / "killed", resume=True, console=quiet)
    one, other = (load_model(tmp_path / run / "last") for run in ("whole", "killed"))
    assert one.vocabulary == other.vocabulary
    for weight, same in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(weight, same)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["pretrain", "scan"], "scan is trained at once"),
        (["pretrain", "interbert"], "names nothing, so regions have no classes to predict"),
        (["train", "interbert", "task=captioning"], 'interbert has no task "captioning"'),
        (["train", "interbert", "task=matching", "init=nowhere"], "nowhere is no model folder"),
        (["curves", "nowhere"], "nowhere is no run folder"),
    ],
)
def test_mistakes_get_a_sentence(
    words: list[str], sentence: str, features: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [] if words[0] == "curves" else ["data=precomp", f"root={features}"]
    assert saccade_command(*words, *data, "--out", tmp_path / "out") == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_few_pictures_may_be_learned_from_and_all_be_judged(features: Path) -> None:
    """Of the training split, after what is held out; other splits stay whole."""
    words = ["data=precomp", f"root={features}", "train_limit=3"]
    train, dev = open_for_training(run_config("interbert", words))
    assert (len(train.images), len(dev.images)) == (3, 6)
    assert len(train.texts) == 15
    train, held_out = open_for_training(run_config("interbert", [*words, "held_out=4"]))
    assert (len(train.images), len(held_out.images)) == (3, 4)
    assert not set(train.images.ids) & set(held_out.images.ids)
    with pytest.raises(SaccadeError, match="train_limit must be at least 1"):
        run_config("interbert", ["train_limit=0"])
