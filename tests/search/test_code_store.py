"""A store of codes is readable whenever its writer dies, and going on gives the bytes of an unbroken run."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.search import CodeStore, CodeWriter, RegionCodes, write_bytes

IDS = [f"{n}.jpg" for n in range(20)]


def pictures() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(5)
    return torch.randn(20, 4, 8, generator=draw), torch.arange(4) < torch.randint(0, 5, (20, 1), generator=draw)


def write(folder: Path, count: int = 20, dtype: str = "float16", step: int = 6) -> CodeStore:
    regions, mask = pictures()
    with CodeWriter(folder, 8, dtype, shard_pictures=8) as writer:
        for first in range(0, count, step):
            stop = min(first + step, count)
            writer.extend(IDS[first:stop], regions[first:stop], mask[first:stop])
    return CodeStore(folder)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("stop", [0, 1, 8, 13, 20])
def test_resumed_equals_unbroken_byte_for_byte(tmp_path: Path, dtype: str, stop: int) -> None:
    write(tmp_path / "unbroken", dtype=dtype)
    write(tmp_path / "resumed", stop, dtype)
    write(tmp_path / "resumed", dtype=dtype, step=5)
    found, known = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("resumed", "unbroken")
    )
    assert found == known


def test_any_part_is_what_was_written(tmp_path: Path) -> None:
    regions, mask = pictures()
    store, whole = write(tmp_path / "codes"), RegionCodes.of(regions.half(), mask)
    store.verify()
    assert (len(store), store.dim, list(store.ids)) == (20, 8, IDS)
    for first, stop in ((0, 20), (3, 5), (7, 17), (20, 20)):
        part, expected = store.part(first, stop), whole.part(first, stop)
        assert torch.equal(part.vectors, expected.vectors)
        assert torch.equal(part.starts, expected.starts)
    order = torch.tensor([19, 3, 3, 8, 0])
    assert torch.equal(store.pick(order).vectors, whole.pick(order).vectors)


def test_a_part_of_one_shard_is_not_copied(tmp_path: Path) -> None:
    store = write(tmp_path / "codes")
    first, again = store.part(0, 4).vectors, store.part(1, 4).vectors
    assert first.untyped_storage().data_ptr() == again.untyped_storage().data_ptr()


def test_bytes_of_a_store_are_bytes_of_its_codes(tmp_path: Path) -> None:
    exact = write(tmp_path / "codes")
    rough = write_bytes(exact, tmp_path / "bytes")
    assert list(rough.ids) == IDS
    expected, found = exact.part(0, 20).to_bytes(), rough.part(0, 20)
    for name in ("vectors", "bounds"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))


def test_an_error_keeps_what_was_written(tmp_path: Path) -> None:
    regions, _ = pictures()
    writer = CodeWriter(tmp_path / "codes", 8, shard_pictures=8)
    with suppress(RuntimeError), writer:
        writer.extend(IDS[:10], regions[:10])
        raise RuntimeError
    assert len(CodeStore(tmp_path / "codes")) == 10


def test_wrong_codes_are_refused(tmp_path: Path) -> None:
    writer = CodeWriter(tmp_path / "codes", 8)
    with pytest.raises(SaccadeError, match="5 dimensions"):
        writer.append("a.jpg", torch.zeros(3, 5))
    with pytest.raises(SaccadeError, match="its codes hold NaN"):
        writer.append("a.jpg", torch.full((3, 8), 1e6))
    writer.append("a.jpg", torch.zeros(3, 8))
    with pytest.raises(SaccadeError, match="is already in"):
        writer.append("a.jpg", torch.zeros(3, 8))
    with pytest.raises(SaccadeError, match="1 ids were given for 2 pictures"):
        writer.extend(["b.jpg"], torch.zeros(2, 3, 8))
    with pytest.raises(SaccadeError, match="not int4"):
        CodeWriter(tmp_path / "codes", 8, "int4")
    write(tmp_path / "begun", 3)
    with pytest.raises(SaccadeError, match="was begun with dtype 'float16'"):
        CodeWriter(tmp_path / "begun", 8, "int8")


def test_damage_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"codes\.json is missing"):
        CodeStore(tmp_path)
    store = write(tmp_path / "codes")
    shard = tmp_path / "codes" / store.contents.shards[0].file
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-3])
    with pytest.raises(SaccadeError, match="damaged, cut short"):
        CodeStore(tmp_path / "codes").part(0, 1)
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(SaccadeError, match="checksum differs"):
        CodeStore(tmp_path / "codes").verify()
    contents = tmp_path / "codes" / "codes.json"
    values = json.loads(contents.read_text())
    values["shards"][0]["file"] = "../codes-00000.safetensors"
    contents.write_text(json.dumps(values))
    with pytest.raises(SaccadeError, match="must be a name like"):
        CodeStore(tmp_path / "codes")
