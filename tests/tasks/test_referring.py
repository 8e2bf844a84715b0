"""Referring: what is prepared, learned and measured; a model trained on toy boxes finds what is meant, and shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.data.records import Candidates, CaptionedImages, Referrals
from saccade.features import open_referrals
from saccade.models import Plan, PlanConfig
from saccade.tasks import find_task
from saccade.tasks.referring.evaluate import ReferringAccuracy, choose_all, read_split, read_texts, rightness
from saccade.tasks.referring.task import ReferringConfig, ReferringTask, build_referrer, prepare_texts
from saccade.training.cuda_graphs import tensors_of
from saccade.vision.augment import AugmentConfig

COLOURS, KINDS = ("red", "green", "blue"), ("cube", "ball")
SMALL = PlanConfig(
    dim=16, text_dim=16, word_dim=16, attention_dim=16, referring_dim=16, category_dim=4, forget_bias=1.0
)


class Things:
    """Pictures of two to four boxes whose features say their colour, their categories the kind."""

    def __init__(self, count: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        pairs = np.array([(colour, kind) for colour in range(3) for kind in range(2)])
        self.things = [pairs[draw.permutation(6)[: 2 + n % 3]] for n in range(count)]
        self.ids, self.dim = tuple(map(str, range(count))), 3

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: list[int]) -> RegionBatch:
        own = [self.things[i] for i in indices]
        return RegionBatch.of([np.eye(3, dtype=np.float32)[t[:, 0]] for t in own], [boxes(len(t)) for t in own], dim=3)


def boxes(count: int) -> np.ndarray:
    x = np.arange(count, dtype=np.float32) / count
    return np.stack([x, np.zeros_like(x), x + 0.9 / count, np.ones_like(x)], axis=1)


def referred(count: int, seed: int) -> Referrals[CaptionedImages]:
    """Of every picture an expression and a dialog about its first thing, and an expression about its last."""
    source = Things(count, seed)
    spoken, owners, targets, kinds = [], [], [], []
    for n, things in enumerate(source.things):
        for place in (0, len(things) - 1):
            colour, kind = COLOURS[things[place][0]], KINDS[things[place][1]]
            spoken.append(f"the {colour} {kind}")
            spoken.append((f"is it a cube? {'yes' if kind == 'cube' else 'no'}", f"what colour is it? {colour}"))
            owners += [n, n]
            targets += [place, place]
            kinds += ["colour", "dialog"]
    texts = tuple(text if isinstance(text, str) else " ".join(text) for text in spoken)
    pictures = CaptionedImages("toys", f"split{seed}", source, texts, np.array(owners), "toys")  # type: ignore[arg-type]
    candidates = tuple(Candidates(boxes(len(t)), tuple(KINDS[kind] for _, kind in t)) for t in source.things)
    choices = tuple(tuple(range(len(source.things[n]))) for n in owners)
    return Referrals(pictures, tuple(spoken), candidates, choices, tuple(targets), tuple(kinds), source)  # type: ignore[arg-type]


def trained(config: ReferringConfig, steps: int = 110) -> tuple[Plan, Referrals[CaptionedImages]]:
    train, dev = referred(60, 1), referred(30, 2)
    torch.manual_seed(0)
    model = build_referrer(Plan, SMALL, prepare_texts(train, config))
    assert isinstance(model, Plan)
    task = ReferringTask(model, train, dev, config, AugmentConfig())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(steps):
        loss, _ = task.loss(model, task.batch(list(range(step % 4, len(task), 4))), step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval(), dev


def test_what_is_prepared_are_words_categories_and_widths() -> None:
    prepared = prepare_texts(referred(20, 1), ReferringConfig(reads="expressions"))
    assert prepared.labels == ("ball", "cube")
    assert prepared.widths == {"region_dim": 3}
    assert prepared.vocabulary is not None
    assert "red" in prepared.vocabulary
    assert "what" not in prepared.vocabulary
    assert "40 expressions, boxes of 2 categories" in prepared.notes[-1]


def test_a_referrer_learns_what_is_meant_by_expressions_and_dialogs(tmp_path: Path) -> None:
    config = ReferringConfig()
    model, dev = trained(config)
    figures = ReferringAccuracy().evaluate(model, dev, config)
    assert figures["accuracy"] > 90
    assert {"expressions", "dialogs", "accuracy_colour", "accuracy_dialog"} <= figures.keys()
    assert figures["chance"] == pytest.approx(100 * (1 / 2 + 1 / 3 + 1 / 4) / 3)
    kept = ReferringAccuracy().measure(model, dev, config, tmp_path, False)
    assert kept["part/accuracy"].sum() == pytest.approx(figures["accuracy"])
    assert int(kept["texts"]) == len(dev.texts)


def test_what_can_be_captured_is_padded_and_has_the_same_loss() -> None:
    train, config = referred(60, 1), ReferringConfig()
    torch.manual_seed(0)
    model = build_referrer(Plan, SMALL, prepare_texts(train, config)).eval()
    task = ReferringTask(model, train, train, config, AugmentConfig())
    shapes = set()
    for first in range(12):
        batch = task.batch(list(range(first, len(task), 12)))
        still = task.graph_batch(model, batch, 0)
        shapes.add(tuple(tensor.shape for tensor in tensors_of(still)))
        torch.testing.assert_close(task.loss(model, still, 0)[0], task.loss(model, batch, 0)[0])
    assert len(shapes) <= 2


@pytest.mark.parametrize(("shown", "least", "most"), [("text", 36, 36.2), ("boxes", 45, 75), ("picture", 25, 60)])
def test_floors_see_less(shown: str, least: float, most: float) -> None:
    """Words alone are chance, whatever a model makes of them; boxes have their categories, pictures no words."""
    config = ReferringConfig(shown=shown)  # type: ignore[arg-type]
    model, dev = trained(config, 40)
    assert least <= ReferringAccuracy().evaluate(model, dev, config)["accuracy"] <= most


def test_of_equals_the_share_that_is_right_counts() -> None:
    right = np.array([True, False, False])
    assert rightness(np.array([2.0, 1.0, 0.0]), right) == 1
    assert rightness(np.array([2.0, 2.0, 0.0]), right) == 0.5
    assert rightness(np.array([0.0, 2.0, 2.0]), right) == 0


def test_texts_choose_among_their_own_boxes() -> None:
    """What a text may not choose has no part in its logits, and the order of batches does not matter."""
    model, dev = trained(ReferringConfig(), 5)
    whole = choose_all(model, dev, 7)
    for one, other in zip(choose_all(model, dev, 64), whole, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    choices = tuple(own[-1:] for own in dev.choices)
    alone = choose_all(model, replace(dev, choices=choices, targets=(0,) * len(choices)))
    assert {len(row) for row in alone} == {1}


def test_texts_can_choose_among_all_boxes_of_their_picture() -> None:
    """Also where the data set gives a text some of them; a box that stands there twice is a choice once."""
    dev = referred(30, 2)
    alone = tuple((own[t],) for own, t in zip(dev.choices, dev.targets, strict=True))
    few = replace(dev, choices=alone, targets=(0,) * len(dev.targets))
    found = read_split(few, ReferringConfig(among="all"))
    assert (found.choices, found.targets) == (dev.choices, dev.targets)
    assert read_split(few, ReferringConfig()).choices == few.choices
    twice = tuple(
        Candidates(np.concatenate([own.boxes, own.boxes]), own.categories + ("as well",) * len(own.boxes))
        for own in few.candidates
    )
    doubled = read_split(replace(few, candidates=twice), ReferringConfig(among="all"))
    assert doubled.targets == dev.targets
    assert [len(own) for own in doubled.choices] == [2 * len(own) - 1 for own in dev.choices]


def test_expressions_and_dialogs_are_told_apart() -> None:
    data = referred(6, 1)
    assert len(read_texts(data, "both").texts) == 24
    expressions, dialogs = (read_texts(data, kind) for kind in ("expressions", "dialogs"))
    assert not any(expressions.dialogs)
    assert all(dialogs.dialogs)
    assert len(expressions.texts) == len(dialogs.texts) == 12
    with pytest.raises(SaccadeError, match="has no dialogs"):
        read_texts(expressions, "dialogs")
    some = data.select([4, 1])
    assert len(some.texts) == 8
    assert [len(c.boxes) for c in some.candidates] == [len(data.candidates[4].boxes), len(data.candidates[1].boxes)]
    assert {len(some.choices[n]) for n in range(8) if some.pictures.image_of_text[n] == 0} == {len(data.choices[16])}


def test_the_worlds_boxes_come_with_what_the_extractor_sees_in_them() -> None:
    split = open_referrals(DataConfig(pictures=20), "dev")
    assert split.features is not None
    assert len(split.features) == len(split.images) == len(split.candidates) == 2
    for n, own in enumerate(split.candidates):
        np.testing.assert_array_equal(split.features.get(n).boxes, own.boxes)
    limited = find_task("referring").open(DataConfig(pictures=20, limit=1, in_memory=True), "dev")
    assert len(limited.images) == len(limited.candidates) == 1
    assert set(limited.pictures.image_of_text.tolist()) == {0}
    with pytest.raises(SaccadeError, match="fixed extractor"):
        find_task("referring").open(DataConfig(pictures=20), "dev", 64)
