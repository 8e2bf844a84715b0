"""Teaching a bottom-up detector: pictures varied on the device, regions drawn by lot, and the loss of a batch.

No part of a step asks the device for a number, so a GPU never waits. `recipes/bottomup.py` is the loop around it.

What a detector learns from, as tensors on one device: pictures as bytes, their boxes, names and attributes.
"""

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
from torch.nn import functional

from saccade.core.errors import SaccadeError
from saccade.vision.boxes import area, clip
from saccade.vision.detectors.bottomup import BottomUpNetwork, refinement
from saccade.vision.detectors.rpn import ROUNDS, propose, rpn_loss
from saccade.vision.detectors.sampling import draw_both, mean_where, overlaps, pick
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


POSITIVE = 0.5  # a region is a thing's if they overlap by this much, and background otherwise
REGIONS, POSITIVES = 64, 24  # drawn from a picture, and how many of them may be things
CANDIDATES, PROPOSALS = 600, 128  # while training, at most
SEEN = 0.4  # of a thing's box must be left by a crop, or it is no longer there
NONE_WEIGHT = 0.1  # of a thing without attributes: nobody has said that it has none
ATTRIBUTE_WEIGHT = 0.5


def augment(
    batch: BoxedPictures, size: int, crop: float = 0.6, colour: float = 0.25
) -> tuple[UInt8[Tensor, "image size size 3"], BoxedPictures]:
    """Mirror half of the pictures, cut a window out of half of them, vary light and colour; all at `size` × `size`."""
    images, device = len(batch), batch.pixels.device
    chance = torch.rand(5, images, device=device)
    side = torch.where(chance[:1] < 0.5, crop + (1 - crop) * chance[1:3], torch.ones_like(chance[1:3])).T  # [image, 2]
    low = (1 - side) * chance[3:5].T
    mirrored = torch.rand(images, device=device) < 0.5

    steps = (torch.arange(size, device=device, dtype=torch.float32) + 0.5) / size
    x = low[:, :1] + side[:, :1] * torch.where(mirrored[:, None], 1 - steps, steps)
    y = low[:, 1:] + side[:, 1:] * steps
    shape = (images, size, size)
    points = torch.stack([x[:, None, :].expand(shape), y[:, :, None].expand(shape)], dim=-1) * 2 - 1
    floats = batch.pixels.permute(0, 3, 1, 2).float()
    seen = functional.grid_sample(floats, points, padding_mode="border", align_corners=False)

    gain, contrast, saturation = 1 + (torch.rand(3, images, 1, 1, 1, device=device) * 2 - 1) * colour
    grey = seen.mean(dim=1, keepdim=True)
    seen = grey + (seen - grey) * saturation
    middle = seen.mean(dim=(1, 2, 3), keepdim=True)
    seen = (middle + (seen - middle) * contrast) * gain
    pixels = seen.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)

    moved = (batch.boxes - low.repeat(1, 2)[:, None]) / side.repeat(1, 2)[:, None]
    x1, y1, x2, y2 = moved.unbind(dim=-1)
    moved = torch.where(mirrored[:, None, None], torch.stack([1 - x2, y1, 1 - x1, y2], dim=-1), moved)
    inside = clip(moved)
    real = batch.real & (area(inside) >= SEEN * area(moved))
    return pixels, BoxedPictures(pixels, inside, real, batch.labels, batch.attributes)


def detector_loss(network: BottomUpNetwork, batch: BoxedPictures, vary: bool = True) -> dict[str, Float[Tensor, ""]]:
    """The parts of the loss: objectness and boxes of the proposals; classes, boxes and attributes of the regions."""
    c, pixels = network.config, batch.pixels
    if vary:
        pixels, batch = augment(batch, c.size)
    maps = network.maps(pixels)
    said = network.rpn(maps.joined)
    truth, real = batch.boxes.float(), batch.real
    objectness, fit = rpn_loss(said, truth, real)

    with torch.no_grad():
        proposed, _, found = propose(said, min(CANDIDATES, c.candidates), min(PROPOSALS, c.proposals), rounds=ROUNDS)
        boxes = torch.cat([proposed, jitter(truth), truth], dim=1)
        there = torch.cat([found, real, real], dim=1)
        highest, owner = overlaps(boxes, truth, real).max(dim=2)
        is_thing = (highest >= POSITIVE) & there
        position, drawn, positive = draw_both(is_thing, ~is_thing & there, REGIONS, POSITIVES)
        boxes, owner = pick(boxes, position), pick(owner, position)
        wanted = torch.where(positive, pick(batch.labels, owner), torch.zeros_like(owner))
        change = refinement(boxes, pick(truth, owner))

    vectors = network.vectors(maps, boxes)
    named = network.name(vectors)
    known = drawn & (wanted != UNKNOWN)
    label = functional.cross_entropy(named.classes.flatten(0, 1), wanted.clamp(min=0).flatten(), reduction="none")
    misfit = functional.smooth_l1_loss(named.changes, change, reduction="none").sum(dim=-1)
    losses = {
        "objectness": objectness,
        "proposals": fit,
        "classes": mean_where(label, known.flatten()),
        "boxes": mean_where(misfit, positive),
    }
    if c.attributes:
        described = network.describe(vectors, wanted.clamp(min=0))
        losses["attributes"] = ATTRIBUTE_WEIGHT * attribute_loss(described, pick(batch.attributes, owner), positive)
    return losses


def attribute_loss(
    logits: Float[Tensor, "image region attribute"],
    wanted: Int[Tensor, "image region some"],
    positive: Bool[Tensor, "image region"],
) -> Float[Tensor, ""]:
    """Softmax cross entropy against the mean over a thing's attributes: what drawing one of them gives on average.

    A thing without any is taught "none", lightly: most attributes are merely not mentioned.
    """
    listed = wanted != UNKNOWN
    count = listed.sum(dim=-1)
    surprise = -logits.log_softmax(dim=-1)
    of_listed = torch.where(listed, surprise.gather(-1, wanted.clamp(min=0)), surprise.new_zeros(())).sum(dim=-1)
    each = torch.where(count > 0, of_listed / count.clamp(min=1), surprise[..., 0])
    weight = torch.where(count > 0, 1.0, NONE_WEIGHT) * positive
    return (each * weight).sum() / weight.sum().clamp(min=1)


def jitter(boxes: Float[Tensor, "image thing 4"], amount: float = 0.15) -> Float[Tensor, "image thing 4"]:
    """Each side moved by up to `amount` of the box's width or height: a proposal is never exact."""
    side = (boxes[..., 2:] - boxes[..., :2]).repeat(1, 1, 2)
    return clip(boxes + side * amount * (torch.rand_like(boxes) * 2 - 1))
