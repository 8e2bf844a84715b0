"""What lies at a path in a few lines: counts, widths, regions, captions, size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.data.datasets.karpathy import read_karpathy
from saccade.data.formats.collection import ARRAYS, Kind, kind_of, open_arrays
from saccade.data.formats.precomp import PrecompImages, open_precomp, precomp_splits
from saccade.data.formats.tsv import BottomUpTsv
from saccade.data.store.arrow import FeatureStore


@dataclass(frozen=True)
class Summary:
    """One table: a title and rows of (name, value)."""

    title: str
    rows: tuple[tuple[str, str], ...]


def summarise(path: Path) -> tuple[Summary, ...]:
    """A table per collection: one, or one per split of a precomputed folder."""
    kind = kind_of(path)
    if kind == "store":
        return (_store(path),)
    if kind == "precomp":
        return tuple(_precomp(path, split) for split in precomp_splits(path))
    if kind in ARRAYS:
        return (_arrays(path, kind),)
    return (_tsv(path),) if kind == "tsv" else (_karpathy(path),)


def _store(path: Path) -> Summary:
    store = FeatureStore.open(path)
    captions = store.captions()
    splits = Counter(c.split or "(none)" for c in captions)
    files = [path / s.file for s in store.manifest.shards]
    rows = [
        ("pictures", f"{len(store):,}"),
        ("regions a picture", _spread(store.region_counts())),
        ("feature width", f"{store.dim:,}"),
        ("number type", store.dtype),
        ("extractor", store.extractor or "not said"),
        ("captions a picture", _spread(Counter(c.image for c in captions).values())),
        ("splits", _splits(splits, "captions")),
        ("shards", f"{len(files):,}"),
        ("size", _bytes(sum(f.stat().st_size for f in files if f.exists()))),
    ]
    rows += [(f"metadata: {key}", str(value)) for key, value in store.metadata.items()]
    return Summary(f"{path}: feature store", tuple(rows))


def _precomp(path: Path, split: str) -> Summary:
    data = open_precomp(split, path)
    images = data.images
    assert isinstance(images, PrecompImages)
    rows = [
        ("pictures", f"{len(images):,}" + (f" (each stored {images.step} times)" if images.step > 1 else "")),
        ("regions a picture", f"{images.array.shape[1]}"),
        ("feature width", f"{images.dim:,}"),
        ("number type", str(images.array.dtype)),
        ("boxes", "kept" if images.has_boxes else "missing: explanations cannot point into the picture"),
        ("captions a picture", _spread(len(t) for t in data.texts_of_image)),
        ("size", _bytes(images.path.stat().st_size)),
    ]
    return Summary(f"{path}: precomputed, split {split}", tuple(rows))


def _tsv(path: Path) -> Summary:
    file = BottomUpTsv(path)
    rows = (
        ("pictures", f"{len(file):,}"),
        ("regions a picture", _spread(file.region_counts())),
        ("feature width", f"{file.dim:,}"),
        ("number type", "float32 as base64"),
        ("size", _bytes(path.stat().st_size)),
    )
    return Summary(f"{path}: bottom-up-attention TSV", rows)


def _arrays(path: Path, kind: Kind) -> Summary:
    pictures = open_arrays(path)
    first = pictures.arrays(0)
    titles = {"npz": "one file a picture", "hdf5": "HDF5", "lmdb": "LMDB"}
    files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    rows = (
        ("pictures", f"{len(pictures):,}, the first is {pictures.ids[0]}"),
        ("feature width", f"{pictures.dim:,}"),
        ("of the first picture", ", ".join(f"{k} {list(v.shape)} {v.dtype}" for k, v in first.items())),
        ("boxes", pictures.boxes),
        ("size", _bytes(sum(f.stat().st_size for f in files))),
    )
    return Summary(f"{path}: {titles[kind]}", rows)


def _karpathy(path: Path) -> Summary:
    images = read_karpathy(path)
    rows = (
        ("pictures", f"{len(images):,}"),
        ("splits", _splits(Counter(i.split for i in images), "pictures")),
        ("captions a picture", _spread(len(i.sentences) for i in images)),
        ("size", _bytes(path.stat().st_size)),
    )
    return Summary(f"{path}: Karpathy split file", rows)


def _spread(counts: Iterable[int]) -> str:
    values = np.fromiter(counts, dtype=np.int64)
    if not len(values):
        return "none"
    if values.min() == values.max():
        return f"{values.min():,}"
    return f"{values.min():,} to {values.max():,}, mean {values.mean():.1f}"


def _splits(counts: Counter[str], of: str) -> str:
    return ", ".join(f"{name} ({count:,} {of})" for name, count in counts.items()) or "none"


def _bytes(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
