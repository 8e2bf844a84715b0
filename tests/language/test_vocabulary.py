"""The words a model knows: ids that never move, and a clear word on those it does not know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from saccade.batch import UNKNOWN
from saccade.core.errors import SaccadeError
from saccade.core.files import write_json
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL

CAPTIONS = ["A dog runs.", "a Dog sleeps.", "the cat and the dog", "žluťoučký kůň, žluťoučký kůň"]


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary.build(CAPTIONS, min_count=2)


def test_words_come_by_frequency_and_ties_by_alphabet(vocabulary: Vocabulary) -> None:
    assert vocabulary.words == (*SPECIAL, "dog", ".", "a", "kůň", "the", "žluťoučký")


def test_the_order_of_captions_does_not_matter(vocabulary: Vocabulary) -> None:
    assert Vocabulary.build(reversed(CAPTIONS), min_count=2) == vocabulary


def test_rare_words_are_left_out_by_the_official_threshold() -> None:
    assert "dog" in Vocabulary.build(["dog"] * 4)
    assert "dog" not in Vocabulary.build(["dog"] * 3)
    assert len(Vocabulary.build([])) == len(SPECIAL)


def test_a_caption_is_framed_and_its_unknown_words_are_marked(vocabulary: Vocabulary) -> None:
    ids, words = vocabulary.encode("A zebra and the DOG.")
    assert words == ["<start>", "a", "zebra", "and", "the", "dog", ".", "<end>"]
    assert [vocabulary.words[i] for i in ids] == ["<start>", "a", "<unk>", "<unk>", "the", "dog", ".", "<end>"]
    assert ids[2] == UNKNOWN
    assert vocabulary.unknown("A zebra and the DOG.") == ["zebra", "and"]


def test_special_words_cannot_be_written_into_a_caption(vocabulary: Vocabulary) -> None:
    ids, _ = vocabulary.encode("<end> dog")
    assert ids[1:-1].count(vocabulary.words.index("<end>")) == 0


def test_a_batch_holds_every_caption_with_its_words(vocabulary: Vocabulary) -> None:
    batch = vocabulary.batch(["the dog", "a dog."])
    assert batch.lengths.tolist() == [4, 5]
    assert [len(words) for words in batch.words] == batch.lengths.tolist()
    assert batch.tokens[0, :4].tolist() == vocabulary.encode("the dog")[0]


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_an_empty_caption_is_refused(vocabulary: Vocabulary, text: str) -> None:
    with pytest.raises(SaccadeError, match="the text is empty: give at least one word"):
        vocabulary.encode(text)
    with pytest.raises(SaccadeError, match="the text is empty"):
        vocabulary.check(text)


@pytest.mark.parametrize("text", [".", "?!", "--"])
def test_a_caption_of_punctuation_is_empty_though_the_full_stop_is_known(vocabulary: Vocabulary, text: str) -> None:
    with pytest.raises(SaccadeError, match="the text is empty"):
        vocabulary.check(text)


@pytest.mark.parametrize("text", ["zebra", "striped zebra.", "x-ray", "斑马"])
def test_a_caption_of_unknown_words_only_is_refused(vocabulary: Vocabulary, text: str) -> None:
    with pytest.raises(SaccadeError) as caught:
        vocabulary.check(text)
    assert str(caught.value) == f'the model knows none of the words of "{text}"'


def test_unknown_words_beside_known_ones_are_reported(vocabulary: Vocabulary) -> None:
    assert vocabulary.check("a striped dog!") == ["striped", "!"]
    assert vocabulary.check("a dog") == []


def test_a_vocabulary_comes_back_from_its_file(vocabulary: Vocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path / "vocabulary.json")
    assert Vocabulary.load(tmp_path / "vocabulary.json") == vocabulary
    assert "žluťoučký" in (tmp_path / "vocabulary.json").read_text(encoding="utf-8")


def test_the_official_file_is_read_by_its_ids_not_its_order(tmp_path: Path) -> None:
    words = (*SPECIAL, "a", "man", "woman", "``", "'s")
    table = {word: i for i, word in reversed(list(enumerate(words)))}
    official = {"word2idx": table, "idx2word": {str(i): word for word, i in table.items()}, "idx": len(words)}
    write_json(tmp_path / "vocab.json", official)
    vocabulary = Vocabulary.load(tmp_path / "vocab.json")
    assert vocabulary.words == words
    assert vocabulary.encode('a man\'s "woman"')[0] == [1, 4, 5, 8, 7, 6, UNKNOWN, 2]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"words": ["a", "b"]}, "a vocabulary begins with <pad> <start> <end> <unk>, not a b"),
        ({"words": [*SPECIAL, "a", "b", "a"]}, "a vocabulary holds each word once"),
        ({"words": []}, "a vocabulary begins with"),
        ({"words": 3}, "is no vocabulary"),
        ({"words": "abc"}, "is no vocabulary"),
        ({"word2idx": {"<pad>": 0, "<start>": 2}}, "the ids of word2idx are not 0, 1, 2"),
        ({"word2idx": {"<pad>": 0, "<start>": 0}}, "the ids of word2idx are not 0, 1, 2"),
        ({"word2idx": {"<pad>": 0, "<start>": "1"}}, "the ids of word2idx are not 0, 1, 2"),
        ({"word2idx": {"a": 0}}, "a vocabulary begins with"),
        ({}, "is no vocabulary"),
        ([1], "is no vocabulary"),
        (None, "is no vocabulary"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused_by_name(value: Any, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps(value))
    with pytest.raises(SaccadeError, match=sentence) as caught:
        Vocabulary.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
