"""The data sets by name. A reader is one small file: a function under `@source("name")` and a row in `MODULES`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.data.records import CaptionedImages, CaptionedPhotos
from saccade.data.store.subset import first_images

Open = Callable[..., CaptionedImages | CaptionedPhotos]  # open(split, root, **options)
Reader = TypeVar("Reader", bound=Open)

MODULES = {  # imported when first asked for, so that reading one format never needs another's code
    "world": "saccade.data.datasets.world",
    "precomp": "saccade.data.formats.precomp",
    "store": "saccade.data.datasets.store",
    "karpathy": "saccade.data.datasets.karpathy",
    "flickr8k": "saccade.data.datasets.flickr8k",
    "flickr30k": "saccade.data.datasets.flickr30k",
    "coco": "saccade.data.datasets.coco",
    "coco_mini": "saccade.data.datasets.coco",
}
_sources: dict[str, Open] = {}


@dataclass(frozen=True)
class DataConfig:
    """Which data set, where it lies, and how much of it."""

    name: str = "world"  # a row of MODULES: world, precomp, store, karpathy, flickr8k …
    root: Path | None = None  # the data set's folder; the world needs none
    train_split: str = "train"
    dev_split: str = "dev"
    test_split: str = "test"
    limit: int | None = None  # at most so many pictures of each split
    in_memory: bool = False  # read all regions once and keep them on the training device: quicker, where they fit
    extractor: str = "grid"  # what sees photos: grid, bottomup …; on the world its own extractor does, or grid:world/7
    language: str = "en"  # of the captions, where a data set has several
    seed: int = 0  # the world's
    pictures: int = 2000  # the world's size


def source(name: str) -> Callable[[Reader], Reader]:
    """Register `open(split, root, **options)` under a name; options are `seed`, `pictures`, `language` and `extractor`.

    It returns CaptionedImages (regions) or CaptionedPhotos, which `open_split` lets an extractor see.
    """

    def register(function: Reader) -> Reader:
        _sources[name] = function
        return function

    return register


def source_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys([*MODULES, *_sources]))


def open_split(config: DataConfig, split: str, pixels: int | None = None) -> CaptionedImages:
    """One split of a data set, e.g. `open_split(DataConfig("precomp", Path("data/f30k_precomp")), "test")`.

    Photos are seen by `config.extractor`; with `pixels`, they come as squares of that size for a model that sees for
    itself.
    """
    data = _read_split(config, split)
    if isinstance(data, CaptionedImages):
        if pixels is not None:
            raise SaccadeError(
                f"data={config.name} holds features, and a model that sees for itself needs photos: give a data set of "
                "photos and its folder, for one data=flickr8k root=FOLDER"
            )
        return data if config.limit is None else first_images(data, config.limit)
    from saccade.features.photos import extract_photos, first_photos, pixels_of_photos

    photos = data if config.limit is None else first_photos(data, config.limit)
    return extract_photos(photos, config.extractor) if pixels is None else pixels_of_photos(photos, pixels)


def _read_split(config: DataConfig, split: str) -> CaptionedImages | CaptionedPhotos:
    if config.name not in _sources:
        if config.name not in MODULES:
            raise SaccadeError(
                f'there is no data set "{config.name}"{did_you_mean(config.name, source_names())} '
                f"(there are: {', '.join(source_names())})"
            )
        importlib.import_module(MODULES[config.name])
    reader = _sources[config.name]
    options: dict[str, Any] = {
        name: getattr(config, name)
        for name in ("seed", "pictures", "language", "extractor")  # what a reader may ask for
    }
    parameters = inspect.signature(reader).parameters.values()
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        options = {k: v for k, v in options.items() if k in {p.name for p in parameters}}
    return reader(split, config.root, **options)


def need_root(root: Path | None, name: str, holds: str) -> Path:
    """The folder of a data set that has one, or a sentence on what to give."""
    if root is None:
        raise SaccadeError(f"data={name} needs a folder: give root=FOLDER, which holds {holds}")
    if not root.is_dir():
        raise SaccadeError(f"{root} is not a folder: give root=FOLDER; data={name} reads one that holds {holds}")
    return root
