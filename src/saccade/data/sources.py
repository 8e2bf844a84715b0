"""The data sets by name. A reader is one small file: a function under `@source("name")` and a row in `MODULES`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.data.records import CaptionedImages
from saccade.data.subset import first_images
from saccade.errors import SaccadeError, did_you_mean

Open = Callable[..., CaptionedImages]  # open(split, root, **options)

MODULES = {  # imported when first asked for, so that reading one format never needs another's code
    "world": "saccade.data.world",
    "precomp": "saccade.data.precomp",
    "store": "saccade.data.captioned_store",
    "karpathy": "saccade.data.karpathy",
    "flickr8k": "saccade.data.flickr8k",
}
_sources: dict[str, Open] = {}


@dataclass(frozen=True)
class DataConfig:
    """Which data set, where it lies, and how much of it."""

    name: str = "world"  # world, precomp, store, karpathy
    root: Path | None = None  # the data set's folder; the world needs none
    train_split: str = "train"
    dev_split: str = "dev"
    test_split: str = "test"
    limit: int | None = None  # at most so many pictures of each split
    seed: int = 0  # the world's
    pictures: int = 2000  # the world's size


def source(name: str) -> Callable[[Open], Open]:
    """Register `open(split, root, **options) -> CaptionedImages` under a name; options are `seed` and `pictures`."""

    def register(function: Open) -> Open:
        _sources[name] = function
        return function

    return register


def source_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys([*MODULES, *_sources]))


def open_split(config: DataConfig, split: str) -> CaptionedImages:
    """One split of a data set, e.g. `open_split(DataConfig("precomp", Path("data/f30k_precomp")), "test")`."""
    if config.name not in _sources:
        if config.name not in MODULES:
            raise SaccadeError(
                f'there is no data set "{config.name}"{did_you_mean(config.name, source_names())} '
                f"(there are: {', '.join(source_names())})"
            )
        importlib.import_module(MODULES[config.name])
    reader = _sources[config.name]
    options: dict[str, Any] = {"seed": config.seed, "pictures": config.pictures}
    parameters = inspect.signature(reader).parameters.values()
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        options = {k: v for k, v in options.items() if k in {p.name for p in parameters}}
    data = reader(split, config.root, **options)
    return data if config.limit is None else first_images(data, config.limit)


def need_root(root: Path | None, name: str, holds: str) -> Path:
    """The folder of a data set that has one, or a sentence on what to give."""
    if root is None:
        raise SaccadeError(f"data={name} needs a folder: give root=FOLDER, which holds {holds}")
    if not root.is_dir():
        raise SaccadeError(f"{root} is not a folder: data={name} reads a folder that holds {holds}")
    return root
