"""Official words: their tables as files, and which of our words each of theirs is.

Tables are JSON or pickled, by themselves or in an object, or lists of counted words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import PAD, START, UNKNOWN
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, read_pickle, read_text
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL

FILES = ("vocab.json", "vocab.pkl", "word_counts.txt", "WORDMAP*.json")  # beside a checkpoint
ABSENT_LOGIT = -1e4  # of a word that a checkpoint does not have


@dataclass(frozen=True)
class OfficialWords:
    """Our ids of the official words, as inputs and as outputs of a model."""

    vocabulary: Vocabulary
    inputs: Int[Tensor, " official"]
    outputs: Int[Tensor, " official"]
    blank: bool = False  # official 0 is <start>, <end> and padding at once; as an output it is <end>

    def __len__(self) -> int:
        return len(self.inputs)

    def input_rows(self, table: Float[Tensor, "official dim"]) -> Float[Tensor, "word dim"]:
        """Word vectors in our order; zero for a word they lack."""
        source = self._source(self.outputs, self.inputs)
        if self.blank:
            source[[PAD, START]] = 0
        return self._rows(table, source)

    def output_rows(self, table: Float[Tensor, "official ..."]) -> Float[Tensor, "word ..."]:
        """The rows (or biases) of the output layer in our order; an unknown word that they lack is never chosen."""
        source = self._source(self.outputs)
        ours = self._rows(table, source)
        if table.dim() == 1 and source[UNKNOWN] < 0:
            ours[UNKNOWN] = ABSENT_LOGIT
        return ours

    def columns(self, values: Float[Tensor, "*rows word"]) -> Float[Tensor, "*rows official"]:
        """Log-probabilities of our words as theirs."""
        return values[..., self.outputs]

    def sentences(self, ids: Int[Tensor, "text step"]) -> Int[Tensor, "text step"]:
        """Official ids as ours, where 0 is the end: the first 0 is <end>, those after it padding."""
        ended = (ids == 0).cumsum(dim=1)
        return self.inputs[ids].masked_fill(ended > 1, PAD)

    def back(self, words: Int[Tensor, "*rows"]) -> Int[Tensor, "*rows"]:
        """Our ids as theirs; where they have none, −1, or the blank."""
        return self._source(self.inputs, self.outputs, missing=0 if self.blank else -1)[words]

    def _source(self, *ids: Int[Tensor, " official"], missing: int = -1) -> Int[Tensor, " word"]:
        """The official id of each of our words; of two tables of our ids the latter decides."""
        source = torch.full((len(self.vocabulary),), missing)
        for ours in ids:
            source[ours] = torch.arange(len(self))
        return source

    def _rows(self, table: Float[Tensor, "official ..."], source: Int[Tensor, " word"]) -> Float[Tensor, "word ..."]:
        if len(table) != len(self):
            raise RuntimeError(f"{len(table)} rows for {len(self)} words")
        there = (source >= 0).view(-1, *[1] * (table.dim() - 1))
        return torch.where(there, table[source.clamp(min=0)], table.new_zeros(()))


class _Table:
    """Stands in for the class of a pickled vocabulary; it only receives plain attributes."""


def read_vocabulary(path: Path | str) -> Vocabulary:
    """A vocabulary of ours, an official vocab.json or vocab.pkl, a WORDMAP.json, dictionary.pkl or word_counts.txt."""
    path = Path(path)
    if path.suffix == ".txt":
        return _read_word_counts(path)
    if path.suffix == ".pkl":
        table = read_pickle(path, {(m, "Vocabulary"): _Table for m in ("__main__", "vocab")}, "pickled vocabulary")
    else:
        table = read_json(path)
    return _read_table(vars(table) if isinstance(table, _Table) else table, path)


def _read_table(table: Any, path: Path) -> Vocabulary:
    """{word: id} of Show, Attend and Tell in either code's order or of DRN, whose first id is 1; [{word: id}, words] of
    Up-Down VQA; any other table knows its own order."""
    if isinstance(table, list) and len(table) == 2 and isinstance(table[1], list):
        return Vocabulary((*SPECIAL, *map(str, table[1])))
    if not isinstance(table, Mapping) or not table or not all(type(number) is int for number in table.values()):
        return Vocabulary.from_json(table, str(path))
    ordered = [str(word) for word in sorted(table, key=table.__getitem__)]
    words = [word for word in ordered if word not in (*SPECIAL, "<eos>", "UNK")]
    tutorial = ["<pad>", *words, "<unk>", "<start>", "<end>"], 0  # the order, and the first id
    authors = (["<eos>", "UNK", *words], 0), (words, 2)
    moments = words, 1
    if (ordered, min(table.values())) not in (tutorial, *authors, moments) or len(set(table.values())) != len(table):
        raise SaccadeError(f"{path}: the ids of its words are not in the order of a WORDMAP.json or dictionary.pkl")
    return Vocabulary((*SPECIAL, *words))


def _read_word_counts(path: Path) -> Vocabulary:
    """A word and its count a line, <S> and </S> first; <unk> follows without being written."""
    words = [line.split()[0] for line in read_text(path).splitlines() if line.strip()]
    if words[:2] != ["<S>", "</S>"]:
        raise SaccadeError(f"{path} is no list of counted words: <S> and </S> were expected on its first two lines")
    return Vocabulary((*SPECIAL, *words[2:]))


def vocabulary_beside(folder: Path) -> Vocabulary | None:
    """The official vocabulary in a folder, if there is one."""
    found = [path for name in FILES for path in sorted(folder.glob(name))]
    return read_vocabulary(found[0]) if found else None


def numbered_words(size: int) -> Vocabulary:
    """For weights whose vocabulary is not at hand: words are named by their numbers."""
    return Vocabulary((*SPECIAL, *(f"<word-{i}>" for i in range(len(SPECIAL), size))))
