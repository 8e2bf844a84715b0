"""Show, Attend and Tell in its authors' own form: the flat .npz of arctic-captions (Theano).

Its options lie beside it as NAME.npz.pkl. Without these the sizes and the number of layers tell what can be told; the
rest is as in the models that were released.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.infos import read_plain_pickle
from saccade.interop.places import OfficialIds, Place, fill, need_matrix
from saccade.interop.verification import load_arrays
from saccade.interop.vocabulary import numbered_words
from saccade.language import Vocabulary
from saccade.language.vocabulary import END, SPECIAL, UNKNOWN
from saccade.models import ShowAttendTell, ShowAttendTellConfig

GATES = (0, 1, 3, 2)  # theirs: in, forget, out, candidate; ours: in, forget, candidate, out


def arctic_ids(size: int, vocabulary: Vocabulary | None, path: Path | str) -> OfficialIds:
    """Theirs: 0 is the end, 1 unknown, then the words; what is read before the first is zero, so <start> is here."""
    words = vocabulary or numbered_words(size + 2)
    if len(words) != size + 2:
        raise SaccadeError(f"{path} knows {size} words, the vocabulary has {len(words) - 2}")
    ours = torch.tensor([END, UNKNOWN, *range(len(SPECIAL), len(words))])
    return OfficialIds(words, ours, ours)


def arctic_weights(path: Path | str) -> dict[str, Tensor]:
    arrays = load_arrays(Path(path))
    arrays.pop("history_errs", None)
    for name, value in arrays.items():
        if value.dtype.kind != "f":
            raise SaccadeError(f"{path}: {name} holds no numbers ({value.dtype})")
        if re.match(r"(encoder|decoder_\d+|encoder_rev)_", name):
            raise SaccadeError(f"{path}: {name} belongs to a second LSTM, which is not in the paper and not here")
    return {name: torch.from_numpy(value) for name, value in arrays.items()}


def arctic_options(path: Path | str) -> dict[str, Any]:
    """What NAME.npz.pkl says, if it is there."""
    beside = Path(f"{path}.pkl")
    found = read_plain_pickle(beside) if beside.exists() else {}
    if not isinstance(found, dict):
        raise SaccadeError(f"{beside} holds a {type(found).__name__}, a dictionary of options was expected")
    return found


def arctic_places(config: ShowAttendTellConfig) -> dict[str, Place]:
    """Their dropout does not scale what it keeps: at test they multiply the layer by 1 − p, here the weights are."""
    kept, word = 1 - config.dropout, config.word_dim

    def layer(official: str, ours: str, scale: float = 1.0) -> dict[str, Place]:
        return {f"{official}_W": Place(f"{ours}.weight", True, scale=scale), f"{official}_b": Place(f"{ours}.bias")}

    places = {
        "Wemb": Place("embed.weight", words="read"),
        "decoder_W": Place("lstm.weight_ih", True, (None, word), gates=GATES),
        "decoder_Wc": Place("lstm.weight_ih", True, (word, None), gates=GATES),
        "decoder_U": Place("lstm.weight_hh", True, gates=GATES),
        "decoder_b": Place("lstm.bias_ih", gates=GATES),
        "decoder_Wc_att": Place("look.region.weight", True),
        "decoder_b_att": Place("look.region.bias"),
        "decoder_Wd_att": Place("look.state.weight", True),
        "decoder_U_att": Place("look.weigh.weight", True),
        "decoder_c_tt": Place(None),
        **layer("ff_logit_lstm", "of_hidden", kept),
        "ff_logit_W": Place("say.weight", True, scale=kept, words="said"),
        "ff_logit_b": Place("say.bias", words="said"),
    }
    for n in range(1, config.first_layers):
        places |= layer(f"ff_init_{n}", f"first.{n - 1}", kept if n > 1 else 1.0)
    for name, ours in (("ff_state", "first_hidden"), ("ff_memory", "first_cell")):
        places |= layer(name, ours, kept if config.first_layers > 1 else 1.0)
    for n in range(1, config.look_layers):
        places[f"decoder_W_att_{n}"] = Place(f"look.deeper.{n - 1}.weight", True)
        places[f"decoder_b_att_{n}"] = Place(f"look.deeper.{n - 1}.bias")
    for n in range(1, config.output_layers):
        places |= layer(f"ff_logit_h{n}", f"output.{n - 1}", kept)
    if config.gate == "scalar":
        places |= {"decoder_W_sel": Place("gate.weight", True), "decoder_b_sel": Place("gate.bias")}
    if config.context_shortcut:
        places["ff_logit_ctx_W"] = Place("of_context.weight", True)
        places["ff_logit_ctx_b"] = Place("of_hidden.bias")
    return places


def arctic_config(weights: Mapping[str, Tensor], options: Mapping[str, Any], path: Path | str) -> ShowAttendTellConfig:
    words, look, state = (need_matrix(weights, name, path) for name in ("Wemb", "decoder_Wc_att", "decoder_U"))

    def layers(pattern: str) -> int:
        return 1 + sum(re.fullmatch(pattern, name) is not None for name in weights)

    return ShowAttendTellConfig(
        region_dim=look.shape[0],
        word_dim=words.shape[1],
        dim=state.shape[0],
        attention="hard" if options.get("attn_type") == "stochastic" else "soft",
        look_dim=look.shape[1],
        look_layers=layers(r"decoder_W_att_\d+"),
        gate="scalar" if "decoder_W_sel" in weights else "none",
        first_layers=layers(r"ff_init_\d+_W"),
        output_layers=layers(r"ff_logit_h\d+_W"),
        word_shortcut=bool(options.get("prev2out", True)),
        context_shortcut="ff_logit_ctx_W" in weights,
        dropout=0.5 if options.get("use_dropout", True) else 0.0,
        coverage=float(options.get("alpha_c", 1.0)),
        coverage_over="mean",
        semi_sampling=float(options.get("semi_sampling_p", 0.5)),
        reward="mean" if options.get("RL_sumCost", True) else "word",
        entropy=float(options.get("alpha_entropy_c", 0.002)),
    )


def import_arctic(
    path: Path | str, vocabulary: Vocabulary | None = None, dtype: torch.dtype = torch.float32, **changes: Any
) -> ShowAttendTell:
    """The model of the authors' code; `changes` are settings that its files do not tell."""
    weights = arctic_weights(path)
    config = replace(arctic_config(weights, arctic_options(path), path), **changes)
    ids = arctic_ids(len(weights["Wemb"]), vocabulary, path)
    model = ShowAttendTell(config, ids.vocabulary).to(dtype)
    fill(model, weights, arctic_places(config), ids, path)
    return model.eval()
