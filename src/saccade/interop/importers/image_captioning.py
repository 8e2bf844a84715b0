"""What captioners of ImageCaptioning.pytorch and its kin share: `model*.pth` is a plain state dict, and `infos_*.pkl`
beside it holds the options and the words.

Words have ids 1, 2, …; 0 is start, end and padding at once, and `UNK` stands for all other words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import Options, read_checkpoint, read_plain_pickle, state_dict
from saccade.interop.importer import Source, Term
from saccade.interop.mapping import Table, ignored, to
from saccade.interop.words import OfficialWords
from saccade.language import Vocabulary
from saccade.language.vocabulary import END, SPECIAL, UNKNOWN
from saccade.nn.region_embedding import RegionBatchNorm

UNKNOWN_WORDS = ("UNK", "<unk>", "<UNK>")
REGION_NORMS: dict[int, RegionBatchNorm] = {0: "none", 1: "before", 2: "around"}  # use_bn
BLIND = "a softmax is blind to it"


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


def infos_beside(checkpoint: Path | str) -> Path:
    """The `infos` of a checkpoint: model-best.pth and infos_ID-best.pkl, or NAME_model.pth and NAME_infos.pkl."""
    path = Path(checkpoint)
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


def reads(*kinds: str) -> Callable[[Path, Vocabulary | None, str], Source]:
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
        kind = options("caption_model")
        if kind not in kinds:
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


def region_norm(source: Source) -> RegionBatchNorm:
    """The official code takes any number but 0 for the norm before, and 2 for that after too."""
    return REGION_NORMS.get(int(source.options.get("use_bn", 0)), "before")


CONFIG: dict[str, Term] = {
    "region_dim": "att_feat_size",
    "word_dim": "input_encoding_size",
    "dim": "rnn_size",
    "attention_dim": "att_hid_size",
    "region_norm": region_norm,
    "dropout": "drop_prob_lm",
}


def weights(config: Any) -> Table:
    """The embeddings of words, picture and regions, and the vocabulary layer."""
    normed: Table = {
        "att_embed.0.*": to("regions.before.*"),
        "att_embed.1.*": to("regions.linear.*"),
        "att_embed.4.*": to("regions.after.*"),
    }
    return {
        "embed.0.weight": to("words.weight", words="read"),
        "logit.weight": to("out.weight", words="said"),
        "logit.bias": to("out.bias", words="said"),
        "fc_embed.0.*": to("whole.*"),
        **(normed if config.region_norm != "none" else {"att_embed.0.*": to("regions.linear.*")}),
    }


def top_down_weights(theirs: str, ours: str) -> Table:
    """The two LSTMs of the top-down form."""
    return {f"{theirs}.att_lstm.*": to(f"{ours}.look_lstm.*"), f"{theirs}.lang_lstm.*": to(f"{ours}.say_lstm.*")}


OTHERS: Table = {"*": ignored("the official code keeps layers that it does not use")}
