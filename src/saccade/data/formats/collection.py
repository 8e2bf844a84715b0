"""Feature files at a path, opened as one collection of pictures and captions, and written again in another format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from saccade.core.errors import SaccadeError, explain_os_errors, not_among
from saccade.data.datasets.photos.karpathy import karpathy_captions, read_karpathy
from saccade.data.formats.arrays import ArrayPictures, NpzFolder
from saccade.data.formats.captions import read_caption_file
from saccade.data.formats.hdf5 import open_hdf5
from saccade.data.formats.lmdb import LmdbPictures
from saccade.data.formats.precomp import PrecompImages, open_precomp, precomp_splits, write_precomp
from saccade.data.formats.regions import find_sizes, read_sizes
from saccade.data.formats.tsv import BottomUpTsv, TsvRow, write_tsv
from saccade.data.records import Caption, RegionSource, RegionSubset, other_names
from saccade.data.registry import DataSet, recognise
from saccade.data.store.arrow import FeatureStore, StoreWriter
from saccade.data.store.manifest import CAPTIONS, write_captions
from saccade.data.store.sources import ChainedRegions, join_captions
from saccade.data.text_files import read_json_file

Target = Literal["store", "precomp", "tsv"]
Progress = Callable[[], None]

ARRAYS = ("npz", "hdf5", "lmdb")  # formats that `open_arrays` opens


@dataclass(frozen=True)
class Collection:
    """Pictures and the captions that name them, from one place."""

    kind: str  # the name of its row in the registry
    path: Path
    pictures: RegionSource
    captions: tuple[Caption, ...] = ()
    extractor: str | None = None
    metadata: dict[str, Any] | None = None


def what_lies_at(path: Path) -> DataSet:
    """The format of the feature files or captions at a path. Raises: SaccadeError if it is of no known kind."""
    if not path.is_dir():
        with explain_os_errors(path, "read"), path.open("rb"):
            pass
    found = recognise(path, ("features", "captions"))
    if path.is_dir() and (found is None or found.name == "npz") and (parts := sorted(path.glob("*_att*"))):
        raise SaccadeError(f"{path} holds features and boxes in folders of their own: give {parts[0]}")
    if found is not None:
        return found
    if path.is_dir():
        raise SaccadeError(
            f"{path} is neither a feature store (manifest.json) nor a precomputed folder (*_ims.npy, *_caps.txt), an "
            "LMDB (data.mdb), a folder of .npz files or a known set of photos (`saccade data check FOLDER --as NAME` "
            "says what is missing of one)"
        )
    raise SaccadeError(
        f"{path} is of no known kind: a store or precomputed folder, a bottom-up TSV or a Karpathy .json was expected, "
        "or feature files of other tools (.npz, HDF5, LMDB)"
    )


def open_arrays(path: Path, sizes: Path | None = None, ids: Path | None = None) -> ArrayPictures:
    """Feature files of other tools; `sizes` and `ids` are files for what they do not say themselves."""
    kind, known = what_lies_at(path).name, find_sizes(path) if sizes is None else read_sizes(sizes)
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
    """Open what lies at `path`, or some splits of it; `captions` is another file of sentences."""
    kind = what_lies_at(path).name
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
                named = not_among(split, known) if known else f'"{split}" (its captions name no splits)'
                raise SaccadeError(f"{path} has no split {named}")
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
    return Collection("precomp", path, ChainedRegions(sources), tuple(captions), metadata=metadata)


def _captions_for(path: Path, pictures: RegionSource, splits: Sequence[str]) -> tuple[Caption, ...]:
    whole = read_json_file(path) if path.suffix == ".json" else None
    if isinstance(whole, dict) and "images" in whole and "annotations" not in whole:  # Karpathy's, who has more names
        index = {id: n for n, id in enumerate(pictures.ids)}
        images = [i for i in read_karpathy(path) if not splits or i.split in splits]
        return tuple(karpathy_captions(path, images, index))
    names = other_names(pictures.ids)
    found = tuple(read_caption_file(path))
    lost = next((c.image for c in found if c.image not in names), None)
    if lost is not None:
        raise SaccadeError(f'{path}: the picture "{lost}" is not among the features')
    return tuple(replace(caption, image=names[caption.image]) for caption in found)


def convert(
    source: Collection,
    path: Path,
    to: Target,
    dtype: str = "float32",
    extractor: str | None = None,
    progress: Progress = lambda: None,
) -> int:
    """Write `source` to `path`; the number of pictures written."""
    if path.resolve() == source.path.resolve():
        raise SaccadeError(f"{path} is both source and target")
    if to == "store":
        return _to_store(source, path, dtype, extractor, progress)
    if to == "precomp":
        return _to_precomp(source, path, dtype, progress)
    if path.exists():
        raise SaccadeError(f"{path} exists already; remove it or choose another name")

    def rows() -> Iterator[TsvRow]:
        for n in range(len(source.pictures)):
            yield TsvRow.of(source.pictures.get(n))
            progress()

    write_tsv(path, rows())
    return len(source.pictures)


def _to_store(source: Collection, path: Path, dtype: str, extractor: str | None, progress: Progress) -> int:
    """Goes on where an earlier run stopped: pictures that are in the store already are passed over."""
    with StoreWriter(path, source.pictures.dim, dtype, extractor or source.extractor, source.metadata) as writer:
        before = len(writer.done)
        for n, id in enumerate(source.pictures.ids):
            if id not in writer.done:
                own = source.pictures.get(n)
                writer.append(own.id, own.features, own.boxes, own.width, own.height, own.scores, own.seconds)
                progress()
        added = len(writer.done) - before
    if source.captions:
        write_captions(path / CAPTIONS, source.captions)
    return added


def _to_precomp(source: Collection, path: Path, dtype: str, progress: Progress) -> int:
    if not source.captions:
        raise SaccadeError(f"{source.path} has no captions, which the precomputed format needs: give --captions FILE")
    splits: dict[str, list[Caption]] = {}
    for caption in source.captions:
        splits.setdefault(caption.split or "all", []).append(caption)
    joined = [join_captions(source.kind, split, source.pictures, own) for split, own in splits.items()]
    for data in joined:
        write_precomp(path, data, dtype, progress)
    return sum(len(data.images) for data in joined)
