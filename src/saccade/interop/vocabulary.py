"""Official vocabularies: tables as JSON or pickled, by themselves or in an object, and lists of counted words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, read_text
from saccade.core.pickles import read_pickle
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL

NAMES = ("vocab.json", "vocab.pkl", "word_counts.txt")  # beside a checkpoint


class _Table:
    """Stands in for the class of a pickled vocabulary; it only receives plain attributes."""


TABLES = {(module, "Vocabulary"): _Table for module in ("__main__", "vocab")}  # the one name such a pickle has


def read_vocabulary(path: Path | str) -> Vocabulary:
    """A vocabulary of ours, an official vocab.json or vocab.pkl, a WORDMAP.json, dictionary.pkl or word_counts.txt."""
    path = Path(path)
    if path.suffix == ".txt":
        return _read_word_counts(path)
    if path.suffix != ".pkl":
        return _read_table(read_json(path), path)
    table = read_pickle(path, TABLES, "pickled vocabulary")
    return _read_table(vars(table) if isinstance(table, _Table) else table, path)


def _read_table(table: Any, path: Path) -> Vocabulary:
    """{word: id} of Show, Attend and Tell in either code's order; any other table knows its own order."""
    if not isinstance(table, Mapping) or not table or not all(type(number) is int for number in table.values()):
        return Vocabulary.from_json(table, str(path))
    ordered = [str(word) for word in sorted(table, key=table.__getitem__)]
    words = [word for word in ordered if word not in (*SPECIAL, "<eos>", "UNK")]
    tutorial = ["<pad>", *words, "<unk>", "<start>", "<end>"], 0  # the order, and the first id
    authors = (["<eos>", "UNK", *words], 0), (words, 2)
    if (ordered, min(table.values())) not in (tutorial, *authors) or len(set(table.values())) != len(table):
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
    found = [*(folder / name for name in NAMES if (folder / name).exists()), *sorted(folder.glob("WORDMAP*.json"))]
    return read_vocabulary(found[0]) if found else None


def numbered_words(size: int) -> Vocabulary:
    """For weights whose vocabulary is not at hand: words are named by their numbers."""
    return Vocabulary((*SPECIAL, *(f"<word-{i}>" for i in range(len(SPECIAL), size))))
