"""RefCOCO, GuessWhat and phrases of Entities: what is read, what is said of files that are missing or broken."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from photo_samples import make_photo, write
from referring_samples import DIALOG, NAME, REFS, guesswhat, refcoco, write_line

from saccade.core.errors import SaccadeError
from saccade.data import DataConfig, open_records
from saccade.data.records import Candidates, CaptionedPhotos, Referrals
from saccade.data.registry import DATA_SETS, recognise
from saccade.data.survey import split_counts


def opened(name: str, root: Path, split: str) -> Referrals[CaptionedPhotos]:
    found: Referrals[CaptionedPhotos] = open_records(DataConfig(name=name, root=root), split, "referring")
    return found


def test_refcoco_has_an_expression_for_every_sentence(tmp_path: Path) -> None:
    found = opened("refcoco", refcoco(tmp_path / "refcoco+"), "train")
    assert found.spoken == found.texts == ("man on the left", "guy")
    assert found.pictures.paths == (tmp_path / "refcoco+" / "images" / "train2014" / NAME,)
    assert found.candidates[0].boxes.tolist() == [[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]]
    assert found.candidates[0].categories == ("person", "dog")
    assert found.choices == ((0, 1), (0, 1))
    assert found.targets == (0, 0)
    assert opened("refcoco", tmp_path / "refcoco+", "testA").targets == (1,)
    assert found.dialogs == (False, False)


def test_of_two_cuts_a_split_says_whose_it_is(tmp_path: Path) -> None:
    root = refcoco(tmp_path, "umd", "google")
    assert opened("refcoco", root, "umd-train").texts == ("man on the left", "guy")
    with pytest.raises(SaccadeError, match=r"no split \"train\".*google-train, umd-testA"):
        opened("refcoco", root, "train")


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    root = refcoco(tmp_path, refs=[np.float64(3)])
    with pytest.raises(SaccadeError, match=r"refs\(unc\)\.p is refused: it wants to run numpy"):
        opened("refcoco", root, "train")
    (root / "refs(unc).p").write_bytes(pickle.dumps(REFS)[:50])
    with pytest.raises(SaccadeError, match=r"refs\(unc\)\.p is no list of expressions, or it is damaged"):
        opened("refcoco", root, "train")


def test_guesswhat_has_the_dialogs_that_led_to_the_thing(tmp_path: Path) -> None:
    found = opened("guesswhat", guesswhat(tmp_path, {"status": "failure"}, {"id": 4, "object_id": 7}), "dev")
    assert found.spoken == (("Is it a person? no", "the dog? yes"),) * 2
    assert found.targets == (1, 0)
    assert found.texts[0] == "Is it a person? no the dog? yes"
    assert found.dialogs == (True, True)
    assert found.candidates[0].categories == ("person", "dog")


def test_phrases_of_a_photo_choose_among_its_boxes_of_one_type(tmp_path: Path) -> None:
    """Two men and a woman, one box given twice; a group, a lone dog and what is not in the photo are no targets."""
    marks = [("1", "people", "A man"), ("2", "people", "a woman"), ("3", "animals", "a dog"), ("0", "notvisual", "fun")]
    more = [("1", "people", "The tall man"), ("4", "people", "two people"), ("5", "people", "a man")]

    def sentence(*phrases: tuple[str, str, str]) -> dict[str, Any]:
        text, marked = "", []
        for chain, kind, words in phrases:
            place = {"first_word": len(text.split()), "n_words": len(words.split())}
            marked.append({**place, "chain": chain, "types": [kind, "other"]})
            text += f"{words} . "
        return {"text": text.strip(), "phrases": marked}

    boxes = {"1": [[1, 1, 10, 20]], "2": [[20, 1, 30, 20]], "3": [[5, 5, 9, 9]], "5": [[31, 1, 40, 20]]}
    boxes["4"] = [*boxes["1"], *boxes["2"]]
    line = {"image": "a.jpg", "width": 40, "height": 20, "split": "train", "boxes": boxes, "scene": [], "nobox": []}
    write(
        tmp_path / "entities.jsonl.gz", write_line(line | {"sentences": [sentence(*marks), sentence(*more, marks[0])]})
    )
    make_photo(tmp_path / "images" / "a.jpg", 40, 20)
    found = opened("flickr8k", tmp_path, "train")
    assert found.texts == ("a man", "the tall man", "a woman", "a man")
    assert found.kinds == ("people",) * 4
    assert found.choices == ((0, 1, 2),) * 4
    assert found.targets == (0, 0, 1, 2)
    assert found.candidates[0].categories == ("people",) * 3 + ("animals",)
    np.testing.assert_allclose(found.candidates[0].boxes[1], [19 / 40, 0, 30 / 40, 1])


MISSING: list[tuple[str, Callable[[Path], Path], str, str]] = [
    ("refcoco", refcoco, "refs(unc).p", r"refs\(unc\)\.p is missing.*github.com/lichengunc/refer"),
    ("refcoco", refcoco, "instances.json", "instances.json"),
    ("refcoco", refcoco, f"images/train2014/{NAME}", f"{NAME} is missing"),
    ("guesswhat", guesswhat, "guesswhat.valid.jsonl.gz", "guesswhat.train.jsonl.gz is missing.*guesswhat.ai"),
    ("guesswhat", guesswhat, f"val2014/{NAME}", f"{NAME} is missing"),
]


@pytest.mark.parametrize(("name", "make", "file", "sentence"), MISSING)
def test_what_is_missing_is_named(
    name: str, make: Callable[[Path], Path], file: str, sentence: str, tmp_path: Path
) -> None:
    root = make(tmp_path)
    (root / file).unlink()
    with pytest.raises(SaccadeError, match=sentence):
        opened(name, root, "train" if name == "refcoco" else "val")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"object_id": 99}, "means the box 99, which is not there"),
        ({"qas": []}, "has no words"),
        ({"qas": 3}, '"qas" is 3, a list was expected'),
        ({"objects": [{"id": 7, "bbox": [0, 0, 90, 10], "category": "person"}]}, "leaves the picture"),
        ({"image": None}, "line 2"),
    ],
)
def test_broken_dialogs_are_refused_in_a_sentence(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    change = change if "objects" not in change else change | {"image": DIALOG["image"] | {"file_name": "other.jpg"}}
    with pytest.raises(SaccadeError, match=sentence):
        opened("guesswhat", guesswhat(tmp_path, change), "val")


def test_a_folder_is_known_by_its_files_and_counted(tmp_path: Path) -> None:
    for name, root, texts in (
        ("refcoco", refcoco(tmp_path / "a"), [2, 1]),
        ("guesswhat", guesswhat(tmp_path / "b"), [1]),
    ):
        row = recognise(root)
        assert row is DATA_SETS[name]
        faults: list[str] = []
        assert [own.questions for own in split_counts(row, root, faults)] == texts
        assert faults == []


def test_a_record_means_one_of_its_boxes() -> None:
    photos = CaptionedPhotos("toys", "train", ("a",), (Path("a.jpg"),), ("the cube",), np.array([0]))
    boxes = (Candidates(np.zeros((2, 4), np.float32), ("", "")),)
    for choices, target, sentence in (
        ((0, 1), 2, "means none of the boxes"),
        ((), 0, "means none of the boxes"),
        ((0, 5), 0, "boxes that its picture does not have"),
    ):
        with pytest.raises(SaccadeError, match=sentence):
            Referrals(photos, ("the cube",), boxes, (choices,), (target,), ("",))
    with pytest.raises(SaccadeError, match="need a category each"):
        Candidates(np.zeros((2, 4), np.float32), ("",))
