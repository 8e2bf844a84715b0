"""Matching: the loss by hand, batches of true pairs, and a small training run that beats chance and its ablation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.data import CaptionedImages
from saccade.language import Vocabulary
from saccade.language.wordpieces import learn_pieces
from saccade.metrics import chance, recall
from saccade.models import (
    Align2Ground,
    Camp,
    Gsmn,
    Hgr,
    HgrConfig,
    Imram,
    InterBertMatching,
    InterBertMatchingConfig,
    Matcher,
    Multilevel,
    Scan,
    ScanConfig,
    Vse,
    VseConfig,
    Vsrn,
    load_model,
)
from saccade.nn import triplet_loss
from saccade.tasks.matching.evaluate import similarity_table
from saccade.tasks.matching.task import MatchingConfig, MatchingTask
from saccade.training import Trainer, TrainerConfig, seed_everything

COLOURS, KINDS = ("red", "green", "blue", "black"), ("cube", "ball", "cone", "ring")


class Bindings:
    """Pictures of two things as two regions, each its colour beside its kind: twins have the same mean."""

    dim = 8  # four colours, four kinds

    def __init__(self, things: Sequence[tuple[tuple[int, int], ...]]) -> None:
        self.things = things
        self.ids = tuple(map(str, range(len(things))))

    def __len__(self) -> int:
        return len(self.things)

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        features = []
        for i in indices:
            rows = np.random.default_rng(i).normal(scale=0.1, size=(2, self.dim)).astype(np.float32)
            for row, (colour, kind) in zip(rows, self.things[i], strict=True):
                row[[colour, 4 + kind]] += 1
            features.append(rows)
        return RegionBatch.of(features, [np.tile(np.float32([0, 0, 1, 1]), (2, 1))] * len(indices))


def bindings(seed: int, count: int) -> CaptionedImages:
    """Twins side by side: "a red cube and a blue ball", then "a blue cube and a red ball"."""
    rng = np.random.default_rng(seed)
    things = []
    for _ in range(count // 2):
        (c1, c2), (k1, k2) = (rng.choice(4, 2, replace=False) for _ in range(2))
        things += [((c1, k1), (c2, k2)), ((c2, k1), (c1, k2))]
    texts = [" and ".join(f"a {COLOURS[c]} {KINDS[k]}" for c, k in pair) for pair in things]
    return CaptionedImages("bindings", "train", Bindings(things), tuple(texts), np.arange(count))


@pytest.fixture(scope="module")
def data() -> tuple[CaptionedImages, CaptionedImages]:
    return bindings(0, 400), bindings(1, 40)


def train(model: Matcher, data: tuple[CaptionedImages, CaptionedImages], folder: Path) -> dict[str, float]:
    task = MatchingTask(*data, model.read, MatchingConfig(same_image_negatives=False, all_negatives_steps=30))
    config = TrainerConfig(epochs=12, batch_size=40, learning_rate=5e-3, schedule="constant", accelerator="cpu")
    Trainer(config, folder, Console(quiet=True)).fit(model, task)
    best = load_model(folder, Matcher)
    return recall(similarity_table(best, data[1]), data[1].image_of_text)


def test_scan_learns_bindings_that_a_pooled_model_cannot(
    data: tuple[CaptionedImages, CaptionedImages], tmp_path: Path
) -> None:
    vocabulary = Vocabulary.build(data[0].texts, 1)
    seed_everything(0)
    scan = train(Scan(ScanConfig(8, 16, 32, pool="mean"), vocabulary), data, tmp_path / "scan")
    seed_everything(0)
    pooled = train(Vse(VseConfig(8, 16, 32), vocabulary), data, tmp_path / "vse")
    at_random = chance(data[1].image_of_text, 40)
    assert pooled["t2i_r1"] > 3 * at_random["t2i_r1"]
    assert scan["t2i_r1"] > pooled["t2i_r1"] + 20
    assert scan["i2t_r1"] > pooled["i2t_r1"] + 20


def test_the_loss_falls_and_evaluation_leaves_the_mode_alone(data: tuple[CaptionedImages, CaptionedImages]) -> None:
    vocabulary = Vocabulary.build(data[0].texts, 1)
    seed_everything(0)
    model = Vse(VseConfig(8, 16, 32), vocabulary).train()
    task = MatchingTask(*data, vocabulary.batch, MatchingConfig(negatives="all"))
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    losses = []
    for step in range(30):
        loss, _ = task.loss(model, task.batch(range(step % 5 * 40, step % 5 * 40 + 40)), step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])
    task.evaluate(model)
    assert model.training


def test_a_batch_holds_true_pairs_without_needless_padding(data: tuple[CaptionedImages, CaptionedImages]) -> None:
    train_data, _ = data
    task = MatchingTask(*data, Vocabulary.build(train_data.texts, 1).batch, MatchingConfig())
    batch = task.batch([3, 0, 8])
    assert batch.image_index.tolist() == [3, 0, 8]
    torch.testing.assert_close(batch.images.features, train_data.images.batch([3, 0, 8]).features)
    assert [" ".join(w[1:-1]) for w in batch.texts.words] == [train_data.texts[i] for i in (3, 0, 8)]
    assert batch.texts.mask.any(dim=0).all()


@pytest.mark.parametrize("kind", [Scan, Vse, Vsrn, Imram, Camp, Gsmn, Align2Ground, Multilevel, Hgr])
def test_what_can_be_captured_is_padded_and_has_the_same_loss(
    data: tuple[CaptionedImages, CaptionedImages], kind: type[Matcher]
) -> None:
    seed_everything(0)
    config = kind.Config(region_dim=8, word_dim=8, dim=8, **({"blocks": 4} if kind is Gsmn else {}))
    model = kind(config, Vocabulary.build(data[0].texts, 1)).eval()
    task = MatchingTask(*data, model.read, MatchingConfig(min_count=1, all_negatives_steps=3))
    batch = task.batch(range(6))
    assert task.graph_batch(model, batch, 2) is None  # the loss is still another
    still = task.graph_batch(model, batch, 3)
    assert still is not None
    assert isinstance(still.images, RegionBatch)
    assert (still.images.mask.shape[1] % 4, still.texts.mask.shape[1] % 4) == (0, 0)
    assert still.texts.mask.shape[1] > batch.texts.mask.shape[1]
    assert still.texts.links == still.texts.phrases == ()  # but as tables, which a GPU can read
    torch.testing.assert_close(task.loss(model, still, 3)[0], task.loss(model, batch, 3)[0])


def test_the_losses_of_levels_count_as_the_model_says(data: tuple[CaptionedImages, CaptionedImages]) -> None:
    model = Hgr(HgrConfig(8, 8, 8, loss_weights=(1.0, 0.5, 0.0, 2.0)), Vocabulary.build(data[0].texts, 1)).eval()
    task = MatchingTask(*data, model.read, MatchingConfig(min_count=1))
    batch = task.batch(range(6))
    codes = model.encode_images(batch.images), model.encode_texts(batch.texts)
    parts = [triplet_loss(table, owner=batch.owner) for table in model.ranked(*codes)]
    torch.testing.assert_close(task.loss(model, batch, 0)[0], parts[0] + 0.5 * parts[1] + 2 * parts[3])


def test_settings_of_the_hinge_are_for_the_hinge() -> None:
    with pytest.raises(SaccadeError, match="hardest and ways are of loss=triplet"):
        MatchingConfig(loss="contrastive", hardest=2)
    with pytest.raises(SaccadeError, match="hardest must be at least 1"):
        MatchingConfig(hardest=0)


def test_hgr_learns_more_from_its_phrases_than_from_the_event_alone(
    data: tuple[CaptionedImages, CaptionedImages], tmp_path: Path
) -> None:
    """Twins have the same mean: phrases that look for their own regions tell them apart better than the event alone."""
    vocabulary, found = Vocabulary.build(data[0].texts, 1), []
    settings = {"phrase_pool": "sum", "sharpness": 9.0, "dropout": 0.0, "graph_dropout": 0.0}
    for levels in (("event", "action", "entity"), ("event",)):
        seed_everything(0)
        model = Hgr(HgrConfig(8, 16, 32, levels=levels, **settings), vocabulary)  # type: ignore[arg-type]
        found.append(train(model, data, tmp_path / str(len(levels)))["t2i_r1"])
    assert found[0] > found[1] + 5


def test_a_student_comes_nearer_to_its_teacher_and_a_teacher_of_other_regions_is_refused(
    data: tuple[CaptionedImages, CaptionedImages], tmp_path: Path
) -> None:
    vocabulary = Vocabulary.build(data[0].texts, 1)
    seed_everything(0)
    teacher = Scan(ScanConfig(8, 16, 32, pool="mean"), Vocabulary.build([*data[0].texts, "some more words"], 1)).eval()
    teacher.save_pretrained(tmp_path / "teacher")
    student = Vse(VseConfig(8, 16, 32), vocabulary).train()
    config = MatchingConfig(teacher=tmp_path / "teacher", teacher_weight=2.0, word_dropout=0.2)
    task = MatchingTask(*data, vocabulary.batch, config)
    batch, taught, rate = task.batch(range(20)), [], 5e-3
    optimiser = torch.optim.Adam(student.parameters(), rate)
    for step in range(30):
        loss, parts = task.loss(student, batch, step)
        assert loss.item() == pytest.approx(sum(part.item() for part in parts.values()), rel=1e-5)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        taught.append(parts["teacher_loss"].item())
    assert taught[-1] < 0.8 * taught[0]
    assert task.graph_batch(student, batch, 99) is None
    teacher.extractor = "bottomup@36"
    teacher.save_pretrained(tmp_path / "other")
    with pytest.raises(SaccadeError, match=r"learned from regions of bottomup@36, not of None$"):
        MatchingTask(*data, vocabulary.batch, MatchingConfig(teacher=tmp_path / "other"))


def test_a_cross_encoder_is_shown_the_pairs_that_its_teacher_mistakes(
    data: tuple[CaptionedImages, CaptionedImages], tmp_path: Path
) -> None:
    """Pictures and texts that a sure teacher likes best among the wrong ones are chosen; without one, none are."""
    pieces = learn_pieces(data[0].texts, 100)
    seed_everything(0)
    teacher = Scan(ScanConfig(8, 16, 32, pool="mean"), Vocabulary.build(data[0].texts, 1)).eval()
    teacher.save_pretrained(tmp_path / "teacher")
    sizes = {"dim": 16, "heads": 2, "image_heads": 2, "hidden": 16, "image_hidden": 16, "pooled_dim": 8, "layers": 1}
    config = InterBertMatchingConfig(region_dim=8, text_layers=1, image_layers=1, **sizes)  # type: ignore[arg-type]
    reader = InterBertMatching(config, pieces)
    settings = MatchingConfig(teacher=tmp_path / "teacher", teacher_negatives=1, teacher_temperature=1e-6)
    task, alone = (MatchingTask(*data, reader.read, own) for own in (settings, MatchingConfig()))
    batch = task.batch(range(12))
    same = batch.image_index[:, None] == batch.image_index[batch.owner]
    (owner, texts), (images, own) = task._hard_pairs(batch.images, batch, same)
    scores = teacher(batch.images, teacher.read([data[0].texts[n] for n in range(12)])).masked_fill(same, -torch.inf)
    torch.testing.assert_close(scores[owner, texts], scores[owner].amax(dim=1))
    torch.testing.assert_close(scores[images, own], scores.amax(dim=0))
    assert alone._hard_pairs(batch.images, batch, same) == []
    loss, _ = task.loss(reader.train(), batch, 0)
    loss.backward()
    assert loss.isfinite()
