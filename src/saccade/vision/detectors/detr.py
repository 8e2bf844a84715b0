"""The DETR family (Carion, Massa, Synnaeve, Usunier, Kirillov, Zagoruyko; ECCV 2020): regions that queries find.

Any object detector of transformers of that family (DETR, Conditional and Deformable DETR, RT-DETR, YOLOS …), from the
hub or a folder: `detr:PekingU/rtdetr_r18vd`, `detr:FOLDER`. `@36` at the end asks for that many regions, `@20-50` for
20 to 50; without it there are 10 to 100, those that score above 0.2. The picture itself is one more region, the last.

A found region's vector is its query's, as the decoder leaves it. These detectors have no RoI pooling: a box that is
given is read from the encoder's map instead, and so is the whole picture. A map's vectors live in another space than
the queries', so a feature store should hold one kind or the other.

How a detector wants its pictures is read from the `preprocessor_config.json` beside its weights. The library's own
image processors need torchvision in their fast form and change from release to release; what they do to a picture is a
resize, a scale and a shift, and Pillow and PyTorch do these here with the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from PIL import Image
from torch import Tensor

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.core.hub import first_line, model_folder
from saccade.vision.backbones.base import IMAGENET_MEAN, IMAGENET_STD
from saccade.vision.backbones.hf import (
    PROCESSORS,
    import_transformers,
    load_whole,
    processor_file,
    quietly,
    read_processor,
)
from saccade.vision.boxes import WHOLE, clip, pick, valid
from saccade.vision.extractors import RegionDescription, RegionExtractor, network_digest, split_count, upload
from saccade.vision.pictures import Picture, as_array
from saccade.vision.roi import roi_bilinear


def load_detector(source: str) -> tuple[Any, PictureForm]:
    """The network, and the form in which it wants its pictures.

    Raises: SaccadeError if either cannot be had.
    """
    transformers = import_transformers(f'the detector "{source}"')
    folder = model_folder(source)
    if not (folder / "config.json").is_file():
        raise SaccadeError(f"{source} holds no config.json: a folder that `save_pretrained` wrote was expected")
    network, form = _load(transformers, source, folder), processor_file(folder)
    if form is None:
        missing = folder / PROCESSORS[0] if Path(source).is_dir() else f'the {PROCESSORS[0]} of "{source}"'
        raise SaccadeError(f"{missing} is missing: it says how the detector wants its pictures (size, mean, std)")
    return network, read_form(form)


def _load(transformers: Any, source: str, folder: Path) -> Any:
    try:
        with quietly(transformers):
            return load_whole(transformers.AutoModelForObjectDetection.from_pretrained, folder)
    except SaccadeError:
        raise
    except ImportError as error:
        raise SaccadeError(f'the detector "{source}" needs a package that is missing: {first_line(error)}') from error
    except OSError as error:
        raise SaccadeError(f"{source} holds no detector with safetensors weights: {first_line(error)}") from error
    except Exception as error:  # a network of another kind, damaged weights, a config that does not fit them
        raise SaccadeError(f'"{source}" cannot be loaded as an object detector: {first_line(error)}') from error


MIN_PICTURE_SIDE = 16  # pixels: a sliver of a picture is widened to this, so that no network runs out of cells


@dataclass(frozen=True)
class PictureForm:
    """Size, scale and shift of the pictures a network was trained on."""

    fixed: tuple[int, int] | None = None  # height, width: pictures are stretched to it
    shortest: int | None = None  # the shorter side, unless that makes the longer one longer than …
    longest: int | None = None
    within: tuple[int, int] | None = None  # the largest size inside this height and width
    resample: int = Image.Resampling.BILINEAR.value
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def size(self, height: int, width: int) -> tuple[int, int]:
        """What a picture of this height and width is resized to."""
        wanted = height, width = max(height, MIN_PICTURE_SIDE), max(width, MIN_PICTURE_SIDE)
        short, long = float(min(wanted)), float(max(wanted))
        if self.fixed is not None:
            wanted = self.fixed
        elif self.within is not None:
            factor = min(self.within[0] / height, self.within[1] / width)
            wanted = int(height * factor), int(width * factor)
        elif self.shortest is not None:
            side = float(self.shortest)
            if self.longest is not None and long / short * side > self.longest:
                side = self.longest * short / long
            if round(side) != min(height, width):
                other = int(side * long / short)
                wanted = (round(side), other) if height <= width else (other, round(side))
        bounded = self.longest is not None or self.within is not None
        if bounded and abs(wanted[0] - height) <= 1 and abs(wanted[1] - width) <= 1:
            wanted = height, width  # a picture that has been through here stays as it is
        return max(wanted[0], MIN_PICTURE_SIDE), max(wanted[1], MIN_PICTURE_SIDE)

    def resize(self, picture: UInt8[np.ndarray, "row column 3"]) -> UInt8[np.ndarray, "row column 3"]:
        height, width = self.size(*picture.shape[:2])
        if (height, width) == picture.shape[:2]:
            return picture
        return np.array(Image.fromarray(picture).resize((width, height), Image.Resampling(self.resample)))

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        mean, std = (pixels.new_tensor(v, dtype=torch.float32) for v in (self.mean, self.std))
        return ((pixels.float() * self.scale - mean) / std).permute(0, 3, 1, 2).contiguous()


def read_form(path: Path) -> PictureForm:
    """The form in a `preprocessor_config.json`. Raises: SaccadeError if a field is not what it should be."""
    return form_of(read_processor(path), path)


def form_of(values: Mapping[str, Any], path: Path) -> PictureForm:
    """The form that a processor's settings describe; `path` is where they stand."""
    sides = _sides(values.get("size"), values.get("max_size"), path) if values.get("do_resize", True) else {}
    resample = values.get("resample", Image.Resampling.BILINEAR.value)
    if resample not in [r.value for r in Image.Resampling]:
        raise SaccadeError(f"{path}: resample is {resample!r}, a number from 0 to 5 was expected")
    scale = values.get("rescale_factor", 1 / 255) if values.get("do_rescale", True) else 1.0
    if not isinstance(scale, int | float) or not 0 < scale < 100:
        raise SaccadeError(f"{path}: rescale_factor is {scale!r}, a number such as 0.00392 was expected")
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if values.get("do_normalize", True):
        mean = _three(values.get("image_mean", IMAGENET_MEAN), "image_mean", path)
        std = _three(values.get("image_std", IMAGENET_STD), "image_std", path)
        if min(std) <= 0:
            raise SaccadeError(f"{path}: image_std is {list(std)}, numbers above zero were expected")
    return PictureForm(**sides, resample=int(resample), scale=float(scale), mean=mean, std=std)


def _sides(size: Any, longest: Any, path: Path) -> dict[str, Any]:
    """The fields of a PictureForm that say how large; older files have a number and `max_size`."""
    if isinstance(size, int) and not isinstance(size, bool):
        size = {"shortest_edge": size, "longest_edge": longest or 1333}
    given = size if isinstance(size, dict) else {}
    numbers = {k: v for k, v in given.items() if isinstance(v, int) and not isinstance(v, bool) and 0 < v <= 10_000}
    if {"height", "width"} <= numbers.keys():
        return {"fixed": (numbers["height"], numbers["width"])}
    if {"max_height", "max_width"} <= numbers.keys():
        return {"within": (numbers["max_height"], numbers["max_width"])}
    if "shortest_edge" in numbers:
        return {"shortest": numbers["shortest_edge"], "longest": numbers.get("longest_edge")}
    raise SaccadeError(
        f"{path}: size is {size!r}, whole numbers for height and width, for shortest_edge and longest_edge, or for "
        "max_height and max_width were expected"
    )


def _three(value: Any, name: str, path: Path) -> tuple[float, float, float]:
    if not isinstance(value, list | tuple) or len(value) != 3 or not all(isinstance(v, int | float) for v in value):
        raise SaccadeError(f"{path}: {name} is {value!r}, three numbers were expected")
    return float(value[0]), float(value[1]), float(value[2])


MIN_CONFIDENCE = 0.2  # a query below it stays out, unless there are too few
MIN_REGIONS, MAX_REGIONS = 10, 100  # a picture
MAX_BATCH_PIXELS = 8_000_000  # of pictures that go through the network together
ROI_POINTS = 7  # a given box is read at so many points a side
ENCODER_STRIDES = (32, 16)  # of DETR, and of its dilated variants


@dataclass(frozen=True)
class _PictureRegions:
    """Of one picture: its regions, best first, then all of it, unless boxes were given."""

    vectors: Float[Tensor, "region dim"]
    boxes: Float[Tensor, "region 4"]
    scores: Float[Tensor, " region"]
    classes: Int[Tensor, " region"]  # -1: no name


class DetrExtractor(RegionExtractor):
    """A detector of transformers as an extractor."""

    def __init__(
        self, network: Any, form: PictureForm, name: str, least: int = MIN_REGIONS, most: int = MAX_REGIONS
    ) -> None:
        self.network: Any = network.eval().requires_grad_(False)
        self.form = form
        self.name = name
        self.least, self.most = least, most
        self.labels: dict[int, str] = {int(k): str(v) for k, v in network.config.id2label.items()}
        self.dim = int(getattr(network.config, "d_model", None) or network.config.hidden_size)
        self.digest = network_digest(network, f"{type(network).__name__} {(form, least, most, MIN_CONFIDENCE)!r}")

    def prepare(self, picture: Picture, where: str = "the picture") -> UInt8[np.ndarray, "row column 3"]:
        return self.form.resize(as_array(picture, where))

    def regions(self, pictures: list[np.ndarray], boxes: list[Tensor] | None) -> RegionBatch:
        """The queries' boxes, best first, and the whole picture; or, in boxes that are given, the encoder's map."""
        found = self._detect(pictures, boxes)
        return RegionBatch.of([p.vectors for p in found], [p.boxes for p in found], (), [p.scores for p in found])

    def describe(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> list[list[RegionDescription]]:
        """The detector's name for each region it finds; the whole picture has none, and neither has a given box."""
        if boxes is not None:
            raise SaccadeError(f'the extractor "{self.name}" names the regions it finds, not boxes that are given')
        return [
            [
                RegionDescription(
                    (box[0], box[1], box[2], box[3]),
                    score,
                    {"kind": self.labels.get(kind, f"class {kind}")} if kind >= 0 else {},
                    {"kind": score} if kind >= 0 else {},
                )
                for box, score, kind in zip(p.boxes.tolist(), p.scores.tolist(), p.classes.tolist(), strict=True)
            ]
            for pictures, _ in self.batches(images, None, batch_size)
            for p in self._detect(pictures, None)
        ]

    @torch.inference_mode()
    def _detect(self, pictures: list[np.ndarray], boxes: list[Tensor] | None) -> list[_PictureRegions]:
        """Pictures of one size go through the network together: none is padded, so none depends on its neighbours."""
        found: dict[int, _PictureRegions] = {}
        for shape in sorted({p.shape for p in pictures}):
            alike = [i for i, picture in enumerate(pictures) if picture.shape == shape]
            step = max(1, MAX_BATCH_PIXELS // (shape[0] * shape[1]))
            for at in range(0, len(alike), step):
                group = alike[at : at + step]
                pixels = upload([pictures[i] for i in group], self.device)
                output = self._run(pixels)
                given = None if boxes is None else [boxes[i] for i in group]
                parts = self._found(output) if given is None else self._inside(output, pixels, given)
                found.update(zip(group, parts, strict=True))
        return [found[i] for i in range(len(pictures))]

    def _run(self, pixels: Tensor) -> Any:
        output = self.network(pixel_values=self.form.normalise(pixels))
        if not hasattr(output, "pred_boxes") or not hasattr(output, "last_hidden_state"):
            kind = type(self.network).__name__
            raise SaccadeError(f'the extractor "{self.name}" is a {kind}, which has no queries with boxes')
        return output

    def _found(self, output: Any) -> Iterator[_PictureRegions]:
        logits = output.logits.float()
        queries = logits.shape[1]
        vectors = output.last_hidden_state[:, -queries:].float()  # of YOLOS, the tokens after the patches
        has_nothing = logits.shape[2] == len(self.labels) + 1  # a last class for it; without, each class for itself
        best = (logits.softmax(dim=-1)[..., :-1] if has_nothing else logits.sigmoid()).max(dim=-1)
        centre, sides = output.pred_boxes.float().split(2, dim=-1)
        boxes = clip(torch.cat([centre - sides / 2, centre + sides / 2], dim=-1))
        memory = self._memory(output)
        whole = (vectors if memory is None else memory).mean(dim=1)
        scores = torch.where(valid(boxes), best.values, -1.0)
        sure, there = (scores > MIN_CONFIDENCE).sum(dim=1), (scores >= 0).sum(dim=1)
        counts = torch.minimum(sure.clamp(self.least, self.most), there).tolist()  # the one wait for a GPU
        order = scores.argsort(dim=1, descending=True, stable=True)[:, : max(counts, default=0)]
        vectors, boxes, scores, classes = (pick(part, order).cpu() for part in (vectors, boxes, scores, best.indices))
        whole = whole.cpu()
        for i, count in enumerate(counts):
            yield _PictureRegions(
                torch.cat([vectors[i, :count], whole[i, None]]),
                torch.cat([boxes[i, :count], boxes.new_tensor([WHOLE])]),
                torch.cat([scores[i, :count], scores.new_ones(1)]),
                torch.cat([classes[i, :count], classes.new_full((1,), -1)]),
            )

    def _inside(self, output: Any, pixels: Tensor, given: Sequence[Tensor]) -> Iterator[_PictureRegions]:
        maps = self._map(output, pixels.shape[1], pixels.shape[2])
        if maps is None:
            raise SaccadeError(
                f'the extractor "{self.name}" finds its own regions: its encoder has no single map from which '
                "given boxes could be read (grid and bottomup take boxes)"
            )
        counts = torch.tensor([len(g) for g in given])
        index = torch.arange(len(given)).repeat_interleave(counts).to(maps.device)
        boxes = torch.cat(list(given)).to(maps.device)
        read = roi_bilinear(maps, boxes, index, ROI_POINTS).mean(dim=(2, 3)).cpu()
        vectors = torch.split(read, counts.tolist())
        for vector, place in zip(vectors, given, strict=True):
            ones = torch.ones(len(place))
            yield _PictureRegions(vector, place, ones, torch.full((len(place),), -1))

    def _memory(self, output: Any) -> Float[Tensor, "image cell dim"] | None:
        """What the encoder leaves, cell by cell, where it has the queries' dimension."""
        left = getattr(output, "encoder_last_hidden_state", None)
        if isinstance(left, list | tuple):  # RT-DETR: maps, fine to coarse
            left = left[0].flatten(2).transpose(1, 2)
        queries = output.logits.shape[1]
        if left is None and output.last_hidden_state.shape[1] > queries + 1:  # YOLOS: one sequence for all
            left = output.last_hidden_state[:, 1:-queries]
        return left.float() if isinstance(left, Tensor) and left.ndim == 3 and left.shape[2] == self.dim else None

    def _map(self, output: Any, height: int, width: int) -> Float[Tensor, "image dim row column"] | None:
        """The encoder's cells as a map, where they are one."""
        memory = self._memory(output)
        if memory is None:
            return None
        left = getattr(output, "encoder_last_hidden_state", None)
        if isinstance(left, list | tuple):
            shapes = [(left[0].shape[2], left[0].shape[3])]
        elif left is None:
            patch = self.network.config.patch_size
            down, across = (patch, patch) if isinstance(patch, int) else patch
            shapes = [(height // down, width // across)]
        else:
            shapes = [(-(-height // stride), -(-width // stride)) for stride in ENCODER_STRIDES]
        for rows, columns in shapes:
            if rows * columns == memory.shape[1]:
                return memory.transpose(1, 2).reshape(len(memory), -1, rows, columns)
        return None


def open_extractor(argument: str = "") -> DetrExtractor:
    """`HUB/NAME` or a folder, and how many regions: `facebook/detr-resnet-50@36`."""
    source, limits = split_count(argument)
    if not source:
        raise SaccadeError('the extractor "detr" needs a detector: detr:HUB/NAME or detr:FOLDER')
    return DetrExtractor(*load_detector(source), f"detr:{argument}", *(limits or (MIN_REGIONS, MAX_REGIONS)))
