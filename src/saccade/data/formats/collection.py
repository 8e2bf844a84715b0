"""Whatever lies at a path, recognised and opened as one collection of pictures and captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from saccade.core.errors import SaccadeError, did_you_mean, explain_os_errors
from saccade.data.datasets.karpathy import karpathy_captions, read_karpathy
from saccade.data.formats.arrays import ArrayPictures
from saccade.data.formats.hdf5 import MAGIC, open_hdf5
from saccade.data.formats.lmdb import LmdbPictures, is_lmdb
from saccade.data.formats.npz import NpzFolder, is_npz_folder
from saccade.data.formats.picture import PictureSource, find_sizes, read_sizes
from saccade.data.formats.precomp import PrecompImages, open_precomp, precomp_splits
from saccade.data.formats.tsv import COLUMNS, BottomUpTsv
from saccade.data.store.arrow import FeatureStore
from saccade.data.store.subset import ChainedPictures, RegionSubset
from saccade.data.text.captions import Caption, read_captions

Kind = Literal["store", "precomp", "tsv", "karpathy", "npz", "hdf5", "lmdb"]
ARRAYS = ("npz", "hdf5", "lmdb")  # kinds that `open_arrays` opens


@dataclass(frozen=True)
class Collection:
    """Pictures and the captions that name them, from one place."""

    kind: Kind
    path: Path
    pictures: PictureSource
    captions: tuple[Caption, ...] = ()
    extractor: str | None = None
    metadata: dict[str, Any] | None = None


def kind_of(path: Path) -> Kind:
    """What lies at `path`, judged by its files and first bytes."""
    if path.is_dir():
        if (path / "manifest.json").exists():
            return "store"
        if precomp_splits(path):
            return "precomp"
        if is_lmdb(path):
            return "lmdb"
        if parts := sorted(p.name for p in path.glob("*_att*")):
            raise SaccadeError(f"{path} holds features and boxes in folders of their own: give {path / parts[0]}")
        if is_npz_folder(path):
            return "npz"
        raise SaccadeError(
            f"{path} is neither a feature store (manifest.json) nor a precomputed folder (*_ims.npy, *_caps.txt), an "
            "LMDB (data.mdb), a folder of .npz files or a known set of photos (`saccade data check FOLDER --as NAME` "
            "says what is missing of one)"
        )
    with explain_os_errors(path, "read"), path.open("rb") as file:
        start = file.read(4096)
    if start.startswith(MAGIC):
        return "hdf5"
    if is_lmdb(path):
        return "lmdb"
    if start.lstrip()[:1] == b"{" and path.suffix == ".json":
        return "karpathy"
    if path.suffix == ".tsv" or start.count(b"\t") >= len(COLUMNS) - 2:
        return "tsv"
    raise SaccadeError(
        f"{path} is of no known kind: a store or precomputed folder, a bottom-up TSV or a Karpathy .json was expected, "
        "or feature files of other tools (.npz, HDF5, LMDB)"
    )


def open_arrays(path: Path, sizes: Path | None = None, ids: Path | None = None) -> ArrayPictures:
    """Feature files of other tools; `sizes` and `ids` are files for what they do not say themselves."""
    kind, known = kind_of(path), find_sizes(path) if sizes is None else read_sizes(sizes)
    if kind == "hdf5":
        return open_hdf5(path, known, ids)
    return LmdbPictures(path, known) if kind == "lmdb" else NpzFolder(path, known)


def open_collection(
    path: Path,
    splits: Sequence[str] = (),
    captions: Path | None = None,
    sizes: Path | None = None,
    ids: Path | None = None,
) -> Collection:
    """Open what lies at `path`, or some splits of it; `captions` is another file of sentences (Karpathy or .jsonl)."""
    kind = kind_of(path)
    if (sizes or ids) and kind not in ARRAYS:
        raise SaccadeError(f"--sizes and --ids are for .npz, HDF5 and LMDB files; {path} needs none")
    found: Collection
    if kind == "store":
        store = FeatureStore.open(path)
        found = Collection(kind, path, store, store.captions(), store.extractor, store.metadata)
    elif kind == "precomp":
        found = _open_precomp(path, splits)
    elif kind == "tsv":
        found = Collection(kind, path, BottomUpTsv(path))
    elif kind in ARRAYS:
        arrays = open_arrays(path, sizes, ids)
        lost = arrays.boxes.startswith("missing")
        metadata = {"boxes": "missing, the whole picture stands in"} if lost else {}
        found = Collection(kind, path, arrays, metadata=metadata)
    else:
        raise SaccadeError(f"{path} holds sentences but no features: give it as --captions beside a feature file")
    sentences = found.captions if captions is None else _captions_for(captions, found.pictures, splits)
    if splits:
        known = sorted({c.split for c in sentences if c.split is not None})
        for split in splits:
            if split not in known:
                there = f" (there are: {', '.join(known)})" if known else " (its captions name no splits)"
                raise SaccadeError(f'{path} has no split "{split}"{did_you_mean(split, known)}{there}')
        sentences = tuple(c for c in sentences if c.split in splits)
        wanted = {c.image for c in sentences}
        pictures = RegionSubset(found.pictures, [n for n, id in enumerate(found.pictures.ids) if id in wanted])
        return replace(found, pictures=pictures, captions=sentences)
    return replace(found, captions=sentences)


def _open_precomp(path: Path, splits: Sequence[str]) -> Collection:
    sources: list[PrecompImages] = []
    captions: list[Caption] = []
    for split in splits or precomp_splits(path):
        data = open_precomp(split, path)
        assert isinstance(data.images, PrecompImages)
        sources.append(data.images)
        ids = data.images.ids
        captions += [Caption(ids[i], t, split) for t, i in zip(data.texts, data.image_of_text, strict=True)]
    metadata = {} if all(s.has_boxes for s in sources) else {"boxes": "missing, the whole picture stands in"}
    return Collection("precomp", path, ChainedPictures(sources), tuple(captions), metadata=metadata)


def _captions_for(path: Path, pictures: PictureSource, splits: Sequence[str]) -> tuple[Caption, ...]:
    index = {id: n for n, id in enumerate(pictures.ids)}
    if path.suffix != ".jsonl":
        images = [i for i in read_karpathy(path) if not splits or i.split in splits]
        return tuple(karpathy_captions(path, images, index))
    found = read_captions(path)
    lost = next((c.image for c in found if c.image not in index), None)
    if lost is not None:
        raise SaccadeError(f'{path}: the picture "{lost}" is not among the features')
    return found
