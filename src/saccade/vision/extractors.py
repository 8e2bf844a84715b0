"""Region extractors: pictures in, region vectors with boxes out.

>>> load_extractor("grid").extract(["photo.jpg"])  # a RegionBatch

An extractor has a name that builds it again, `KIND`, `KIND:ARGUMENT` or `KIND@NUMBER`. The name is what a feature store
and a trained model keep, so that new pictures are treated as the old ones were. A kind is one module with
`open_extractor(argument)` and a row in `KINDS`.

A detector on disk is a folder with `config.json` (its settings, and facts about its training) and `model.safetensors`:
the model folder of a training run, or what `write_detector` packed.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from saccade.batch import RegionBatch, stack
from saccade.core.config import from_dict, to_dict
from saccade.core.errors import SaccadeError, did_you_mean
from saccade.core.files import read_json, sha256, write_json
from saccade.core.threads import ahead, openers
from saccade.core.weights import Form, build_within, check_values, held_shapes, read_weights, write_weights
from saccade.language.parsing.scene_graph import Attribute, Object, Relation, SceneGraph
from saccade.vision.backbones.base import Backbone, FoldableNetwork
from saccade.vision.backbones.tuned import base_file, with_base, without_base
from saccade.vision.boxes import WHOLE, Proposals, as_boxes, iou, pick
from saccade.vision.pictures import Picture, as_array, ids_of, name_of

Network = TypeVar("Network", bound=nn.Module)
Config = TypeVar("Config")
Foldable = TypeVar("Foldable", bound=FoldableNetwork)
Precision = Literal["fp32", "bf16"]
Pixels: TypeAlias = UInt8[np.ndarray, "row column 3"]

SAME_THING, SAME_KIND = 0.7, 0.4  # regions that overlap more, or so much and are of one kind, are one thing

TRUE_BOXES = "true-boxes"  # in place of an extractor's own boxes, where they are known: "true-boxes:bottomup"
KINDS = {  # imported when first asked for
    "world": "saccade.vision.detectors.world",
    "grid": "saccade.vision.grid",
    "bottomup": "saccade.vision.detectors.bottomup",
    "detr": "saccade.vision.detectors.detr",
    "dual": "saccade.vision.dual",
    "frames": "saccade.vision.videos.frames",
    "clips": "saccade.vision.videos.clips",
}

VIDEO_EXTRACTORS = ("frames", "clips")  # those whose pictures are videos


@dataclass(frozen=True)
class RegionDescription:
    """What an extractor names in one region: attribute → label, and how sure it is of each."""

    box: tuple[float, float, float, float]  # x1, y1, x2, y2 in 0..1
    score: float  # how sure it is that something is there; 1 for boxes that were given and for the whole picture
    labels: dict[str, str]
    confidence: dict[str, float]

    @property
    def text(self) -> str:
        """One line: `large red metal cube`, or for the whole picture `beach, sunset`."""
        words = [*self.attributes, *([self.labels["kind"]] if "kind" in self.labels else [])]
        return " ".join(words) if words else ", ".join(self.labels.values())

    @property
    def attributes(self) -> tuple[str, ...]:
        """What it is like."""
        return tuple(self.labels[name] for name in ("size", "attribute", "colour", "material") if name in self.labels)


class PictureRelation(NamedTuple):
    """Regions by their places, and how sure the extractor is."""

    subject: int
    predicate: str
    object: int
    score: float


@dataclass(frozen=True)
class PictureGraph:
    """The scene graph of a picture: its regions, in the order of `extract`, and how they stand to each other."""

    regions: tuple[RegionDescription, ...]
    relations: tuple[PictureRelation, ...] = ()  # the surest first

    def surest(self, most: int | None, least: float = 0.2) -> PictureGraph:
        """The same of the surest named regions alone, each thing once: what overlaps a surer one is that one.

        A region is as sure as the less sure of two: that a thing is there, and what it is.
        Of what a thing does to several of a name the surest is kept: a man rides one of the horses.
        """
        boxes = torch.tensor([region.box for region in self.regions]).view(-1, 4)
        overlap, kept = iou(boxes, boxes), list[int]()
        sure = [min(region.score, region.confidence.get("kind", 1.0)) for region in self.regions]
        for i in sorted(range(len(boxes)), key=lambda i: -sure[i]):
            own = self.regions[i]
            kinds = [(k, self.regions[k].labels["kind"]) for k in kept]
            limits = [(k, SAME_KIND if own.labels.get("kind") == kind else SAME_THING) for k, kind in kinds]
            if "kind" in own.labels and sure[i] >= least and all(overlap[i, k] <= limit for k, limit in limits):
                kept.append(i)
        place = {i: n for n, i in enumerate(kept[:most])}
        relations: dict[tuple[int, str, str], PictureRelation] = {}
        for r in self.relations:
            if r.subject in place and r.object in place:
                moved = r._replace(subject=place[r.subject], object=place[r.object])
                relations.setdefault((r.subject, r.predicate, self.regions[r.object].labels["kind"]), moved)
        return PictureGraph(tuple(self.regions[i] for i in place), tuple(relations.values()))

    def words(self, numbered: bool = False) -> SceneGraph:
        """As the graph of a sentence: what models read by `graph_words`. With numbers a second man is "man 2"."""
        seen: Counter[str] = Counter()
        things, attributes = list[Object](), list[Attribute]()
        for place, region in enumerate(self.regions):
            name = region.labels.get("kind", "")
            seen[name] += 1
            said = f"{name} {seen[name]}" if numbered and seen[name] > 1 else name
            things.append(Object(place, said, place, place + 1, (said,)))
            attributes += [Attribute(things[-1], word, place) for word in region.attributes]
        related = (Relation(things[r.subject], tuple(r.predicate.split()), things[r.object]) for r in self.relations)
        return SceneGraph(tuple(things), tuple(attributes), tuple(related))

    def to_json(self, width: int = 1, height: int = 1) -> dict[str, Any]:
        """Things with boxes in pixels; relations name them by their number, from 0."""
        return {
            "objects": [
                {
                    "name": region.labels.get("kind"),
                    "attributes": list(region.attributes),
                    "score": round(region.score, 4),
                    "box": [round(v * side, 4) for v, side in zip(region.box, (width, height) * 2, strict=True)],
                }
                for region in self.regions
            ],
            "relations": [[r.subject, r.predicate, r.object, round(r.score, 4)] for r in self.relations],
        }


class RegionExtractor(ABC):
    """What users of every extractor may count on. A subclass implements `regions`, or `extract` itself."""

    name: str  # what `load_extractor` takes
    digest: str  # of all that the features of a picture depend on: weights and settings
    dim: int  # of a region's vector
    network: nn.Module
    precision: Precision = "fp32"
    videos: ClassVar[bool] = False  # whether it sees videos, and not pictures
    has_bfloat16: ClassVar[bool] = False  # whether its backbone can be read so
    picture_size: int | None = None  # the side of the square pictures are stretched to; None: they keep their shape
    max_cpu_batch: int | None = None  # pictures at once where more would be slower

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def to(self, device: torch.device | str) -> RegionExtractor:
        self.network.to(device)
        return self

    def read_in_bfloat16(self) -> RegionExtractor:
        """Its backbone's weights in bfloat16, the rest as before: quicker on a GPU, for features a little off.

        Raises: SaccadeError if it has no such backbone.
        """
        if not self.has_bfloat16:
            raise SaccadeError(f'the extractor "{self.name}" knows float32 alone: bf16 is for grid and bottomup')
        backbone = self.network.get_submodule("backbone")
        assert isinstance(backbone, Backbone)
        backbone.read_in_bfloat16()
        self.precision, self.digest = "bf16", bfloat16_digest(self.digest)
        return self

    def prepare(self, picture: Picture, where: str = "the picture") -> Pixels:
        """What `extract` does first with each picture; it takes the result in the picture's place.

        The result is small and may be made in another thread, so that many pictures can wait in memory for the network.
        An extractor that shrinks pictures in its own way does it here.
        """
        return as_array(picture, where, self.picture_size)

    def batches(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None, batch_size: int
    ) -> Iterator[tuple[list[Pixels], list[Float[Tensor, "region 4"]] | None]]:
        """`batch_size` prepared pictures at a time, with the boxes that were given for them, checked.

        Files are opened by a few threads, up to a batch ahead of the network.
        """
        if boxes is not None and len(boxes) != len(images):
            raise SaccadeError(f"{len(images)} pictures but {len(boxes)} arrays of boxes: one for each is needed")
        if self.max_cpu_batch is not None and self.device.type == "cpu":
            batch_size = min(batch_size, self.max_cpu_batch)

        def prepare(i: int) -> Pixels:
            return self.prepare(images[i], name_of(images[i], i))

        all_files = len(ids_of(images)) > 1  # a picture in memory may be listed twice, and Pillow's are not for threads
        threads = openers() if all_files else 0
        with closing(ahead(prepare, range(len(images)), threads, batch_size)) as prepared:
            for start in range(0, len(images), batch_size):
                part = range(start, min(start + batch_size, len(images)))
                arrays = list(islice(prepared, len(part)))
                yield arrays, None if boxes is None else [as_boxes(boxes[i], name_of(images[i], i)) for i in part]

    @torch.inference_mode()
    def each_batch(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None, batch_size: int
    ) -> Iterator[RegionBatch]:
        """The regions of `batch_size` pictures at a time."""
        for arrays, given in self.batches(images, boxes, batch_size):
            yield self.regions(arrays, given)

    def extract(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> RegionBatch:
        """Region vectors of pictures: paths, Pillow images or arrays, of any size and mode.

        Without `boxes`: the regions the extractor finds. With `boxes` (one array [region, 4] in 0..1 a picture):
        exactly those. Paths become the batch's ids; `scores` are the extractor's confidence in each region, where it
        has one.
        """
        parts = [regions.to("cpu", torch.float32) for regions in self.each_batch(images, boxes, batch_size)]
        return replace(stack(parts), ids=ids_of(images)) if parts else RegionBatch.of([], [], scores=[])

    def regions(self, pictures: list[Pixels], boxes: list[Tensor] | None) -> RegionBatch:
        """The regions of prepared pictures, found or given; zeros where a picture has fewer than others."""
        given = None if boxes is None else [own.numpy() for own in boxes]
        return self.extract(pictures, boxes=given, batch_size=len(pictures))

    def describe(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> list[list[RegionDescription]]:
        """What the extractor names in each region that `extract` returns, picture by picture."""
        parts = self.each_batch(images, boxes, batch_size)
        return [picture for regions in parts for picture in self.names(regions, has_whole=boxes is None)]

    @torch.inference_mode()
    def recognise(self, regions: RegionBatch) -> list[list[RegionDescription]]:
        """As `describe`, from region vectors that this extractor made before: those of a feature store, say."""
        regions = regions.to(self.device, torch.float32)
        last = pick(regions.boxes, (regions.mask.sum(dim=1, keepdim=True) - 1).clamp(min=0))[:, 0]
        return self.names(regions, has_whole=bool((last == last.new_tensor(WHOLE)).all()))

    def graph(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> list[PictureGraph]:
        """The scene graph of each picture: what `describe` says, and the relations the extractor sees, if it can."""
        if not self.has_relations:
            return [PictureGraph(tuple(named)) for named in self.describe(images, boxes, batch_size)]
        return [graph for part in self.each_batch(images, boxes, batch_size) for graph in self.recognise_graph(part)]

    def recognise_graph(self, regions: RegionBatch) -> list[PictureGraph]:
        """As `graph`, from region vectors that this extractor made before."""
        related = self.relations(regions) if self.has_relations else [()] * len(regions)
        return [PictureGraph(tuple(n), r) for n, r in zip(self.recognise(regions), related, strict=True)]

    @property
    def has_relations(self) -> bool:
        """Whether it knows how regions stand to each other."""
        return False

    def relations(self, regions: RegionBatch) -> list[tuple[PictureRelation, ...]]:
        """The relations among each picture's regions, by their vectors; of an extractor that `has_relations`."""
        raise SaccadeError(f'the extractor "{self.name}" knows no relations between regions')

    @property
    def has_names(self) -> bool:
        """Whether it can `describe` regions."""
        own = type(self)
        return own.names is not RegionExtractor.names or own.describe is not RegionExtractor.describe

    def names(self, regions: RegionBatch, has_whole: bool) -> list[list[RegionDescription]]:
        """The names of regions by their vectors; `has_whole`: the last region of each picture is all of it."""
        raise SaccadeError(f'the extractor "{self.name}" finds regions but has no names for them')


def bfloat16_digest(digest: str) -> str:
    """The digest of an extractor once its backbone is read in bfloat16."""
    return hashlib.sha256(f"{digest} bf16".encode()).hexdigest()


def upload(
    pictures: Sequence[UInt8[np.ndarray, "row column 3"]], device: torch.device
) -> UInt8[Tensor, "image row column 3"]:
    """Pictures of one shape on the device; to a GPU they go by way of pinned memory, which PyTorch keeps for others."""
    shape = (len(pictures), *pictures[0].shape)
    pixels = torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")
    np.stack(pictures, out=pixels.numpy())
    return pixels.to(device, non_blocking=True)


def padded_regions(
    vectors: Float[Tensor, "image region dim"],
    boxes: Float[Tensor, "image region 4"],
    scores: Float[Tensor, "image region"] | None,
    mask: Bool[Tensor, "image region"],
) -> RegionBatch:
    """A batch with zeros where no region is."""
    return RegionBatch(
        vectors * mask[..., None], mask, boxes * mask[..., None], scores=None if scores is None else scores * mask
    )


def padded_boxes(
    boxes: Sequence[Float[Tensor, "region 4"]], device: torch.device
) -> tuple[Float[Tensor, "image region 4"], Bool[Tensor, "image region"]]:
    """Boxes of several pictures in one tensor, and which of them are real."""
    padded = torch.nn.utils.rnn.pad_sequence(list(boxes), batch_first=True).to(device)
    counts = torch.tensor([len(b) for b in boxes], device=device)
    return padded, torch.arange(padded.shape[1], device=device) < counts[:, None]


def with_whole_picture(
    boxes: Float[Tensor, "image region 4"], scores: Float[Tensor, "image region"], mask: Bool[Tensor, "image region"]
) -> Proposals:
    """The whole picture as one more region, after the last real one of each picture, with score 1."""
    boxes, scores, mask = (torch.cat([part, torch.zeros_like(part[:, :1])], dim=1) for part in (boxes, scores, mask))
    image, last = torch.arange(len(boxes), device=boxes.device), mask.sum(dim=1)
    boxes[image, last] = boxes.new_tensor(WHOLE)
    scores[image, last] = 1.0
    mask[image, last] = True
    return Proposals(boxes, scores, mask)


def for_inference(network: Network) -> Network:
    """The network without gradients, in eval mode, in the memory layout convolutions are fastest in."""
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.eval().requires_grad_(False)


def load_extractor(
    name: str = "world", device: torch.device | str = "cpu", precision: Precision = "fp32"
) -> RegionExtractor:
    """An extractor by name: `world`, `grid`, `grid:efficientnet-lite2`, `bottomup@36`, `detr:HUB/NAME` …

    What a model learned from true boxes, it reads in new pictures at those that the extractor finds.

    Raises: SaccadeError if there is no such extractor, its weights cannot be read, or it has no such precision.
    """
    if name.partition(":")[0] == TRUE_BOXES:
        name = name.removeprefix(TRUE_BOXES)[1:] or "world"
    kind = re.split("[:@]", name, maxsplit=1)[0]
    if kind not in KINDS:
        raise SaccadeError(f'there is no extractor "{name}"{did_you_mean(kind, KINDS)} (there are: {", ".join(KINDS)})')
    module = importlib.import_module(KINDS[kind])
    extractor: RegionExtractor = module.open_extractor(name[len(kind) :].removeprefix(":"))
    return (extractor if precision == "fp32" else extractor.read_in_bfloat16()).to(device)


def trainable_backbone(name: str, pretrained: bool = True) -> TrainableBackbone:
    """The network of the extractor `name`, to be trained as part of a model: pixels in, regions out.

    Raises: SaccadeError if the extractor's regions are not differentiable in its weights.
    """
    kind, _, argument = name.partition(":")
    train = getattr(importlib.import_module(KINDS[kind]), "trainable_backbone", None) if kind in KINDS else None
    if train is None:
        raise SaccadeError(
            f'the extractor "{name}" cannot be trained through a matching loss: only grid extractors can'
        )
    network: TrainableBackbone = train(argument, pretrained)
    return network


class TrainableBackbone(nn.Module, ABC):
    """An extractor's network as part of a model: `forward` takes a PictureBatch and returns a RegionBatch."""

    name: str  # of the extractor
    dim: int  # of a region's vector
    size: int  # the side of the square pictures it takes
    backbone: Backbone

    @abstractmethod
    def as_extractor(self) -> RegionExtractor:
        """The network for use alone; it is folded and frozen in place."""


def split_count(argument: str) -> tuple[str, tuple[int, int] | None]:
    """`FOLDER@36` is FOLDER with 36 to 36 regions, `FOLDER@10-100` with 10 to 100; None where no number is given.

    Raises: SaccadeError if a number is zero, or the first is larger than the second.
    """
    found = re.fullmatch(r"(.*?)(?:@([0-9]{1,4})(?:-([0-9]{1,4}))?)?", argument, re.DOTALL)
    assert found is not None, "the first part takes anything"
    if found[2] is None:
        return argument, None
    least, most = int(found[2]), int(found[3] or found[2])
    if not 1 <= least <= most:
        raise SaccadeError(f'"{argument}" asks for {least} to {most} regions: at least 1, and the larger number last')
    return found[1], (least, most)


def network_digest(network: nn.Module, settings: str) -> str:
    """Of all the weights, and of the settings that change a feature; where the weights came from does not."""
    digest = hashlib.sha256(settings.encode())
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


CONFIG, WEIGHTS = "config.json", "model.safetensors"


def write_detector(
    folder: Path, kind: str, network: nn.Module, config: Any, facts: Mapping[str, object] | None, form: Form
) -> str:
    """Pack a network into a folder, its weights in a smaller form; returns the digest of the weights.

    What its backbone shares with a model of the package is left there (`base`).
    """
    backbone = network.get_submodule("backbone")
    assert isinstance(backbone, Backbone)
    own, base = without_base(network.state_dict(), backbone.name)
    write_weights(folder / WEIGHTS, own, form)
    described = {"model": kind, "config": to_dict(config), "sha256": sha256(folder / WEIGHTS), **(facts or {})}
    write_json(folder / CONFIG, {**described, "base": base} if base is not None else described)
    return _weights_digest(folder, base)


def _weights_digest(folder: Path, base: Mapping[str, str] | None) -> str:
    """Of the weights file, and of that which it shares weights with."""
    own = sha256(folder / WEIGHTS)
    return own if base is None else hashlib.sha256(f"{own} {base['sha256']}".encode()).hexdigest()


def read_detector_config(folder: Path | str, kind: str, config: type[Config]) -> tuple[Path, Config]:
    """Where a detector of this kind lies (of a run folder, its best model), and its settings.

    Raises: SaccadeError if the folder holds none, or one of another kind.
    """
    folder = Path(folder)
    if not (folder / CONFIG).exists() and (folder / "best" / CONFIG).exists():
        folder = folder / "best"
    path = folder / CONFIG
    if not path.exists():
        raise SaccadeError(f"{folder} holds no detector: {CONFIG} is missing (`saccade train {kind}` writes it)")
    values = read_json(path)
    if not isinstance(values, dict) or not isinstance(values.get("config"), dict):
        raise SaccadeError(f'{path} must hold a "config", as `saccade train {kind}` writes it')
    if values.get("model") != kind:
        raise SaccadeError(f"{folder} holds a model of {values.get('model')}, a {kind} was asked for")
    return folder, from_dict(config, values["config"], where=f"{path}: config")


def read_detector_weights(build: Callable[[], Foldable], folder: Path) -> tuple[Foldable, str]:
    """The network that `build` gives with the weights of a detector's folder, and their digest.

    Packed weights have their normalisations folded into the convolutions; those of a training run have not.

    Raises: SaccadeError if the weights are missing, damaged, or those of another network, or the package's model that
    they share some with is not there.
    """
    path = folder / WEIGHTS
    if not path.exists():
        raise SaccadeError(f"{path} is missing")
    base = read_json(folder / CONFIG).get("base")
    network = build_within(build, held_shapes(path, *base_file(base)), path)
    weights = {name.removeprefix("network."): value for name, value in read_weights(path).items()}
    weights = with_base(weights, base, network.state_dict(), folder)
    if weights.keys() != network.state_dict().keys():
        network.fold_normalisation()
    check_values(weights, network.state_dict(), path)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise SaccadeError(f"{path} does not fit the network that {CONFIG} describes") from error
    return network, _weights_digest(folder, base)
