"""From one feature format to another, picture by picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from saccade.core.errors import SaccadeError
from saccade.data.datasets.store import join_captions
from saccade.data.formats.collection import Collection
from saccade.data.formats.picture import PictureRegions
from saccade.data.formats.precomp import write_precomp
from saccade.data.formats.tsv import TsvRow, write_tsv
from saccade.data.store.arrow import StoreWriter
from saccade.data.text.captions import CAPTIONS, Caption, write_captions

Target = Literal["store", "precomp", "tsv"]
Progress = Callable[[], None]


def quiet() -> None:
    """No progress bar."""


def convert(
    source: Collection,
    path: Path,
    to: Target,
    dtype: str = "float32",
    extractor: str | None = None,
    progress: Progress = quiet,
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
    count = 0

    def rows() -> Iterator[TsvRow]:
        nonlocal count
        for picture in _pictures(source, set()):
            yield TsvRow.of(picture)
            count += 1
            progress()

    write_tsv(path, rows())
    return count


def _to_store(source: Collection, path: Path, dtype: str, extractor: str | None, progress: Progress) -> int:
    """Goes on where an earlier run stopped: pictures that are in the store already are passed over."""
    with StoreWriter(path, source.pictures.dim, dtype, extractor or source.extractor, source.metadata) as writer:
        before = len(writer.done)
        for picture in _pictures(source, writer.done):
            writer.append(
                picture.id, picture.features, picture.boxes, picture.width, picture.height, scores=picture.scores
            )
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


def _pictures(source: Collection, done: set[str]) -> Iterator[PictureRegions]:
    for n, id in enumerate(source.pictures.ids):
        if id not in done:
            yield source.pictures.get(n)
