"""Files made to harm: small ones that unpack to large ones, settings of huge networks, weights that are no weights."""

from __future__ import annotations

import gzip
import json
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from saccade.core.arrays import read_npz
from saccade.core.config import load_yaml
from saccade.core.errors import SaccadeError
from saccade.core.weights import build_within, read_state_dict
from saccade.data import FeatureStore, StoreWriter
from saccade.data.formats.arrays import NpzFolder
from saccade.data.formats.captions import read_caption_results
from saccade.data.formats.hdf5 import open_hdf5
from saccade.data.formats.lmdb import LmdbPictures, places_of
from saccade.interop.checkpoint import read_checkpoint, read_modules
from saccade.language import Vocabulary, load_vectors
from saccade.models import entry, load_model
from saccade.training.folder import load_checkpoint
from saccade.vision.detectors.world import load_world_extractor

BOMB = bytes(200 << 20)  # packed, 0.2 MB
BOUND = 128 << 20  # bytes by which a refusal may grow


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


@pytest.fixture
def bounded() -> Callable[[Callable[[], object], str], None]:
    """Refuses with this sentence, and does not unpack first."""

    def check(read: Callable[[], object], sentence: str) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = peak()
        with pytest.raises(SaccadeError, match=sentence) as refused:
            read()
        assert "\n" not in str(refused.value)
        assert peak() - before < BOUND

    return check


Bounded = Callable[[Callable[[], object], str], None]


def write_zip(path: Path, name: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("name", "inside", "read"),
    [
        ("a.npz", "x.npy", lambda path: NpzFolder(path.parent).get(0)),
        ("a.npz", "x.npy", read_npz),
        ("a.pth", "archive/data/0", read_checkpoint),
        ("a.pth", "archive/data/0", lambda path: read_modules(path, ())),
        ("a.pth", "archive/data/0", read_state_dict),
        ("last.ckpt", "archive/data/0", load_checkpoint),
        ("a.zip", "vectors.txt", lambda path: load_vectors(path, ["a"])),
    ],
    ids=["features", "arrays", "checkpoint", "modules", "weights", "run", "vectors"],
)
def test_a_zip_bomb_is_not_unpacked(
    tmp_path: Path, name: str, inside: str, read: Callable[[Path], object], bounded: Bounded
) -> None:
    path = write_zip(tmp_path / name, inside, BOMB)
    assert path.stat().st_size < 2 << 20
    bounded(lambda: read(path), "a file of its size")


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path, bounded: Bounded) -> None:
    packed = gzip.compress(b" " * len(BOMB), 1)
    for name in ("a.json.gz", "a.jsonl.gz", "a.txt.gz"):
        (tmp_path / name).write_bytes(packed)
        bounded(lambda name=name: read_caption_results(tmp_path / name), r"a file of its size|longer than")  # type: ignore[misc]
    with pytest.raises(SaccadeError, match="a file of its size"):
        load_vectors(tmp_path / "a.txt.gz", ["a"])


def write_store(folder: Path) -> Path:
    with StoreWriter(folder, 4) as writer:
        for name in ("first", "second", "third"):
            writer.append(name, np.ones((2, 4)), np.tile([0, 0, 1, 1], (2, 1)))
    return next(folder.glob("shard-*.arrow"))


def test_offsets_of_ids_are_not_believed(tmp_path: Path) -> None:
    """Arrow ends the process when it reads text by an offset that lies outside."""
    shard = write_store(tmp_path / "s")
    content, offsets = shard.read_bytes(), struct.pack("<4i", 0, 5, 11, 16)  # first, second, third
    assert content.count(offsets) == 1
    for wrong in ((0, 5, 1 << 30, 16), (0, -5, 11, 16), (0, 11, 5, 16), (1 << 20, 1 << 21, 1 << 22, 1 << 30)):
        shard.write_bytes(content.replace(offsets, struct.pack("<4i", *wrong)))
        with pytest.raises(SaccadeError, match="is damaged"):
            _ = FeatureStore.open(tmp_path / "s").ids


def test_ids_that_are_no_text_are_named(tmp_path: Path) -> None:
    shard = write_store(tmp_path / "s")
    shard.write_bytes(shard.read_bytes().replace(b"second", b"s\xff\xffond"))
    with pytest.raises(SaccadeError, match="is damaged"):
        FeatureStore.open(tmp_path / "s").get(0)


def test_compressed_batches_are_not_unpacked(tmp_path: Path, bounded: Bounded) -> None:
    shard = write_store(tmp_path / "s")
    table = pa.ipc.open_file(str(shard)).read_all()
    with pa.ipc.new_file(str(shard), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as sink:
        sink.write_table(table)
    bounded(lambda: FeatureStore.open(tmp_path / "s").get(0), "is compressed")


def make_model(folder: Path, system: str = "scan") -> Path:
    kind = entry(system).model
    widths = ("dim", "word_dim", "region_dim", "attention_dim", "entries")
    sizes = {name: 16 for name in widths if hasattr(kind.Config(), name)}
    kind(replace(kind.Config(), **sizes), Vocabulary.build(["a red cube"], 1), "grid").save_pretrained(folder)
    return folder


def make_detector(folder: Path) -> Path:
    sizes = {"channels": (2, 2, 2, 2), "map_dim": 2, "roi_dim": 2, "hidden": 2, "dim": 12}
    labels = ("kinds", "colours", "sizes", "materials", "poses", "facings", "backgrounds", "lightings")
    kind = entry("world_extractor").model
    kind(replace(kind.Config(), **sizes, **dict.fromkeys(labels, ("a", "b")))).save_pretrained(folder)
    return folder


def set_config(folder: Path, **settings: object) -> None:
    path = folder / "config.json"
    described = json.loads(path.read_text())
    described["config"] |= settings
    path.write_text(json.dumps(described))


@pytest.mark.parametrize("system", ["scan", "imram", "gsmn", "vsrn", "camp", "updown", "adaptive", "sgae", "vse"])
@pytest.mark.parametrize("dim", [10**6, 10**9, 10**12, 10**30])
def test_a_huge_width_is_refused_before_it_is_made(tmp_path: Path, system: str, dim: int, bounded: Bounded) -> None:
    folder = make_model(tmp_path / "m", system)
    set_config(folder, dim=dim)
    bounded(lambda: load_model(folder), "smaller network than its settings describe|cannot be built|whole number|divi")


@pytest.mark.parametrize("layers", [10**6, 10**9])
def test_layers_without_end_are_refused(tmp_path: Path, layers: int, bounded: Bounded) -> None:
    folder = make_model(tmp_path / "m", "show_attend_tell")
    set_config(folder, output_layers=layers)
    bounded(lambda: load_model(folder), "smaller network than its settings describe")


def test_a_detector_of_huge_width_is_refused_before_it_is_made(tmp_path: Path, bounded: Bounded) -> None:
    folder = make_detector(tmp_path / "d")
    load_world_extractor(folder)
    set_config(folder, map_dim=10**7)
    bounded(lambda: load_world_extractor(folder), "smaller network than its settings describe")
    bounded(lambda: load_model(folder), "smaller network than its settings describe")


def spoil_weights(folder: Path, change: Callable[[Tensor], Tensor]) -> str:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    state = load_file(path)
    name = next(name for name, value in state.items() if value.is_floating_point() and value.numel() > 1)
    state[name] = change(state[name])
    save_file(state, path)
    return name.removeprefix("network.")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda value: torch.full_like(value, torch.nan), "holds NaN or infinity"),
        (
            lambda value: value.flatten().index_fill(0, torch.tensor(0), torch.inf).view_as(value),
            "holds NaN or infinity",
        ),
        (lambda value: value.to(torch.int32), "holds int32, float32 was expected"),
        (lambda value: value > 0, "holds bool, float32 was expected"),
    ],
    ids=["nan", "inf", "integers", "bool"],
)
def test_weights_that_are_no_numbers_are_refused(
    tmp_path: Path, change: Callable[[Tensor], Tensor], sentence: str
) -> None:
    for make, load in ((make_model, load_model), (make_detector, load_world_extractor)):
        folder = make(tmp_path / make.__name__)  # type: ignore[operator]
        load(folder)
        name = spoil_weights(folder, change)
        with pytest.raises(SaccadeError, match=f"model.safetensors: {name} {sentence}"):
            load(folder)


def test_large_weights_are_not_infinite(tmp_path: Path) -> None:
    """Their sum is, and still they are numbers."""
    folder = make_model(tmp_path / "m")
    spoil_weights(folder, lambda value: torch.full_like(value, 3e38))
    load_model(folder)


def test_a_network_of_the_size_of_its_weights_is_built() -> None:
    held = [(64, 64), (64,)]
    assert not build_within(lambda: torch.nn.Linear(64, 64), held, "w").weight.any()  # drawn for nothing
    with pytest.raises(SaccadeError, match="w holds weights of a smaller network"):
        build_within(lambda: torch.nn.Linear(64, 1 << 20), held, "w")
    with pytest.raises(SaccadeError, match="w: the network that its settings describe cannot be built"):
        build_within(lambda: torch.nn.Linear(64, -1), held, "w")


def test_a_tensor_that_repeats_one_number_is_refused(tmp_path: Path) -> None:
    """A few bytes on disk, and terabytes for whoever copies it."""
    path = tmp_path / "a.pth"
    torch.save({"a": torch.zeros(1).expand(10**6, 10**6)}, path)
    assert path.stat().st_size < 10_000
    for read in (read_checkpoint, read_state_dict, lambda path: read_modules(path, ())):
        with pytest.raises(SaccadeError, match=r"a tensor of shape \[1000000, 1000000\] without its numbers"):
            read(path)


def test_yaml_that_grows_or_nests_without_end_is_refused(tmp_path: Path, bounded: Bounded) -> None:
    path = tmp_path / "a.yaml"
    rows = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    path.write_text("a0: &a0 [x, x]\n" + "\n".join(rows))
    bounded(lambda: load_yaml(path), r"not valid YAML at line 2: aliases")
    rows = [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 30)]
    path.write_text("a0: &a0 {x: x}\n" + "\n".join(rows))
    bounded(lambda: load_yaml(path), "aliases")
    for text in ("[" * 5000, "a: " + "{a: " * 5000, "a: 2020-99-99", "a: " + "9" * 5000):
        path.write_text(text)
        with pytest.raises(SaccadeError, match="not valid YAML"):
            load_yaml(path)


def test_hdf5_of_absurd_shapes_is_not_read(tmp_path: Path, bounded: Bounded) -> None:
    """A data set that nobody wrote takes no bytes, and a chunk of zeros a thousandth of its own."""
    with h5py.File(tmp_path / "shape.h5", "w") as file:
        file.create_dataset("12", shape=(1 << 20, 1 << 20), dtype="f4", chunks=(64, 64))
    bounded(lambda: open_hdf5(tmp_path / "shape.h5").get(0), "would unpack to 4,398,046,511,104 bytes")
    with h5py.File(tmp_path / "chunk.h5", "w") as file:
        table = file.create_dataset(
            "image_features", (1 << 16, 1, 1024), "f4", chunks=(1 << 16, 1, 1024), compression=1
        )
        table[0] = 1
        file["image_ids"] = np.arange(1 << 16)
    assert (tmp_path / "chunk.h5").stat().st_size < 2 << 20
    with pytest.raises(SaccadeError, match=r"would unpack to 268,435,456 bytes"):
        open_hdf5(tmp_path / "chunk.h5").get(0)


def write_lmdb(path: Path, values: dict[bytes, bytes]) -> Path:
    with lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 26) as base:
        for start in range(0, len(values), 50):  # several transactions, so that pages are freed and used again
            with base.begin(write=True) as transaction:
                for key, value in list(values.items())[start : start + 50]:
                    transaction.put(key, b"old")
                    transaction.put(key, value)
        with base.begin(write=True) as transaction:
            for key in list(values)[::7]:
                transaction.delete(key)
    return path


def test_lmdb_is_walked_as_its_own_library_walks_it(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    sizes = draw.choice([0, 1, 100, 2000, 5000, 70_000], 700)
    values = {f"{draw.integers(1 << 40):x}-{n:0300}".encode(): draw.bytes(int(size)) for n, size in enumerate(sizes)}
    path = write_lmdb(tmp_path / "a.lmdb", values)
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as base, base.begin() as transaction:
        expected = dict(transaction.cursor())
        assert base.stat()["depth"] > 2, "there are branches below branches"
    content = path.read_bytes()
    found = {key: content[first : first + size] for key, (first, size) in places_of(path).items()}
    assert list(found.items()) == list(expected.items())


def test_a_loop_in_an_lmdb_is_seen(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "a.lmdb", {f"{n:05}".encode(): bytes(500) for n in range(200)})
    content = bytearray(path.read_bytes())
    roots = [struct.unpack_from("<Q", content, meta + 128)[0] for meta in (0, 4096)]
    for root in roots:
        flags, end = struct.unpack_from("<HH", content, root * 4096 + 10)
        if flags & 1:  # its first child is itself
            assert end > 16
            node = root * 4096 + struct.unpack_from("<H", content, root * 4096 + 16)[0]
            struct.pack_into("<HHH", content, node, root & 0xFFFF, root >> 16, 0)
    path.write_bytes(content)
    with pytest.raises(SaccadeError, match="is cut short or is not an LMDB database"):
        _ = LmdbPictures(path).ids


def test_whatever_a_file_says_an_error_is_one_line_that_can_be_printed() -> None:
    error = str(SaccadeError("a\nb \ud800 " + "x" * 5000))
    assert error.startswith("a\\nb \\ud800 xxx")
    assert len(error) <= 1000
    error.encode()
