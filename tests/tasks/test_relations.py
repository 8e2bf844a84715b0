"""Relations: which pairs are learned from, what is held out, what is measured, and that a model learns it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.data.records import CaptionedImages, PictureRegions, RegionSource, RelatedThings, Relations
from saccade.features.splits import open_relations
from saccade.models import Analogy, AnalogyConfig
from saccade.tasks.relations.evaluate import RelationPrecision, pair_candidates, ranks_of, retrieve, with_boxes
from saccade.tasks.relations.predict import RelationFinder
from saccade.tasks.relations.task import (
    RelationsConfig,
    RelationTask,
    build_relater,
    has_unseen,
    is_held_out,
    labels_of,
    prepare_triplets,
)
from saccade.vision.augment import AugmentConfig
from saccade.world.sample import held_out_acts

KINDS = ("dog", "cat", "car")
SMALL = AnalogyConfig(
    hidden_dim=64, dim=32, word_dim=8, spatial_hidden_dim=16, spatial_dim=16, appearance_dim=8, transform_dim=16,
    dropout=0.0, scale=20.0, normalise_words=False, normalise_regions=False, min_occurrences=0,
)  # fmt: skip
UNSEEN = ("cat", "over", "car")


class Features(RegionSource):
    """Things one above the other or side by side; features say their kinds."""

    def __init__(self, pictures: list[tuple[np.ndarray, list[str]]]) -> None:
        self.pictures = pictures

    @property
    def ids(self) -> list[str]:
        return [str(n) for n in range(len(self.pictures))]

    @property
    def dim(self) -> int:
        return len(KINDS)

    def get(self, index: int) -> PictureRegions:
        boxes, kinds = self.pictures[index]
        features = np.array([[float(kind == name) for name in KINDS] for kind in kinds], dtype=np.float32)
        whole = np.array([[0, 0, 1, 1]], dtype=np.float32)
        return PictureRegions(str(index), np.concatenate([features, features[:1]]), np.concatenate([boxes, whole]))


def scenes(count: int, seed: int, unseen: bool = False) -> Relations[CaptionedImages]:
    """Two things: one is over, or left of, the other; none of train shows a cat over a car."""
    dice = np.random.default_rng(seed)
    pictures, things = [], []
    while len(pictures) < count:
        one, other = (KINDS[n] for n in dice.integers(len(KINDS), size=2))
        predicate = ("over", "left of")[dice.integers(2)]
        if ((one, predicate, other) == UNSEEN) != (unseen and len(pictures) % 4 == 0):
            continue
        x, y = dice.random(2) * 0.2
        step = (0.0, 0.4) if predicate == "over" else (0.4, 0.0)
        corners = [(x, y, x + 0.3, y + 0.3), (x + step[0], y + step[1], x + step[0] + 0.3, y + step[1] + 0.3)]
        boxes = np.array(corners, dtype=np.float32)
        pictures.append((boxes, [one, other]))
        back = "under" if predicate == "over" else "right of"
        things.append(RelatedThings(boxes, (one, other), ((0, predicate, 1), (1, back, 0))))
    images = CaptionedImages("toy", "train", Features(pictures), (), np.zeros(0, dtype=np.int64), "world")
    return Relations(images, tuple(things))


def task_of(
    train: Relations[CaptionedImages], dev: Relations[CaptionedImages], **settings: object
) -> tuple[Analogy, RelationTask]:
    config = RelationsConfig(**settings)  # type: ignore[arg-type]
    torch.manual_seed(0)
    model = build_relater(Analogy, SMALL, prepare_triplets(train, config))
    assert isinstance(model, Analogy)
    return model, RelationTask(model, train, dev, config, AugmentConfig())


def test_related_pairs_are_labelled_and_what_is_held_out_is_neither_taught_nor_a_negative() -> None:
    train = scenes(40, 1)
    model, task = task_of(train, train)
    batch = task.batch([0, 1])
    assert batch.related.tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 1], [1, 1, 0]]
    assert not len(batch.unrelated)  # the whole picture is no thing
    predicates = labels_of(batch.predicates, 4, len(model.config.predicates))
    triplets = labels_of(batch.triplets, 4, len(model.config.triplets))
    for row, (picture, s, o) in enumerate(batch.related.tolist()):
        (relation,) = (r for r in train.things[picture].relations if (r[0], r[2]) == (s, o))
        true = model.places(train.things[picture].names[s], relation[1], train.things[picture].names[o])
        assert predicates[row].nonzero().flatten().tolist() == [true[1]]
        assert [model.config.triplets[n] for n in triplets[row].nonzero().flatten()] == [true]
    assert batch.queries.tolist() == triplets.any(dim=0).nonzero().flatten().tolist()
    held, kept = task_of(train, train, hold_out=3)
    known = {held.named(triplet) for triplet in held.config.triplets}
    every = {triplet for own in train.things for triplet in own.named()}
    assert known == {triplet for triplet in every if not is_held_out(triplet, 3)}
    assert 0 < len(known) < len(every)
    assert sum(len(own.related) for _, own in kept.items) < 80
    assert all(not own.unrelated for _, own in kept.items)


def test_regions_that_overlap_nothing_are_background_and_pairs_of_them_are_negatives() -> None:
    boxes = np.array([[0, 0, 0.3, 0.3], [0.5, 0, 0.8, 0.3]], dtype=np.float32)
    things = RelatedThings(boxes, ("dog", "cat"), ((0, "left of", 1),))
    found = np.concatenate([boxes, [[0, 0.5, 0.3, 0.8]]]).astype(np.float32)
    images = CaptionedImages("toy", "train", Features([(found, ["dog", "cat", "car"])]), (), np.zeros(0, np.int64))
    split = Relations(images, (things,))
    model, task = task_of(split, split, negatives=2)
    batch = task.batch([0])
    assert batch.classes.tolist() == [
        [model.config.classes.index(n) for n in ("dog", "cat", "background", "background")]
    ]
    assert batch.related.tolist() == [[0, 0, 1]]
    assert len(batch.unrelated) == 5
    loss, parts = task.loss(model, batch, 0)
    assert loss.isfinite()
    assert sorted(parts) == ["loss_o", "loss_r", "loss_s", "loss_sro"]
    assert len(pair_candidates(torch.tensor([[0, 0, 1.0, 1], [0, 0, 0.5, 1]]))) == 0


def test_a_split_without_enough_relations_is_refused() -> None:
    train = scenes(5, 1)
    with pytest.raises(SaccadeError, match="no relation that occurs often enough"):
        prepare_triplets(train, RelationsConfig(min_predicate=100))


def test_a_model_learns_relations_and_transfers_them_to_unseen_ones() -> None:
    train, dev = scenes(160, 1), scenes(60, 2, unseen=True)
    model, task = task_of(train, dev, transfer_from=160)
    assert task.selection == "map_unseen"
    assert has_unseen(model, dev)
    assert not has_unseen(model, train)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    dice = np.random.default_rng(0)
    branches = None
    for step in range(240):
        loss, parts = task.loss(model, task.batch(dice.choice(len(task), 16, replace=False).tolist()), step)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if step == 159:
            branches = {n: p.clone() for n, p in model.named_parameters() if n.split(".")[1:2] in (["s"], ["r"], ["o"])}
    assert sorted(parts) == ["loss_sro", "loss_transfer"]
    assert branches
    assert all(torch.equal(p, branches[n]) for n, p in model.named_parameters() if n in branches)
    chance = retrieve(model, dev, at_random=True).report(model)
    found = task.evaluate(model)
    assert found["map_seen"] > 75 > 3 * chance["map_seen"]
    assert found["map_unseen"] > 75 > 3 * chance["map_unseen"]
    by_predicate = retrieve(model, dev).report(model, by_predicate=True)
    assert {name for name in by_predicate if name.startswith("map_unseen_")} == {"map_unseen_over", "map_unseen_under"}
    counts = RelationPrecision().counts(dev, task.config)
    assert counts == {"pictures": 60, "texts": 120}
    finder = RelationFinder(model)
    assert finder.reason("a cat over the car").startswith("never seen")
    assert finder.sources("cat over car")
    assert not finder.sources("dog over car")
    position = next(n for n, own in enumerate(dev.things) if UNSEEN in own.named())
    regions = dev.images.batch([position, 1])
    assert isinstance(regions, RegionBatch)
    pair, _ = finder.find(regions, "cat over car")
    assert pair is not None
    np.testing.assert_allclose([pair.subject_box, pair.object_box], dev.things[position].boxes, atol=1e-6)
    seen = next(n for n, own in enumerate(dev.things) if UNSEEN not in own.named())
    surest = [triplet for triplet, _ in finder.detect(dev.images.batch([seen]), top=3)]  # type: ignore[arg-type]
    assert set(surest) & set(dev.things[seen].named())


def test_average_precision_counts_what_no_region_reaches() -> None:
    dev = scenes(8, 3)
    model, _ = task_of(dev, dev)
    full = retrieve(model, dev)
    missing = CaptionedImages(
        "toy", "dev", Features([(own.boxes[:1], list(own.names[:1])) for own in dev.things]), (), np.zeros(0, np.int64)
    )
    assert full.pairs == 16
    assert full.unknown == 0
    assert retrieve(model, Relations(missing, dev.things)).precision.max() == 0


def test_ranks_are_those_of_a_stable_sort() -> None:
    scores = np.random.default_rng(0).integers(0, 8, 60).astype(np.float32)  # many are equal
    chosen = np.array([40, 3, 17, 59])
    place = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
    assert ranks_of(scores, chosen).tolist() == sorted(place[chosen].tolist())


def test_words_that_are_not_known_are_told() -> None:
    dev = scenes(40, 3)
    finder = RelationFinder(task_of(dev, dev)[0])
    assert finder.model.named(finder.triplet("the dog is left of a car")) == ("dog", "left of", "car")
    for text, message in (
        ("dog eating car", "no relation"),
        ("cow over car", 'knows no thing "cow"'),
        ("dog", "is not SUBJECT PREDICATE OBJECT"),
    ):
        with pytest.raises(SaccadeError, match=message):
            finder.triplet(text)


def test_boxes_of_an_evaluation_are_given_or_proposed() -> None:
    assert with_boxes("world", None) == "world"
    assert with_boxes("world", "given") == "true-boxes"
    assert with_boxes("true-boxes", "proposed") == "world"
    assert with_boxes("bottomup@36", "given") == "true-boxes:bottomup@36"
    assert with_boxes("true-boxes:bottomup@36", "proposed") == "bottomup@36"


def test_the_world_keeps_some_combinations_for_its_novel_split() -> None:
    config = DataConfig("world", pictures=60, extractor="true-boxes")
    splits = {name: open_relations(config, name) for name in ("train", "novel")}
    said = {name: {t for own in split.things for t in own.named()} for name, split in splits.items()}
    held_out = set(held_out_acts())
    assert not said["train"] & held_out
    assert said["novel"] & held_out
    again = open_relations.__wrapped__(config, "novel")
    assert [own.relations for own in again.things] == [own.relations for own in splits["novel"].things]
    assert splits["novel"].pictures.extractor == "true-boxes"
    for own in splits["train"].things:
        assert all(0 <= s < len(own.names) and 0 <= o < len(own.names) and s != o for s, _, o in own.relations)


def test_photos_are_read_at_their_true_boxes(tmp_path: Path, photos: list[Path]) -> None:
    """VRD's files, with the world's extractor in the boxes."""
    (tmp_path / "images").mkdir()
    Image.open(photos[0]).resize((100, 80)).save(tmp_path / "images" / "a.jpg")
    relation = {
        "subject": {"category": 0, "bbox": [0, 40, 0, 50]},
        "predicate": 0,
        "object": {"category": 1, "bbox": [40, 80, 0, 50]},
    }
    (tmp_path / "annotations_train.json").write_text(json.dumps({"a.jpg": [relation]}))
    (tmp_path / "objects.json").write_text('["person", "horse"]')
    (tmp_path / "predicates.json").write_text('["on"]')
    split = open_relations(DataConfig("vrd", root=tmp_path, extractor="true-boxes:grid:world"), "train")
    regions = split.images.batch([0])
    np.testing.assert_allclose(regions.boxes[0], [[0, 0, 0.5, 0.5], [0, 0.5, 0.5, 1]], atol=1e-6)
    assert list(split.things[0].named()) == [("person", "on", "horse")]
