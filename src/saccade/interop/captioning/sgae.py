"""SGAE checkpoints: options and words to config, weights to weights, and the dictionary from its own file.

`modelID.pth` is a plain state dict without the dictionary, which is in `memory_cellID.npz`; `infos_ID.pkl` lies beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.captioning.official import renamed, shared_settings, shared_state
from saccade.interop.checkpoint import load_official, read_checkpoint, state_dict
from saccade.interop.infos import Infos, OfficialWords, infos_beside
from saccade.interop.options import Options
from saccade.interop.verification import load_arrays
from saccade.language import Vocabulary
from saccade.models import Sgae, SgaeConfig

KINDS = ("lstm_mem4",)
NAMES = {
    "ssg_core.att_lstm.": "sentence_lstms.look_lstm.",
    "ssg_core.lang_lstm.": "sentence_lstms.say_lstm.",
    "ssg_core.attention.h2att.weight": "sentence_look.state.weight",
    "ssg_core.attention.alpha_net.weight": "sentence_look.weigh.weight",  # its bias moves no softmax
    "ssg_ctx2att.weight": "sentence_look.region.weight",
    "ssg_obj_obj_fc.": "sentence_graph.own.",
    "ssg_sbj_rela_fc.": "sentence_graph.as_subject.",
    "ssg_obj_rela_fc.": "sentence_graph.as_object.",
    "ssg_rela_fc.": "sentence_graph.relation.",
    "ssg_attr_fc.": "sentence_graph.attribute.",
    "rela_core.att_lstm.": "picture_lstms.look_lstm.",
    "rela_core.lang_lstm.": "picture_lstms.say_lstm.",
    "rela_core.attention_rela.h2att.weight": "picture_look.state.weight",
    "rela_core.attention_rela.alpha_net.weight": "picture_look.weigh.weight",
    "rela_core.attention_mem.h2att.weight": "reworded_look.state.weight",
    "rela_core.attention_mem.alpha_net.weight": "reworded_look.weigh.weight",
    "embed2vis.": "picture_graph.word.",
    "rela_sbj_rela_fc.": "picture_graph.convolution.as_subject.",
    "rela_obj_rela_fc.": "picture_graph.convolution.as_object.",
    "rela_rela_fc.": "picture_graph.convolution.relation.",
    "rela_attr_fc.": "picture_graph.convolution.attribute.",
    "img2sg.fc1.0.": "to_sentences.0.",
    "img2sg.fc2.0.": "to_sentences.3.",
    "img2sg.fc3.": "to_sentences.6.",
}


@dataclass(frozen=True)
class OfficialSgae:
    """A checkpoint's model, and what its words and options were."""

    model: Sgae
    words: OfficialWords
    options: Options

    def with_relations(self, relations: bool) -> Sgae:
        """The same weights, used with the graphs of pictures or without."""
        model = Sgae(replace(self.model.config, relations=relations), self.model.vocabulary)
        model.load_state_dict(self.model.state_dict())
        return model.to(next(self.model.parameters()).dtype).eval()


def sgae_config(option: Options, entries: int) -> SgaeConfig:
    """The released code's form."""
    if option.get("logit_layers", 1) != 1:
        raise SaccadeError(f"{option.path}: logit_layers is {option('logit_layers')}, only 1 can be imported")
    settings = shared_settings(option)
    relations = bool(option.get("use_rela", 0))
    return SgaeConfig(**settings, entries=entries, fusion="released", relations=relations, peek=True)


def sgae_state(state: Mapping[str, Tensor], words: OfficialWords, dictionary: Tensor) -> dict[str, Tensor]:
    """Official weights as ours. Both looks at a picture share their keys there, each with a bias of its own."""
    ours = {**shared_state(state, words), **renamed(state, NAMES), "dictionary.entries": dictionary}
    looks = {
        "sentence_look": ("ssg_ctx2att", "ssg_core.attention"),
        "picture_look": ("rela_ctx2att", "rela_core.attention_rela"),
        "reworded_look": ("rela_ctx2att", "rela_core.attention_mem"),
    }
    for look, (keys, asked) in looks.items():
        ours[f"{look}.region.weight"] = state[f"{keys}.weight"]
        ours[f"{look}.region.bias"] = state[f"{keys}.bias"] + state[f"{asked}.h2att.bias"]
    attribute = "picture_graph.convolution.attribute.0.weight"
    ours[attribute] = torch.cat(
        ours[attribute].chunk(2, dim=1)[::-1], dim=1
    )  # there an attribute comes before its thing
    return ours


def read_sgae(path: Path | str) -> OfficialSgae:
    """The model of `modelID.pth`, with its infos and its dictionary beside it."""
    path = Path(path)
    infos = Infos.read(infos_beside(path), "sgae")
    kind = infos.options("caption_model")
    if kind not in KINDS:
        raise SaccadeError(f"{infos.options.path}: caption_model is {kind!r}, expected {' or '.join(KINDS)}")
    state = state_dict(read_checkpoint(path), path, "the checkpoint")
    dictionary = read_dictionary(path.with_name(f"{path.stem.replace('model', 'memory_cell')}.npz"))
    model = Sgae(sgae_config(infos.options, len(dictionary)), infos.words.vocabulary)
    try:
        ours = sgae_state(state, infos.words, dictionary)
    except KeyError as error:
        raise SaccadeError(f"{path} is no SGAE checkpoint: it has no {error.args[0]}") from error
    except (RuntimeError, IndexError) as error:
        raise SaccadeError(f"{path}: the weights do not fit the words of {infos.options.path}") from error
    known = model.state_dict()
    kept = {key: known[key] for key in known if key == "lessons" or key.endswith("num_batches_tracked")}
    load_official(model, kept | ours, path)
    return OfficialSgae(model.eval(), infos.words, infos.options)


def read_dictionary(path: Path) -> Tensor:
    """`memory_cell` of an .npz."""
    if not path.is_file():
        raise SaccadeError(f"{path} does not exist: the dictionary is not in the checkpoint but in that file beside it")
    arrays = load_arrays(path)
    found = arrays.get("memory_cell")
    if found is None or found.ndim != 2 or found.dtype.kind != "f":
        raise SaccadeError(f'{path} holds no dictionary: expected a table of numbers named "memory_cell"')
    return torch.from_numpy(found)


def import_sgae(path: Path | str, vocabulary: Vocabulary | None = None) -> Sgae:
    """The model of a checkpoint with its `infos_*.pkl`, which has the words, and `memory_cell*.npz` beside it."""
    return read_sgae(path).model
