"""Sentences from all kinds of files, for the pictures that are there."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from photo_samples import COCO_LINE, write_karpathy
from toy_pictures import make_pictures, write_store

from saccade.core.errors import SaccadeError
from saccade.data import Caption, write_captions
from saccade.data.datasets.photos.karpathy import KarpathyImage, KarpathySentence
from saccade.data.formats.captions import captions_of, read_caption_results
from saccade.data.formats.collection import open_collection

IDS = ["holiday/a.jpg", "b.jpg"]


def test_every_kind_gives_the_sentences_of_the_pictures_that_are_there(tmp_path: Path) -> None:
    write_captions(tmp_path / "captions.jsonl", [Caption(n, f"a {n}", "train") for n in ("a.jpg", "b.jpg", "z.jpg")])
    images = [KarpathyImage(n, "train", (KarpathySentence(f"a {n}"),)) for n in ("a.jpg", "b.jpg", "z.jpg")]
    write_karpathy(tmp_path / "dataset.json", images)
    expected = (Caption("holiday/a.jpg", "a a.jpg", "train"), Caption("b.jpg", "a b.jpg", "train"))
    assert captions_of(tmp_path / "captions.jsonl", IDS) == expected
    assert captions_of(tmp_path / "dataset.json", IDS) == expected

    names = ("a.jpg", "b.jpg", "z.jpg")
    annotations = [{"image_id": n, "caption": text} for n, text in ((1, "two"), (0, "one"), (2, "x"))]
    coco = {"images": [{"id": n, "file_name": name} for n, name in enumerate(names)], "annotations": annotations}
    (tmp_path / "captions_val.json").write_text(json.dumps(coco))
    found = captions_of(tmp_path / "captions_val.json", IDS)
    assert found == (Caption("holiday/a.jpg", "one"), Caption("b.jpg", "two"))
    (tmp_path / "t.token").write_text("b.jpg#0\tA dog .\nz.jpg#0\tNo .\nb.jpg#1\t \nb.jpg#2\tTwo dogs .\n")
    assert [c.text for c in captions_of(tmp_path / "t.token", IDS)] == ["A dog .", "Two dogs ."]
    lines = [{**COCO_LINE, "image": name, "captions": ["One .", "Two ."]} for name in ("a.jpg", "z.jpg")]
    (tmp_path / "annotations.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = captions_of(tmp_path / "annotations.jsonl", IDS)
    assert found == tuple(Caption("holiday/a.jpg", text, "val2017") for text in ("One .", "Two ."))


TABLES = {
    "named.csv": 'image,caption\r\na.jpg,"One, ""two"" .\nThree"\r\n\r\nb.jpg,Four\r\n',
    "nameless.csv": 'a.jpg,"One, ""two"" .\nThree"\nb.jpg,Four\n',
    "captions.txt": 'image,caption\na.jpg,"One, ""two"" .\nThree"\nb.jpg,Four\n',
    "more.csv": 'Split,Caption,by,Image\n,"One, ""two"" . Three",me,a.jpg\n,Four,you,b.jpg',
    "captions.tsv": 'image\tn\tcaption\na.jpg\t0\tOne, "two" . Three\nb.jpg\t0\tFour\n',
    "nameless.tsv": 'a.jpg\t0\tOne, "two" . Three\nb.jpg\t0\tFour\n',
    "two.tsv": 'a.jpg\tOne, "two" . Three\nb.jpg\tFour\n',
    "lines.tsv": 'a.jpg#0\tOne, "two" . Three\nb.jpg#0\tFour\n',
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("zipped", [False, True])
def test_tables_are_read_wherever_captions_are(tmp_path: Path, name: str, zipped: bool) -> None:
    path = tmp_path / (f"{name}.gz" if zipped else name)
    content = b"\xef\xbb\xbf" + TABLES[name].encode()  # as spreadsheets begin a file
    path.write_bytes(gzip.compress(content) if zipped else content)
    wanted = (Caption("holiday/a.jpg", 'One, "two" . Three'), Caption("b.jpg", "Four"))
    assert captions_of(path, IDS) == wanted
    found = read_caption_results(path)
    assert found.texts == {"a.jpg": ['One, "two" . Three'], "b.jpg": ["Four"]}
    store = write_store(tmp_path / "store", [replace(p, id=id) for p, id in zip(make_pictures(2), IDS, strict=True)])
    assert open_collection(store, captions=path).captions == wanted


def test_a_table_may_name_splits(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    for text in ("image,caption,split\na.jpg,One,train\nb.jpg,Two,\n", "a.jpg,One,train\nb.jpg,Two,\n"):
        path.write_text(text)
        assert [(c.image, c.split) for c in captions_of(path, IDS)] == [("holiday/a.jpg", "train"), ("b.jpg", None)]
    path = tmp_path / "c.tsv"
    path.write_text("image\tcaption\tsplit\nb.jpg\tTwo\tdev\n")
    assert captions_of(path, IDS) == (Caption("b.jpg", "Two", "dev"),)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (
            "c.csv",
            "image,caption\na.jpg,One, two\n",
            r"line 2: 3 columns, 2 were expected \(a caption with a comma",
        ),
        ("c.csv", 'image,caption\na.jpg,"One\n', r"c\.csv, line 2: not comma-separated as expected"),
        ("c.csv", "a.jpg\nb.jpg\n", r"c\.csv, line 1: 1 columns, image,caption\[,split\] was expected"),
        ("c.csv", "a.jpg,0,One,x,y\n", "captions come as a table"),
        ("c.csv", "image,caption\n ,One\n", r"c\.csv, line 2: no picture is named"),
        ("c.tsv", "image\tn\tcaption\na.jpg\tOne\n", r"c\.tsv, line 2: 2 columns, 3 were expected"),
        (
            "c.xlsx",
            "PK",
            "table .*captions.jsonl, Karpathy's .*COCO's .*annotations.jsonl, or lines",
        ),
        ("c.json", "[1]", "captions come as a table"),
        ("c.json", '{"a": 1}', "captions come as a table"),
        ("c.csv", "image,caption\na.jpg,B\xe4r\n", r"c\.csv.* is not UTF-8 text"),
    ],
)
def test_what_is_no_table_of_captions_gets_a_sentence(tmp_path: Path, name: str, content: str, told: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode("latin-1"))
    store = write_store(tmp_path / "store", make_pictures(2))
    for read in (lambda: captions_of(path, IDS), lambda: open_collection(store, captions=path)):
        with pytest.raises(SaccadeError, match=told) as error:
            read()
        assert "\n" not in str(error.value)


def test_a_file_about_other_pictures_is_refused(tmp_path: Path) -> None:
    write_captions(tmp_path / "c.jsonl", [Caption("z.jpg", "z")])
    with pytest.raises(SaccadeError, match=r'none of the 2 pictures: it names "z\.jpg", the first is "holiday/'):
        captions_of(tmp_path / "c.jsonl", IDS)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(SaccadeError, match="it is empty"):
        captions_of(tmp_path / "empty.jsonl", IDS)
    coco = {"images": [{"id": 0, "file_name": "b.jpg"}], "annotations": [{"image_id": 1, "caption": "two"}]}
    (tmp_path / "c.json").write_text(json.dumps(coco))
    with pytest.raises(SaccadeError, match="names the picture 1, which is not in the file"):
        captions_of(tmp_path / "c.json", IDS)
