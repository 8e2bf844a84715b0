"""Checkpoints of referrers: the released code of PLAN, whose `model.pt` is a plain state dict.

Words are the columns of its first layer, in the order of the GuessWhat vocabulary; without that file they are numbers.
"""

from __future__ import annotations

from pathlib import Path

import torch

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import Options, read_checkpoint, state_dict
from saccade.interop.importer import Importer, Source, Table, const, ignored, to, transposed
from saccade.interop.importers.answering import required, width_of
from saccade.interop.words import OfficialWords, numbered_words
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL
from saccade.models import Plan

WORDS = "sentence_encoding.embedding.weight"


def read_plan(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    """Raises: SaccadeError if the vocabulary has another number of words."""
    weights = state_dict(read_checkpoint(path), path, "the checkpoint")
    count = required(weights, WORDS, path, title).shape[1]
    known = vocabulary or numbered_words(count + len(SPECIAL))
    if len(known) != count + len(SPECIAL):
        raise SaccadeError(f"{path} knows {count} words, the vocabulary has {len(known) - len(SPECIAL)}")
    ours = torch.arange(count) + len(SPECIAL)
    return Source(path, title, Options({}, path, title), weights, known, OfficialWords(known, ours, ours))


def level(theirs: str, ours: str) -> Table:
    return {
        f"{theirs}_attention_model.linear_1.*": to(f"{ours}.key.*"),
        f"{theirs}_attention_model.linear_2.*": to(f"{ours}.query.*"),
        f"{theirs}_attention_model.linear_3.*": ignored("the released code never uses it"),
        f"{theirs}_lstm.embedding_1.*": to(f"{ours}.heard.*"),
        f"{theirs}_lstm.embedding_2.*": to(f"{ours}.found.*"),
        **{
            f"{theirs}_lstm.lstm.{part}_{gate}_l0": to(f"{ours}.lstm.{part}_{gate}")
            for part in ("weight", "bias")
            for gate in ("ih", "hh")
        },
        f"{theirs}_linear_1.*": to(f"{ours}.of_state.*"),
        f"{theirs}_linear_2.*": to(f"{ours}.of_found.*"),
    }


PLAN: Importer[Plan] = Importer(
    system="plan",
    title="PLAN",
    model=Plan,
    reads=read_plan,
    config={
        "region_dim": width_of("img_attention_model.linear_1.weight", 1),
        "word_dim": width_of(WORDS, 0),
        "text_dim": width_of("sentence_encoding.lstm.weight_hh_l0", 1),
        "dim": width_of("img_lstm.lstm.weight_hh_l0", 1),
        "referring_dim": width_of("img_linear_1.weight", 0),
        "form": const("reference"),
        "end": const(0),
        "dropout": const(0.5),
        "feature_scale": const(0.1),
    },
    weights={
        WORDS: to("words.weight", transposed, words="input"),
        "sentence_encoding.embedding.bias": to("word_bias"),
        "sentence_encoding.lstm.*": to("lstm.*"),
        **level("img", "image"),
        **level("proposal", "proposal"),
    },
)
