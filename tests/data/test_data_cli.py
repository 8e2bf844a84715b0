"""`saccade data info|convert|check`, as a user meets them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from photo_samples import write_karpathy
from toy_pictures import folder_bytes, make_pictures, write_store
from typer.testing import CliRunner, Result

from saccade.cli.data import app
from saccade.core.errors import SaccadeError
from saccade.data import Caption, DataConfig, FeatureStore, write_captions
from saccade.data.datasets.photos.karpathy import KarpathyImage, KarpathySentence
from saccade.features import open_split

GOLDEN = Path(__file__).parents[1] / "golden" / "bottomup"


def saccade_data(*words: object) -> Result:
    result = CliRunner().invoke(app, [str(w) for w in words], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = write_store(tmp_path / "store", make_pictures(6, regions=3))
    captions = [Caption(f"picture-{i}", f"{i} {n}", "test" if i > 3 else "train") for i in range(6) for n in range(2)]
    write_captions(folder / "captions.jsonl", captions)
    return folder


def karpathy(path: Path, names: list[str]) -> Path:
    images = [
        KarpathyImage(n + ".jpg", "test", (KarpathySentence(f"a {n}"), KarpathySentence(f"the {n}"))) for n in names
    ]
    write_karpathy(path, images)
    return path


def test_info_knows_each_kind(tmp_path: Path, store: Path) -> None:
    output = saccade_data("info", store).output
    for words in ("feature store", "pictures", "6", "float32", "test", "train (8 captions), test (4 captions)"):
        assert words in output
    output = saccade_data("info", GOLDEN / "sample.tsv").output
    for words in ("bottom-up-attention TSV", "10 to 100, mean 59.0", "64"):
        assert words in output
    saccade_data("convert", store, tmp_path / "p", "--to", "precomp")
    output = saccade_data("info", tmp_path / "p").output
    assert "split train" in output
    assert "boxes" in output
    output = saccade_data("info", karpathy(tmp_path / "d.json", ["a", "b"])).output
    assert "Karpathy" in output
    assert "test (2 pictures)" in output


def test_info_says_what_it_cannot_recognise(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match="neither a feature store"):
        saccade_data("info", tmp_path)
    with pytest.raises(SaccadeError, match="does not exist"):
        saccade_data("info", tmp_path / "nothing")
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(SaccadeError, match="of no known kind"):
        saccade_data("info", tmp_path / "a.txt")


def test_tsv_with_karpathy_captions_becomes_a_trainable_store(tmp_path: Path) -> None:
    names = karpathy(tmp_path / "d.json", ["391895", "522418", "184613"])
    result = saccade_data(
        "convert",
        GOLDEN / "sample.tsv",
        tmp_path / "s",
        "--captions",
        names,
        "--dtype",
        "float16",
        "--extractor",
        "bottomup",
    )
    assert "3 pictures written" in result.output
    data = open_split(DataConfig("store", tmp_path / "s"), "test")
    assert data.images.ids == ("391895", "522418", "184613")
    assert data.extractor == "bottomup"
    assert [len(t) for t in data.texts_of_image] == [2, 2, 2]
    assert data.texts[:2] == ("a 391895", "the 391895")


def test_store_to_precomp_and_back_keeps_everything(tmp_path: Path, store: Path) -> None:
    saccade_data("convert", store, tmp_path / "p", "--to", "precomp")
    saccade_data("convert", tmp_path / "p", tmp_path / "again")
    first, again = FeatureStore.open(store), FeatureStore.open(tmp_path / "again")
    assert again.ids == first.ids
    assert again.captions() == first.captions()
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.features, b.features)
        np.testing.assert_array_equal(a.boxes, b.boxes)
        assert (a.width, a.height) == (b.width, b.height)


def test_store_to_tsv_and_back_keeps_features(tmp_path: Path, store: Path) -> None:
    saccade_data("convert", store, tmp_path / "x.tsv", "--to", "tsv")
    saccade_data("convert", store, tmp_path / "y.tsv")
    assert (tmp_path / "y.tsv").read_bytes() == (tmp_path / "x.tsv").read_bytes()
    saccade_data("convert", tmp_path / "x.tsv", tmp_path / "again")
    first, again = FeatureStore.open(store), FeatureStore.open(tmp_path / "again")
    assert again.ids == first.ids
    np.testing.assert_array_equal(first.batch(range(6)).features, again.batch(range(6)).features)
    np.testing.assert_allclose(first.batch(range(6)).boxes, again.batch(range(6)).boxes, atol=1e-6)


def test_only_the_split_asked_for(tmp_path: Path, store: Path) -> None:
    saccade_data("convert", store, tmp_path / "t", "--split", "test")
    assert FeatureStore.open(tmp_path / "t").ids == ("picture-4", "picture-5")
    assert {c.split for c in FeatureStore.open(tmp_path / "t").captions()} == {"test"}
    with pytest.raises(SaccadeError, match='no split "tets"; did you mean "test"'):
        saccade_data("convert", store, tmp_path / "u", "--split", "tets")
    assert not (tmp_path / "u").exists()


def test_a_conversion_that_was_cut_off_goes_on(tmp_path: Path, store: Path) -> None:
    whole = tmp_path / "whole"
    saccade_data("convert", store, whole)
    saccade_data("convert", store, tmp_path / "part", "--split", "train")
    result = saccade_data("convert", store, tmp_path / "part")
    assert "2 pictures written, 4 were there" in result.output
    assert folder_bytes(tmp_path / "part") == folder_bytes(whole)


def test_a_full_disk_during_conversion(tmp_path: Path, full_disk: Callable[[int], None], store: Path) -> None:
    full_disk(1)
    with pytest.raises(SaccadeError, match="the disk is full"):
        saccade_data("convert", store, tmp_path / "x.tsv", "--to", "tsv")
    assert not (tmp_path / "x.tsv").exists()


def test_refused_conversions(tmp_path: Path, store: Path) -> None:
    with pytest.raises(SaccadeError, match="both source and target"):
        saccade_data("convert", store, store)
    with pytest.raises(SaccadeError, match="has no captions"):
        saccade_data("convert", GOLDEN / "sample.tsv", tmp_path / "p", "--to", "precomp")
    with pytest.raises(SaccadeError, match="holds sentences but no features"):
        saccade_data("convert", karpathy(tmp_path / "d.json", ["a"]), tmp_path / "p")
    np.save(tmp_path / "test_ims.npy", np.zeros((2, 3, 4), dtype=np.float32))
    (tmp_path / "test_caps.txt").write_text("a\nb\n")
    with pytest.raises(SaccadeError, match="no known size"):
        saccade_data("convert", tmp_path, tmp_path / "x.tsv", "--to", "tsv")
    assert not (tmp_path / "x.tsv").exists()


def test_lost_boxes_are_noted_in_the_store(tmp_path: Path) -> None:
    np.save(tmp_path / "test_ims.npy", np.zeros((2, 3, 4), dtype=np.float32))
    (tmp_path / "test_caps.txt").write_text("a\nb\n")
    saccade_data("convert", tmp_path, tmp_path / "s", "--split", "test")
    assert "missing" in FeatureStore.open(tmp_path / "s").metadata["boxes"]
    assert "metadata: boxes" in saccade_data("info", tmp_path / "s").output


def test_check_is_content_with_sound_data(tmp_path: Path, store: Path) -> None:
    saccade_data("convert", store, tmp_path / "p", "--to", "precomp")
    for path in (store, tmp_path / "p", GOLDEN / "sample.tsv", karpathy(tmp_path / "d.json", ["a"])):
        result = saccade_data("check", path)
        assert "no problems" in result.output
        assert result.exit_code == 0


def test_check_lists_everything_that_is_wrong(tmp_path: Path, store: Path) -> None:
    shard = store / "shard-00001-000002.arrow"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    write_captions(store / "captions.jsonl", [Caption("picture-0", " ")])
    result = saccade_data("check", store)
    assert result.exit_code == 2
    assert "shard-00001-000002.arrow: the checksum differs" in result.output
    assert "caption 1 is empty" in result.output
    assert "2 problems" in result.output


def test_check_names_bad_rows_of_every_format(tmp_path: Path) -> None:
    images = np.zeros((3, 2, 4), dtype=np.float32)
    images[0, 0, 0], images[2, 0, 0] = np.nan, np.inf
    np.save(tmp_path / "dev_ims.npy", images)
    (tmp_path / "dev_caps.txt").write_text("a\n\nb\n")
    np.save(tmp_path / "test_ims.npy", np.zeros((2, 2, 4)))
    (tmp_path / "test_caps.txt").write_text("a\nb\nc\n")
    result = saccade_data("check", tmp_path)
    for words in ("picture 0 holds NaN", "picture 2 holds NaN", "line 2: the caption is empty", "3 captions for 2"):
        assert words in result.output
    assert (result.exit_code, "4 problems" in result.output) == (2, True)

    lines = (GOLDEN / "sample.tsv").read_bytes().split(b"\r\n")
    lines[0] += b"!"
    (tmp_path / "bad.tsv").write_bytes(b"\r\n".join([*lines[:3], lines[1], b""]))
    result = saccade_data("check", tmp_path / "bad.tsv")
    for words in ("line 1: the features column is not valid base64", "line 4: the picture", "2 problems"):
        assert words in result.output

    write_karpathy(
        tmp_path / "d.json", [KarpathyImage("a", "train", ()), KarpathyImage("a", "dev", (KarpathySentence(""),))]
    )
    result = saccade_data("check", tmp_path / "d.json")
    for words in ("no sentences", "empty sentence", 'split "dev"', "second time", "4 problems"):
        assert words in result.output


def test_check_stops_after_as_many_as_asked(tmp_path: Path) -> None:
    np.save(tmp_path / "dev_ims.npy", np.full((9, 2, 4), np.nan))
    (tmp_path / "dev_caps.txt").write_text("a\n" * 9)
    output = saccade_data("check", tmp_path, "--most", 3).output
    assert output.count("holds NaN") == 3
    assert "more than 3 problems" in output
    output = saccade_data("check", tmp_path, "--most", 0).output
    assert output.count("holds NaN") == 9
    assert "9 problems" in output
