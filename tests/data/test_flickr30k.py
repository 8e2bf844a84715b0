"""Flickr30k by Karpathy's file, and by the token file with the lists of Entities."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from photo_samples import (
    SENTENCES,
    entities_published,
    make_photo,
    read_or_refuse,
    spoiled_bytes,
    spoiled_values,
    write,
    write_karpathy,
)

from saccade.core.errors import SaccadeError
from saccade.data.datasets.entities import open_entity_boxes
from saccade.data.datasets.flickr import open_flickr30k
from saccade.data.datasets.karpathy import KarpathyImage, Sentence

IMAGES = [
    KarpathyImage(f"{name}.jpg", split, tuple(Sentence(f" {text} ") for text in SENTENCES), imgid=n)
    for n, (name, split) in enumerate({"1": "train", "2": "val", "3": "test"}.items())
]


def karpathy_folder(root: Path) -> Path:
    write_karpathy(root / "dataset_flickr30k.json", IMAGES)
    for image in IMAGES:
        make_photo(root / "flickr30k-images" / image.filename)
    return root


def test_karpathys_splits_with_their_photos(tmp_path: Path) -> None:
    root = karpathy_folder(tmp_path)
    data = open_flickr30k("train+dev", root)
    assert data.ids == ("1.jpg", "2.jpg")
    assert data.paths[1] == root / "flickr30k-images" / "2.jpg"
    assert data.texts == SENTENCES * 2
    assert data.image_of_text.tolist() == [0] * 5 + [1] * 5


def test_the_token_file_with_the_lists_of_entities(tmp_path: Path) -> None:
    root = entities_published(tmp_path)
    write(root / "val.txt", "b.jpg\n\n")
    make_photo(root / "flickr30k-images" / "b.jpg")
    write(
        root / "results_20130124.token", "".join(f"{n}.jpg#{i}\t{s}\n" for n in "ab" for i, s in enumerate(SENTENCES))
    )
    assert open_flickr30k("train", root).texts == SENTENCES
    assert open_flickr30k("dev", root).ids == ("b.jpg",)
    assert open_entity_boxes("train", root)[0].id == "a.jpg"


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    root = karpathy_folder(tmp_path)
    (root / "flickr30k-images" / "3.jpg").unlink()
    with pytest.raises(SaccadeError, match=r"3\.jpg is missing: .*dataset_flickr30k.json names it"):
        open_flickr30k("test", root)
    (root / "dataset_flickr30k.json").unlink()
    with pytest.raises(SaccadeError, match="has no sentences: Flickr30k is flickr30k-images/"):
        open_flickr30k("train", root)
    token = write(root / "results_20130124.token", "1.jpg#0\ta dog\n1.jpg a cat\n")
    with pytest.raises(SaccadeError, match=r"results_20130124.token, line 2: photo.jpg#0<TAB>sentence was expected"):
        open_flickr30k("train", root)
    token.write_text("1.jpg#0\ta dog\n")
    with pytest.raises(SaccadeError, match=r"train.txt is missing"):
        open_flickr30k("train", root)
    with pytest.raises(SaccadeError, match="is not a folder"):
        open_flickr30k("train", root / "flickr30k-images")


@pytest.mark.parametrize("text", ['{"images": ' + "[" * 200_000, '{"images": ' + "7" * 5000 + "}"])
def test_json_without_end_is_refused(tmp_path: Path, text: str) -> None:
    root = karpathy_folder(tmp_path)
    write(root / "dataset_flickr30k.json", text)
    with pytest.raises(SaccadeError, match=r"dataset_flickr30k.json"):
        open_flickr30k("train", root)


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    root = karpathy_folder(tmp_path)
    path = root / "dataset_flickr30k.json"
    path.write_text(path.read_text().replace("small dog", "small \\ud800"))
    with pytest.raises(SaccadeError, match="half a character"):
        open_flickr30k("train", root)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_spoiled_files_are_refused_in_a_sentence(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        root = karpathy_folder(Path(folder))
        path = root / "dataset_flickr30k.json"
        if data.draw(st.booleans()):
            path.write_text(json.dumps(data.draw(spoiled_values(json.loads(path.read_text())))))
        else:
            path.write_bytes(data.draw(spoiled_bytes(path.read_bytes())))
        read_or_refuse(lambda: open_flickr30k("train+val", root))
