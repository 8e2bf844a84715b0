"""Relation detection: pairs of regions with the triplets that are true of them.

A region is what the true box that it overlaps most is, if by half or more, and background otherwise. Pairs of related
things are learned from; pairs of which nothing is said are negatives, some for each related one. In the first stage a
model learns its branches, from `transfer_from` on how seen triplets become unseen ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import Batch, RegionBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.data.records import CaptionedImages, RegionSource, RelatedThings, Relations
from saccade.features.splits import open_relations
from saccade.language import Vocabulary
from saccade.language.vectors import load_vectors
from saccade.language.vocabulary import SPECIAL
from saccade.metrics.relations import MATCH_IOU
from saccade.models import Relater
from saccade.models.base.relater import PairLabels, RegionPairs, Transfer
from saccade.tasks.base import Loss, TaskSpec
from saccade.tasks.prepare import Prepared, build_model
from saccade.tasks.relations import EvalOptions
from saccade.tasks.relations.evaluate import Names, RelationPrecision, RelationSplit, known_places, pair_candidates
from saccade.tasks.relations.predict import RelationFinder
from saccade.vision.augment import AugmentConfig
from saccade.vision.boxes import iou
from saccade.world.dice import seed_of

BACKGROUND, NO_INTERACTION = "background", "no interaction"


@dataclass(frozen=True)
class RelationsConfig:
    """Which triplets there are, and how they are learned."""

    min_class: int = 1  # a thing that takes part in fewer relations of the training split is not learned
    min_predicate: int = 1
    hold_out: int = 0  # one in so many kinds of triplet is never learned, though its parts are; 0: all are learned
    negatives: int = 3  # pairs of which nothing is said, for each related pair
    transfer_from: int = 0  # the step from which on transfer is learned, and its branches no more; 0: never
    transfer: Transfer = "unseen"  # the triplets that are scored by way of others in an evaluation
    vectors: str | None = None  # what words are: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 32  # pictures at once

    def __post_init__(self) -> None:
        check_ranges(self, "min_class min_predicate eval_batch", "at least 1")
        check_ranges(self, "hold_out negatives transfer_from", "zero or more")


def is_held_out(triplet: Names, one_in: int) -> bool:
    """Whether this kind of triplet is kept from training; the same on every machine."""
    return one_in > 0 and seed_of("unseen relation", *triplet) % one_in == 0


def known_words(things: Sequence[RelatedThings], settings: RelationsConfig) -> tuple[list[str], list[str]]:
    """Names and predicates that occur often enough in relations that are learned from; frequent ones first."""
    names: Counter[str] = Counter()
    predicates: Counter[str] = Counter()
    for picture in things:
        for subject, predicate, thing in picture.named():
            if not is_held_out((subject, predicate, thing), settings.hold_out):
                names.update({subject, thing})
                predicates[predicate] += 1

    def frequent(counts: Counter[str], least: int) -> list[str]:
        return sorted((name for name, count in counts.items() if count >= least), key=lambda n: (-counts[n], n))

    return frequent(names, settings.min_class), frequent(predicates, settings.min_predicate)


def prepare_triplets(train: RelationSplit, settings: RelationsConfig) -> Prepared:
    """The words of the training split's triplets, their vectors, and how often each triplet occurs."""
    names, predicates = known_words(train.things, settings)
    if not names or not predicates:
        raise SaccadeError(f"{train.pictures.name}/{train.pictures.split} has no relation that occurs often enough")
    classes, relations = (BACKGROUND, *names), (NO_INTERACTION, *predicates)
    counts: Counter[tuple[int, int, int]] = Counter()
    for picture in train.things:
        for subject, predicate, thing in picture.named():
            known = subject in names and thing in names and predicate in predicates
            if known and not is_held_out((subject, predicate, thing), settings.hold_out):
                counts[classes.index(subject), relations.index(predicate), classes.index(thing)] += 1
    words = sorted({word for name in (*classes, *relations) for word in name.split()})
    vectors = load_vectors(settings.vectors, words) if settings.vectors else None
    return Prepared(
        Vocabulary((*SPECIAL, *words)),
        vectors,
        widths={"region_dim": train.pictures.regions.dim},
        extractor=train.pictures.extractor,
        notes=(
            *((vectors.describe(),) if vectors is not None else ()),
            f"{len(names)} kinds of thing, {len(predicates)} predicates, {len(counts)} triplets",
        ),
        facts={"classes": classes, "predicates": relations, "triplets": sorted(counts.items())},
    )


def build_relater(kind: type[Relater], config: Any, prepared: Prepared) -> Relater:
    """A fresh model that knows the words and triplets of the training split."""
    facts = prepared.facts
    known = {
        "classes": tuple(facts["classes"]),
        "predicates": tuple(facts["predicates"]),
        "triplets": tuple(tuple(triplet) for triplet, _ in facts["triplets"]),
        "occurrences": tuple(float(count) for _, count in facts["triplets"]),
    }
    return build_model(kind, replace(config, **known), prepared)


@dataclass(frozen=True)
class RelationBatch(Batch):
    """Pictures, their related pairs with what is true of each, and the pairs of which nothing is said."""

    images: RegionBatch
    classes: Int[Tensor, "image region"]
    related: Int[Tensor, "pair 3"]  # picture, subject, object
    unrelated: Int[Tensor, "other 3"]
    predicates: Int[Tensor, "true 2"]  # a pair, and a predicate that is true of it
    triplets: Int[Tensor, "true 2"]
    queries: Int[Tensor, " query"]  # the triplets that are true of a pair


@dataclass(frozen=True)
class PictureLabels:
    """Of one picture's regions: what each is, and the predicates and triplets of each related pair of them."""

    classes: Int[np.ndarray, " region"]
    related: dict[tuple[int, int], tuple[list[int], list[int]]]
    unrelated: list[tuple[int, int]]


class RelationTask:
    """Every picture of the training split that has related regions."""

    def __init__(
        self,
        model: Relater,
        train: RelationSplit,
        dev: RelationSplit,
        config: RelationsConfig,
        augmentation: AugmentConfig,
    ) -> None:
        self.train, self.dev, self.config = train, dev, config
        self.selection = "map_unseen" if has_unseen(model, dev) else "map"
        self.triplets = {triplet: n for n, triplet in enumerate(model.config.triplets)}
        self.places = {name: n for n, name in enumerate(model.config.classes)}
        self.predicates = {name: n for n, name in enumerate(model.config.predicates)}
        source = train.pictures.regions
        labels = [self.labels(source, n) for n in range(len(train.things))]
        self.items = [(n, own) for n, own in enumerate(labels) if own.related]
        if not self.items:
            name = f"{train.pictures.name}/{train.pictures.split}"
            raise SaccadeError(f"no two regions of {name} overlap two related things by half: nothing can be learned")

    def labels(self, source: RegionSource, picture: int) -> PictureLabels:
        things, regions = self.train.things[picture], np.array(source.get(picture).boxes)
        owner = region_owners(regions, things.boxes)
        names = np.array([self.places.get(name, 0) for name in things.names], dtype=np.int64)
        classes = np.where(owner >= 0, names[owner] if len(names) else 0, 0)
        said: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        unclear: set[tuple[int, int]] = set()  # of which something is true that is not learned
        for (s, predicate, o), triplet in zip(things.relations, things.named(), strict=True):
            place = (int(names[s]), self.predicates.get(predicate, 0), int(names[o]))
            if is_held_out(triplet, self.config.hold_out) or place not in self.triplets:
                unclear.add((s, o))
                continue
            predicates, triplets = said.setdefault((s, o), ([], []))
            predicates.append(place[1])
            triplets.append(self.triplets[place])
        pairs = pair_candidates(torch.from_numpy(regions)).tolist()
        by_things = {(i, j): (int(owner[i]), int(owner[j])) for i, j in pairs}
        return PictureLabels(
            classes,
            {pair: said[ends] for pair, ends in by_things.items() if ends in said and ends not in unclear},
            [pair for pair, ends in by_things.items() if ends not in said and ends not in unclear],
        )

    def __len__(self) -> int:
        return len(self.items)

    def batch(self, indices: Sequence[int]) -> RelationBatch:
        chosen = [self.items[n] for n in indices]
        images = self.train.images.batch([n for n, _ in chosen])
        assert isinstance(images, RegionBatch)
        classes = torch.zeros(images.mask.shape, dtype=torch.long)
        for row, (_, own) in zip(classes, chosen, strict=True):
            row[: len(own.classes)] = torch.from_numpy(own.classes)
        related = [(n, *pair, *true) for n, (_, own) in enumerate(chosen) for pair, true in own.related.items()]
        unrelated = [(n, *pair) for n, (_, own) in enumerate(chosen) for pair in own.unrelated]
        predicates = [(row, one) for row, (*_, own, _) in enumerate(related) for one in own]
        triplets = [(row, one) for row, (*_, own) in enumerate(related) for one in own]
        return RelationBatch(
            images,
            classes,
            torch.tensor([row[:3] for row in related], dtype=torch.long),
            torch.tensor(unrelated, dtype=torch.long).view(-1, 3),
            torch.tensor(predicates, dtype=torch.long),
            torch.tensor(triplets, dtype=torch.long),
            torch.tensor(sorted({triplet for _, triplet in triplets}), dtype=torch.long),
        )

    def loss(self, model: Relater, batch: RelationBatch, step: int) -> Loss:
        related, wanted = batch.related, self.config.negatives * len(batch.related)
        drawn = torch.randperm(len(batch.unrelated), device=related.device)[:wanted]
        places = torch.cat([related, batch.unrelated[drawn]])
        image, subject, object = places.unbind(dim=1)
        pairs = RegionPairs.of(batch.images, image, subject, object)
        predicates = labels_of(batch.predicates, len(places), len(self.predicates))
        triplets = labels_of(batch.triplets, len(places), len(self.triplets))
        predicates[len(related) :, 0] = 1
        classes = torch.eye(len(self.places), device=related.device)
        labels = PairLabels(
            classes[batch.classes[image, subject]], predicates, classes[batch.classes[image, object]], triplets
        )
        second = 0 < self.config.transfer_from <= step
        parts = model.losses(pairs, labels, batch.queries if second else None)
        return torch.stack(list(parts.values())).sum(), {f"loss_{name}": part.detach() for name, part in parts.items()}

    def evaluate(self, model: Relater) -> dict[str, float]:
        return RelationPrecision().evaluate(model, self.dev, self.config)


def labels_of(true: Int[Tensor, "true 2"], pairs: int, entries: int) -> Float[Tensor, "pair entry"]:
    """1 where something is true of a pair, 0 elsewhere; made on the device, since it is thousands of numbers wide."""
    labels = torch.zeros(pairs, entries, device=true.device)
    labels[true[:, 0], true[:, 1]] = 1
    return labels


def has_unseen(model: Relater, data: RelationSplit) -> bool:
    every = {triplet for own in data.things for triplet in own.named()}
    return any(model.counts.get(place, 0) == 0 for place in known_places(model, every))


def region_owners(regions: Float[np.ndarray, "region 4"], things: Float[np.ndarray, "thing 4"]) -> np.ndarray:
    """The thing that each region overlaps most, −1 if by less than half."""
    if not len(things) or not len(regions):
        return np.full(len(regions), -1)
    best = iou(torch.from_numpy(regions), torch.from_numpy(np.array(things))).max(dim=1)
    return torch.where(best.values >= MATCH_IOU, best.indices, -1).numpy()


def open_relation_split(
    config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu"
) -> Relations[CaptionedImages]:
    return open_relations(config, split, pixels, device)


SPEC: TaskSpec[Relater, RelationSplit] = TaskSpec(
    name="relations",
    noun="relation detector",
    does="finds pairs of boxes that stand in a relation",
    protocol=Relater,
    config=RelationsConfig,
    open=open_relation_split,
    prepare=prepare_triplets,
    task=RelationTask,
    evaluator=RelationPrecision(),
    predictor=RelationFinder,
    verbs=("relations",),
    options=EvalOptions,
    next_steps=("saccade eval {run}", 'saccade relations PHOTOS "dog riding boat" --model {run} -o found.png'),
    build=build_relater,
)
