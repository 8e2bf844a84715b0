"""Checkpoints of HGR: {video_encoder: state dict, text_encoder: state dict}, with model.json, the settings of the run,
beside them or one folder up, and word2int.json, its words, where it was kept.

Official ids are 0 and 1 for the ends of a sentence, which no model reads, 2 for unknown words, then the words.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.batch import END, START, UNKNOWN
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.checkpoint import Options, need, read_checkpoint, state_dict
from saccade.interop.importer import Importer, Source, Table, choice, ignored, rows, to
from saccade.interop.importers.answering import required
from saccade.interop.words import OfficialWords, numbered_words
from saccade.language import Vocabulary
from saccade.language.roles import ROLES
from saccade.language.vocabulary import SPECIAL
from saccade.models import Hgr, HgrConfig

PARTS = ("video_encoder", "text_encoder")
WORDS = "text_encoder.embedding.we.weight"
OWN_IDS = (START, END, UNKNOWN)  # what official ids 0 to 2 are here


def settings_beside(path: Path) -> dict[str, Any]:
    """Raises: SaccadeError if there are none."""
    for file in (path.with_name("model.json"), path.parent.parent / "model.json", path.with_name("config.json")):
        if file.is_file():
            return settings_of(file)
    raise SaccadeError(f"{path} needs model.json, the settings of its run, beside it or one folder up")


def settings_of(file: Path) -> dict[str, Any]:
    """The settings of a run, those of its parts as `text_encoder.rnn_type`."""
    found = read_json(file)
    if not isinstance(found, Mapping):
        raise SaccadeError(f"{file} holds no settings of a run")
    parts = found.get("subcfgs", found)
    settings = {**found, **(found["model"] if isinstance(found.get("model"), Mapping) else {})}
    settings = {name: value for name, value in settings.items() if not isinstance(value, Mapping)}
    for part in PARTS:
        own = parts.get(part) if isinstance(parts, Mapping) else None
        if not isinstance(own, Mapping):
            raise SaccadeError(f'{file} has no settings of "{part}", so it is of no HGR model')
        settings |= {f"{part}.{name}": value for name, value in own.items()}
    return settings


def official_words(count: int, table: Mapping[str, int] | None, path: Path) -> OfficialWords:
    """Of so many ids; one that the table has no word for is a number. Raises: SaccadeError if ids are not in range."""
    names = list(numbered_words(len(SPECIAL) + count - len(OWN_IDS)).words)
    for word, number in (table or {}).items():
        if type(number) is not int or not 0 <= number < count:
            raise SaccadeError(f'{path}: the word "{word}" has the id {number!r}, one below {count} was expected')
        if number >= len(OWN_IDS):
            names[number - len(OWN_IDS) + len(SPECIAL)] = word
    if len(set(names)) < len(names):
        raise SaccadeError(f"{path}: two ids have the same word")
    ours = torch.cat([torch.tensor(OWN_IDS), torch.arange(count - len(OWN_IDS)) + len(SPECIAL)])
    return OfficialWords(Vocabulary(tuple(names)), ours, ours)


def read_hgr(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    """Raises: SaccadeError if the file is of another kind, or the vocabulary has another number of words."""
    checkpoint, weights = read_checkpoint(path), dict[str, Tensor]()
    for part in PARTS:
        found = state_dict(need(checkpoint, part, Mapping, path), path, part)
        weights |= {f"{part}.{name}": value for name, value in found.items()}
    count = len(required(weights, WORDS, path, title))
    table = path.with_name("word2int.json")
    words = official_words(count, read_json(table) if table.is_file() else None, table)
    if vocabulary is not None:
        if len(vocabulary) != len(words.vocabulary):
            raise SaccadeError(
                f"{path} knows {count - len(OWN_IDS)} words, the vocabulary has {len(vocabulary) - len(SPECIAL)}"
            )
        words = OfficialWords(vocabulary, words.inputs, words.outputs)
    options = Options(settings_beside(path), path, title)
    return Source(path, title, options, weights, words.vocabulary, words)


def check_hgr(source: Source) -> None:
    options = source.options
    for name, wanted in (
        ("video_encoder.num_levels", 3),
        ("text_encoder.rnn_hidden_size", options("video_encoder.dim_embed")),
    ):
        if options(name) != wanted:
            raise SaccadeError(f"{source.path}: {name} is {options(name)}, the official code needs {wanted}")
    if options("text_encoder.num_roles") not in (0, len(ROLES)):
        raise SaccadeError(f"{source.path}: text_encoder.num_roles is {len(ROLES)} or 0 in the official code")


def hgr_weights(config: HgrConfig) -> Table:
    recurrent = "words.rnn.*" if config.word_encoder == "gru" else "words.rnn.lstm.*"
    blind = ignored("a softmax is blind to it")
    layer = "text_encoder.gcn.layers.*"
    return {
        "video_encoder.level_embeds.*.*": to("levels.*.*"),
        "video_encoder.ft_attn.weight": to("focus.weight"),
        "video_encoder.ft_attn.bias": blind,
        WORDS: to("words.embed.weight", words="input"),
        "text_encoder.rnn.*": to(recurrent),
        "text_encoder.ft_attn.weight": to("attend_words.weight"),
        "text_encoder.ft_attn.bias": blind,
        "text_encoder.role_embedding.weight": to("roles.weight", rows(None, len(ROLES))),
        f"{layer}.ctx_layer.weight": to("graph.*.message.weight"),
        f"{layer}.layernorm.*": to("graph.*.norm.*"),
        f"{layer}.edge_attn_query.*": to("graph.*.query.*"),
        f"{layer}.edge_attn_key.weight": to("graph.*.key.weight"),
        f"{layer}.edge_attn_key.bias": blind,
    }


HGR: Importer[Hgr] = Importer(
    system="hgr",
    title="HGR",
    model=Hgr,
    reads=read_hgr,
    check=check_hgr,
    brings_words=True,
    config={
        "region_dim": lambda source: sum(source.options("video_encoder.dim_fts")),
        "dim": "video_encoder.dim_embed",
        "share_levels": "video_encoder.share_enc",
        "word_dim": "text_encoder.dim_word",
        "word_encoder": choice("text_encoder.rnn_type", {"gru": "gru", "lstm": "lstm"}),
        "layers": "text_encoder.num_layers",
        "bidirectional": "text_encoder.bidirectional",
        "dropout": "text_encoder.dropout",
        "roles": lambda source: "phrases" if source.options("text_encoder.num_roles") else "none",
        "graph_layers": "text_encoder.gcn_num_layers",
        "graph_attention": "text_encoder.gcn_attention",
        "graph_dropout": "text_encoder.gcn_dropout",
        "sharpness": "simattn_sigma",
        "fusion": choice("attn_fusion", {"embed": "vectors", "sim": "scores"}),
        "loss_weights": lambda source: tuple(map(float, source.options("loss_weights") or ())),
        "max_words": "max_words_in_sent",
        "max_frames": "max_frames_in_video",
        "actions": "num_verbs",
        "entities": "num_nouns",
    },
    weights=hgr_weights,
)
