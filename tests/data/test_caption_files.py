"""Sentences from five kinds of files, for the pictures that are there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from photo_samples import COCO_LINE, write_karpathy

from saccade.core.errors import SaccadeError
from saccade.data import Caption, write_captions
from saccade.data.datasets.karpathy import KarpathyImage, KarpathySentence
from saccade.data.formats.captions import captions_of

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
