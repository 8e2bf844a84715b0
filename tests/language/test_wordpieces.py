from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import BertWordPieceTokenizer

from saccade.batch import END, START, UNKNOWN
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.language.wordpieces import MASK_ID, OFFICIAL, WordPieces, learn_pieces, read_pieces

CAPTIONS = (
    "Two skateboarders are skating near a café.",
    "A skater's board isn't red; the other one is!",
    "three bulldogs bark at a “bulldozer” (yellow), 2,500 kg",
    "a dog\u00a0on the grass… 狗 runs",
)


@pytest.fixture(scope="module")
def pieces() -> WordPieces:
    return learn_pieces(CAPTIONS, 180)


def bert(folder: Path, pieces: WordPieces, lower: bool = True) -> Path:
    """The folder of a BERT that knows these pieces, in an order of its own."""
    folder.mkdir()
    own = ["[unused0]", *pieces.words[MASK_ID + 1 :], *OFFICIAL]
    (folder / "vocab.txt").write_text("\n".join(own) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    return folder


def test_words_are_cut_as_tokenizers_cuts_them(pieces: WordPieces, tmp_path: Path) -> None:
    folder = bert(tmp_path / "bert", pieces)
    known, theirs = read_pieces(folder), BertWordPieceTokenizer(str(folder / "vocab.txt"))
    named = dict(zip(("<start>", "<end>", "<unk>"), ("[CLS]", "[SEP]", "[UNK]"), strict=True))
    for text in (*CAPTIONS, "unbelievably skatedogs", "ÀÉÎ œuvre ßtraße x" + 101 * "a"):
        assert [named.get(piece, piece) for piece in known.encode(text)[1]] == theirs.encode(text).tokens


def test_what_is_learned_is_the_same_every_time_and_writes_every_caption(pieces: WordPieces) -> None:
    assert learn_pieces(reversed(CAPTIONS), 180) == pieces
    assert len(pieces) <= 180
    assert pieces.unknown("is it a zebra?") == []  # written by its letters
    assert pieces.words[: MASK_ID + 1] == ("<pad>", "<start>", "<end>", "<unk>", "[MASK]")
    for text in CAPTIONS:
        ids, shown = pieces.encode(text)
        assert (ids[0], ids[-1]) == (START, END)
        assert UNKNOWN not in ids
        assert [pieces.id_of(piece) for piece in shown[1:-1]] == ids[1:-1]
    assert pieces.unknown("a жук") == ["жук"]


def test_pieces_are_saved_as_json_and_come_back(pieces: WordPieces, tmp_path: Path) -> None:
    pieces.save(tmp_path / "vocabulary.json")
    loaded = Vocabulary.load(tmp_path / "vocabulary.json")
    assert isinstance(loaded, WordPieces)
    assert loaded == pieces
    assert loaded.encode("two dogs") == pieces.encode("two dogs")


def test_a_tokeniser_as_json_holds_the_same_pieces_as_a_list(pieces: WordPieces, tmp_path: Path) -> None:
    folder = bert(tmp_path / "bert", pieces)
    listed = read_pieces(folder)
    order = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {p: n for n, p in enumerate(order)}}}))
    (folder / "vocab.txt").unlink()
    assert read_pieces(folder) == listed


def test_pieces_that_captions_use_write_them_alike(pieces: WordPieces) -> None:
    fewer = pieces.used_in(CAPTIONS[:1])
    assert len(fewer) < len(pieces)
    assert fewer.encode(CAPTIONS[0])[1] == pieces.encode(CAPTIONS[0])[1]
    assert UNKNOWN not in fewer.encode("bulldogs")[0]  # by its letters


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "has no vocabulary"),
        ({"vocab.txt": "a\nb\n"}, r"no vocabulary of a BERT: it has no \[PAD\]"),
        ({"tokenizer.json": "[]"}, "no tokeniser of word pieces"),
        ({"tokenizer.json": '{"model": {"vocab": {"a": 3}}}'}, "no tokeniser of word pieces"),
    ],
)
def test_a_folder_without_pieces_gets_a_sentence(files: dict[str, str], sentence: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(SaccadeError, match=sentence):
        read_pieces(tmp_path)


def test_an_empty_or_unknown_text_is_refused(pieces: WordPieces) -> None:
    with pytest.raises(SaccadeError, match="empty"):
        pieces.encode(" \t")
    with pytest.raises(SaccadeError, match="knows none of the words"):
        pieces.check("жук")
