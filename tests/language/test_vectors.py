"""Word vectors: every layout of a text file, the table of a package, and one sentence for what is broken."""

from __future__ import annotations

import gzip
import hashlib
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.core.errors import SaccadeError
from saccade.core.pretrained import PRETRAINED, Pretrained, WheelFile
from saccade.language import load_vectors, vectors

GLOVE = "the 0.5 -1 2\ndog 1 2 3\nMädchen 4 5 6\nmädchen 7 8 9\n. . . 0 0 1\n\x85 1 1 1\n"
WORDS = ["dog", "Mädchen", "MÄDCHEN", "zebra", ". . ."]


def write(path: Path, text: str = GLOVE) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("glove.3d.txt", text)
            archive.writestr("README", "hello")
    else:
        path.write_text(text, encoding="utf-8", newline="\n")
    return path


@pytest.mark.parametrize("name", ["glove.txt", "glove.txt.gz", "glove.zip", "cc.de.vec"])
@pytest.mark.parametrize("head", ["", "6 3\n"])
def test_a_text_file_gives_the_words_asked_for_in_their_order(tmp_path: Path, name: str, head: str) -> None:
    found = load_vectors(write(tmp_path / name, head + GLOVE), WORDS)
    assert found.words == ("dog", "Mädchen", "MÄDCHEN", ". . .")
    assert found.missing == ("zebra",)
    np.testing.assert_array_equal(found.matrix, np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 0, 1]], np.float32))
    assert found.matrix.dtype == np.float32
    assert found.describe() == "word vectors: 4 of 5 words found, 3 numbers each"


def test_lines_with_spaces_or_carriage_returns_at_their_end_are_read(tmp_path: Path) -> None:
    found = load_vectors(write(tmp_path / "a.vec", "1 2\r\ndog 1 2 \r\ncat 3 4 \r\n"), ["cat"])
    np.testing.assert_array_equal(found.matrix, [[3, 4]])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("dog 1 2 3\ncat 1 2\n", "line 2: 2 numbers, the lines before have 3"),
        ("dog 1 x 3\n", 'line 1: the vector of "dog" holds something that is not a number'),
        ("cat 1 1 1\ndog 1 nan 3\n", 'line 2: the vector of "dog" holds NaN'),
        ("dog 1 1e99 3\n", 'line 1: the vector of "dog" holds NaN or infinity'),
        ("", "holds no word vectors"),
        ("5 3\n", "holds no word vectors"),
        ("dog\n", "line 1: a word and its numbers were expected"),
    ],
)
def test_a_broken_line_is_named_by_its_number(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence) as caught:
        load_vectors(write(tmp_path / "glove.txt", text), ["dog"])
    assert "glove.txt" in str(caught.value)


def test_broken_files_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("dog 1 2\nmädchen 1 2\n".encode("latin-1"))
    with pytest.raises(SaccadeError, match=r"latin.txt, after line \d+: not UTF-8"):
        load_vectors(tmp_path / "latin.txt", ["dog"])
    cut = write(tmp_path / "cut.txt.gz", GLOVE * 1000)
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(SaccadeError, match="cut short or damaged"):
        load_vectors(cut, ["dog"])
    (tmp_path / "no.txt.gz").write_text("plain")
    with pytest.raises(SaccadeError, match=r"no.txt.gz, after line 0: the compressed file"):
        load_vectors(tmp_path / "no.txt.gz", ["dog"])
    (tmp_path / "no.zip").write_text("plain")
    with pytest.raises(SaccadeError, match="not a zip archive"):
        load_vectors(tmp_path / "no.zip", ["dog"])
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("glove.50d.txt", GLOVE)
        archive.writestr("glove.100d.txt", GLOVE)
    with pytest.raises(SaccadeError, match=r"one .txt or .vec file, there is glove.50d.txt, glove.100d.txt"):
        load_vectors(tmp_path / "two.zip", ["dog"])
    with pytest.raises(SaccadeError, match=r"missing.txt does not exist"):
        load_vectors(tmp_path / "missing.txt", ["dog"])
    with pytest.raises(SaccadeError, match='no word vectors "glove-6b-5d"; did you mean "glove-6b-50d"'):
        load_vectors("glove-6b-5d", ["dog"])


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_vectors_or_one_sentence(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "any.txt"
    path.write_bytes(content)
    with suppress(SaccadeError):
        assert np.isfinite(load_vectors(path, ["a", "0", ""]).matrix).all()


def carried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table like the package's, in a package of its own whose code must not run."""
    data = folder / "toy_glove" / "data"
    data.mkdir(parents=True)
    (folder / "toy_glove" / "__init__.py").write_text("raise RuntimeError('this code was run')")
    np.save(data / "toy.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    pq.write_table(pa.table({"index": ["the", "dog", "n't"]}), data / "toy.parquet")
    files = tuple(
        WheelFile(name, hashlib.sha256((data / name).read_bytes()).hexdigest(), (data / name).stat().st_size)
        for name in ("toy.npy", "toy.parquet")
    )
    toy = Pretrained("toy", "a toy", "MIT", "toy-glove", "1.0", 1, "toy_glove/data", files)
    monkeypatch.setitem(PRETRAINED, "toy", toy)
    monkeypatch.setattr(vectors, "TABLES", ["toy"])
    return data


def test_the_table_of_a_package_is_found_without_running_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = carried(tmp_path, monkeypatch)
    monkeypatch.delenv("SACCADE_WEIGHTS", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    found = load_vectors("toy", ["Dog", "zebra", "n't"])
    assert (found.words, found.missing) == (("Dog", "n't"), ("zebra",))
    np.testing.assert_array_equal(found.matrix, [[2, 3], [4, 5]])
    assert "toy_glove" not in sys.modules
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(tmp_path)])
    with pytest.raises(SaccadeError, match=r"`saccade weights get toy` .* put toy.npy and toy.parquet in"):
        load_vectors("toy", ["dog"])
    monkeypatch.setenv("SACCADE_WEIGHTS", str(data))
    assert load_vectors("toy", ["dog"]).words == ("dog",)
