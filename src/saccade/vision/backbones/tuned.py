"""A backbone that was trained along with a model, taken out of the model's folder: `tuned:FOLDER`, or `tuned:NAME` of a
model that comes with the package. One model pays for the tuning, and others learn from its features.

What stands behind it goes to the backbone: `tuned:FOLDER:3+6+9+12` takes the maps of four blocks of a DINOv2.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.core.weights import read_weights
from saccade.vision.backbones.base import Backbone, load_backbone
from saccade.vision.grid import grid_config

PREFIX = "backbone.backbone."  # of its weights among those of the model


def open_backbone(name: str, pretrained: bool = True) -> Backbone:
    """Raises: SaccadeError if the folder holds no model with a backbone of its own."""
    found = re.fullmatch(r"tuned:(.+?)((?::[0-9+]+)?)", name, re.DOTALL)
    if found is None:
        raise SaccadeError(f'"{name}" names no model: tuned:FOLDER was expected, or tuned:NAME of one of the package')
    place, blocks = found.groups()
    folder = _find(place)
    described = read_json(folder / "config.json")
    extractor = described.get("backbone") if isinstance(described, dict) else None
    if not isinstance(extractor, str) or not extractor.startswith("grid"):
        raise SaccadeError(f"{folder} holds no model whose backbone was trained along (backbone.train=true)")
    kind = grid_config(extractor.removeprefix("grid").removeprefix(":")).backbone
    network = load_backbone(kind + blocks, pretrained=False)
    network.fold_normalisation()
    network.name = name
    if pretrained:
        state = read_weights(folder / "model.safetensors")
        own = {key.removeprefix(PREFIX): value for key, value in state.items() if key.startswith(PREFIX)}
        wanted = {key: value.shape for key, value in network.state_dict().items()}
        if {key: value.shape for key, value in own.items()} != wanted:
            raise SaccadeError(f"{folder}: its weights are not those of the backbone {extractor}")
        network.load_state_dict(own)
    return network


def _find(place: str) -> Path:
    """A model folder, the best model of a run folder, or a model of the package by name."""
    with resources.as_file(resources.files("saccade") / "models" / "weights" / place) as shipped:
        for folder in (Path(place), Path(place) / "best", shipped):
            if (folder / "config.json").exists():
                return folder
    raise SaccadeError(f"{place} is no model folder: it has no config.json")
