"""Taking pairs apart: pictures here, sentences there; corrupted sentences; the concepts that sentences name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from saccade.batch import END, PAD, START, TextBatch
from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedImages
from saccade.language import Vocabulary
from saccade.tasks.unpaired_captioning.task import concept_table, corrupt, keywords, take_apart


class Pictures:
    ids = tuple(f"p{i}" for i in range(4))

    def __len__(self) -> int:
        return 4

    def batch(self, indices: object) -> object:
        raise AssertionError("no picture is needed")


def split() -> CaptionedImages:
    return CaptionedImages("toy", "train", Pictures(), tuple("abcdefgh"), np.repeat(np.arange(4), 2))  # type: ignore[arg-type]


def test_no_sentence_describes_a_picture_that_is_shown() -> None:
    data = split()
    pictures, texts = take_apart(data, 0.5)
    assert (pictures, texts) == ([0, 1], [4, 5, 6, 7])
    assert not {int(data.image_of_text[text]) for text in texts} & set(pictures)
    for share in (0.0, 1.0):
        with pytest.raises(SaccadeError, match=f"share={share} of the 4 pictures of toy/train leaves no"):
            take_apart(data, share)


def sentences() -> TextBatch:
    return TextBatch.of([[START, 4, 5, 6, 7, 8, 9, END], [START, 10, END], [START, 4, 4, 11, END]])


def test_corruption_without_shuffle_and_loss_changes_nothing() -> None:
    words, mask = corrupt(sentences(), shuffle=-1.0, drop=0.0)
    assert words.tolist() == [[4, 5, 6, 7, 8, 9, END], [10, END, *[PAD] * 5], [4, 4, 11, END, *[PAD] * 3]]
    assert mask.tolist() == [[True] * 7, [True] * 2 + [False] * 5, [True] * 4 + [False] * 3]


def test_words_stay_near_and_the_end_is_last() -> None:
    torch.manual_seed(0)
    whole = TextBatch.of([[START, *range(4, 24), END]] * 200)
    words, mask = corrupt(whole, shuffle=3.0, drop=0.1)
    lengths = mask.sum(dim=1)
    assert (words.gather(1, lengths[:, None] - 1) == END).all()
    assert (words == END).sum() == 200
    assert 17 < float(lengths.float().mean()) - 1 < 19  # a tenth of twenty words is lost
    moved, _ = corrupt(whole, shuffle=3.0, drop=0.0)
    places = moved[:, :-1] - 4 - torch.arange(20)
    assert int(places.abs().max()) == 3
    assert (moved[:, :-1].sort(dim=1).values == torch.arange(4, 24)).all()


def test_all_words_may_be_lost_but_not_the_end() -> None:
    words, mask = corrupt(sentences(), shuffle=3.0, drop=1.0)
    assert words.tolist() == [[END]] * 3
    assert mask.all()


def test_keywords_are_the_concepts_that_a_sentence_names() -> None:
    torch.manual_seed(0)
    known = torch.zeros(12, dtype=torch.bool)
    known[[5, 7, 4]] = True
    words, mask = keywords(sentences(), known)
    assert [sorted(row[real].tolist()) for row, real in zip(words, mask, strict=True)] == [[4, 5, 7], [], [4, 4]]
    none, empty = keywords(sentences(), torch.zeros(12, dtype=torch.bool))
    assert none.shape == (3, 1)
    assert not empty.any()


def test_concepts_become_word_ids_where_they_are_single_words(vocabulary: Vocabulary, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "concepts.jsonl"
    path.write_text(
        '{"image": "p0", "concepts": {"cube": 0.5, "ball": 0.9, "zebra": 1.0, "a cone": 0.8}}\n'
        '{"image": "p2", "concepts": {"Cone": 0.7, "cube": 0.6, "ball": 0.3}}\n'
    )
    table = concept_table(split(), [0, 1, 2], vocabulary.batch, str(path), most=2)
    ids = {word: i for i, word in enumerate(vocabulary.words)}
    assert table.words.tolist() == [[ids["ball"], ids["cube"]], [PAD, PAD], [ids["cone"], ids["cube"]]]
    torch.testing.assert_close(table.scores, torch.tensor([[0.9, 0.5], [0.0, 0.0], [0.7, 0.6]]))
    assert concept_table(split(), [0, 1], vocabulary.batch, "none").scores.tolist() == [[0.0], [0.0]]
    path.write_text('{"image": "p0", "concepts": {"zebra": 1.0}}\n')
    with pytest.raises(SaccadeError, match="none of the 1 concepts found in toy/train is a word of the sentences"):
        concept_table(split(), [0], vocabulary.batch, str(path))
