"""LMDB feature files: values that are .npz or .npy bytes are read, pickles are refused unread."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import lmdb
import numpy as np
import pytest
import toy_arrays as toy
from test_data_cli import saccade_data
from test_npz import Explosive, assert_toy

from saccade.core.errors import SaccadeError
from saccade.data import FeatureStore
from saccade.data.formats.lmdb import LmdbPictures, is_lmdb
from saccade.data.formats.regions import read_sizes


def write(path: Path, values: Mapping[str, bytes], subdir: bool = False) -> Path:
    database = lmdb.open(str(path), subdir=subdir, map_size=1 << 24, lock=False)
    with database, database.begin(write=True) as transaction:
        for key, value in values.items():
            transaction.put(key.encode(), value)
    return path


def cocobu(folder: Path) -> Path:
    """ImageCaptioning.pytorch's dump_to_lmdb: the files of the folders as they are, and notes on the encoding."""
    notes = {"__keys__": pickle.dumps(Explosive()), "__key_dumps__": pickle.dumps(Explosive())}
    write(folder / "cocobu_box.lmdb", {id: toy.npy_bytes(toy.pixel_boxes(id)) for id in toy.IDS} | notes)
    return write(folder / "cocobu_att.lmdb", {id: toy.npz_bytes(feat=toy.features(id)) for id in toy.IDS} | notes)


def test_npz_values_with_the_boxes_in_the_database_beside(tmp_path: Path) -> None:
    pictures = LmdbPictures(cocobu(tmp_path), read_sizes(toy.write_sizes(tmp_path / "sizes.tsv")))
    assert_toy(pictures)
    assert_toy(pickle.loads(pickle.dumps(pictures)))  # it travels to a loader's worker


def test_uniters_compressed_database_is_a_folder_with_npz_in_its_keys(tmp_path: Path) -> None:
    values = {
        f"{id}.npz": toy.npz_bytes(
            features=toy.features(id), norm_bb=np.concatenate([toy.unit_boxes(id), toy.unit_boxes(id)[:, :2]], axis=1)
        )
        for id in toy.IDS
    }
    path = write(tmp_path / "feat_db", values | {"__keys__": b"[]"}, subdir=True)
    assert is_lmdb(path)
    assert_toy(LmdbPictures(path), sizes=False)


def test_pickled_values_are_refused_unread(tmp_path: Path) -> None:
    """MMF's and ViLBERT's: a pickled dictionary a picture, and a pickled list of keys."""
    path = write(tmp_path / "mmf.lmdb", {id: pickle.dumps(Explosive()) for id in toy.IDS} | {"keys": b"\x80\x03]."})
    with pytest.raises(SaccadeError, match=r'mmf.lmdb: picture "184613" holds pickled Python objects, .*formats.md'):
        LmdbPictures(path).get(0)
    result = saccade_data("check", path)
    assert "3 problems" in result.output


def test_broken_databases_are_refused_by_name(tmp_path: Path) -> None:
    path = cocobu(tmp_path)
    path.write_bytes(path.read_bytes()[:10000])
    assert is_lmdb(path)
    with pytest.raises(SaccadeError, match=r"cocobu_att.lmdb is cut short or is not an LMDB database"):
        LmdbPictures(path).get(0)
    with pytest.raises(SaccadeError, match=r"none.lmdb does not exist"):
        len(LmdbPictures(tmp_path / "none.lmdb"))
    with pytest.raises(SaccadeError, match="is empty"):
        len(LmdbPictures(write(tmp_path / "empty.lmdb", {"__keys__": b"[]"})))
    (tmp_path / "short.lmdb").write_bytes(b"short")
    assert not is_lmdb(tmp_path / "short.lmdb")
    with pytest.raises(SaccadeError, match="cut short"):
        len(LmdbPictures(tmp_path / "short.lmdb"))
    with pytest.raises(SaccadeError, match=r'picture "a" is cut short or is not a .npz or .npy'):
        LmdbPictures(write(tmp_path / "text.lmdb", {"a": b"hello"})).get(0)
    with pytest.raises(SaccadeError, match="two keys name the same picture"):
        len(LmdbPictures(write(tmp_path / "twice.lmdb", {"a": b"1", "a.npz": b"1"})))


def test_a_picture_without_boxes_is_named(tmp_path: Path) -> None:
    write(tmp_path / "x_box.lmdb", {"b": toy.npy_bytes(np.zeros((2, 4), np.float32))})
    path = write(tmp_path / "x_att.lmdb", {"a": toy.npz_bytes(feat=np.zeros((2, 3)))})
    with pytest.raises(SaccadeError, match=r'the boxes of .* picture "a" is missing'):
        LmdbPictures(path).arrays(0)


def test_the_commands_know_lmdb(tmp_path: Path) -> None:
    path = cocobu(tmp_path)
    toy.write_sizes(tmp_path / "sizes.tsv")
    for words in ("LMDB", "3, the first is 184613", "kept"):
        assert words in saccade_data("info", path).output
    assert "no problems" in saccade_data("check", path).output
    saccade_data("convert", path, tmp_path / "store")
    store = FeatureStore.open(tmp_path / "store")
    np.testing.assert_allclose(store.get(0).boxes, toy.unit_boxes(store.ids[0]), atol=1e-6)
