"""What an extractor is: pictures in, regions out. `load_extractor("grid").extract(pictures)` is all that a model's
user needs.

An extractor has a name that builds it again, `KIND`, `KIND:ARGUMENT` or `KIND@NUMBER`: the name is what a feature store
and
a trained model keep, so that new pictures are seen the same way. A kind is one module with `open_extractor(argument)`
and a row in `KINDS`.

An extractor on disk: `STEM.safetensors` with its weights, `STEM.json` with its config and facts about its training.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from saccade.batch import RegionBatch
from saccade.core.config import from_dict, to_dict
from saccade.core.errors import SaccadeError, did_you_mean
from saccade.core.files import read_json, sha256, write_json
from saccade.core.threads import ahead, openers
from saccade.core.weights import Form, read_weights, write_weights
from saccade.vision.boxes import check_boxes
from saccade.vision.pictures import Picture, as_array, ids_of, name_of

Network = TypeVar("Network", bound=nn.Module)

KINDS = {  # imported when first asked for
    "world": "saccade.vision.detectors.world",
    "grid": "saccade.vision.grid",
    "bottomup": "saccade.vision.detectors.bottomup",
    "detr": "saccade.vision.detectors.detr",
}


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
        order = ("size", "attribute", "colour", "material", "kind")
        words = [self.labels[name] for name in order if name in self.labels]
        return " ".join(words) if words else ", ".join(self.labels.values())


class RegionExtractor(ABC):
    """A network that looks at pictures. Subclasses say how; this says what their users may count on."""

    name: str  # what `load_extractor` takes
    digest: str  # of all that the features of a picture depend on: weights and settings
    dim: int  # of a region's vector
    network: nn.Module
    picture_size: int | None = None  # the side of the square it stretches pictures to; None: it keeps their shape

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def to(self, device: torch.device | str) -> RegionExtractor:
        self.network.to(device)
        return self

    def prepare(self, picture: Picture, where: str = "the picture") -> UInt8[np.ndarray, "row column 3"]:
        """What `see` does first with each picture: `see` takes the result as it takes the picture, and sees the same.

        It is small and it may be made in another thread, so that many pictures can wait in memory for the network. An
        extractor that shrinks pictures in its own way says so here.
        """
        return as_array(picture, where, self.picture_size)

    def batches(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None, batch_size: int
    ) -> Iterator[tuple[list[UInt8[np.ndarray, "row column 3"]], list[Float[Tensor, "region 4"]] | None]]:
        """`batch_size` prepared pictures at a time, with the boxes that were given for them, checked.

        Files are opened by a few threads, up to a batch ahead of the network.
        """
        if boxes is not None and len(boxes) != len(images):
            raise SaccadeError(f"{len(images)} pictures but {len(boxes)} arrays of boxes: one for each is needed")

        def prepare(i: int) -> UInt8[np.ndarray, "row column 3"]:
            return self.prepare(images[i], name_of(images[i], i))

        all_files = len(ids_of(images)) > 1  # a picture in memory may be listed twice, and Pillow's are not for threads
        threads = openers() if all_files else 0
        with closing(ahead(prepare, range(len(images)), threads, batch_size)) as prepared:
            for start in range(0, len(images), batch_size):
                part = range(start, min(start + batch_size, len(images)))
                arrays = list(islice(prepared, len(part)))
                yield arrays, None if boxes is None else [check_boxes(boxes[i], name_of(images[i], i)) for i in part]

    @abstractmethod
    def extract(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> RegionBatch:
        """Region vectors of pictures: paths, Pillow images or arrays, of any size and mode.

        Without `boxes`: the regions the extractor finds. With `boxes` (one array [region, 4] in 0..1 a picture):
        exactly
        those. Paths become the batch's ids; `scores` are how sure the extractor is of each region, where it can tell.
        """

    def describe(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> list[list[RegionDescription]]:
        """What the extractor would call each region `see` returns, picture by picture."""
        raise SaccadeError(f'the extractor "{self.name}" finds regions but has no names for them')

    def recognise(self, regions: RegionBatch) -> list[list[RegionDescription]]:
        """What the extractor would call regions that it saw before, from their vectors alone, picture by picture."""
        raise SaccadeError(f'the extractor "{self.name}" finds regions but has no names for them')


def at_rest(network: Network) -> Network:
    """A network that only looks: no gradients, nothing that varies, and in the layout convolutions are quickest in."""
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.eval().requires_grad_(False)


def load_extractor(name: str = "world", device: torch.device | str = "cpu") -> RegionExtractor:
    """An extractor by name: `world`, `grid`, `grid:efficientnet-lite2`, `bottomup@36`, `detr:HUB/NAME` …"""
    kind = re.split("[:@]", name, maxsplit=1)[0]
    if kind not in KINDS:
        raise SaccadeError(f'there is no extractor "{name}"{did_you_mean(kind, KINDS)} (there are: {", ".join(KINDS)})')
    extractor: RegionExtractor = importlib.import_module(KINDS[kind]).open_extractor(
        name[len(kind) :].removeprefix(":")
    )
    return extractor.to(device)


def split_count(argument: str) -> tuple[str, tuple[int, int] | None]:
    """`FOLDER@36` is FOLDER with 36 to 36 regions, `FOLDER@10-100` with 10 to 100; None where no number is given."""
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


Config = TypeVar("Config")


def write_extractor(stem: Path, network: nn.Module, config: Any, facts: Mapping[str, object] | None, form: Form) -> str:
    """Write both files; returns the digest of the weights."""
    path = stem.with_suffix(".safetensors")
    write_weights(path, network.state_dict(), form)
    digest = sha256(path)
    write_json(stem.with_suffix(".json"), {"config": to_dict(config), "sha256": digest, **(facts or {})})
    return digest


def read_extractor_config(facts: Path, kind: type[Config], recipe: str) -> Config:
    """The config in a .json that `recipe` wrote, once its weights are seen to lie beside it."""
    for path in (facts.with_suffix(".safetensors"), facts):
        if not path.exists():
            raise SaccadeError(f"{path} is missing: `python {recipe}` writes it")
    values = read_json(facts)
    if not isinstance(values, dict) or not isinstance(values.get("config"), dict):
        raise SaccadeError(f'{facts} must hold a "config", as written by {recipe}')
    return from_dict(kind, values["config"], where=f"{facts.name}: config")


def fill_weights(network: nn.Module, facts: Path) -> str:
    """Give a network the weights that lie beside its .json; returns their digest."""
    path = facts.with_suffix(".safetensors")
    try:
        network.load_state_dict(read_weights(path))
    except RuntimeError as error:
        raise SaccadeError(f"{path} does not fit the network that {facts.name} describes") from error
    return sha256(path)
