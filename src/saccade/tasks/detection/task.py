"""Detection: pictures with true boxes, the detector's loss, its figures, and a trained detector as users call it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, singledispatch
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from saccade.batch import Batch, RegionBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig, open_records
from saccade.data.records import Triplet
from saccade.metrics.detection import (
    MeanAveragePrecision,
    Tally,
    found_boxes,
    name_figures,
    tally_attributes,
    tally_names,
    tally_relations,
)
from saccade.models import load_model
from saccade.models.detectors import BottomUp, Detector, Labels, NamedBoxes, WorldDetector
from saccade.tasks.base import TaskSpec
from saccade.tasks.detection import EvalOptions
from saccade.tasks.evaluator import EvalRequest, Evaluation, Evaluator
from saccade.tasks.predict import Predictor, in_batches, listed
from saccade.tasks.prepare import Prepared
from saccade.tasks.uses import Line, Outcome, Use
from saccade.vision import RegionDescription, RegionExtractor
from saccade.vision.boxes import UNKNOWN, WHOLE, overlaps, pick
from saccade.vision.detectors.bottomup import BottomUpNetwork, BoxedPictures
from saccade.vision.detectors.relations import stated_predicates
from saccade.vision.detectors.world import MATCH_IOU, PICTURE_ATTRIBUTES, REGION_ATTRIBUTES, ScenePictures, WorldNetwork
from saccade.vision.nms import select
from saccade.vision.pictures import Picture
from saccade.world import Split, WorldConfig, make_world
from saccade.world.catalogue import KINDS

MIN_THING_SIDE = 0.025  # in the world: a sliver of three pixels behind another thing is not learned
SHOWS_FACING = frozenset(k for k, v in KINDS.items() if v.roles & {"creature", "mover", "mount"}) | {"fish"}


@dataclass(frozen=True)
class BoxedSplit:
    """One split of a data set."""

    name: str
    split: str
    pictures: Sequence[NamedBoxes]

    @property
    def images(self) -> Sequence[NamedBoxes]:
        """The pictures, by the name that they have in splits of other tasks."""
        return self.pictures

    def select(self, positions: Sequence[int]) -> BoxedSplit:
        return replace(self, pictures=[self.pictures[p] for p in positions])

    @property
    def box_count(self) -> int:
        return sum(len(picture.boxes) for picture in self.pictures)


@dataclass(frozen=True)
class WorldPicture:
    """A scene of the world with all that is visible in it."""

    path: np.ndarray  # the picture itself
    boxes: np.ndarray
    names: tuple[str, ...]  # kinds
    attributes: tuple[tuple[str, ...], ...]  # colour, size, material
    labels: tuple[Mapping[str, str], ...]  # by attribute: kind, colour, size, material, pose, facing
    places: Mapping[str, str]  # background and lighting
    said: tuple[tuple[str, ...], ...] = ()
    relations: tuple[Triplet, ...] = ()


def open_boxes(config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu") -> BoxedSplit:
    """A split of pictures with named boxes.

    Raises: SaccadeError if there is no such data set, it needs a folder, or the split has no picture.
    """
    if config.name == "world":
        novel = config.pictures // 20  # compositions that the other splits do not have
        world = WorldConfig(
            pictures=config.pictures, seed=config.seed, captions=1, twins=0.0, hard_groups=0, novel=novel
        )
        scenes = make_world(world).split(split)
        pictures: Sequence[NamedBoxes] = [_world_picture(scenes, i) for i in range(len(scenes))]
    else:
        pictures = open_records(config, split, "boxes")
    if not pictures:
        raise SaccadeError(f"data={config.name}: the split {split} has no picture")
    return BoxedSplit(config.name, split, pictures[: config.limit])


def label_names(
    pictures: Iterable[NamedBoxes], class_count: int, attribute_count: int, predicate_count: int = 1
) -> Labels:
    """Names and attributes that stand on at least so many boxes, and predicates of so many pairs; frequent ones first.

    Raises: SaccadeError if no name does.
    """
    names: Counter[str] = Counter()
    attributes: Counter[str] = Counter()
    predicates: Counter[str] = Counter()
    for picture in pictures:
        names.update(picture.names)
        attributes.update(a for some in picture.attributes for a in set(some))
        predicates.update(predicate for _, predicate, _ in picture.relations)

    def frequent(counts: Counter[str], least: int) -> tuple[str, ...]:
        return tuple(sorted((n for n, c in counts.items() if c >= least), key=lambda n: (-counts[n], n)))

    classes = frequent(names, class_count)
    if not classes:
        raise SaccadeError(f"no name stands on {class_count} boxes or more: there is nothing to learn")
    return Labels(classes, frequent(attributes, attribute_count), frequent(predicates, predicate_count))


def _world_picture(split: Split, i: int) -> WorldPicture:
    scene, boxes = split.scene(i), split.boxes(i)
    visible = [j for j in range(len(boxes)) if (boxes[j, 2:] - boxes[j, :2] > MIN_THING_SIDE).all()]
    things, place = [scene.things[j] for j in visible], {j: n for n, j in enumerate(visible)}
    related = [(r.subject, r.predicate, r.object) for r in scene.relations]
    return WorldPicture(
        split.image(i),
        boxes[visible],
        tuple(str(thing.kind) for thing in things),
        tuple(tuple(str(a) for a in (thing.colour, thing.size, thing.material) if a) for thing in things),
        tuple(_labels(thing) for thing in things),
        {"background": scene.background, "lighting": scene.lighting},
        relations=tuple((place[s], predicate, place[o]) for s, predicate, o in related if s in place and o in place),
    )


def _labels(thing: Any) -> Mapping[str, str]:
    """What a thing has of each attribute; a cube faces nowhere."""
    labels = {name: getattr(thing, name) for name in ("kind", "colour", "size", "material", "pose")}
    if thing.kind in SHOWS_FACING:
        labels["facing"] = "left" if thing.facing < 0 else "right"
    return {name: str(label) for name, label in labels.items() if label}


REGION_COUNTS = (10, 36, 100)
MAIN_ATTRIBUTES = ("kind", "colour", "size", "material")  # those of the figure `all_four`
T = TypeVar("T", bound=Batch)


@singledispatch
def detector_figures(model: Detector, truth: Any, batch_size: int = 64) -> dict[str, float]:
    """The figures of a detector on pictures whose boxes are known."""
    raise NotImplementedError(f"nothing measures a {type(model).__name__}")


@detector_figures.register
def _(model: BottomUp, truth: Any, batch_size: int = 64) -> dict[str, float]:
    return bottomup_figures(model.network, truth, batch_size=batch_size)


@detector_figures.register
def _(model: WorldDetector, truth: Any, batch_size: int = 64) -> dict[str, float]:
    return world_figures(model.network, truth, batch_size)


@torch.inference_mode()
def bottomup_figures(
    network: BottomUpNetwork, pictures: BoxedPictures, counts: Sequence[int] = REGION_COUNTS, batch_size: int = 64
) -> dict[str, float]:
    """`recall_N`: true boxes that one of N regions overlaps by 0.5, by the selection rule with a fixed N (the whole
    picture not counted); `proposal_recall_N`: of the N best proposals before anything is named; `recall_rule` and
    `regions`: of the rule's own number. Names, attributes and relations are read at true boxes. `map`: mean average
    precision.
    """
    c, tally = network.config, Tally()
    precision = MeanAveragePrecision(len(c.classes))
    proposals = max(c.proposals, *counts)
    for batch in _batches(network, pictures, batch_size):
        maps = network.maps(batch.pixels)
        d = network.detect(maps, max(c.candidates, 4 * proposals), proposals)
        tally.add("things", batch.real)
        for count in counts:
            order, there = select(d.confidence, c.confidence, count, count, d.found)
            tally.add(f"recall_{count}", found_boxes(pick(d.boxes, order), there, batch.boxes, batch.real))
            tally.add(f"proposal_recall_{count}", found_boxes(d.proposed, d.found, batch.boxes, batch.real, count))
        order, there = select(d.confidence, c.confidence, c.least, c.most, d.found)
        tally.add("recall_rule", found_boxes(pick(d.boxes, order), there, batch.boxes, batch.real))
        tally.add("regions", there)
        precision.add(d.boxes, d.probabilities, batch.boxes, batch.real, batch.labels)
        vectors = network.vectors(maps, batch.boxes)[batch.real]
        labels, wanted = batch.labels[batch.real], batch.attributes[batch.real]
        logits = network.classify(vectors).classes
        tally_names(tally, logits, labels)
        if c.attributes:
            tally_attributes(tally, network.attribute_logits(vectors, logits[:, 1:].argmax(dim=1) + 1), wanted)
        if network.relations is not None and batch.relations is not None:
            every = network.vectors(maps, batch.boxes)
            guessed = network.classify(every).classes[..., 1:].argmax(dim=-1) + 1
            pairs = network.relation_logits(every, guessed, batch.boxes)
            tally_relations(tally, pairs, stated_predicates(batch.relations, batch.real, pairs.shape[-1]), batch.real)
    figures = {
        f"{kind}_{n}": tally.share(f"{kind}_{n}", "things") for kind in ("recall", "proposal_recall") for n in counts
    }
    figures |= {"recall_rule": tally.share("recall_rule", "things")}
    figures |= {"regions": float(tally.sums["regions"]) / max(len(pictures), 1)} if tally.sums else {}
    return figures | name_figures(tally) | {"map": precision.mean()}


@torch.inference_mode()
def world_figures(network: WorldNetwork, pictures: ScenePictures, batch_size: int = 256) -> dict[str, float]:
    """`recall` is the share of things that a proposal overlaps by at least 0.5, `overlap` the mean IoU of those,
    `precision` the share of proposals that match a thing. Each attribute's accuracy is over the things that were found,
    read from the best proposal of each; `all_four` needs kind, colour, size and material right at once, and
    `found_and_named` is the share of all things that were found and have all four right.
    """
    tally = Tally()
    for batch in _batches(network, pictures, batch_size):
        pixels = network.backbone.normalise(batch.pixels).contiguous(memory_format=torch.channels_last)
        maps = network.backbone.maps(pixels)
        found, _, kept = network.propose(maps)
        overlap = overlaps(found, batch.boxes, batch.real).masked_fill(~kept[:, :, None], -1.0)
        best, which = overlap.max(dim=1)  # [image, thing]
        hit = (best >= MATCH_IOU) & batch.real
        tally.add("things", batch.real)
        tally.add("found", hit)
        tally.add("overlap", best[hit])
        tally.add("proposals", kept)
        tally.add("matching", (overlap >= MATCH_IOU).any(dim=2))
        image = hit.nonzero()[:, 0]
        whole = found.new_tensor(WHOLE).expand(len(batch), 4)
        boxes = torch.cat([found[image, which[hit]], whole])
        index = torch.cat([image, torch.arange(len(batch), device=found.device)])
        logits = network.classify(network.appearance(maps, boxes, index))
        right = {}
        for i, name in enumerate(REGION_ATTRIBUTES):
            if name in logits:
                right[name] = _tally_labels(tally, name, logits[name][: len(image)], batch.things[..., i][hit])
        for i, name in enumerate(PICTURE_ATTRIBUTES):
            if name in logits:
                _tally_labels(tally, name, logits[name][len(image) :], batch.places[:, i])
        all_four = [right[name] for name in MAIN_ATTRIBUTES if name in right]
        tally.add("all_four", torch.stack(all_four).all(dim=0) if all_four else hit[hit])
    named = [name for name in (*REGION_ATTRIBUTES, *PICTURE_ATTRIBUTES) if name in network.classifiers]
    return {
        "recall": tally.share("found", "things"),
        "overlap": tally.share("overlap", "found"),
        "precision": tally.share("matching", "proposals"),
        "proposals": float(tally.sums.get("proposals", torch.zeros(()))) / max(len(pictures), 1),
        **{name: tally.share(f"{name}_right", f"{name}_known") for name in named},
        "all_four": tally.share("all_four", "found"),
        "found_and_named": tally.share("all_four", "things"),
    }


def _tally_labels(tally: Tally, name: str, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Which labels are right; those that are unknown are not counted."""
    right = logits.argmax(dim=1) == target
    tally.add(f"{name}_right", right)
    tally.add(f"{name}_known", target != UNKNOWN)
    return right


def _batches(network: torch.nn.Module, pictures: T, batch_size: int) -> Iterator[T]:
    """On the network's device, which is put into eval mode."""
    network.eval()
    device = next(network.parameters()).device
    for start in range(0, len(pictures), batch_size):
        yield pictures.select(slice(start, start + batch_size)).to(device)


class DetectionEvaluator(Evaluator[Detector, BoxedSplit]):
    """Each detector has its own figures: one of the world names sizes and poses, others names and attributes."""

    metrics: ClassVar = {
        "map": "mAP",
        **{f"recall_{n}": f"recall with {n} regions" for n in REGION_COUNTS},
        "object_top1": "names right",
        "attribute_top1": "attributes right",
        "relation_top1": "relations right",
        "recall": "recall",
        "found_and_named": "found and named",
    }
    metric = "map"
    columns = ("map", "recall_36", "object_top1", "attribute_top1")
    unit = "Shares, 0 to 1"

    def evaluate(self, model: Detector, data: BoxedSplit, settings: Any) -> dict[str, float]:
        return detector_figures(model, model.tensors(data.pictures), settings.eval_batch)

    def compare(self, request: EvalRequest) -> Evaluation:
        from saccade.tasks.detection.task import DetectionConfig

        data = open_boxes(request.data, request.split)
        found = {}
        for folder in request.models:
            model = load_model(folder, Detector).to(request.device)
            found[folder] = self.evaluate(model, data, request.settings.get(folder) or DetectionConfig())
        names = list(dict.fromkeys(name for figures in found.values() for name in figures))
        rows = tuple(
            (name, *(f"{figures[name]:.3f}" if name in figures else "" for figures in found.values())) for name in names
        )
        title = f"{data.name}/{data.split}: {len(data.pictures)} pictures, {data.box_count} boxes"
        figures = {"data": data.name, "split": data.split, "results": found}
        return Evaluation(title, ("figure", *request.models), rows, figures)

    def counts(self, data: BoxedSplit, settings: Any) -> dict[str, int]:
        return {"pictures": len(data.pictures), "texts": 0}


@dataclass(frozen=True)
class DetectionConfig:
    """Which names are learned, and how the dev split is measured."""

    class_count: int = 15  # a name is a class if it stands on so many boxes
    attribute_count: int = 15  # the same for attributes
    predicate_count: int = 15  # a predicate is one if it is said of so many pairs of boxes
    eval_batch: int = 64  # pictures measured at once

    def __post_init__(self) -> None:
        check_ranges(self, "class_count attribute_count predicate_count eval_batch", "at least 1")


class DetectionTask:
    """All pictures are decoded once and kept as bytes; they are varied on the device."""

    def __init__(self, model: Detector, train: BoxedSplit, dev: BoxedSplit, config: DetectionConfig) -> None:
        self.train, self.dev = model.tensors(train.pictures), model.tensors(dev.pictures)
        self.selection, self.config = model.selection, config

    def __len__(self) -> int:
        return len(self.train)

    def batch(self, indices: Sequence[int]) -> Batch:
        """As wide as its fullest picture: every anchor is compared with every thing, and one photo has dozens."""
        batch = self.train.select(indices)
        last = batch.real.any(dim=0).nonzero().flatten()[-1:].sum()  # 0 where there is none
        return batch.resize(thing=int(last) + 1)

    def loss(self, model: Detector, batch: Batch, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        losses = model.losses(batch)
        return torch.stack(list(losses.values())).sum(), losses

    def evaluate(self, model: Detector) -> dict[str, float]:
        return detector_figures(model, self.dev, self.config.eval_batch)


BATCH_SIZE = 64  # pictures held at a time


def _detected(detector: PictureDetector, image: Any, text: str, top: int) -> Outcome:
    found = sorted(detector.detect([image])[0], key=lambda one: -one.score)[: top or None]
    return Outcome(tuple(Line(one.text, probability=one.score, boxes=(one.box,)) for one in found))


class PictureDetector(Predictor[Detector]):
    """Finds the regions of pictures and names them.

    >>> saccade.load("runs/bottomup").detect("photo.jpg")[0][0].text
    """

    uses = (Use("detect", "Find and name what is in a picture", "picture", _detected),)

    @cached_property
    def extractor(self) -> RegionExtractor:
        return self.model.as_extractor()

    def detect(
        self, images: Picture | Iterable[Picture], boxes: Sequence[np.ndarray] | None = None
    ) -> list[list[RegionDescription]]:
        """The regions of each picture with their names; of `boxes` (one array in 0..1 a picture) instead, if given."""
        if boxes is not None:
            return self.extractor.describe(listed(images), boxes)
        return [found for part in in_batches(images, BATCH_SIZE) for found in self.extractor.describe(part)]

    def extract(self, images: Picture | Sequence[Picture], boxes: Sequence[np.ndarray] | None = None) -> RegionBatch:
        """The regions' vectors, as `saccade extract` keeps them."""
        return self.extractor.extract(listed(images), boxes)


@dataclass(frozen=True)
class PreparedDetector(Prepared):
    known: Labels = field(default_factory=Labels)


def prepare(train: BoxedSplit, settings: DetectionConfig) -> PreparedDetector:
    known = label_names(train.pictures, settings.class_count, settings.attribute_count, settings.predicate_count)
    facts = {"pictures": len(train.pictures), "boxes": train.box_count}
    facts |= {kind: len(names) for kind, names in known._asdict().items()}
    return PreparedDetector(labels=known.classes, known=known, facts=facts)


def build(kind: type[Detector], config: Any, prepared: Prepared) -> Detector:
    """A fresh detector of these labels."""
    assert isinstance(prepared, PreparedDetector)
    model = kind(kind.with_labels(config, prepared.known))
    model.begin()
    return model


SPEC: TaskSpec[Detector, BoxedSplit] = TaskSpec(
    name="detection",
    noun="detector",
    does="finds and names the regions of pictures",
    protocol=Detector,
    config=DetectionConfig,
    open=open_boxes,
    prepare=prepare,
    task=lambda model, train, dev, settings, vary: DetectionTask(model, train, dev, settings),
    evaluator=DetectionEvaluator(),
    predictor=PictureDetector,
    verbs=("detect", "extract"),
    options=EvalOptions,
    build=build,
)
