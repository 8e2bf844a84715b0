"""Checkpoints of ImageCaptioning.pytorch and its kin: Up-Down, adaptive attention and SGAE.

`model*.pth` is a plain state dict, and `infos_*.pkl` beside it holds the options and the words. Words have ids 1, 2, …;
0 is start, end and padding at once, and `UNK` stands for all other words. SGAE's dictionary lies in a third file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from saccade.batch import END, UNKNOWN
from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import Options, read_checkpoint, read_plain_pickle, state_dict
from saccade.interop.importer import (
    Importer,
    Reader,
    Source,
    Step,
    Table,
    Term,
    WeightRow,
    add_to,
    blocks,
    choice,
    const,
    ignored,
    optional,
    to,
)
from saccade.interop.words import OfficialWords
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL
from saccade.models import Adaptive, AdaptiveConfig, Sgae, SgaeConfig, UpDown, UpDownConfig

UNKNOWN_WORDS = ("UNK", "<unk>", "<UNK>")
REGION_NORMS = {0: "none", 2: "around"}  # use_bn; any other number is the norm before
BLIND = ignored("a softmax is blind to it")
OTHERS: Table = {"*": ignored("the official code keeps layers that it does not use")}


def numbered_from_one(table: Any, source: str) -> OfficialWords:
    """The words of {"1": word, "2": word, …}. Raises: SaccadeError if it is no such table."""
    if not isinstance(table, Mapping) or not table:
        raise SaccadeError(f'{source}: expected a "vocab" table of ids and words')
    try:
        words = {int(key): str(word) for key, word in table.items()}
    except ValueError as error:
        raise SaccadeError(f'{source}: an id of "vocab" is not a number') from error
    if sorted(words) != list(range(1, len(words) + 1)):
        raise SaccadeError(f'{source}: the ids of "vocab" are not 1, 2, 3, …')
    unknown = next((i for name in UNKNOWN_WORDS for i in sorted(words) if words[i] == name), None)
    kept = [i for i in sorted(words) if i != unknown]
    ours = torch.full((len(words) + 1,), UNKNOWN)
    ours[0] = END
    ours[kept] = torch.arange(len(kept)) + len(SPECIAL)
    try:
        return OfficialWords(Vocabulary((*SPECIAL, *(words[i] for i in kept))), ours, ours, blank=True)
    except SaccadeError as error:
        raise SaccadeError(f"{source}: {error}") from error


def infos_beside(path: Path) -> Path:
    """The `infos` of a checkpoint: model-best.pth and infos_ID-best.pkl, or NAME_model.pth and NAME_infos.pkl."""
    named = path.with_name(f"{path.stem.replace('model', 'infos')}.pkl")
    if "model" in path.stem and named.exists():
        return named
    ending = path.stem.rpartition("model")[2]  # "-best", "-12000", or nothing
    found = [
        file
        for file in sorted(path.parent.glob("infos*.pkl"))
        if file.stem.endswith(ending) and (ending or "-" not in file.stem)
    ]
    if len(found) != 1:
        raise SaccadeError(
            f"{path} needs its options and words: expected one infos_*{ending}.pkl beside it, found {len(found)}"
        )
    return found[0]


def reads(*kinds: str) -> Reader:
    """A checkpoint whose caption_model is one of `kinds`; its words are those of its infos."""

    def read(path: Path, _: Vocabulary | None, title: str) -> Source:
        beside = infos_beside(path)
        infos = read_plain_pickle(beside)
        if not isinstance(infos, Mapping):
            raise SaccadeError(f"{beside} holds a {type(infos).__name__}, a dictionary with opt and vocab was expected")
        options = Options.of(infos, beside, title)
        if any(options.get(f"{mark}_idx", 0) for mark in ("bos", "eos", "pad")):
            raise SaccadeError(
                f"{beside}: bos_idx, eos_idx and pad_idx are 0 in {title} checkpoints, here they are not"
            )
        words = numbered_from_one(infos.get("vocab"), str(beside))
        if (kind := options("caption_model")) not in kinds:
            raise SaccadeError(f"{beside}: caption_model is {kind!r}, for {title} expected {' or '.join(kinds)}")
        weights = state_dict(read_checkpoint(path), path, "the checkpoint")
        if "embed.0.weight" in weights and len(weights["embed.0.weight"]) != len(words):
            known = len(weights["embed.0.weight"]) - 1
            raise SaccadeError(f"{path} knows {known} words, {beside} has {len(words) - 1}")
        return Source(path, title, options, weights, words.vocabulary, words)

    return read


def check(source: Source) -> None:
    options = source.options
    if options.get("logit_layers", 1) != 1:
        raise SaccadeError(f"{options.path}: logit_layers is not 1, which the official code cannot build either")
    if options("fc_feat_size") != options("att_feat_size"):
        raise SaccadeError(
            f"{options.path}: fc_feat_size is {options('fc_feat_size')} and att_feat_size {options('att_feat_size')}; "
            "only models that take the mean of the regions for the whole picture can be imported"
        )


CONFIG: dict[str, Term] = {
    "region_dim": "att_feat_size",
    "word_dim": "input_encoding_size",
    "dim": "rnn_size",
    "attention_dim": "att_hid_size",
    "region_norm": lambda source: REGION_NORMS.get(int(source.options.get("use_bn", 0)), "before"),
    "dropout": "drop_prob_lm",
}


def embedding_weights(config: Any) -> Table:
    """The embeddings of words, picture and regions, and the vocabulary layer."""
    normed: Table = {
        "att_embed.0.*": to("regions.before.*"),
        "att_embed.1.*": to("regions.linear.*"),
        "att_embed.4.*": to("regions.after.*"),
    }
    return {
        "embed.0.weight": to("words.weight", words="input"),
        "logit.weight": to("out.weight", words="output"),
        "logit.bias": to("out.bias", words="output"),
        "fc_embed.0.*": to("whole.*"),
        **(normed if config.region_norm != "none" else {"att_embed.0.*": to("regions.linear.*")}),
    }


def top_down_weights(theirs: str, ours: str) -> Table:
    """The two LSTMs of the top-down form."""
    return {f"{theirs}.att_lstm.*": to(f"{ours}.look_lstm.*"), f"{theirs}.lang_lstm.*": to(f"{ours}.say_lstm.*")}


def key_weights(theirs: str, *ours: str) -> Table:
    """The keys of regions, shared there by several attentions of ours."""
    return {
        f"{theirs}.weight": tuple(to(f"{name}.region.weight") for name in ours),
        f"{theirs}.bias": tuple(add_to(f"{name}.region.bias") for name in ours),
    }


def attention_weights(theirs: str, ours: str, query: str = "h2att") -> Table:
    """The query from the state, and the scores. The query's bias is added to every region's key here."""
    return {
        f"{theirs}.{query}.bias": add_to(f"{ours}.region.bias"),
        f"{theirs}.{query}.weight": to(f"{ours}.state.weight"),
        f"{theirs}.alpha_net.weight": to(f"{ours}.weigh.weight"),
        f"{theirs}.alpha_net.bias": BLIND,
    }


def updown_weights(config: UpDownConfig) -> Table:
    return {
        **embedding_weights(config),
        **top_down_weights("core", "lstms"),
        **key_weights("ctx2att", "look"),
        **attention_weights("core.attention", "look"),
        **OTHERS,
    }


UPDOWN = Importer(  # embedded regions, picture and words, biases in the attention
    system="updown",
    title="updown",
    model=UpDown,
    reads=reads("updown", "topdown"),
    check=check,
    brings_words=True,
    config={
        **CONFIG,
        "embed_regions": const(True),
        "word_relu": const(True),
        "attention_bias": const(True),
        "forget_bias": const(0.0),
    },
    weights=updown_weights,
)


ADAPTIVE_KINDS = {"adaatt": False, "adaattmo": True}  # whether the LSTM's candidate is a maximum


def adaptive_weights(config: AdaptiveConfig) -> Table:
    """Word and picture are one input here, and h's bias in the scores is in every key's."""
    attention, lstm = "core.attention", "core.lstm"
    table: dict[str, WeightRow | tuple[WeightRow, ...]] = {
        **attention_weights(attention, "look", query="ho_embed"),
        f"{attention}.ho_embed.bias": (add_to("look.region.bias"), add_to("sentinel.key.bias")),
        f"{attention}.ho_linear.0.*": to("hidden.*"),
        f"{attention}.fr_linear.0.*": to("sentinel.transform.*"),
        f"{attention}.fr_embed.weight": to("sentinel.key.weight"),
        f"{attention}.fr_embed.bias": add_to("sentinel.key.bias"),
        f"{attention}.att2h.*": to("join.*"),
        **key_weights("ctx2att", "look"),
        **embedding_weights(config),
    }
    # Theirs has gates in, forget and out, then the candidate, as our max-out; PyTorch's has the candidate before out.
    turned: tuple[Step, ...] = () if config.maxout else (blocks(0, 1, 3, 2),)
    names = ("input.*", "state.*") if config.maxout else ("*_ih", "*_hh")

    def joined(inputs: list[tuple[str, int]], ours: str, *steps: Step) -> None:
        """Linear maps whose results are added, as one map of their inputs side by side; each with its width."""
        start = 0
        for name, width in inputs:
            part = (start, start + width) if len(inputs) > 1 else (None, None)
            table[f"{lstm}.{name}.weight"] = to(ours.replace("*", "weight"), *steps, columns=part)
            table[f"{lstm}.{name}.bias"] = add_to(ours.replace("*", "bias"), *steps)
            start += width

    word, dim = config.word_dim, config.dim
    for layer in range(config.layers):
        below = [("w2h", word), ("v2h", dim)] if layer == 0 else [(f"i2h.{layer - 1}", dim)]
        joined(below, f"lstms.{layer}.{names[0]}", *turned)
        joined([(f"h2h.{layer}", dim)], f"lstms.{layer}.{names[1]}", *turned)
    below = [("r_w2h", word), ("r_v2h", dim)] if config.layers == 1 else [("r_i2h", dim)]
    joined([*below, ("r_h2h", dim)], "sentinel.gate.*")
    return table | dict(OTHERS)


ADAPTIVE = Importer(
    system="adaptive",
    title="adaptive",
    model=Adaptive,
    reads=reads(*ADAPTIVE_KINDS),
    check=check,
    brings_words=True,
    config={**CONFIG, "layers": "num_layers", "maxout": choice("caption_model", ADAPTIVE_KINDS)},
    weights=adaptive_weights,
)


DICTIONARY = "memory_cell"  # the file beside a checkpoint of SGAE, and the array in it


def read_sgae(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    source = reads("lstm_mem4")(path, vocabulary, title)
    beside = path.with_name(f"{path.stem.replace('model', DICTIONARY)}.npz")
    if not beside.is_file():
        raise SaccadeError(
            f"{beside} does not exist: the dictionary is not in the checkpoint but in that file beside it"
        )
    found = read_npz(beside).get(DICTIONARY)
    if found is None or found.ndim != 2 or found.dtype.kind != "f":
        raise SaccadeError(f'{beside} holds no dictionary: expected a table of numbers named "{DICTIONARY}"')
    source.weights[DICTIONARY] = torch.from_numpy(found)
    return source


def sgae_weights(config: SgaeConfig) -> Table:
    return {
        **embedding_weights(config),
        DICTIONARY: to("dictionary.entries"),
        **top_down_weights("ssg_core", "sentence_lstms"),
        **top_down_weights("rela_core", "picture_lstms"),
        **attention_weights("ssg_core.attention", "sentence_look"),
        **attention_weights("rela_core.attention_rela", "picture_look"),
        **attention_weights("rela_core.attention_mem", "reworded_look"),
        **key_weights("ssg_ctx2att", "sentence_look"),
        **key_weights("rela_ctx2att", "picture_look", "reworded_look"),
        "ssg_obj_obj_fc.*": to("sentence_graph.own.*"),
        "ssg_sbj_rela_fc.*": to("sentence_graph.as_subject.*"),
        "ssg_obj_rela_fc.*": to("sentence_graph.as_object.*"),
        "ssg_rela_fc.*": to("sentence_graph.relation.*"),
        "ssg_attr_fc.*": to("sentence_graph.attribute.*"),
        "embed2vis.*": to("picture_graph.word.*"),
        "rela_sbj_rela_fc.*": to("picture_graph.convolution.as_subject.*"),
        "rela_obj_rela_fc.*": to("picture_graph.convolution.as_object.*"),
        "rela_rela_fc.*": to("picture_graph.convolution.relation.*"),
        "rela_attr_fc.0.weight": to(  # there an attribute comes before its thing
            "picture_graph.convolution.attribute.0.weight", blocks(1, 0, axis=1)
        ),
        "rela_attr_fc.0.bias": to("picture_graph.convolution.attribute.0.bias"),
        "img2sg.fc1.0.*": to("to_sentences.0.*"),
        "img2sg.fc2.0.*": to("to_sentences.3.*"),
        "img2sg.fc3.*": to("to_sentences.6.*"),
        **OTHERS,
    }


SGAE = Importer(
    system="sgae",
    title="SGAE",
    model=Sgae,
    reads=read_sgae,
    check=check,
    brings_words=True,
    config={
        **CONFIG,
        "entries": lambda source: len(source.weights[DICTIONARY]),
        "fusion": const("released"),
        "relations": optional("use_rela", False),
        "peek": const(True),
    },
    weights=sgae_weights,
)
