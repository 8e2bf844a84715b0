"""Captions to score and captions to score against, in every format that holds them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from saccade.core.errors import SaccadeError
from saccade.data.formats.captions import pair_captions, read_caption_results

COCO = {
    "info": {"year": 2014},
    "type": "captions",
    "images": [{"id": 7, "file_name": "seven.jpg"}, {"id": 9, "file_name": "nine.jpg"}],
    "annotations": [
        {"id": 1, "image_id": 7, "caption": "a dog"},
        {"id": 2, "image_id": 9, "caption": "a cat"},
        {"id": 3, "image_id": 7, "caption": "one dog"},
    ],
}
KARPATHY = {
    "dataset": "coco",
    "images": [{"filename": "seven.jpg", "cocoid": 7, "sentences": [{"raw": "a dog"}, {"raw": "one dog"}]}],
}


def write(path: Path, content: Any) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content.encode()))
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("name", "content", "asked"),
    [
        ("coco.json", COCO, ("7", "seven.jpg", "val2014/seven.jpg")),
        ("karpathy.json", KARPATHY, ("7", "seven.jpg")),
        ("plain.json", {"7": ["a dog", "one dog"]}, ("7",)),
        ("lines.jsonl", '{"image": "7", "text": "a dog"}\n{"image_id": 7, "caption": "one dog"}\n', ("7",)),
        ("groups.jsonl.gz", '{"image_id": 7, "captions": ["a dog", "one dog"]}\n', ("7",)),
        ("captions.tsv", "image\tn\tcaption\nseven.jpg\t0\ta dog\nseven.jpg\t1\tone dog\n", ("seven.jpg",)),
        ("Flickr8k.token.txt", "seven.jpg#0\ta dog\nseven.jpg#1\tone dog\n", ("seven.jpg",)),
    ],
)
def test_every_format_gives_the_captions_of_a_picture(
    tmp_path: Path, name: str, content: Any, asked: tuple[str, ...]
) -> None:
    found = read_caption_results(write(tmp_path / name, content))
    for image in asked:
        assert found.of(image) == ["a dog", "one dog"]
    assert found.of("eight.jpg") is None
    assert not {"type", "dataset"} & found.texts.keys()  # words about the file are of no picture


def test_results_meet_their_references_by_id_or_by_file_name(tmp_path: Path) -> None:
    references = read_caption_results(write(tmp_path / "captions.json", COCO))
    for image in (7, "7", "seven.jpg"):
        results = read_caption_results(write(tmp_path / "r.json", [{"image_id": image, "caption": "a wolf"}]))
        assert list(pair_captions(results, references).values()) == [("a wolf", ["a dog", "one dog"])]


def test_a_picture_of_coco_is_found_by_its_number_where_files_are_named(tmp_path: Path) -> None:
    references = read_caption_results(write(tmp_path / "captions.json", {"000000000007.jpg": ["a dog", "one dog"]}))
    results = read_caption_results(write(tmp_path / "r.json", [{"image_id": 7, "caption": "a wolf"}]))
    assert list(pair_captions(results, references).values()) == [("a wolf", ["a dog", "one dog"])]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([{"image_id": 8, "caption": "a"}], 'captions.json has no captions of the picture "8"'),
        ([{"image_id": 7, "caption": "a"}, {"image_id": 7, "caption": "b"}], '2 captions of the picture "7"'),
        ([{"caption": "a"}], 'item 0: "image_id"'),
        ([{"image_id": True, "caption": "a"}], 'item 0: "image_id"'),
        ([{"image_id": 7, "caption": 5}], 'item 0: "caption"'),
        ([5], "item 0 is 5"),
        ([], "holds no captions"),
        ({"info": {}}, "holds no captions"),
        ("{", "results.json"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, content: Any, expected: str) -> None:
    references = read_caption_results(write(tmp_path / "captions.json", COCO))
    path = write(tmp_path / "results.json", content)
    with pytest.raises(SaccadeError) as error:
        pair_captions(read_caption_results(path), references)
    assert expected in str(error.value)
