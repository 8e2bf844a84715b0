"""Checkpoints of Show, Attend and Tell: those of the PyTorch tutorial that most people have, and the authors' own.

The tutorial (a-PyTorch-Tutorial-to-Image-Captioning) pickles whole modules; a plain state dict of its decoder is read
too. What it has of the encoder is left: a ResNet-101 whose last map, 14 × 14, are the regions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.captioning.arctic_captions import import_arctic
from saccade.interop.checkpoint import state_dict
from saccade.interop.pickled_modules import Bag, module_state, read_modules
from saccade.interop.places import OfficialIds, Place, fill, need_matrix
from saccade.interop.vocabulary import numbered_words
from saccade.language import Vocabulary
from saccade.language.vocabulary import END, PAD, SPECIAL, START, UNKNOWN
from saccade.models import ShowAttendTell, ShowAttendTellConfig

CLASSES = ("models.Encoder", "models.Attention", "models.DecoderWithAttention")


def import_show_attend_tell(path: Path | str, vocabulary: Vocabulary | None = None) -> ShowAttendTell:
    """The model in an official checkpoint of either code; without words, they are named by their numbers."""
    if Path(path).suffix == ".npz":
        return import_arctic(path, vocabulary)
    words = word_map_beside(Path(path).parent) if vocabulary is None else None
    return import_tutorial(path, words or vocabulary)


def word_map_ids(table: Any, source: str, literal: bool = False) -> OfficialIds:
    """From WORDMAP.json, {word: id} with the four special words anywhere in it.

    Official probabilities are shared with <pad> and <start>, which ours never say. `literal`, for verification, lets
    the model say these two as words of their own.
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
    read = torch.empty(len(words), dtype=torch.long)
    read[kept] = torch.arange(len(kept)) + len(SPECIAL)
    for ours, special in enumerate(SPECIAL):
        read[table[special]] = ours
    said, extra = read.clone(), ("<said-pad>", "<said-start>") if literal else ()
    if literal:
        said[[table["<pad>"], table["<start>"]]] = torch.arange(2) + len(SPECIAL) + len(kept)
    return OfficialIds(Vocabulary((*SPECIAL, *(words[number] for number in kept), *extra)), read, said)


def word_map_beside(folder: Path) -> OfficialIds | None:
    """The ids of the WORDMAP*.json in a folder, if there is one."""
    found = sorted(folder.glob("WORDMAP*.json"))
    return word_map_ids(read_json(found[0]), str(found[0])) if found else None


def _usual_ids(vocabulary: Vocabulary) -> OfficialIds:
    """The tutorial's own order: padding, the words, unknown, start, end."""
    words = vocabulary.words[len(SPECIAL) :]
    table = {word: number for number, word in enumerate((SPECIAL[PAD], *words))}
    for special in (SPECIAL[UNKNOWN], SPECIAL[START], SPECIAL[END]):
        table[special] = len(table)
    return word_map_ids(table, "the vocabulary")


def tutorial_weights(path: Path | str) -> tuple[dict[str, Tensor], float]:
    """The decoder's weights and its dropout, from a checkpoint or a plain state dict."""
    checkpoint = read_modules(path, CLASSES)
    decoder = checkpoint.get("decoder", checkpoint)
    if not isinstance(decoder, Bag):
        return state_dict(decoder, path, "the decoder"), ShowAttendTellConfig.dropout
    try:
        weights = module_state(decoder, path, "the decoder")
    except RecursionError as error:
        raise SaccadeError(f"{path} is damaged: its decoder is a part of itself") from error
    layer = vars(decoder).get("_modules", {}).get("dropout")
    share = vars(layer).get("p") if isinstance(layer, Bag) else None
    return weights, float(share) if isinstance(share, float | int) else ShowAttendTellConfig.dropout


def tutorial_places() -> dict[str, Place]:
    same = {"decode_step": "lstm", "init_h": "first_hidden", "init_c": "first_cell", "f_beta": "gate"}
    kinds = {"decode_step": ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    places = {
        f"{official}.{kind}": Place(f"{ours}.{kind}")
        for official, ours in same.items()
        for kind in kinds.get(official, ("weight", "bias"))
    }
    return places | {
        "attention.encoder_att.weight": Place("look.region.weight"),
        "attention.encoder_att.bias": Place("look.region.bias"),
        "attention.decoder_att.weight": Place("look.state.weight"),
        "attention.decoder_att.bias": Place("look.region.bias"),
        "attention.full_att.weight": Place("look.weigh.weight"),
        "attention.full_att.bias": Place(None),
        "embedding.weight": Place("embed.weight", words="read"),
        "fc.weight": Place("say.weight", words="said"),
        "fc.bias": Place("say.bias", words="said"),
    }


def import_tutorial(path: Path | str, words: OfficialIds | Vocabulary | None = None) -> ShowAttendTell:
    """The decoder of the tutorial: ReLU in f_att, a gate for every channel, and words said from h alone."""
    weights, dropout = tutorial_weights(path)
    embedding, look, state = (
        need_matrix(weights, name, path)
        for name in ("embedding.weight", "attention.encoder_att.weight", "decode_step.weight_hh")
    )
    ids = words if isinstance(words, OfficialIds) else _usual_ids(words or numbered_words(len(embedding)))
    if len(ids) != len(embedding):
        raise SaccadeError(f"{path} knows {len(embedding)} words, the vocabulary has {len(ids)}")
    config = ShowAttendTellConfig(
        region_dim=look.shape[1],
        word_dim=embedding.shape[1],
        dim=state.shape[1],
        look_dim=look.shape[0],
        look_layers=1,
        activation="relu",
        gate="vector",
        first_layers=1,
        first_tanh=False,
        deep_output=False,
        dropout=dropout,
        coverage_over="mean",
    )
    model = ShowAttendTell(config, ids.vocabulary)
    fill(model, weights, tutorial_places(), ids, path)
    return model.eval()
