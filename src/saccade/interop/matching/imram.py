"""Official IMRAM checkpoints: options to config, weights to weights.

A checkpoint is {epoch, model: one state dict, best_rsum, opt: Namespace}. It holds the memories of both directions
whatever its mode; those that the mode never asks are left out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import load_official, need, read_checkpoint, state_dict
from saccade.interop.matching.encoders import fitting_vocabulary, fragment_settings
from saccade.interop.matching.scan import NORMALISERS
from saccade.interop.options import Options
from saccade.language import Vocabulary
from saccade.models import Imram, ImramConfig

QUERIES = {"text_IMRAM": "words", "image_IMRAM": "regions", "full_IMRAM": "both"}
PARTS = {
    "img_enc.fc_local.": "regions.fc.",
    "txt_enc.": "words.",
    "gate_t2i.": "words_ask.memory.gate.",
    "linear_t2i.": "words_ask.memory.candidate.",
    "gate_i2t.": "regions_ask.memory.gate.",
    "linear_i2t.": "regions_ask.memory.candidate.",
}  # what the official names begin with, and ours


def imram_config(option: Options) -> ImramConfig:
    """The official options; `agg_func`, `lambda_lse` and `cross_attn` come from SCAN's command line and do nothing."""
    config = ImramConfig(
        **fragment_settings(option),
        queries=option("model_mode", QUERIES),
        steps=int(option("iteration_step")),
        unit_memory=not option.get("no_IMRAM_norm", False),
        normaliser=option("raw_feature_norm", NORMALISERS),
        sharpness=float(option("lambda_softmax")),
    )
    if not config.bidirectional:
        raise SaccadeError(f"{option.path}: bi_gru is off, with which the official IMRAM cannot have been trained")
    return config


def import_imram(path: Path | str, vocabulary: Vocabulary | None = None, **settings: Any) -> Imram:
    """The model in an official checkpoint; `settings` take the place of its own (the other direction, more steps)."""
    checkpoint = read_checkpoint(path)
    official = state_dict(need(checkpoint, "model", Mapping, path), path, '"model"')
    config = replace(imram_config(Options.of(checkpoint, path, "IMRAM")), **settings)
    model = Imram(config, fitting_vocabulary(vocabulary, official.get("txt_enc.embed.weight"), path))
    state, wanted = {our_parameter(name): tensor for name, tensor in official.items()}, model.state_dict()
    if "regions.fc.weight_g" in state:  # old and new PyTorch shape a scalar differently
        state["regions.fc.weight_g"] = state["regions.fc.weight_g"].reshape(())
    asked = {name: tensor for name, tensor in state.items() if name in wanted or ".memory." not in name}
    load_official(model, asked, path)
    return model.eval()


def our_parameter(official: str) -> str:
    """`img_enc.fc_local.weight` → `regions.fc.weight`; a name that is none of IMRAM's stays as it is."""
    for part, ours in PARTS.items():
        if official.startswith(part):
            return ours + official.removeprefix(part)
    return official
