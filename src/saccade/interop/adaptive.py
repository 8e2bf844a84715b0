"""Adaptive attention in ImageCaptioning.pytorch (adaatt, adaattmo): options to config, weights to weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from saccade.interop.captioning import Official, read_official, renamed, shared_settings, shared_state
from saccade.interop.infos import OfficialWords
from saccade.interop.matching import Options
from saccade.language import Vocabulary
from saccade.models import Adaptive, AdaptiveConfig

KINDS = {"adaatt": False, "adaattmo": True}  # whether the LSTM's candidate is a maximum
NAMES = {
    "core.attention.fr_linear.0.": "sentinel.transform.",
    "core.attention.fr_embed.weight": "sentinel.key.weight",
    "core.attention.ho_linear.0.": "hidden.",
    "core.attention.ho_embed.weight": "look.state.weight",
    "core.attention.alpha_net.weight": "look.weigh.weight",  # its bias moves no softmax
    "core.attention.att2h.": "join.",
    "ctx2att.weight": "look.region.weight",
}


def adaptive_config(option: Options) -> AdaptiveConfig:
    return AdaptiveConfig(
        **shared_settings(option),
        layers=int(option("num_layers")),
        maxout=KINDS[option("caption_model")],
    )


def adaptive_state(state: Mapping[str, Tensor], words: OfficialWords) -> dict[str, Tensor]:
    """Official weights as ours: word and picture are one input, and h's bias in the scores is in every key's."""
    asked = state["core.attention.ho_embed.bias"]
    ours = {
        **shared_state(state, words),
        **renamed(state, NAMES),
        "look.region.bias": state["ctx2att.bias"] + asked,
        "sentinel.key.bias": state["core.attention.fr_embed.bias"] + asked,
    }
    layers = sum(name.startswith("core.lstm.h2h.") and name.endswith("weight") for name in state)
    first = ("w2h", "v2h")
    for layer in range(layers):
        inputs = _joined(
            state, [f"core.lstm.{name}" for name in first] if layer == 0 else [f"core.lstm.i2h.{layer - 1}"]
        )
        ours |= _cell(f"lstms.{layer}.", inputs, _joined(state, [f"core.lstm.h2h.{layer}"]))
    below = [f"r_{name}" for name in first] if layers == 1 else ["r_i2h"]
    weight, bias = _joined(state, [f"core.lstm.{name}" for name in (*below, "r_h2h")])
    return ours | {"sentinel.gate.weight": weight, "sentinel.gate.bias": bias}


def _joined(state: Mapping[str, Tensor], names: list[str]) -> tuple[Tensor, Tensor]:
    """Linear maps whose results are added, as one map of their inputs side by side."""
    weight = torch.cat([state[f"{name}.weight"] for name in names], dim=1)
    return weight, torch.stack([state[f"{name}.bias"] for name in names]).sum(dim=0)


def _cell(prefix: str, inputs: tuple[Tensor, Tensor], state: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    """One LSTM layer. Theirs has gates in, forget and out, then the candidate; PyTorch's the candidate before out."""
    dim = state[0].shape[1]
    if len(state[0]) == 5 * dim:
        names = ("input.weight", "input.bias", "state.weight", "state.bias")
        return {prefix + name: value for name, value in zip(names, (*inputs, *state), strict=True)}
    order = torch.cat([torch.arange(2 * dim), torch.arange(3 * dim, 4 * dim), torch.arange(2 * dim, 3 * dim)])
    names = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
    return {prefix + name: value[order] for name, value in zip(names, (*inputs, *state), strict=True)}


def read_adaptive(path: Path | str) -> Official[Adaptive]:
    def build(option: Options, vocabulary: Vocabulary) -> Adaptive:
        return Adaptive(adaptive_config(option), vocabulary)

    return read_official(path, "adaptive", tuple(KINDS), build, adaptive_state)


def import_adaptive(path: Path | str, vocabulary: Vocabulary | None = None) -> Adaptive:
    """The model of a checkpoint with its `infos_*.pkl` beside it, which has the words."""
    return read_adaptive(path).model
