"""Everything that can be wrong with features and captions on disk, found by reading them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.data.datasets.karpathy import read_karpathy
from saccade.data.formats.arrays import UnknownSize
from saccade.data.formats.collection import ARRAYS, kind_of, open_arrays
from saccade.data.formats.picture import PictureSource
from saccade.data.formats.precomp import PrecompImages, open_precomp, precomp_splits
from saccade.data.formats.tsv import BottomUpTsv, parse_line
from saccade.data.store.arrow import FeatureStore
from saccade.data.text.captions import CAPTIONS

SPLITS = ("train", "restval", "val", "test")


def problems(path: Path) -> Iterator[str]:
    """One sentence for each fault at `path`; nothing if all is well."""
    kind = kind_of(path)
    checks: dict[str, Callable[[Path], Iterator[str]]] = {
        "store": _store,
        "precomp": _precomp,
        "tsv": _tsv,
        "karpathy": _karpathy,
        **dict.fromkeys(ARRAYS, _arrays),
    }
    try:
        yield from checks[kind](path)
    except SaccadeError as error:
        yield str(error)


def _store(path: Path) -> Iterator[str]:
    store = FeatureStore.open(path)
    faults = 0
    for fault in store.problems():
        faults += 1
        yield fault
    if not len(store):
        yield f"{path} holds no pictures"
    for number, caption in enumerate(store.captions(), start=1):
        if not caption.text.strip():
            yield f"{path / CAPTIONS}: caption {number} is empty"
        if not faults and caption.image not in store.index:
            yield f'{path / CAPTIONS}: caption {number} names the picture "{caption.image}", which is not there'


def _precomp(path: Path) -> Iterator[str]:
    for split in precomp_splits(path):
        try:
            data = open_precomp(split, path)
            for number, text in enumerate(data.texts, start=1):
                if not text:
                    yield f"{path / f'{split}_caps.txt'}, line {number}: the caption is empty"
            assert isinstance(data.images, PrecompImages)
            yield from _unreadable(data.images)
        except SaccadeError as error:
            yield str(error)


def _arrays(path: Path) -> Iterator[str]:
    yield from _unreadable(open_arrays(path))


def _unreadable(images: PictureSource) -> Iterator[str]:
    unknown = 0
    for n in range(len(images)):
        try:
            images.get(n)
        except UnknownSize as error:  # one sentence is enough for what one file mends
            unknown += 1
            if unknown == 1:
                yield str(error)
        except SaccadeError as error:
            yield str(error)


def _tsv(path: Path) -> Iterator[str]:
    seen: set[str] = set()
    dim = None
    for number, line in enumerate(BottomUpTsv(path).lines(), start=1):
        where = f"{path}, line {number}"
        try:
            row = parse_line(line, where, dim)
            row.picture(where)
        except SaccadeError as error:
            yield str(error)
            continue
        dim = dim or row.features.shape[1] or None
        if row.id in seen:
            yield f'{where}: the picture "{row.id}" occurs a second time'
        seen.add(row.id)
    if not seen:
        yield f"{path} holds no readable picture"


def _karpathy(path: Path) -> Iterator[str]:
    seen: set[str] = set()
    for number, image in enumerate(read_karpathy(path)):
        where = f"{path}, images[{number}]"
        if image.split not in SPLITS:
            yield f'{where}: the split "{image.split}" is none of {", ".join(SPLITS)}'
        if not image.sentences:
            yield f"{where}: {image.filename} has no sentences"
        if any(not s.raw.strip() for s in image.sentences):
            yield f"{where}: {image.filename} has an empty sentence"
        if image.filename in seen:
            yield f"{where}: {image.filename} occurs a second time"
        seen.add(image.filename)
