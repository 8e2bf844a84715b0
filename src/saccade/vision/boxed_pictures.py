"""What a detector learns from, as tensors on one device: pictures as bytes, their boxes, names and attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from saccade.errors import SaccadeError
from saccade.vision.pictures import Picture, as_array, name_of

UNKNOWN = -1  # the class of a thing whose name is too rare to learn, and the padding of attributes
ATTRIBUTES = 6  # kept of one thing, at most


class NamedBoxes(Protocol):
    """A picture with named boxes; `saccade.data.BoxedPicture` is one."""

    @property
    def path(self) -> Picture: ...

    @property
    def boxes(self) -> np.ndarray: ...  # [thing, 4] in 0..1

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def attributes(self) -> Sequence[Sequence[str]]: ...


@dataclass(frozen=True)
class BoxedPictures:
    """Pictures with what is truly there."""

    pixels: UInt8[Tensor, "image height width 3"]
    boxes: Float[Tensor, "image thing 4"]  # padded; room for one at least
    real: Bool[Tensor, "image thing"]
    labels: Int[Tensor, "image thing"]  # 1.. of the classes (0 is the background), or UNKNOWN
    attributes: Int[Tensor, "image thing some"]  # 1.. of the attributes (0 is "none"), or UNKNOWN

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return self.pixels, self.boxes, self.real, self.labels, self.attributes

    def select(self, index: Tensor | slice) -> BoxedPictures:
        return BoxedPictures(*(part[index] for part in self.parts))

    def to(self, device: torch.device | str) -> BoxedPictures:
        return BoxedPictures(*(part.to(device) for part in self.parts))


def label_names(
    pictures: Iterable[NamedBoxes], class_count: int = 10, attribute_count: int = 10
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and the attributes that stand on at least this many boxes, the most frequent first."""
    names: Counter[str] = Counter()
    attributes: Counter[str] = Counter()
    for picture in pictures:
        names.update(picture.names)
        attributes.update(a for some in picture.attributes for a in set(some))

    def frequent(counts: Counter[str], least: int) -> tuple[str, ...]:
        return tuple(sorted((n for n, c in counts.items() if c >= least), key=lambda n: (-counts[n], n)))

    classes = frequent(names, class_count)
    if not classes:
        raise SaccadeError(f"no name stands on {class_count} boxes or more: there is nothing to learn")
    return classes, frequent(attributes, attribute_count)


def load_boxed_pictures(
    pictures: Sequence[NamedBoxes],
    classes: Sequence[str],
    attributes: Sequence[str],
    size: int,
    most_things: int = 40,
    workers: int = 8,
    progress: Callable[[int], None] = lambda count: None,
) -> BoxedPictures:
    """All pictures decoded once, stretched to `size` × `size`; of a crowded picture the `most_things` largest boxes."""
    class_number = {name: i for i, name in enumerate(classes, start=1)}
    attribute_number = {name: i for i, name in enumerate(attributes, start=1)}
    things = min(max((len(p.boxes) for p in pictures), default=0), most_things) or 1
    pixels = np.zeros((len(pictures), size, size, 3), dtype=np.uint8)
    boxes = np.zeros((len(pictures), things, 4), dtype=np.float32)
    real = np.zeros((len(pictures), things), dtype=bool)
    labels = np.full((len(pictures), things), UNKNOWN, dtype=np.int64)
    described = np.full((len(pictures), things, ATTRIBUTES), UNKNOWN, dtype=np.int64)

    def decode(i: int) -> None:
        pixels[i] = as_array(pictures[i].path, name_of(pictures[i].path, i), size)

    with ThreadPoolExecutor(workers) as pool:
        for count, _ in enumerate(pool.map(decode, range(len(pictures))), start=1):
            progress(count)
    for i, picture in enumerate(pictures):
        sides = picture.boxes[:, 2:] - picture.boxes[:, :2] if len(picture.boxes) else np.zeros((0, 2))
        for j, k in enumerate(np.argsort(-sides.prod(axis=1), kind="stable")[:things]):
            boxes[i, j], real[i, j] = picture.boxes[k], bool((sides[k] > 0).all())
            labels[i, j] = class_number.get(picture.names[k], UNKNOWN)
            known = [attribute_number[a] for a in picture.attributes[k] if a in attribute_number][:ATTRIBUTES]
            described[i, j, : len(known)] = known
    return BoxedPictures(*(torch.from_numpy(array) for array in (pixels, boxes, real, labels, described)))
