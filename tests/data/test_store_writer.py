"""A store is readable whenever its writer dies, and going on gives the bytes of an unbroken run."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_pictures import folder_bytes, make_pictures, write_store

from saccade.core.errors import SaccadeError
from saccade.data import FeatureStore, PictureRegions, StoreWriter

ONE_BOX = np.array([[0.0, 0.0, 1.0, 1.0]], dtype=np.float32)
ONE = np.zeros((1, 6), dtype=np.float32)


@pytest.mark.parametrize("stop", [0, 1, 3, 4, 5, 8, 9, 10])
def test_resumed_equals_unbroken_byte_for_byte(tmp_path: Path, stop: int) -> None:
    pictures = make_pictures(10)
    unbroken = write_store(tmp_path / "unbroken", pictures)
    write_store(tmp_path / "resumed", pictures[:stop])
    write_store(tmp_path / "resumed", pictures)
    assert folder_bytes(tmp_path / "resumed") == folder_bytes(unbroken)


def append_batch(writer: StoreWriter, pictures: list[PictureRegions]) -> None:
    writer.append_batch(
        [p.id for p in pictures],
        [len(p.features) for p in pictures],
        np.concatenate([p.features for p in pictures]),
        np.concatenate([p.boxes for p in pictures]),
        [(p.width, p.height) for p in pictures],
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_batches_give_the_bytes_of_single_pictures(tmp_path: Path, dtype: str) -> None:
    pictures = [replace(p, scores=None) for p in make_pictures(10)]
    with StoreWriter(tmp_path / "batches", 6, dtype, extractor="test", shard_rows=4) as writer:
        for part in (pictures[:3], pictures[3:]):
            append_batch(writer, part)
    assert folder_bytes(tmp_path / "batches") == folder_bytes(write_store(tmp_path / "single", pictures, dtype=dtype))


def test_a_picture_at_fault_is_named_and_those_before_it_in_the_batch_are_kept(tmp_path: Path) -> None:
    pictures = make_pictures(6, regions=2)
    pictures[3].features[1, 2] = np.nan
    writer = StoreWriter(tmp_path / "s", 6)
    with pytest.raises(SaccadeError, match=r'picture "picture-3": the features hold NaN'), writer:
        append_batch(writer, pictures)
    assert list(FeatureStore.open(tmp_path / "s").ids) == [p.id for p in pictures[:3]]
    with pytest.raises(SaccadeError, match=r'picture "picture-1" is already in'):
        append_batch(writer, pictures[1:3])


def test_record_batches_do_not_depend_on_where_it_stopped(tmp_path: Path) -> None:
    pictures = make_pictures(150)  # more than two record batches in one shard
    unbroken = write_store(tmp_path / "unbroken", pictures, shard_rows=200)
    for stop in (10, 64, 100):
        write_store(tmp_path / "resumed", pictures[:stop], shard_rows=200)
    write_store(tmp_path / "resumed", pictures, shard_rows=200)
    assert folder_bytes(tmp_path / "resumed") == folder_bytes(unbroken)


def test_an_exception_keeps_what_was_appended(tmp_path: Path) -> None:
    pictures = make_pictures(6)

    def interrupted() -> Iterator[PictureRegions]:
        yield from pictures[:5]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path / "s", interrupted())
    assert len(FeatureStore.open(tmp_path / "s")) == 5
    write_store(tmp_path / "s", pictures)
    assert folder_bytes(tmp_path / "s") == folder_bytes(write_store(tmp_path / "unbroken", pictures))


def _dies_at(step: int, action: Callable[[], Any]) -> bool:
    """Run `action` in a child that is killed just before or just after its n-th rename; whether it was killed."""
    child = os.fork()
    if child == 0:
        count, real = 0, Path.replace

        def replace(self: Path, target: Any) -> Any:
            nonlocal count
            count += 2
            if count - 1 == step:
                os._exit(9)
            result = real(self, target)
            if count == step:
                os._exit(9)
            return result

        Path.replace = replace  # type: ignore[method-assign]
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_killed_anywhere_leaves_a_readable_store_that_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    pictures = make_pictures(10)
    expected = folder_bytes(write_store(tmp_path / "unbroken", pictures))
    step, killed = 1, True
    while killed:
        folder = tmp_path / f"killed-{step}"
        write_store(folder, pictures[:2])  # so that an unfinished shard must be superseded
        killed = _dies_at(step, lambda folder=folder: write_store(folder, pictures))
        store = FeatureStore.open(folder)
        store.verify()
        assert store.ids == tuple(p.id for p in pictures[: len(store)])
        write_store(folder, pictures)
        assert folder_bytes(folder) == expected
        step += 1
    assert step > 10  # three shards and their manifests, each before and after


def test_nothing_is_touched_when_there_is_nothing_to_add(tmp_path: Path) -> None:
    folder = write_store(tmp_path / "s", make_pictures(5))
    times = {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}
    write_store(folder, make_pictures(5))
    assert {p.name: p.stat().st_mtime_ns for p in folder.iterdir()} == times


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("features", "boxes", "sentence"),
    [
        (np.full((1, 6), np.nan), ONE_BOX, "features hold NaN or infinity"),
        (np.full((1, 6), np.inf), ONE_BOX, "features hold NaN or infinity"),
        (np.full((1, 6), np.nan, np.float16), ONE_BOX, "features hold NaN or infinity"),
        (np.full((1, 6), -np.inf, np.float16), ONE_BOX, "features hold NaN or infinity"),
        (np.zeros((1, 5)), ONE_BOX, "shape [1, 5], [regions, 6] was expected"),
        (np.zeros(6), ONE_BOX, "shape [6]"),
        (np.array([["a"] * 6]), ONE_BOX, "numbers were expected"),
        (np.zeros((2, 6)), ONE_BOX, "2 rows of features but 1 boxes"),
        (ONE, np.array([[0, 0, 640, 480]]), "(0, 0, 640, 480) leaves 0..1"),
        (ONE, np.array([[-0.1, 0, 1, 1]]), "leaves 0..1"),
        (ONE, np.array([[0.5, 0, 0.4, 1]]), "(0.5, 0, 0.4, 1) ends before it begins"),
        (ONE, np.array([[0, 0, np.nan, 1]]), "a box holds NaN"),
        (ONE, np.array([[0, 0, 1]]), "shape [1, 3], [regions, 4] was expected"),
    ],
)
def test_bad_pictures_are_refused(
    tmp_path: Path, dtype: str, features: np.ndarray, boxes: np.ndarray, sentence: str
) -> None:
    with StoreWriter(tmp_path / "s", 6, dtype) as writer:
        writer.append("good", ONE, ONE_BOX)
        with pytest.raises(SaccadeError, match='picture "bad"') as error:
            writer.append("bad", features, boxes)
    assert sentence in str(error.value)
    assert FeatureStore.open(tmp_path / "s").ids == ("good",)


def test_other_refusals(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", 6, "float16", metadata={"a": (1, 2)}) as writer:
        writer.append("a", ONE, ONE_BOX)
        with pytest.raises(SaccadeError, match='picture "a" is already in'):
            writer.append("a", ONE, ONE_BOX)
        with pytest.raises(SaccadeError, match="100000 does not fit into float16"):
            writer.append("b", np.full((1, 6), 1e5), ONE_BOX)
        with pytest.raises(SaccadeError, match="must be text"):
            writer.append("", ONE, ONE_BOX)
        with pytest.raises(SaccadeError, match="negative"):
            writer.append("b", ONE, ONE_BOX, width=-1)
        with pytest.raises(SaccadeError, match="scores have shape"):
            writer.append("b", ONE, ONE_BOX, scores=np.zeros(3))
    StoreWriter(tmp_path / "s", 6, "float16", metadata={"a": (1, 2)})
    with pytest.raises(SaccadeError, match="begun with dim 6 and cannot go on with 7"):
        StoreWriter(tmp_path / "s", 7, "float16")
    with pytest.raises(SaccadeError, match="begun with dtype 'float16'"):
        StoreWriter(tmp_path / "s", 6)
    with pytest.raises(SaccadeError, match="begun with metadata"):
        StoreWriter(tmp_path / "s", 6, "float16", metadata={"a": 3})
    with pytest.raises(SaccadeError, match="plain JSON"):
        StoreWriter(tmp_path / "t", 6, metadata={"a": object()})
    with pytest.raises(SaccadeError, match="not int8"):
        StoreWriter(tmp_path / "t", 6, "int8")


def test_rounding_past_one_is_clipped_not_refused(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", 6) as writer:
        writer.append("a", ONE, np.array([[-1e-7, 0, 1 + 1e-7, 1]]))
    assert FeatureStore.open(tmp_path / "s").get(0).boxes.tolist() == [[0, 0, 1, 1]]


@pytest.mark.parametrize("after", [1, 2])
def test_a_full_disk_is_said_and_leaves_the_store_as_it_was(
    tmp_path: Path, full_disk: Callable[[int], None], after: int
) -> None:
    pictures = make_pictures(10)
    folder = write_store(tmp_path / "s", pictures[:2])
    before = folder_bytes(folder)
    full_disk(after)  # 1: when a shard is written, 2: when its manifest is
    with pytest.raises(SaccadeError, match="the disk is full"):
        write_store(folder, pictures)
    store = FeatureStore.open(folder)
    store.verify()
    assert len(store) == 2
    assert {k: v for k, v in folder_bytes(folder).items() if k in before} == before
    assert not list(folder.glob(".*"))


def test_a_disk_that_fills_in_the_middle_of_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = make_pictures(10, regions=4)
    folder = write_store(tmp_path / "s", pictures[:2])
    before = folder_bytes(folder)

    class Full(io.FileIO):
        def write(self, content: Any) -> int:
            if self.tell() + len(content) > 500:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(content) or 0

    real = Path.open
    monkeypatch.setattr(
        Path, "open", lambda self, mode="r", **k: Full(self, "w") if "w" in mode else real(self, mode, **k)
    )
    with pytest.raises(SaccadeError, match=r"the disk is full: could not write .*shard-00000.arrow"):
        write_store(folder, pictures)
    assert folder_bytes(folder) == before
