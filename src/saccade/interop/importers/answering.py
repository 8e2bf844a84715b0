"""Checkpoints of answerers: the re-implementation of Up-Down VQA, and DCN.

Up-Down: `model.pth` is a plain state dict. Words (`dictionary.pkl`: [word → id, words]) and answers (`*label2ans.pkl`)
lie in files of their own; without them words and answers are numbers. DCN: {state_dict, args, …}; its word vectors,
GloVe's, are in no checkpoint but in `word_vectors.npy` or `.npz` beside it, a row for each word, the first of them
padding.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.batch import PAD
from saccade.core.arrays import map_npy, read_npz
from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import Options, need, read_checkpoint, read_plain_pickle, state_dict
from saccade.interop.importer import Importer, Source, Table, const, to
from saccade.interop.words import OfficialWords, numbered_words
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL
from saccade.models import Dcn, DcnConfig, UpDownVqa

ANSWERS = "*label2ans.pkl"
WORD_VECTORS = "word_vectors"  # the file beside a checkpoint of DCN, and the array in it


def words_of(count: int, pad: int, vocabulary: Vocabulary | None, path: Path) -> OfficialWords:
    """Official ids of `count` words in our order, `pad` left out: it is our padding.

    Raises: SaccadeError if the vocabulary has another number of words.
    """
    known = vocabulary or numbered_words(count - 1 + len(SPECIAL))
    if len(known) != count - 1 + len(SPECIAL):
        raise SaccadeError(f"{path} knows {count - 1} words, the vocabulary has {len(known) - len(SPECIAL)}")
    ours = torch.full((count,), PAD)
    ours[torch.arange(count) != pad] = torch.arange(count - 1) + len(SPECIAL)
    return OfficialWords(known, ours, ours)


def numbered_answers(count: int) -> tuple[str, ...]:
    return tuple(f"<answer-{n}>" for n in range(count))


def answers_beside(path: Path, count: int) -> tuple[str, ...]:
    """The answers in a file beside a checkpoint; numbers if there is none. Raises: SaccadeError if they do not fit."""
    found = sorted(path.parent.glob(ANSWERS))
    if not found:
        return numbered_answers(count)
    answers = read_plain_pickle(found[0])
    if not isinstance(answers, list) or len(answers) != count or not all(isinstance(a, str) for a in answers):
        raise SaccadeError(f"{found[0]} is no list of the {count} answers that {path} knows")
    return tuple(answers)


def required(weights: dict[str, Tensor], name: str, path: Path, title: str) -> Tensor:
    if name not in weights:
        raise SaccadeError(f"{path} is no {title} checkpoint: it has no {name}")
    return weights[name]


def read_updown(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    weights = state_dict(read_checkpoint(path), path, "the checkpoint")
    rows = len(required(weights, "w_emb.emb.weight", path, title))
    words = words_of(rows, rows - 1, vocabulary, path)
    return Source(path, title, Options({}, path, title), weights, words.vocabulary, words)


def width_of(name: str, axis: int) -> Any:
    return lambda source: required(source.weights, name, source.path, source.title).shape[axis]


UPDOWN_VQA: Importer[UpDownVqa] = Importer(
    system="updown_vqa",
    title="Up-Down VQA",
    model=UpDownVqa,
    reads=read_updown,
    config={
        "answers": lambda source: answers_beside(
            source.path, len(required(source.weights, "classifier.main.3.bias", source.path, source.title))
        ),
        "region_dim": width_of("v_net.main.0.weight_v", 1),
        "word_dim": width_of("w_emb.emb.weight", 1),
        "dim": width_of("q_net.main.0.weight_v", 0),
        "form": const("reference"),
        "attention": lambda source: "product" if "v_att.v_proj.main.0.bias" in source.weights else "concat",
        "places": const(14),
        "attention_dropout": const(0.2),
        "dropout": const(0.5),
    },
    weights={
        "w_emb.emb.weight": to("words.weight", words="input"),
        "q_emb.rnn.*": to("gru.*"),
        "v_att.nonlinear.main.0.*": to("joined.*"),
        "v_att.v_proj.main.0.*": to("region_key.*"),
        "v_att.q_proj.main.0.*": to("question_key.*"),
        "v_att.linear.*": to("weigh.*"),
        "q_net.main.0.*": to("question.*"),
        "v_net.main.0.*": to("picture.*"),
        "classifier.main.0.*": to("joint.*"),
        "classifier.main.3.*": to("out.*"),
    },
)


def word_vectors_beside(path: Path) -> Tensor:
    """Raises: SaccadeError if there is no such file, or it holds no table of numbers."""
    files = [path.with_name(f"{WORD_VECTORS}{ending}") for ending in (".npy", ".npz")]
    beside = next((file for file in files if file.is_file()), None)
    if beside is None:
        raise SaccadeError(f"{files[0]} does not exist: word vectors are in no DCN checkpoint but in that file")
    found = read_npz(beside).get(WORD_VECTORS) if beside.suffix == ".npz" else np.array(map_npy(beside))
    if found is None or found.ndim != 2 or found.dtype.kind != "f":
        raise SaccadeError(f'{beside} holds no word vectors: expected a table of numbers named "{WORD_VECTORS}"')
    return torch.from_numpy(found)


def reads_dcn(vectors: Tensor | None = None) -> Any:
    def read(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
        checkpoint = read_checkpoint(path)
        options = Options(vars(need(checkpoint, "args", argparse.Namespace, path)), path, title)
        weights = state_dict(need(checkpoint, "state_dict", dict, path), path, "the checkpoint")
        weights = {name: value for name, value in weights.items() if not name.startswith("img_extract.resnet.")}
        weights[WORD_VECTORS] = word_vectors_beside(path) if vectors is None else vectors
        words = words_of(len(weights[WORD_VECTORS]), 0, vocabulary, path)
        return Source(path, title, options, weights, words.vocabulary, words)

    return read


LEVELS = tuple(f"img_extract.extract{n}{part}.weight" for n, part in ((1, ".1"), (2, ".1"), (3, ".1"), (4, "")))


def levels(source: Source) -> tuple[int, ...]:
    """Widths of the backbone's layers; none where the checkpoint is for regions."""
    return tuple(source.weights[name].shape[1] for name in LEVELS if name in source.weights)


def region_dim(source: Source) -> int:
    wide = levels(source)
    linear = "img_extract.linear.weight"
    return sum(wide) if wide else required(source.weights, linear, source.path, source.title).shape[1]


def dcn_weights(config: DcnConfig) -> Table:
    inner = "dense_coattn.dcn_layers.*.dense_coattn"
    return {
        WORD_VECTORS: to("words.weight", words="input"),
        "lang_extract.rnn.*": to("lstm.lstm.*"),
        "lang_extract.init_hidden": to("lstm.initial"),
        "lang_extract.linear.*": to("question.*"),
        "img_extract.linear.*": to("regions.*"),
        **{f"img_extract.extract{n}.1.*": to(f"levels.maps.{n - 1}.*") for n in (1, 2, 3)},
        "img_extract.extract4.*": to("levels.maps.3.*"),
        "img_extract.locate.linear.*": to("levels.choose.*"),
        f"{inner}.linears.0.weight": to("layers.*.region_key.weight"),
        f"{inner}.linears.1.weight": to("layers.*.word_key.weight"),
        f"{inner}.nones.0": to("layers.*.no_region"),
        f"{inner}.nones.1": to("layers.*.no_word"),
        **{
            f"dense_coattn.dcn_layers.*.linears.{n}.0.{kind}": to(f"layers.*.{side}_fusion.{kind}")
            for n, side in enumerate(("region", "word"))
            for kind in ("weight", "bias")
        },
        "predict.summaries.0.linear.*": to("region_summary.score.*"),
        "predict.summaries.1.linear.*": to("word_summary.score.*"),
        "predict.predict.*": to("predict.*"),
    }


DCN: Importer[Dcn] = Importer(
    system="dcn",
    title="DCN",
    model=Dcn,
    reads=reads_dcn(),
    config={
        "answers": lambda source: answers_beside(
            source.path, len(required(source.weights, "predict.predict.3.bias", source.path, source.title))
        ),
        "region_dim": region_dim,
        "levels": levels,
        "word_dim": lambda source: source.weights[WORD_VECTORS].shape[1],
        "dim": "ques_size",
        "image_dim": "img_size",
        "level_heads": "num_img_attn",
        "lstm_dim": width_of("lang_extract.init_hidden", 1),
        "lstm_layers": "num_layers",
        "layers": "num_seq",
        "heads": "num_dense_attn",
        "nowhere": "num_none",
        "summaries": "num_predict_attn",
        "word_dropout": "droprnn",
        "dropout": "dropout",
    },
    weights=dcn_weights,
)


def dcn(vectors: Tensor) -> Importer[Dcn]:
    """With the word vectors of another source than the file beside a checkpoint."""
    return replace(DCN, reads=reads_dcn(vectors))
