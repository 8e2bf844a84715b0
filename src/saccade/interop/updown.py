"""Up-Down checkpoints of ImageCaptioning.pytorch: options to config, weights to weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from saccade.interop.captioning import Official, read_official, renamed, shared_settings, shared_state
from saccade.interop.infos import OfficialWords
from saccade.interop.matching import Options
from saccade.language import Vocabulary
from saccade.models import UpDown, UpDownConfig

KINDS = ("updown", "topdown")
NAMES = {
    "core.att_lstm.": "lstms.look_lstm.",
    "core.lang_lstm.": "lstms.say_lstm.",
    "core.attention.h2att.weight": "look.state.weight",
    "core.attention.alpha_net.weight": "look.weigh.weight",  # its bias moves no softmax
    "ctx2att.weight": "look.region.weight",
}


def updown_config(option: Options) -> UpDownConfig:
    """The reference's form: embedded regions, picture and words, biases in the attention."""
    return UpDownConfig(
        **shared_settings(option), embed_regions=True, word_relu=True, attention_bias=True, forget_bias=0.0
    )


def updown_state(state: Mapping[str, Tensor], words: OfficialWords) -> dict[str, Tensor]:
    """Official weights as ours; the attention's two biases are one."""
    bias = state["ctx2att.bias"] + state["core.attention.h2att.bias"]
    return {**shared_state(state, words), **renamed(state, NAMES), "look.region.bias": bias}


def read_updown(path: Path | str) -> Official[UpDown]:
    def build(option: Options, vocabulary: Vocabulary) -> UpDown:
        return UpDown(updown_config(option), vocabulary)

    return read_official(path, "updown", KINDS, build, updown_state)


def import_updown(path: Path | str, vocabulary: Vocabulary | None = None) -> UpDown:
    """The model of a checkpoint with its `infos_*.pkl` beside it, which has the words."""
    return read_updown(path).model
