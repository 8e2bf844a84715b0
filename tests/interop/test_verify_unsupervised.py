"""Unsupervised captioning from TensorFlow: every stage is reproduced, changes are caught, other files refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.batch import END, START, UNKNOWN
from saccade.core.errors import SaccadeError
from saccade.interop import IMPORTERS, verify
from saccade.interop.words import read_vocabulary


def copied(golden: Path, folder: Path, file: str, changes: dict[str, np.ndarray | None], prefix: str = "") -> None:
    """A golden file with other arrays; None leaves one out."""
    with np.load(golden / "unsupervised" / file) as stored:
        arrays = {k: v for k, v in {**stored, **changes}.items() if v is not None}
    np.savez(folder / f"{prefix}{file}", **arrays)


def test_what_is_stored_and_unknown_is_not_passed_over(golden: Path, tmp_path: Path) -> None:
    shutil.copy(golden / "unsupervised" / "tf_variables.npz", tmp_path / "b.tf_variables.npz")
    copied(golden, tmp_path, "io.npz", {"surprise": np.zeros(3)}, prefix="b.")
    (case,) = verify("unsupervised", tmp_path)
    assert [stage.stage for stage in case.stages if not stage.holds] == ["surprise (stored, never compared)"]


def test_official_words_keep_their_vectors_and_the_forget_gate_its_bias(golden: Path) -> None:
    imported = IMPORTERS["unsupervised"].read(golden / "unsupervised" / "tf_variables.npz")
    model, words = imported.model, imported.source.words
    assert words is not None
    with np.load(golden / "unsupervised" / "tf_variables.npz") as variables:
        embedding = torch.from_numpy(variables["Generator|embedding"])
        forget = torch.from_numpy(variables["Generator|basic_lstm_cell|bias"]).chunk(4)[2]
    ids = words.inputs
    assert ids.tolist()[:3] == [START, END, 4]
    assert ids[-1] == UNKNOWN
    assert sorted(ids.tolist()) == list(range(1, len(embedding) + 1))
    torch.testing.assert_close(model.embed.weight[ids], embedding)
    torch.testing.assert_close(model.cell.bias_ih.chunk(4)[1], forget + 1)


def test_the_official_word_list_is_a_vocabulary(golden: Path, tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(17)]
    (tmp_path / "word_counts.txt").write_text("\n".join(["<S> 9", "</S> 9", *(f"{w} 3" for w in words)]) + "\n")
    vocabulary = read_vocabulary(tmp_path / "word_counts.txt")
    model = IMPORTERS["unsupervised"](golden / "unsupervised" / "tf_variables.npz", vocabulary)
    assert model.vocabulary.words[4:] == tuple(words)
    (tmp_path / "other.txt").write_text("a 9\nthe 8\n")
    with pytest.raises(SaccadeError, match=r"other\.txt is no list of counted words"):
        read_vocabulary(tmp_path / "other.txt")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("Generator|embedding", None, 'no variable "Generator/embedding"'),
        ("Generator|softmax_b", np.zeros((2, 2), np.float32), "has 2 axes, 1 were expected"),
        ("Generator|basic_lstm_cell|kernel", np.zeros((23, 48), np.float32), "do not fit"),
        ("Discriminator|recon|weights", np.zeros((5, 12), np.float32), "do not fit"),
    ],
)
def test_other_files_are_refused(
    golden: Path, tmp_path: Path, name: str, value: np.ndarray | None, sentence: str
) -> None:
    copied(golden, tmp_path, "tf_variables.npz", {name: value})
    with pytest.raises(SaccadeError, match=sentence):
        IMPORTERS["unsupervised"](tmp_path / "tf_variables.npz")


def test_a_vocabulary_of_another_size_is_refused(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "word_counts.txt").write_text("<S> 9\n</S> 9\ndog 3\n")
    with pytest.raises(SaccadeError, match="knows 20 words, the vocabulary 4 without <pad>"):
        IMPORTERS["unsupervised"](
            golden / "unsupervised" / "tf_variables.npz", read_vocabulary(tmp_path / "word_counts.txt")
        )
