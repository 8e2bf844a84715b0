"""WordNet's synonym sets from a folder of its data base, a small one made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.core.errors import SaccadeError
from saccade.language.wordnet import is_wordnet, read_wordnet

LICENCE = "  1 This is where the licence stands.  \n"
INDEX = {
    "noun": "bicycle n 1 2 @ ~ 1 1 02834778\nbike n 2 2 @ ~ 2 1 02834778 03790512\nmouse n 1 1 @ 1 0 02330245\n",
    "verb": "bike v 1 1 @ 1 0 01936753\nride v 1 1 @ 1 1 01955984\nsit v 1 0 1 1 01543123\n",
    "adj": "large a 1 1 & 1 1 01382086\nbig a 1 1 & 1 1 01382086\n",
    "adv": "big r 1 0 1 0 01382086\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part, lines in INDEX.items():
        (tmp_path / f"index.{part}").write_text(LICENCE + lines)
    (tmp_path / "noun.exc").write_text("mice mouse\n")
    (tmp_path / "verb.exc").write_text("rode ride\nsat sit\n")
    return tmp_path


def test_words_of_one_set_share_it(folder: Path) -> None:
    wordnet = read_wordnet(folder)
    assert wordnet.of("bicycle") & wordnet.of("bike")
    assert wordnet.of("large") & wordnet.of("big")
    assert not wordnet.of("bicycle") & wordnet.of("ride")


def test_the_same_number_in_two_parts_of_speech_is_two_sets(folder: Path) -> None:
    wordnet = read_wordnet(folder)
    assert len(wordnet.of("big")) == 2
    assert len(wordnet.of("large")) == 1


@pytest.mark.parametrize(
    ("form", "base"),
    [("bicycles", "bicycle"), ("mice", "mouse"), ("rode", "ride"), ("riding", "ride"), ("larger", "large")],
)
def test_a_form_has_the_sets_of_its_base(folder: Path, form: str, base: str) -> None:
    wordnet = read_wordnet(folder)
    assert wordnet.of(form) == wordnet.of(base)
    assert wordnet.of(base)


def test_unknown_words_are_in_no_set(folder: Path) -> None:
    wordnet = read_wordnet(folder)
    assert not wordnet.of("zebra")
    assert not wordnet.of("ss")
    assert not wordnet.of("")


def test_a_folder_is_known_by_its_files(folder: Path) -> None:
    assert is_wordnet(folder)
    (folder / "index.adv").unlink()
    assert not is_wordnet(folder)


def test_a_broken_line_is_named(folder: Path) -> None:
    (folder / "index.verb").write_text("ride v many 1\n")
    with pytest.raises(SaccadeError, match=r"index\.verb, line 1"):
        read_wordnet(folder)
    (folder / "index.verb").write_bytes(b"\xff\xfe")
    with pytest.raises(SaccadeError, match=r"index\.verb is not UTF-8"):
        read_wordnet(folder)
