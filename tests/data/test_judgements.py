"""People's judgements of captions, in Flickr8k's tables."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.judgements import CROWD, EXPERTS, read_judgements

EXPERT_HEADER = "image\tcaption_id\tscore1\tscore2\tscore3\n"
CROWD_HEADER = "image\tcaption_id\tfrac_yes\tn_yes\tn_no\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"{photo}.jpg\t{n}\tcaption {n} of {photo}\n" for photo in "ab" for n in range(2)]
    write(tmp_path / "captions.tsv.gz", "image\tn\tcaption\n" + "".join(rows))
    write(tmp_path / EXPERTS, EXPERT_HEADER + "a.jpg\tb.jpg#1\t1\t2\t4\na.jpg\ta.jpg#0\t4\t4\t4\n")
    write(tmp_path / CROWD, CROWD_HEADER + "b.jpg\ta.jpg#0\t0.25\t1\t3\nb.jpg\tz.jpg#0\t0\t0\t3\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode()))


def test_a_caption_of_another_photo_meets_the_captions_of_this_one(folder: Path) -> None:
    experts, crowd = read_judgements(folder)
    (row,) = experts.rows
    assert (row.image, row.caption, row.scores) == ("a.jpg", "caption 1 of b", (1, 2, 4))
    assert row.references == ("caption 0 of a", "caption 1 of a")
    assert crowd.rows[0].scores == (0.25,)


def test_own_captions_and_missing_ones_are_left_out_and_counted(folder: Path) -> None:
    experts, crowd = read_judgements(folder)
    assert (experts.own, experts.unknown) == (1, 0)
    assert (crowd.own, crowd.unknown) == (0, 1)


def test_missing_captions_may_lie_in_another_folder(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write(other / "captions.tsv.gz", "image\tn\tcaption\nz.jpg\t0\ta zebra\n")
    crowd = read_judgements(folder, [other])[1]
    assert crowd.unknown == 0
    assert crowd.rows[1].caption == "a zebra"


def test_one_of_the_two_files_is_enough(folder: Path) -> None:
    (folder / EXPERTS).unlink()
    assert [judged.kind for judged in read_judgements(folder)] == ["crowd"]
    (folder / CROWD).unlink()
    with pytest.raises(SaccadeError, match="holds no judgements"):
        read_judgements(folder)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (EXPERT_HEADER + "a.jpg\tb.jpg\t1\t2\t3\n", "line 2: the caption is 'b.jpg', photo.jpg#n was expected"),
        (EXPERT_HEADER + "a.jpg\tb.jpg#1\t1\ttwo\t3\n", "line 2: score2 is 'two'"),
        (EXPERT_HEADER + "a.jpg\tb.jpg#1\t1\tnan\t3\n", "line 2: score2 is 'nan'"),
        (EXPERT_HEADER + "a.jpg\tb.jpg#1\t1\t2\n", "line 2: 4 columns"),
        (CROWD_HEADER, "line 1: the columns are"),
        (EXPERT_HEADER, "none of its 0 judgements"),
        (EXPERT_HEADER + "a.jpg\ta.jpg#0\t1\t1\t1\n", "none of its 1 judgements"),
    ],
)
def test_mistakes_in_a_table_are_named(folder: Path, text: str, expected: str) -> None:
    write(folder / EXPERTS, text)
    with pytest.raises(SaccadeError) as error:
        read_judgements(folder)
    assert expected in str(error.value)


def test_captions_are_needed(folder: Path) -> None:
    (folder / "captions.tsv.gz").unlink()
    with pytest.raises(SaccadeError, match=r"captions\.tsv\.gz is missing"):
        read_judgements(folder)
