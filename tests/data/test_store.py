"""The feature store gives back what was put in, row by row, and says what is wrong with a damaged one."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from toy_pictures import make_pictures, write_store

from saccade.core.errors import SaccadeError
from saccade.data import Caption, FeatureStore, StoreWriter, write_captions

sizes = st.floats(0, 1, width=32)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_come_back_as_they_were(tmp_path: Path, dtype: str) -> None:
    pictures = make_pictures(11)
    store = FeatureStore.open(write_store(tmp_path / "s", pictures, dtype=dtype))
    assert store.ids == tuple(p.id for p in pictures)
    assert (len(store), store.dim, store.extractor, store.dtype) == (11, 6, "test", dtype)
    for expected, found in zip(pictures, store, strict=True):
        np.testing.assert_array_equal(found.features, expected.features.astype(dtype))
        np.testing.assert_array_equal(found.boxes, expected.boxes)
        assert (found.id, found.width, found.height) == (expected.id, expected.width, expected.height)
        assert (found.scores is None) == (expected.scores is None)
        if expected.scores is not None:
            np.testing.assert_array_equal(found.scores, expected.scores)
    np.testing.assert_array_equal(store.region_counts(), [len(p.features) for p in pictures])
    store.verify()


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_ragged_pictures_round_trip(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("any") / "s"
    counts = data.draw(st.lists(st.integers(0, 4), max_size=9))
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    features = [data.draw(hnp.arrays(np.float32, (n, 3), elements=finite)) for n in counts]
    corners = [data.draw(hnp.arrays(np.float32, (n, 2, 2), elements=sizes)) for n in counts]
    names = data.draw(st.lists(st.text(min_size=1), min_size=len(counts), max_size=len(counts), unique=True))
    names = [n.encode("utf-8", "replace").decode() for n in names]
    if len(set(names)) < len(names):
        return
    boxes = [np.sort(c, axis=1).reshape(-1, 4) for c in corners]
    with StoreWriter(folder, 3, shard_rows=data.draw(st.integers(1, 5))) as writer:
        for name, f, b in zip(names, features, boxes, strict=True):
            writer.append(name, f, b)
    store = FeatureStore.open(folder)
    store.verify()
    assert list(store.ids) == names
    for n, picture in enumerate(store):
        np.testing.assert_array_equal(picture.features, features[n])
        np.testing.assert_array_equal(picture.boxes, boxes[n])


def test_a_batch_is_padded_float32_in_the_order_asked(tmp_path: Path) -> None:
    pictures = make_pictures(9)
    store = FeatureStore.open(write_store(tmp_path / "s", pictures, dtype="float16"))
    batch = store.batch([7, 0, 7])
    assert batch.ids == ("picture-7", "picture-0", "picture-7")
    assert batch.features.dtype == torch.float32
    assert batch.mask.sum(1).tolist() == [len(pictures[i].features) for i in (7, 0, 7)]
    assert not batch.features[~batch.mask].any()
    np.testing.assert_array_equal(batch.features[0][batch.mask[0]], pictures[7].features.astype("float16"))


def test_opening_and_reading_one_row_copies_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    with StoreWriter(folder, 512, shard_rows=100) as writer:
        for i in range(200):  # 200 × 36 × 512 × 4 bytes = 15 MB
            writer.append(str(i), np.full((36, 512), i, dtype=np.float32), np.tile([0, 0, 1, 1], (36, 1)))
    before = pa.total_allocated_bytes()
    picture = FeatureStore.open(folder).get(150)
    assert pa.total_allocated_bytes() - before < 64 * 1024
    assert not picture.features.flags.owndata
    assert not picture.features.flags.writeable
    assert picture.features.mean() == 150


def test_plain_pyarrow_reads_a_store(tmp_path: Path) -> None:
    pictures = make_pictures(6)
    folder = write_store(tmp_path / "s", pictures)
    manifest = json.loads((folder / "manifest.json").read_text())
    tables = [pa.ipc.open_file(pa.memory_map(str(folder / s["file"]))).read_all() for s in manifest["shards"]]
    table = pa.concat_tables(tables)
    assert table.column("id").to_pylist() == [p.id for p in pictures]
    assert table.column("boxes")[5].as_py() == pictures[5].boxes.reshape(-1).tolist()
    assert manifest["count"] == 6
    assert [s["rows"] for s in manifest["shards"]] == [4, 2]


def test_a_store_travels_to_a_worker_process(tmp_path: Path) -> None:
    store = FeatureStore.open(write_store(tmp_path / "s", make_pictures(5)))
    store.get(0)
    assert pickle.loads(pickle.dumps(store)).ids == store.ids


def test_captions_lie_beside_the_features(tmp_path: Path) -> None:
    folder = write_store(tmp_path / "s", make_pictures(2))
    assert FeatureStore.open(folder).captions() == ()
    captions = (Caption("picture-0", "ein Bär\u2028läuft", "train"), Caption("picture-1", "熊"))
    write_captions(folder / "captions.jsonl", captions)
    assert FeatureStore.open(folder).captions() == captions


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 9}, "format version 9"),
        ({"format": "other"}, "not the manifest"),
        ({"dim": 0}, '"dim" is 0'),
        ({"dim": True}, '"dim" is True'),
        ({"dtype": "float8"}, "'float8', float32 or float16"),
        ({"count": 3}, "count is 3, but the shards hold 5"),
        ({"shards": None}, '"shards" is None'),
        ({"shards": [{"file": "../other.arrow", "rows": 1, "sha256": ""}]}, "must be a name like"),
        ({"shards": [{"file": "shard-00000.arrow", "rows": "4", "sha256": ""}]}, "\"rows\" is '4'"),
        ({"shards": [7]}, "a shard is 7"),
        ({"extractor": 3}, '"extractor" is 3'),
        ({"metadata": []}, '"metadata" is'),
    ],
)
def test_a_bad_manifest_is_named(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    folder = write_store(tmp_path / "s", make_pictures(5))
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SaccadeError, match=r"manifest.json") as error:
        FeatureStore.open(folder)
    assert sentence in str(error.value)


def test_a_missing_or_broken_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"manifest.json is missing"):
        FeatureStore.open(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": ')
    with pytest.raises(SaccadeError, match="not valid JSON"):
        FeatureStore.open(tmp_path)


def test_a_shard_cut_short_is_named(tmp_path: Path) -> None:
    folder = write_store(tmp_path / "s", make_pictures(5))
    path = folder / "shard-00000.arrow"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SaccadeError, match=r"shard-00000.arrow is cut short"):
        FeatureStore.open(folder).get(0)
    path.write_bytes(b"")
    with pytest.raises(SaccadeError, match=r"shard-00000.arrow"):
        FeatureStore.open(folder).get(0)
    path.unlink()
    with pytest.raises(SaccadeError, match=r"shard-00000.arrow"):
        FeatureStore.open(folder).get(0)


def test_one_flipped_bit_breaks_the_checksum(tmp_path: Path) -> None:
    folder = write_store(tmp_path / "s", make_pictures(5))
    path = folder / "shard-00000.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(SaccadeError, match="checksum"):
        FeatureStore.open(folder).verify()


def test_shards_of_another_width_or_type_are_refused(tmp_path: Path) -> None:
    folder = write_store(tmp_path / "s", make_pictures(5, regions=2))
    path = folder / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace('"dim": 6', '"dim": 5'))
    with pytest.raises(SaccadeError, match="is damaged"):
        FeatureStore.open(folder).get(0)
    path.write_text(text.replace("float32", "float16"))
    with pytest.raises(SaccadeError, match="not those of a float16 feature store"):
        FeatureStore.open(folder).get(0)


def test_a_picture_that_is_not_there(tmp_path: Path) -> None:
    store = FeatureStore.open(write_store(tmp_path / "s", make_pictures(3)))
    assert store.get(-1).id == "picture-2"
    with pytest.raises(SaccadeError, match="has 3 pictures, there is no number 3"):
        store.batch([3])


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"image": "a"}', "line 1"),
        ("{", "line 1: not valid JSON"),
        ('{"image": "a", "text": "b", "split": 3}', '"split" is 3'),
    ],
)
def test_bad_captions_are_named_by_line(tmp_path: Path, line: str, sentence: str) -> None:
    folder = write_store(tmp_path / "s", make_pictures(1))
    (folder / "captions.jsonl").write_text(line + "\n")
    with pytest.raises(SaccadeError, match=r"captions.jsonl") as error:
        FeatureStore.open(folder).captions()
    assert sentence in str(error.value)


def test_captions_must_be_utf8(tmp_path: Path) -> None:
    folder = write_store(tmp_path / "s", make_pictures(1))
    (folder / "captions.jsonl").write_bytes('{"image": "a", "text": "Bär"}'.encode("latin-1"))
    with pytest.raises(SaccadeError, match=r"captions.jsonl, line 1 is not UTF-8"):
        FeatureStore.open(folder).captions()
