"""The bottom-up-attention TSV: the reference's bytes in, the same bytes out, and bad lines named by number."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from toy_pictures import make_pictures

from saccade.core.errors import SaccadeError
from saccade.data.formats.tsv import BottomUpTsv, TsvRow, parse_line, write_tsv

GOLDEN = Path(__file__).parents[1] / "golden" / "bottomup"


def test_the_references_file_is_read_exactly() -> None:
    arrays = np.load(GOLDEN / "sample_decoded.npz")
    rows = list(BottomUpTsv(GOLDEN / "sample.tsv").rows())
    assert len(rows) == 3
    for n, row in enumerate(rows):
        assert (row.id, row.width, row.height) == tuple(
            kind(arrays[f"img{n}_image_{key}"]) for key, kind in (("id", str), ("w", int), ("h", int))
        )
        np.testing.assert_array_equal(row.boxes, arrays[f"img{n}_boxes"])
        np.testing.assert_array_equal(row.features, arrays[f"img{n}_features"])


def test_writing_what_was_read_gives_the_references_bytes(tmp_path: Path) -> None:
    write_tsv(tmp_path / "again.tsv", BottomUpTsv(GOLDEN / "sample.tsv").rows())
    assert (tmp_path / "again.tsv").read_bytes() == (GOLDEN / "sample.tsv").read_bytes()


def test_line_feeds_alone_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "unix.tsv").write_bytes((GOLDEN / "sample.tsv").read_bytes().replace(b"\r\n", b"\n").rstrip())
    unix, golden = BottomUpTsv(tmp_path / "unix.tsv"), BottomUpTsv(GOLDEN / "sample.tsv")
    for n in range(3):
        np.testing.assert_array_equal(unix.get(n).features, golden.get(n).features)


def test_any_picture_is_found_without_reading_those_before() -> None:
    file = BottomUpTsv(GOLDEN / "sample.tsv")
    assert file.ids == ("391895", "522418", "184613")
    assert file.dim == 64
    assert file.region_counts().tolist() == [10, 67, 100]
    for n, picture in enumerate(file):
        found = file.get(n)
        np.testing.assert_array_equal(found.features, picture.features)
        np.testing.assert_array_equal(found.boxes, picture.boxes)
    batch = file.batch([2, 0])
    assert batch.ids == ("184613", "391895")
    assert batch.mask.sum(1).tolist() == [100, 10]


def test_boxes_are_fractions_of_the_picture_and_return_to_pixels() -> None:
    for row in BottomUpTsv(GOLDEN / "sample.tsv").rows():
        picture = row.picture()
        assert picture.boxes.min() >= 0
        assert picture.boxes.max() <= 1
        np.testing.assert_allclose(TsvRow.of(picture).boxes, row.boxes, rtol=3e-7)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_row_round_trips(data: st.DataObject) -> None:
    count, dim = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    numbers = st.floats(width=32, allow_nan=False)
    row = TsvRow(
        data.draw(st.text("abc0123 é_-.", min_size=1)),
        data.draw(st.integers(1, 5000)),
        data.draw(st.integers(1, 5000)),
        data.draw(hnp.arrays(np.float32, (count, 4), elements=numbers)),
        data.draw(hnp.arrays(np.float32, (count, dim), elements=numbers)),
    )
    again = parse_line(row.line(), "here")
    assert (again.id, again.width, again.height) == (row.id, row.width, row.height)
    np.testing.assert_array_equal(again.boxes, row.boxes)
    np.testing.assert_array_equal(again.features, row.features)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_mutated_line_gives_a_picture_or_one_sentence(data: st.DataObject) -> None:
    line = bytearray(data.draw(st.sampled_from((GOLDEN / "sample.tsv").read_bytes().split(b"\r\n")[:3])))
    near = 60  # most of a line is base64: change its head and its tail as often as the middle
    places = st.integers(0, near) | st.integers(len(line) - near, len(line) - 1) | st.integers(0, len(line) - 1)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(places)
        piece = data.draw(
            st.binary(max_size=12) | st.sampled_from([b"\t", b"9" * 30, b"\xff", b"=", b"-1", b"1e9", b"\0"])
        )
        line[at : at + data.draw(st.integers(0, 12))] = piece
    try:
        picture = parse_line(bytes(line), "here, line 1").picture("here, line 1")
        assert len(picture.boxes) == len(picture.features)
    except SaccadeError as error:
        if not str(error).startswith("here, line 1: "):
            raise


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=20), min_size=6, max_size=10))
def test_any_columns_give_a_picture_or_one_sentence(columns: list[bytes]) -> None:
    with suppress(SaccadeError):
        parse_line(b"\t".join(columns), "here").picture()


def test_lxmerts_ten_columns_give_the_same_pictures_with_scores(tmp_path: Path) -> None:
    lines = []
    for row in BottomUpTsv(GOLDEN / "sample.tsv").rows():
        id, width, height, count, boxes, features = row.line().rstrip().split(b"\t")
        scores = base64.b64encode(np.linspace(0.2, 1, len(row.boxes), dtype="<f4").tobytes())
        whole = base64.b64encode(np.arange(len(row.boxes), dtype="<i8").tobytes())
        more = b"\t".join([whole, scores, whole, scores])
        lines.append(b"\t".join([id, height, width, more, count, boxes, features]) + b"\n")
    (tmp_path / "lxmert.tsv").write_bytes(b"".join(lines))
    ten, six = BottomUpTsv(tmp_path / "lxmert.tsv"), BottomUpTsv(GOLDEN / "sample.tsv")
    assert ten.ids == six.ids
    for a, b in zip(ten, six, strict=True):
        np.testing.assert_array_equal(a.features, b.features)
        np.testing.assert_array_equal(a.boxes, b.boxes)
        assert (a.width, a.height) == (b.width, b.height)
        assert a.scores is not None
        assert len(a.scores) == len(a.boxes)
    (tmp_path / "bad.tsv").write_bytes(lines[0].replace(lines[0].split(b"\t")[4], b"AAAA" * 4, 1))
    with pytest.raises(SaccadeError, match="num_boxes is 10, but there are 3 scores"):
        next(iter(BottomUpTsv(tmp_path / "bad.tsv")))


def _spoil(column: int, value: bytes) -> Callable[[list[bytes]], list[bytes]]:
    def change(columns: list[bytes]) -> list[bytes]:
        columns[column] = value
        return columns

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_spoil(5, b"!!!!"), "the features column is not valid base64"),
        (_spoil(4, b"b'AAAA'"), "Python's b'…'"),
        (_spoil(5, b"AAAAA"), "the features column is not valid base64"),
        (_spoil(5, b"AAAA"), "3 bytes, a whole number of float32"),
        (_spoil(3, b"66"), "num_boxes is 66, but the boxes column holds 268 numbers, not 264"),
        (_spoil(5, base64.b64encode(bytes(4 * 68))), "68 numbers of the features column do not divide by 67"),
        (_spoil(5, base64.b64encode(bytes(4 * 67))), "features of width 1, the lines before have 64"),
        (_spoil(5, b""), "0 numbers of the features column"),
        (_spoil(3, b"many"), "num_boxes is 'many', a whole number"),
        (_spoil(1, b"-3"), "image_w is '-3'"),
        (_spoil(1, b"9" * 5000), "image_w is '99999999999999999999', a whole number"),
        (_spoil(2, b"0"), "480×0 pixels"),
        (_spoil(0, b""), "image_id is empty"),
        (_spoil(0, b"\xff"), "image_id is not UTF-8"),
        (lambda columns: columns[:5], "5 columns, 6 were expected (image_id, image_w"),
        (lambda columns: [], "1 columns, 6 were expected"),
        (_spoil(5, base64.b64encode(np.full((67, 64), np.nan, "<f4").tobytes())), "features hold NaN"),
        (_spoil(4, base64.b64encode(np.full((67, 4), 9e3, "<f4").tobytes())), "a box leaves the picture of 480×640"),
        (_spoil(4, base64.b64encode(np.full((67, 4), np.nan, "<f4").tobytes())), "leaves the picture"),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(
    tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], sentence: str
) -> None:
    lines = (GOLDEN / "sample.tsv").read_bytes().split(b"\r\n")
    lines[1] = b"\t".join(change(lines[1].split(b"\t")))
    path = tmp_path / "bad.tsv"
    path.write_bytes(b"\r\n".join(lines))
    with pytest.raises(SaccadeError, match=r"bad.tsv, line 2: ") as error:
        list(BottomUpTsv(path))
    assert sentence in str(error.value)


def test_a_file_cut_short_in_a_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.tsv"
    path.write_bytes((GOLDEN / "sample.tsv").read_bytes()[:-1001])
    with pytest.raises(SaccadeError, match="line 3"):
        list(BottomUpTsv(path).rows())


def test_missing_empty_and_doubled(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"none.tsv does not exist"):
        len(BottomUpTsv(tmp_path / "none.tsv"))
    (tmp_path / "empty.tsv").write_bytes(b"")
    with pytest.raises(SaccadeError, match=r"empty.tsv is empty"):
        len(BottomUpTsv(tmp_path / "empty.tsv"))
    (tmp_path / "twice.tsv").write_bytes((GOLDEN / "sample.tsv").read_bytes() * 2)
    with pytest.raises(SaccadeError, match="occurs 2 times"):
        len(BottomUpTsv(tmp_path / "twice.tsv"))


def test_what_a_tsv_cannot_say_is_refused_and_nothing_is_written(
    tmp_path: Path, full_disk: Callable[[int], None]
) -> None:
    picture = make_pictures(1, regions=2)[0]
    with pytest.raises(SaccadeError, match="no known size"):
        TsvRow.of(type(picture)(picture.id, picture.features, picture.boxes))
    bad = TsvRow("a\tb", 3, 3, picture.boxes, picture.features)
    with pytest.raises(SaccadeError, match="cannot stand in a TSV column"):
        write_tsv(tmp_path / "out.tsv", [TsvRow.of(picture), bad])
    full_disk(1)
    with pytest.raises(SaccadeError, match="the disk is full"):
        write_tsv(tmp_path / "out.tsv", [TsvRow.of(picture)])
    assert not list(tmp_path.iterdir())
