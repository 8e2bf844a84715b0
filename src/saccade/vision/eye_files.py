"""An eye on disk: `STEM.safetensors` with its weights, `STEM.json` with its config and facts about its training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from saccade.config import from_dict, to_dict
from saccade.errors import SaccadeError
from saccade.files import read_json, sha256, write_json
from saccade.weights_file import Form, read_weights, write_weights

Config = TypeVar("Config")


def write_eye(stem: Path, network: nn.Module, config: Any, facts: Mapping[str, object] | None, form: Form) -> str:
    """Write both files; returns the digest of the weights."""
    path = stem.with_suffix(".safetensors")
    write_weights(path, network.state_dict(), form)
    digest = sha256(path)
    write_json(stem.with_suffix(".json"), {"config": to_dict(config), "sha256": digest, **(facts or {})})
    return digest


def read_eye_config(facts: Path, kind: type[Config], recipe: str) -> Config:
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
