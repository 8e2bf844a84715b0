"""Checkpoints of Show, Attend and Tell: those of the PyTorch tutorial that most people have, and the authors' own.

The tutorial (a-PyTorch-Tutorial-to-Image-Captioning) pickles whole modules; a plain state dict of its decoder is read
too. What it has of the encoder is left: a ResNet-101 whose last map, 14 × 14, are the regions.

The authors' arctic-captions (Theano) writes a flat .npz, its options beside it as NAME.npz.pkl. Without these, settings
that do not follow from the shapes of the weights are those of the models that were released.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.batch import END, PAD, START, UNKNOWN
from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.checkpoint import (
    Bag,
    Options,
    module_state,
    read_modules,
    read_plain_pickle,
    state_dict,
)
from saccade.interop.importer import (
    Importer,
    Source,
    Table,
    Term,
    WeightRow,
    add_to,
    blocks,
    const,
    ignored,
    optional,
    scaled,
    to,
    transposed,
)
from saccade.interop.words import OfficialWords, numbered_words
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL
from saccade.models import ShowAttendTell, ShowAttendTellConfig

CLASSES = ("models.Encoder", "models.Attention", "models.DecoderWithAttention")
BLIND = ignored("a softmax is blind to it")


def matrix(weights: Mapping[str, Tensor], name: str, path: Path) -> Tensor:
    if name not in weights or weights[name].dim() != 2:
        raise SaccadeError(f"{path} is no checkpoint of Show, Attend and Tell: it has no matrix {name}")
    return weights[name]


def size(name: str, axis: int) -> Term:
    return lambda source: matrix(source.weights, name, source.path).shape[axis]


# The tutorial


def word_map(table: Any, source: str, literal: bool = False) -> OfficialWords:
    """From WORDMAP.json, {word: id} with the four special words anywhere in it.

    Official probabilities are shared with <pad> and <start>, which are never outputs of ours. `literal`, for
    verification, makes these two outputs, as words of their own.
    """
    if not isinstance(table, Mapping) or not all(type(number) is int for number in table.values()):
        raise SaccadeError(f"{source}: expected a table of words and their ids")
    words = {number: str(word) for word, number in table.items()}
    if sorted(words) != list(range(len(table))):
        raise SaccadeError(f"{source}: the ids are not 0, 1, 2, …")
    for special in SPECIAL:
        if special not in table:
            raise SaccadeError(f"{source}: there is no {special}")
    kept = [number for number in sorted(words) if words[number] not in SPECIAL]
    inputs = torch.empty(len(words), dtype=torch.long)
    inputs[[*(table[special] for special in SPECIAL), *kept]] = torch.arange(len(words))
    outputs, extra = inputs.clone(), ("<output-pad>", "<output-start>") if literal else ()
    if literal:
        outputs[[table["<pad>"], table["<start>"]]] = torch.arange(2) + len(words)
    return OfficialWords(Vocabulary((*SPECIAL, *(words[number] for number in kept), *extra)), inputs, outputs)


def read_tutorial(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    """The decoder's weights and its dropout, from a checkpoint or a plain state dict."""
    checkpoint = read_modules(path, CLASSES)
    decoder, options = checkpoint.get("decoder", checkpoint), {}
    if isinstance(decoder, Bag):
        try:
            weights = module_state(decoder, path, "the decoder")
        except RecursionError as error:
            raise SaccadeError(f"{path} is damaged: its decoder is a part of itself") from error
        layer = vars(decoder).get("_modules", {}).get("dropout")
        share = vars(layer).get("p") if isinstance(layer, Bag) else None
        options = {"dropout": share} if isinstance(share, float | int) else {}
    else:
        weights = state_dict(decoder, path, "the decoder")
    count = len(matrix(weights, "embedding.weight", path))
    maps = sorted(path.parent.glob("WORDMAP*.json")) if vocabulary is None else []
    if maps:
        words = word_map(read_json(maps[0]), str(maps[0]))
    else:  # the tutorial's own order: padding, the words, unknown, start, end
        known = (vocabulary or numbered_words(count)).words[len(SPECIAL) :]
        ordered = (SPECIAL[PAD], *known, SPECIAL[UNKNOWN], SPECIAL[START], SPECIAL[END])
        words = word_map({word: number for number, word in enumerate(ordered)}, "the vocabulary")
    if len(words) != count:
        raise SaccadeError(f"{path} knows {count} words, the vocabulary has {len(words)}")
    return Source(path, title, Options(options, path, title), weights, words.vocabulary, words)


TUTORIAL_WEIGHTS: Table = {
    "decode_step.*": to("lstm.*"),
    "init_h.*": to("first_hidden.*"),
    "init_c.*": to("first_cell.*"),
    "f_beta.*": to("gate.*"),
    "attention.encoder_att.weight": to("look.region.weight"),
    "attention.encoder_att.bias": add_to("look.region.bias"),
    "attention.decoder_att.weight": to("look.state.weight"),
    "attention.decoder_att.bias": add_to("look.region.bias"),
    "attention.full_att.weight": to("look.weigh.weight"),
    "attention.full_att.bias": BLIND,
    "embedding.weight": to("embed.weight", words="input"),
    "fc.weight": to("say.weight", words="output"),
    "fc.bias": to("say.bias", words="output"),
}


# The authors' own


def read_arctic(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    """Official ids: 0 is the end, 1 unknown, then the words; what is read before the first is zero, as <start> here."""
    arrays = read_npz(path)
    arrays.pop("history_errs", None)
    for name, value in arrays.items():
        if value.dtype.kind != "f":
            raise SaccadeError(f"{path}: {name} holds no numbers ({value.dtype})")
        if re.match(r"(encoder|decoder_\d+|encoder_rev)_", name):
            raise SaccadeError(f"{path}: {name} belongs to a second LSTM, which is not in the paper and not here")
    weights = {name: torch.from_numpy(value) for name, value in arrays.items()}
    beside = Path(f"{path}.pkl")
    options = read_plain_pickle(beside) if beside.exists() else {}
    if not isinstance(options, dict):
        raise SaccadeError(f"{beside} holds a {type(options).__name__}, a dictionary of options was expected")
    count = len(matrix(weights, "Wemb", path))
    vocabulary = vocabulary or numbered_words(count + 2)
    if len(vocabulary) != count + 2:
        raise SaccadeError(f"{path} knows {count} words, the vocabulary has {len(vocabulary) - 2}")
    ours = torch.tensor([END, UNKNOWN, *range(len(SPECIAL), len(vocabulary))])
    words = OfficialWords(vocabulary, ours, ours)
    return Source(path, title, Options(options, path, title), weights, vocabulary, words)


def arctic_weights(config: ShowAttendTellConfig) -> Table:
    """Their dropout does not scale what it keeps: at test they multiply the layer by 1 − p, here the weights are."""
    kept, word = scaled(1 - config.dropout), config.word_dim
    gates = blocks(0, 1, 3, 2)  # theirs: in, forget, out, candidate; ours: in, forget, candidate, out
    table: dict[str, WeightRow | tuple[WeightRow, ...]] = {
        "Wemb": to("embed.weight", words="input"),
        "decoder_W": to("lstm.weight_ih", transposed, gates, columns=(None, word)),
        "decoder_Wc": to("lstm.weight_ih", transposed, gates, columns=(word, None)),
        "decoder_U": to("lstm.weight_hh", transposed, gates),
        "decoder_b": to("lstm.bias_ih", gates),
        "decoder_Wc_att": to("look.region.weight", transposed),
        "decoder_b_att": to("look.region.bias"),
        "decoder_Wd_att": to("look.state.weight", transposed),
        "decoder_U_att": to("look.weigh.weight", transposed),
        "decoder_c_tt": BLIND,
        "decoder_W_sel": to("gate.weight", transposed),
        "decoder_b_sel": to("gate.bias"),
        "ff_logit_lstm_W": to("of_hidden.weight", transposed, kept),
        "ff_logit_lstm_b": add_to("of_hidden.bias"),
        "ff_logit_ctx_W": to("of_context.weight", transposed),
        "ff_logit_W": to("say.weight", transposed, kept, words="output"),
        "ff_logit_b": to("say.bias", words="output"),
    }
    if config.context_shortcut:
        table["ff_logit_ctx_b"] = add_to("of_hidden.bias")

    def layer(weight: str, bias: str, ours: str, dropped: bool) -> None:
        """A linear layer; `dropped` where dropout stands before it."""
        table[weight] = to(f"{ours}.weight", transposed, *([kept] if dropped else []))
        table[bias] = to(f"{ours}.bias")

    for n in range(1, config.first_layers):
        layer(f"ff_init_{n}_W", f"ff_init_{n}_b", f"first.{n - 1}", n > 1)
    layer("ff_state_W", "ff_state_b", "first_hidden", config.first_layers > 1)
    layer("ff_memory_W", "ff_memory_b", "first_cell", config.first_layers > 1)
    for n in range(1, config.attention_layers):
        layer(f"decoder_W_att_{n}", f"decoder_b_att_{n}", f"look.deeper.{n - 1}", False)
    for n in range(1, config.output_layers):
        layer(f"ff_logit_h{n}_W", f"ff_logit_h{n}_b", f"output.{n - 1}", True)
    return table


def layers(name: str) -> Term:
    return lambda source: 1 + sum(re.fullmatch(name, weight) is not None for weight in source.weights)


ARCTIC = Importer(
    system="show_attend_tell",
    title="Show, Attend and Tell",
    model=ShowAttendTell,
    reads=read_arctic,
    brings_words=True,
    config={
        "region_dim": size("decoder_Wc_att", 0),
        "word_dim": size("Wemb", 1),
        "dim": size("decoder_U", 0),
        "attention": lambda source: "hard" if source.options.get("attn_type", "") == "stochastic" else "soft",
        "attention_dim": size("decoder_Wc_att", 1),
        "attention_layers": layers(r"decoder_W_att_\d+"),
        "gate": lambda source: "scalar" if "decoder_W_sel" in source.weights else "none",
        "first_layers": layers(r"ff_init_\d+_W"),
        "output_layers": layers(r"ff_logit_h\d+_W"),
        "word_shortcut": optional("prev2out", True),
        "context_shortcut": lambda source: "ff_logit_ctx_W" in source.weights,
        "dropout": lambda source: 0.5 if source.options.get("use_dropout", True) else 0.0,
        "coverage": optional("alpha_c", 1.0),
        "coverage_over": const("mean"),
        "semi_sampling": optional("semi_sampling_p", 0.5),
        "reward": lambda source: "mean" if source.options.get("RL_sumCost", True) else "word",
        "entropy": optional("alpha_entropy_c", 0.002),
    },
    weights=arctic_weights,
    zeros=("lstm.bias_hh",),
)
SHOW_ATTEND_TELL = Importer(  # the tutorial: ReLU in f_att, a gate for every channel, and word scores from h alone
    system="show_attend_tell",
    title="Show, Attend and Tell",
    model=ShowAttendTell,
    reads=read_tutorial,
    brings_words=True,
    config={
        "region_dim": size("attention.encoder_att.weight", 1),
        "word_dim": size("embedding.weight", 1),
        "dim": size("decode_step.weight_hh", 1),
        "attention_dim": size("attention.encoder_att.weight", 0),
        "attention_layers": const(1),
        "activation": const("relu"),
        "gate": const("vector"),
        "first_layers": const(1),
        "first_tanh": const(False),
        "deep_output": const(False),
        "dropout": optional("dropout", ShowAttendTellConfig.dropout),
        "coverage_over": const("mean"),
    },
    weights=TUTORIAL_WEIGHTS,
    other_files={".npz": ARCTIC},
)
