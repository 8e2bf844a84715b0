"""What captioners of ImageCaptioning.pytorch share: `model*.pth` is a plain state dict, `infos_*.pkl` lies beside it.

Our weights are made from theirs by joining, adding and rearranging, so a gradient of ours goes back the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import load_official, read_checkpoint, state_dict
from saccade.interop.infos import Infos, OfficialWords, infos_beside
from saccade.interop.options import Options
from saccade.language import Vocabulary
from saccade.models import Captioner
from saccade.nn.region_embedding import RegionBatchNorm

REGION_NORMS: dict[int, RegionBatchNorm] = {0: "none", 1: "before", 2: "around"}  # use_bn
M = TypeVar("M", bound=Captioner)
Translate = Callable[[Mapping[str, Tensor], OfficialWords], dict[str, Tensor]]  # official weights → ours


@dataclass(frozen=True)
class Official(Generic[M]):
    """A checkpoint as it was, and the model made from it."""

    model: M
    state: dict[str, Tensor]
    words: OfficialWords
    options: Options
    translate: Translate

    def gradients(self) -> dict[str, Tensor]:
        """The gradients of our weights as those of the official ones, by their names; zeros where nothing depends."""
        theirs = {name: value.double().requires_grad_() for name, value in self.state.items() if _learned(name, value)}
        ours = self.translate({**self.state, **theirs}, self.words)
        given = {k: p.grad for k, p in self.model.named_parameters() if p.grad is not None}
        used = [name for name in given if ours[name].requires_grad]
        found = torch.autograd.grad(
            [ours[name] for name in used],
            list(theirs.values()),
            [given[name].to(ours[name].dtype) for name in used],
            allow_unused=True,
        )
        return {
            name: torch.zeros_like(value) if gradient is None else gradient
            for (name, value), gradient in zip(theirs.items(), found, strict=True)
        }


def _learned(name: str, value: Tensor) -> bool:
    return value.is_floating_point() and not name.endswith(("running_mean", "running_var"))


def read_official(
    path: Path | str,
    system: str,
    kinds: tuple[str, ...],
    build: Callable[[Options, Vocabulary], M],
    translate: Translate,
) -> Official[M]:
    """The model of a checkpoint whose caption_model is one of `kinds`."""
    infos = Infos.read(infos_beside(path), system)
    kind = infos.options("caption_model")
    if kind not in kinds:
        raise SaccadeError(
            f"{infos.options.path}: caption_model is {kind!r}, for {system} expected {' or '.join(kinds)}"
        )
    if infos.options.get("logit_layers", 1) != 1:
        raise SaccadeError(f"{infos.options.path}: logit_layers is not 1, which the official code cannot build either")
    state = state_dict(read_checkpoint(path), path, "the checkpoint")
    missing = [name for name in ("embed.0.weight", "ctx2att.weight", "logit.weight", "logit.bias") if name not in state]
    if missing:
        raise SaccadeError(f"{path} is no {system} checkpoint: it has no {missing[0]}")
    if len(state["embed.0.weight"]) != len(infos.words):
        counts = f"{len(state['embed.0.weight']) - 1} words, {infos.options.path} has {len(infos.words) - 1}"
        raise SaccadeError(f"{path} knows {counts}")
    model = build(infos.options, infos.words.vocabulary)
    try:
        ours = translate(state, infos.words)
    except KeyError as error:
        raise SaccadeError(f"{path} is no {system} checkpoint of these options: it has no {error.args[0]}") from error
    except RuntimeError as error:
        raise SaccadeError(f"{path}: the weights do not fit the options or each other") from error
    known = model.state_dict()
    tracked = {key: value for key, value in known.items() if key.endswith("num_batches_tracked")}  # old files have none
    load_official(model, {**tracked, **ours}, path)
    return Official(model.eval(), state, infos.words, infos.options, translate)


def shared_settings(option: Options) -> dict[str, Any]:
    """What all of them call alike."""
    if option("fc_feat_size") != option("att_feat_size"):
        raise SaccadeError(
            f"{option.path}: fc_feat_size is {option('fc_feat_size')} and att_feat_size {option('att_feat_size')}; "
            "only models that take the mean of the regions for the whole picture can be imported"
        )
    return {
        "region_dim": int(option("att_feat_size")),
        "word_dim": int(option("input_encoding_size")),
        "dim": int(option("rnn_size")),
        "attention_dim": int(option("att_hid_size")),
        "region_norm": REGION_NORMS[_use_bn(option)],
        "dropout": float(option("drop_prob_lm")),
    }


def _use_bn(option: Options) -> int:
    """The official code takes any number but 0 for the norm before, and 2 for that after too."""
    use = int(option.get("use_bn", 0))
    return use if use in REGION_NORMS else 1


def shared_state(state: Mapping[str, Tensor], words: OfficialWords) -> dict[str, Tensor]:
    """The embeddings of words, picture and regions, and the vocabulary layer."""
    normed = "att_embed.1.weight" in state
    names = {"fc_embed.0.": "whole.", f"att_embed.{int(normed)}.": "regions.linear."}
    if normed:
        names |= {"att_embed.0.": "regions.before.", "att_embed.4.": "regions.after."}
    return {
        "words.weight": words.inputs(state["embed.0.weight"]),
        "out.weight": words.outputs(state["logit.weight"]),
        "out.bias": words.outputs(state["logit.bias"]),
        **renamed(state, names),
    }


def renamed(state: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """The weights whose names begin so, under names that begin otherwise."""
    return {
        ours + name.removeprefix(theirs): value
        for name, value in state.items()
        for theirs, ours in names.items()
        if name.startswith(theirs)
    }
