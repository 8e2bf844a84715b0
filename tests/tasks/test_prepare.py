"""A run whose words start from word vectors: `task.vectors`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rich.console import Console

from saccade.core.errors import SaccadeError
from saccade.data import open_split
from saccade.nn import WordEncoder
from saccade.training.run import run_config, run_parts

SETTINGS = ["data=world", "pictures=40", "limit=20", "dim=8", "word_dim=6", "min_count=1"]


def test_known_words_start_from_their_vectors_and_the_note_counts_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "glove.txt").write_text("the 1 2 3\nred 4 5 6\nzebra 7 8 9\n")
    plain = run_config("scan", SETTINGS)
    given = run_config("scan", [*SETTINGS, f"vectors={tmp_path / 'glove.txt'}"])
    train, dev = (open_split(plain.data, split) for split in ("train", "dev"))
    without, *_ = run_parts(plain, train, dev)
    model, *_ = run_parts(given, train, dev, console=Console())
    again, *_ = run_parts(given, train, dev)
    words = model.vocabulary.words
    assert f"word vectors: 2 of {len(words) - 4:,} words found, 3 numbers each" in capsys.readouterr().out
    assert isinstance(model.words, WordEncoder)
    table, start = model.words.embed.weight, without.words.embed.weight  # type: ignore[union-attr]
    rows = [words.index("the"), words.index("red")]
    assert table[rows, :3].tolist() == [[1, 2, 3], [4, 5, 6]]
    others = [n for n in range(len(words)) if n not in rows]
    torch.testing.assert_close(table[others], start[others])  # the vectors move no other number of a seeded start
    torch.testing.assert_close(again.state_dict(), model.state_dict())


def test_captioners_take_word_vectors_too(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("the 1 2 3\nred 4 5 6\n")
    config = run_config("updown", [*SETTINGS, "attention_dim=8", f"vectors={tmp_path / 'glove.txt'}"])
    train, dev = (open_split(config.data, split) for split in ("train", "dev"))
    model, *_ = run_parts(config, train, dev)
    assert model.words.weight[model.vocabulary.words.index("red"), :3].tolist() == [4, 5, 6]  # type: ignore[union-attr]


def test_vectors_wider_than_the_words_are_refused(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("the 1 2 3 4 5 6 7\n")
    config = run_config("vse", [*SETTINGS, f"vectors={tmp_path / 'glove.txt'}"])
    train, dev = (open_split(config.data, split) for split in ("train", "dev"))
    with pytest.raises(SaccadeError, match="word vectors of 7 numbers do not fit into word_dim=6: make it 7"):
        run_parts(config, train, dev)


def test_a_file_that_knows_no_word_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello world\n")
    config = run_config("vse", [*SETTINGS, f"vectors={tmp_path / 'notes.txt'}"])
    train, dev = (open_split(config.data, split) for split in ("train", "dev"))
    with pytest.raises(SaccadeError, match=r"notes.txt has a vector for none of the \d+ words of the captions"):
        run_parts(config, train, dev)
