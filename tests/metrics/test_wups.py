"""WUPS on a taxonomy of six nouns made here, and what it needs of WordNet's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.core.errors import SaccadeError
from saccade.language.wordnet import Nouns, load_nouns, read_nouns
from saccade.metrics.answers import score_answers
from saccade.metrics.wups import wups, wups_scores

# entity ─ thing ─ seat ─ chair, stool;  thing ─ box ─ carton (also called case)
DATA = """  1 the licence
00000001 03 n 01 entity 0 001 ~ 00000002 n 0000 | that which is
00000002 03 n 01 thing 0 001 @ 00000001 n 0000 | it
00000003 03 n 01 seat 0 001 @ 00000002 n 0000 | to sit on
00000004 03 n 01 chair 0 002 @ 00000003 n 0000 + 00000009 v 0101 | with a back
00000005 03 n 01 stool 0 001 @i 00000003 n 0000 | without
00000006 03 n 01 box 0 001 @ 00000002 n 0000 | with a lid
00000007 03 n 02 carton 0 case 0 001 @ 00000006 n 0000 | of paper
"""
INDEX = """  1 the licence
entity n 1 1 ~ 1 0 00000001
thing n 1 1 @ 1 0 00000002
seat n 1 1 @ 1 0 00000003
chair n 1 2 @ + 1 0 00000004
stool n 1 1 @i 1 0 00000005
box n 1 1 @ 1 0 00000006
carton n 1 1 @ 1 0 00000007
case n 1 1 @ 1 0 00000007
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.noun").write_text(DATA)
    (tmp_path / "index.noun").write_text(INDEX)
    (tmp_path / "noun.exc").write_text("oxboxes box\n")
    return tmp_path


@pytest.fixture
def nouns(folder: Path) -> Nouns:
    return read_nouns(folder)


def test_nouns_are_near_by_the_depth_of_what_they_both_are(nouns: Nouns) -> None:
    assert nouns.similarity("chair", "stool") == pytest.approx(2 * 3 / (4 + 4))
    assert nouns.similarity("chair", "carton") == pytest.approx(2 * 2 / (4 + 4))
    assert nouns.similarity("chair", "seat") == pytest.approx(2 * 3 / (4 + 3))
    assert nouns.similarity("carton", "case") == 1.0
    assert nouns.similarity("chair", "zebra") == 0.0


def test_forms_have_the_sets_of_their_base(nouns: Nouns) -> None:
    assert nouns.of("Chairs") == nouns.of("chair") == (4,)
    assert nouns.of("boxes") == nouns.of("oxboxes") == (6,)
    assert nouns.of("") == nouns.of("s") == ()


def test_of_two_ways_up_the_nearest_ancestor_is_taken() -> None:
    """A chair is also furniture, right below the root: the ancestor deepest by its shortest way counts."""
    nouns = Nouns({"chair": (4,), "stool": (5,), "furniture": (8,)}, {2: (1,), 3: (2,), 4: (3, 8), 5: (3, 8), 8: (1,)})
    assert nouns.similarity("chair", "stool") == pytest.approx(2 * 3 / (2 * 3 + 2))
    assert nouns.similarity("chair", "furniture") == pytest.approx(2 * 2 / (2 * 2 + 1))


def test_what_is_below_the_threshold_counts_a_tenth(nouns: Nouns) -> None:
    assert wups("stool", "chair", nouns, threshold=0.9) == pytest.approx(0.075)
    assert wups("stool", "chair", nouns, threshold=0.0) == pytest.approx(0.75)
    assert wups("case", "carton", nouns, threshold=0.9) == 1.0
    assert wups("zebra", "zebra", nouns) == 1.0
    assert wups("zebra", "chair", nouns, threshold=0.0) == 0.0


def test_sets_are_compared_both_ways(nouns: Nouns) -> None:
    assert wups("case, chair", "chair, carton", nouns) == 1.0
    assert wups("chair", "chair, stool", nouns, threshold=0.0) == pytest.approx(0.75)
    assert wups("chair, stool", "chair", nouns, threshold=0.0) == pytest.approx(0.75)
    assert wups("", "chair", nouns, threshold=0.0) == 0.0


def test_both_thresholds_are_scored(nouns: Nouns) -> None:
    scores = score_answers(["stool", "box"], [["chair"], ["box"]], wups_scores(nouns))
    assert {name: found.tolist() for name, found in scores.items()} == {
        "wups_0.9": pytest.approx([0.075, 1.0]),
        "wups_0.0": pytest.approx([0.75, 1.0]),
    }
    with pytest.raises(SaccadeError, match="one truth, there are 2"):
        score_answers(["box"], [["box", "carton"]], wups_scores(nouns))


def test_a_folder_without_the_nouns_says_where_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"no index.noun and data.noun.*pip install saccade\[wordnet\]"):
        load_nouns(str(tmp_path))
    assert load_nouns("none") is None


@pytest.mark.parametrize("line", ["00000001 03 n zz entity 0 000 | x", "00000001 03", "one 03 n 01 entity 0 000"])
def test_a_broken_line_is_named(folder: Path, line: str) -> None:
    (folder / "data.noun").write_text(DATA + line + "\n")
    with pytest.raises(SaccadeError, match=r"data\.noun, line 9"):
        read_nouns(folder)


def test_a_circle_ends(folder: Path) -> None:
    (folder / "data.noun").write_text(DATA.replace("001 ~ 00000002", "001 @ 00000004"))
    assert 0 < read_nouns(folder).similarity("chair", "stool") <= 1
