# mypy: disable-error-code="attr-defined,no-untyped-call"
"""Word vectors: GloVe and fastText text files, read line by line, and tables that PyPI packages carry (GloVe, MiniLM).

Only the words wanted are kept, so a file of any size costs the memory of a vocabulary. A word is looked for as it is
written and then in lower case.
"""

from __future__ import annotations

import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
import pyarrow.parquet as pq
from jaxtyping import Float32
from pyarrow import ArrowException
from safetensors import safe_open

from saccade.core.arrays import map_npy
from saccade.core.errors import SaccadeError, did_you_mean, explain_os_errors
from saccade.core.files import Bounded
from saccade.core.pretrained import find_pretrained
from saccade.language.wordpieces import greedy_pieces

TABLES = ["glove-6b-50d", "minilm"]  # by name, as PyPI packages carry them
ENDINGS = (".txt", ".vec", ".gz", ".zip")


@dataclass(frozen=True)
class WordVectors:
    """The vectors found: row n of `matrix` belongs to `words[n]`."""

    words: tuple[str, ...]
    matrix: Float32[np.ndarray, "word dim"]
    missing: tuple[str, ...]

    @property
    def dim(self) -> int:
        return int(self.matrix.shape[1])

    def describe(self) -> str:
        """E.g. `word vectors: 2,310 of 2,540 words found, 50 numbers each`."""
        total = len(self.words) + len(self.missing)
        return f"word vectors: {len(self.words):,} of {total:,} words found, {self.dim} numbers each"


def check_vectors(name: str) -> None:
    """Raises: SaccadeError if there are no word vectors of this name: to be known before anything takes long."""
    if name in TABLES:
        find_pretrained(name)
    elif not Path(name).exists():
        if Path(name).suffix in ENDINGS:
            raise SaccadeError(f"{name} does not exist: a file of word vectors was expected")
        raise SaccadeError(
            f'there are no word vectors "{name}"{did_you_mean(name, TABLES)} '
            f"(there are: {', '.join(TABLES)}, and files that end in {', '.join(ENDINGS)})"
        )


def load_vectors(name_or_path: str | Path, words: Iterable[str]) -> WordVectors:
    """The vectors of `words` from a table by name ("glove-6b-50d") or a text file (.txt, .vec, also .gz or .zip)."""
    wanted = tuple(dict.fromkeys(words))
    name = str(name_or_path)
    check_vectors(name)
    if name == "minilm":
        found, dim = _from_pieces(name, wanted)
    elif name in TABLES:
        found, dim = _from_table(name, wanted)
    else:
        found, dim = _from_text(Path(name), wanted)
    rows = {word: found[form] for word in wanted for form in (word.lower(), word) if form in found}  # exact wins
    kept = tuple(word for word in wanted if word in rows)
    matrix = np.stack([rows[word] for word in kept]) if kept else np.zeros((0, dim), dtype=np.float32)
    return WordVectors(kept, matrix, tuple(word for word in wanted if word not in rows))


def _forms(words: Iterable[str]) -> set[str]:
    return {form for word in words for form in (word, word.lower())}


def _from_pieces(name: str, words: Iterable[str]) -> tuple[dict[str, np.ndarray], int]:
    """What a transformer starts from: the mean over a word's pieces, so that nearly every word has a vector."""
    weights, *_, listed = find_pretrained(name)
    with explain_os_errors(listed, "read"):
        row = {piece: n for n, piece in enumerate(listed.read_text("utf-8").splitlines())}
    with safe_open(weights, framework="numpy") as file:
        matrix = file.get_tensor("embeddings.word_embeddings.weight")
    rows = {form: [row[piece] for piece in _pieces(form, row)] for form in _forms(words)}
    return {form: matrix[own].mean(axis=0, dtype=np.float32) for form, own in rows.items() if own}, matrix.shape[1]


def _pieces(word: str, known: Container[str]) -> list[str]:
    """The whole word, or the pieces of its parts between punctuation marks; none if a part has none."""
    if word in known:
        return [word]
    parts = [greedy_pieces(run, known) for run in re.findall(r"\w+|[^\w\s]", word)]
    return [piece for part in parts for piece in part] if all(parts) else []


def _from_table(name: str, words: Iterable[str]) -> tuple[dict[str, np.ndarray], int]:
    matrix_path, index_path = find_pretrained(name)
    with explain_os_errors(index_path, "read"):
        try:
            column = pq.read_table(index_path).column(0).to_pylist()
        except (ArrowException, IndexError) as error:
            raise SaccadeError(f"{index_path} is cut short or is not a parquet file") from error
    matrix = map_npy(matrix_path)
    if matrix.ndim != 2 or matrix.dtype.kind != "f" or len(matrix) != len(column):
        raise SaccadeError(f"{matrix_path} has shape {list(matrix.shape)}, but {index_path} names {len(column)} words")
    forms = _forms(words)
    found = {word: np.asarray(matrix[n], dtype=np.float32) for n, word in enumerate(column) if word in forms}
    return found, int(matrix.shape[1])


def _from_text(path: Path, words: Iterable[str]) -> tuple[dict[str, np.ndarray], int]:
    """Lines of a word and its numbers; a first line of two whole numbers (word2vec, fastText) is passed over."""
    forms, found, dim = _forms(words), dict[str, np.ndarray](), 0
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        pieces = line.rstrip("\r\n ").split(" ")
        if number == 1 and len(pieces) == 2 and all(p.isdecimal() for p in pieces):
            continue
        if not dim:
            dim = len(pieces) - 1
            if dim < 1:
                raise SaccadeError(f"{where}: a word and its numbers were expected")
        if len(pieces) <= dim:
            raise SaccadeError(f"{where}: {len(pieces) - 1} numbers, the lines before have {dim}")
        word = " ".join(pieces[:-dim])  # a few words of GloVe's 840B hold spaces
        if word not in forms or word in found:
            continue
        try:
            with np.errstate(over="ignore"):
                vector = np.array([float(p) for p in pieces[-dim:]]).astype(np.float32)
        except ValueError:
            raise SaccadeError(f'{where}: the vector of "{word}" holds something that is not a number') from None
        if not np.isfinite(vector).all():
            raise SaccadeError(f'{where}: the vector of "{word}" holds NaN or infinity')
        found[word] = vector
    if not dim:
        raise SaccadeError(f"{path} holds no word vectors: lines of a word and its numbers were expected")
    return found, dim


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    with explain_os_errors(path, "read"):
        try:
            with _stream(path) as stream:
                # Only a line feed ends a line: GloVe has words that are other line ends.
                for number, line in enumerate(io.TextIOWrapper(stream, encoding="utf-8", newline="\n"), start=1):
                    yield number, line
        except UnicodeDecodeError as error:
            raise SaccadeError(f"{path}, after line {number}: not UTF-8 text") from error
        except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile, NotImplementedError, RuntimeError) as error:
            raise SaccadeError(f"{path}, after line {number}: the compressed file is cut short or damaged") from error


@contextmanager
def _stream(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of the text, out of whatever packing."""
    if path.suffix == ".gz":
        with gzip.open(path, "rb") as stream:
            yield io.BufferedReader(Bounded(cast("IO[bytes]", stream), path))
    elif path.suffix == ".zip":
        try:
            archive = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            raise SaccadeError(f"{path} is cut short or is not a zip archive") from error
        with archive:
            inside = [n for n in archive.namelist() if n.endswith((".txt", ".vec")) and not n.startswith("__MACOSX")]
            if len(inside) != 1:
                names = ", ".join(inside) or "none"
                raise SaccadeError(f"{path} must hold one .txt or .vec file, there is {names}: unpack it and name one")
            with archive.open(inside[0]) as stream:
                yield io.BufferedReader(Bounded(stream, path))
    else:
        with path.open("rb") as stream:
            yield stream
