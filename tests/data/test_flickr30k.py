"""Flickr30k by Karpathy's file, and by the token file with the lists of Entities."""

from __future__ import annotations

from pathlib import Path

import pytest
from photo_samples import SENTENCES, entities_published, karpathy_folder, make_photo, write

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.entities import open_entity_boxes
from saccade.data.datasets.photos.flickr import open_flickr30k


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
