"""A backbone that was trained along with a model, taken out of the model's folder: `tuned:FOLDER`, or `tuned:NAME` of a
model that comes with the package. One model pays for the tuning, and others learn from its features.

What stands behind it goes to the backbone: `tuned:FOLDER:3+6+9+12` takes the maps of four blocks of a DINOv2.

A model or detector on the backbone of a model of the package keeps only what differs from that model: `without_base`,
`with_base`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, sha256
from saccade.core.weights import check_values, read_weights
from saccade.vision.backbones.base import Backbone, load_backbone

PREFIX = "backbone.backbone."  # of its weights among those of the model
WEIGHTS = "model.safetensors"
SHIPPED = Path(__file__).parents[2] / "models" / "weights"  # the models of the package, by name


def open_backbone(name: str, pretrained: bool = True) -> Backbone:
    """Raises: SaccadeError if the folder holds no model with a backbone of its own."""
    from saccade.vision.grid import grid_config  # which knows extractors, and they know this

    folder, blocks = _find(name)
    described = read_json(folder / "config.json")
    extractor = described.get("backbone") if isinstance(described, dict) else None
    if not isinstance(extractor, str) or not extractor.startswith("grid"):
        raise SaccadeError(f"{folder} holds no model whose backbone was trained along (backbone.train=true)")
    kind = grid_config(extractor.removeprefix("grid").removeprefix(":")).backbone
    network = load_backbone(kind + blocks, pretrained=False)
    network.fold_normalisation()
    network.name = name
    if pretrained:
        lent = {key.removeprefix(PREFIX): value for key, value in _weights(folder, PREFIX).items()}
        wanted = network.state_dict()
        if not all(key in lent and lent[key].shape == value.shape for key, value in wanted.items()):
            raise SaccadeError(f"{folder}: its weights are not those of the backbone {extractor}")
        check_values(lent, wanted, folder / WEIGHTS)
        network.load_state_dict({key: lent[key] for key in wanted})  # blocks after the last that is used are left out
    return network


def _find(name: str) -> tuple[Path, str]:
    """A model folder, the best model of a run folder, or a model of the package by name; and the blocks behind it."""
    found = re.fullmatch(r"tuned:(.+?)((?::[0-9+]+)?)", name, re.DOTALL)
    if found is None:
        raise SaccadeError(f'"{name}" names no model: tuned:FOLDER was expected, or tuned:NAME of one of the package')
    place, blocks = found.groups()
    for folder in (Path(place), Path(place) / "best", SHIPPED / place):
        if (folder / "config.json").exists():
            return folder, blocks
    raise SaccadeError(f"{place} is no model folder: it has no config.json")


def _weights(folder: Path, prefix: str = "") -> dict[str, Tensor]:
    """Those of a model whose names begin so; what it shares with another model of the package is taken from there."""
    own, base = read_weights(folder / WEIGHTS, prefix), read_json(folder / "config.json").get("base")
    return own if base is None else {**_weights(_base_folder(base, folder), prefix), **own}


def without_base(state: Mapping[str, Tensor], backbone: str) -> tuple[dict[str, Tensor], dict[str, str] | None]:
    """A model's weights less those that are, bit by bit, those of the package's model that its backbone came from;
    and that model's name and checksum, if any are.
    """
    folder = _find(backbone)[0] if backbone.startswith("tuned:") else None
    if folder is None or folder.parent != SHIPPED:
        return dict(state), None
    lent = _weights(folder)

    def is_lent(key: str, value: Tensor) -> bool:
        other = lent.get(_key(key, lent))
        return other is not None and torch.equal(value.cpu(), other)

    own = {key: value for key, value in state.items() if not is_lent(key, value)}
    return own, {"model": folder.name, "sha256": sha256(folder / WEIGHTS)} if len(own) < len(state) else None


def with_base(own: dict[str, Tensor], base: Any, wanted: Iterable[str], where: Path) -> dict[str, Tensor]:
    """The weights of a folder with those of the `wanted` that `without_base` left out, `base` being what it returned.

    Raises: SaccadeError if the package has no such model, or another of that name.
    """
    if base is None:
        return own
    lent = _weights(_base_folder(base, where))
    return {**own, **{key: lent[_key(key, lent)] for key in wanted if key not in own and _key(key, lent) in lent}}


def _base_folder(base: Any, where: Path) -> Path:
    """The model of the package that `where` shares weights with."""
    name, digest = (base.get(key) if isinstance(base, dict) else None for key in ("model", "sha256"))
    if not isinstance(name, str) or Path(name).name != name:
        raise SaccadeError(f'{where}: "base" must name a model of the package, with its sha256')
    path = SHIPPED / name / WEIGHTS
    if not path.exists() or sha256(path) != digest:
        wrong = "has another of that name" if path.exists() else "has none of that name"
        raise SaccadeError(
            f"{where} shares weights with the model {name} of the package it was made with, and this package {wrong}"
        )
    return path.parent


def base_file(base: Any) -> tuple[Path, ...]:
    """The weights of the package's model that `base` names, if it has one, and of those that share theirs with it."""
    name = base.get("model") if isinstance(base, dict) else None
    path = SHIPPED / name / WEIGHTS if isinstance(name, str) and Path(name).name == name else None
    if path is None or not path.exists():
        return ()
    return (path, *base_file(read_json(path.with_name("config.json")).get("base")))


def _key(key: str, lent: Mapping[str, Tensor]) -> str:
    """What the lending model calls a weight: the same, or inside a detector's backbone by that backbone's prefix."""
    return key if key in lent else PREFIX + key.partition("backbone.")[2]
