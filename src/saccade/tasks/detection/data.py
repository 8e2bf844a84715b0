"""Pictures with named boxes, whatever data set they are from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.data import DataConfig, open_records
from saccade.models.detectors import NamedBoxes
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
    pictures: Iterable[NamedBoxes], class_count: int, attribute_count: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and the attributes that stand on at least this many boxes, the most frequent first.

    Raises: SaccadeError if no name does.
    """
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


def _world_picture(split: Split, i: int) -> WorldPicture:
    scene, boxes = split.scene(i), split.boxes(i)
    visible = [j for j in range(len(boxes)) if (boxes[j, 2:] - boxes[j, :2] > MIN_THING_SIDE).all()]
    things = [scene.things[j] for j in visible]
    return WorldPicture(
        split.image(i),
        boxes[visible],
        tuple(str(thing.kind) for thing in things),
        tuple(tuple(str(a) for a in (thing.colour, thing.size, thing.material) if a) for thing in things),
        tuple(_labels(thing) for thing in things),
        {"background": scene.background, "lighting": scene.lighting},
    )


def _labels(thing: Any) -> Mapping[str, str]:
    """What a thing has of each attribute; a cube faces nowhere."""
    labels = {name: getattr(thing, name) for name in ("kind", "colour", "size", "material", "pose")}
    if thing.kind in SHOWS_FACING:
        labels["facing"] = "left" if thing.facing < 0 else "right"
    return {name: str(label) for name, label in labels.items() if label}
