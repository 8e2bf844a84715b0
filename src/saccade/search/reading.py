# mypy: disable-error-code="attr-defined"
"""Pictures, videos and feature stores → rows of an index: what changed is found, opened ahead, encoded, committed."""

from __future__ import annotations

import hashlib
import io
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line
from PIL import Image
from torch import Tensor

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.progress import note_once
from saccade.data import FeatureStore
from saccade.data.store.manifest import Broken, printable
from saccade.features.decoding import Opened, Opener, open_ahead
from saccade.features.extraction import hold_videos, pictures_at, stores_among
from saccade.search.coding import CodeFormat, Encoded, check_probe, encode
from saccade.search.index import CODE_COLUMNS, Changes, Index, damage
from saccade.tasks.matching.task import PictureMatcher
from saccade.vision.pictures import picture_facts
from saccade.vision.videos.extractor import VideoExtractor
from saccade.vision.videos.frames import FrameConfig, FrameExtractor

if TYPE_CHECKING:
    from saccade.vision import RegionExtractor
    from saccade.vision.extractors import RegionDescription

BATCH_SIZE = 16  # pictures that go through the model at once
COMMIT_ROWS, COMMIT_SECONDS = 256, 10.0  # what a kill may cost
THUMBNAIL_SIDE, THUMBNAIL_QUALITY = 256, 82
SURE, MOST_LABELS = 0.5, 32  # how sure an extractor must be of a label, and how many of a picture are kept
KNOWN = ("id", "path", "source", "size", "mtime", "hash")


@dataclass(frozen=True)
class File:
    """A file that was found, and what tells whether it changed."""

    id: str
    path: Path
    source: str
    size: int
    mtime: int


ReadFile: TypeAlias = "tuple[dict[str, Any], Encoded, str] | Broken"  # a row, its codes, and what is worth a note
Encoder: TypeAlias = Callable[[Sequence[File], bool], Iterator[list[ReadFile]]]  # of files, which may be videos


@dataclass
class _Update:
    """What an update has done so far, and the rows that are not committed yet."""

    index: Index
    metadata: Mapping[str, Mapping[str, Any]]
    total: int
    progress: Callable[[int, int], None] | None
    known: set[str]
    done: int = 0
    added: int = 0
    updated: int = 0
    broken: list[Broken] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    codes: list[Encoded] = field(default_factory=list)
    committed: float = field(default_factory=time.perf_counter)

    def report_progress(self, more: int) -> None:
        self.done += more
        if self.progress is not None:
            self.progress(self.done, self.total)

    def add(self, row: dict[str, Any], code: Encoded) -> None:
        own = self.metadata.get(row["id"]) or self.metadata.get(Path(row["id"]).name) or {}
        self.rows.append({**row, **own})
        self.codes.append(code)

    def commit(self, force: bool = False) -> None:
        """Write what was gathered, if it is enough or long ago."""
        late = time.perf_counter() - self.committed > COMMIT_SECONDS
        if not self.rows or not (force or late or len(self.rows) >= COMMIT_ROWS):
            return
        replaces = [row["id"] in self.known for row in self.rows]
        self.index.put(self.rows, self.codes, any(replaces))
        self.added += len(replaces) - sum(replaces)
        self.updated += sum(replaces)
        self.known.update(row["id"] for row in self.rows)
        self.rows, self.codes = [], []
        self.committed = time.perf_counter()


def update(
    index: Index,
    places: Sequence[Path],
    metadata: Mapping[str, Mapping[str, Any]],
    progress: Callable[[int, int], None] | None = None,
    workers: int | None = None,
    passed_over: Counter[str] | None = None,
    encoder: Encoder | None = None,
) -> Changes:
    """See `Index.update`."""
    if not places:
        raise SaccadeError("say what to index: folders, files, lists or feature stores")
    metadata = _checked_metadata(index, metadata)
    others, stores = stores_among(places)
    videos = hold_videos(others)
    files = list_files(others, videos, passed_over)
    matcher = index.matcher()
    check_probe(matcher, index.settings.kept, index.settings.model, index.folder)
    for store in stores:
        matcher.check_store(store, index.settings.model)
    index.refresh()
    known = {row["id"]: row for row in index.table.columns(KNOWN).to_pylist()}
    sources = {str(place.absolute()) for place in places}
    todo, unchanged, touched = changed(files, known)
    there = {file.id for file in files} | {id for store in stores for id in store.ids}
    gone = [id for id, row in known.items() if row["source"] in sources and id not in there]
    at_work = _Update(index, metadata, len(files) + sum(map(len, stores)), progress, set(known))
    if touched:
        index.table.change(touched_table(touched))
    at_work.report_progress(unchanged)
    try:
        copied = set()
        for file, row, code in _copied(index, todo, known):
            at_work.add({**row, **_facts(file, row["hash"])}, code)
            copied.add(file.id)
            at_work.report_progress(1)
            at_work.commit()
        if left := [file for file in todo if file.id not in copied]:
            if encoder is not None:
                _read(at_work, encoder(left, videos))
            else:
                _read(at_work, encoded_files(matcher, index.settings.kept, index.basis, left, videos, workers))
        for store in stores:
            unchanged += _take_store(at_work, matcher, store, known)
    except BaseException:
        with suppress(SaccadeError):  # the first error is the one to read
            at_work.commit(force=True)
        raise
    at_work.commit(force=True)
    if gone:  # last: a file that was renamed has its codes from there
        index.table.delete(gone)
    return Changes(at_work.added, at_work.updated, len(gone), unchanged, tuple(at_work.broken))


def list_files(places: Sequence[Path], videos: bool, passed_over: Counter[str] | None) -> list[File]:
    """The pictures, or videos, of folders, lists and files, by id.

    Raises: SaccadeError if a place is missing, or two files have one name.
    """
    found: dict[str, File] = {}
    for place in places:
        source = str(place.absolute())
        for id, path in pictures_at(place, passed_over, videos):
            path = path.absolute()
            if id in found and not found[id].path.samefile(path):
                raise SaccadeError(
                    f'two pictures have the name "{id}", {printable(found[id].path)} and {printable(path)}: '
                    "give the folder that holds both, or rename one"
                )
            try:
                facts = path.stat()
            except OSError:  # a link that leads nowhere is reported when it is opened
                found.setdefault(id, File(id, path, source, -1, -1))
                continue
            found.setdefault(id, File(id, path, source, facts.st_size, facts.st_mtime_ns))
    return [found[id] for id in sorted(found)]


def changed(
    files: Sequence[File], known: Mapping[str, Mapping[str, Any]]
) -> tuple[list[File], int, list[tuple[File, str]]]:
    """What must be read, how many are as they were, and which of these lie elsewhere or have another time."""
    todo, unchanged, touched = list[File](), 0, list[tuple[File, str]]()
    for file in files:
        row = known.get(file.id)
        if row is None:
            todo.append(file)
            continue
        path = printable(file.path)
        if path != row["path"] and row["path"] and Path(row["path"]).exists():
            raise SaccadeError(
                f'two pictures have the name "{file.id}", {row["path"]} and {path}: '
                "give the folder that holds both, or rename one"
            )
        same = file.size == row["size"]
        if same and file.mtime == row["mtime"] and path == row["path"] and file.source == row["source"]:
            unchanged += 1
        elif same and file.size >= 0 and content_hash(file.path) == row["hash"]:
            unchanged += 1
            touched.append((file, row["hash"]))
        else:
            todo.append(file)
    return todo, unchanged, touched


def content_hash(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with explain_os_errors(path, "read"), path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _facts(file: File, hash: str) -> dict[str, Any]:
    folder = str(Path(file.id).parent)
    return {
        "id": file.id,
        "path": printable(file.path),
        "source": file.source,
        "size": file.size,
        "mtime": file.mtime,
        "hash": hash,
        "folder": "" if folder == "." else folder,
    }


def touched_table(touched: Sequence[tuple[File, str]]) -> pa.Table:
    rows = [_facts(file, hash) for file, hash in touched]
    kinds = {"size": pa.int64(), "mtime": pa.int64()}
    columns = pa.schema([pa.field(name, kinds.get(name, pa.string()), name != "id") for name in rows[0]])
    return pa.Table.from_pylist(rows, schema=columns)


def _copied(
    index: Index, todo: Sequence[File], known: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[File, dict[str, Any], Encoded]]:
    """The rows of files whose content was indexed under another name. Only files of a size that occurs are hashed."""
    sizes = {row["size"] for row in known.values()}
    owner = {row["hash"]: id for id, row in known.items() if row["path"]}
    snapshot, kept = index.snapshot(), index.settings.kept
    vector = ["vector"] if kept.vector_dim else []
    names = [*dict.fromkeys([*index.metadata_columns, *CODE_COLUMNS, "thumbnail", *vector])]
    for file in todo:
        if file.size not in sizes:
            continue
        with suppress(SaccadeError):  # it is read, and reported, with the others
            old = owner.get(content_hash(file.path))
            if old is None or old not in snapshot.place:
                continue
            (row,) = index.table.take(snapshot.row_ids[[snapshot.place[old]]], names).to_pylist()
            numbers = np.asarray(row.pop("vector"), np.float16) if vector else None
            if damage(row, kept, b"" if numbers is None else numbers.tobytes()) is not None:
                continue
            kind = np.int8 if kept.codes == "int8" else np.float16
            codes = np.frombuffer(row["codes"], kind).reshape(-1, kept.dim)
            boxes = np.frombuffer(row["boxes"], np.float32).reshape(-1, 4)
            row.pop("_rowid", None)
            yield file, row, Encoded(codes, row["scale"], boxes, numbers)


def extractor_for(matcher: PictureMatcher, videos: bool) -> RegionExtractor:
    """Raises: SaccadeError if the model reads videos and these are photos."""
    own = matcher.extractor
    if not videos and isinstance(own, VideoExtractor):
        raise SaccadeError("the model of this index learned from videos, and these are photos")
    if videos and not isinstance(own, VideoExtractor):
        return FrameExtractor(FrameConfig(own.name), own)
    return own


def encoded_files(
    matcher: PictureMatcher,
    kept: CodeFormat,
    basis: Tensor | None,
    files: Sequence[File],
    videos: bool,
    workers: int | None = None,
) -> Iterator[list[ReadFile]]:
    """The rows of files, some at a time, those that are read next being opened ahead."""
    extractor = extractor_for(matcher, videos)
    size = 1 if extractor.videos else BATCH_SIZE
    opener = Opener(extractor, None, "fraction", {})
    basis = None if basis is None else basis.to(matcher.device)
    with closing(open_ahead(opener, [(file.id, file.path) for file in files], workers, size)) as opened:
        for start in range(0, len(files), size):
            part = files[start : start + size]
            results = list(islice(opened, len(part)))
            good = [(file, one) for file, one in zip(part, results, strict=True) if isinstance(one, Opened)]
            codes: Iterator[Encoded] = iter(())
            named: Iterator[list[str]] = iter(())
            if good:
                seen = [one.seen for _, one in good]
                (regions,) = extractor.each_batch(seen, None, size) if extractor.videos else [extractor.extract(seen)]
                codes = iter(encode(matcher, regions.to(matcher.device), kept, basis, [file.id for file, _ in good]))
                knows = extractor.has_names and not extractor.videos
                named = iter(map(labels_of, extractor.recognise(regions)) if knows else [[]] * len(good))
            yield [
                one if isinstance(one, Broken) else ({**_row(file, one), "labels": next(named)}, next(codes), one.note)
                for file, one in zip(part, results, strict=True)
            ]


def _read(at_work: _Update, read: Iterator[list[ReadFile]]) -> None:
    """Commit files as they are encoded."""
    for part in read:
        for one in part:
            if isinstance(one, Broken):
                at_work.broken.append(one)
                continue
            row, code, note = one
            if note:
                note_once(note)
            at_work.add(row, code)
        at_work.report_progress(len(part))
        at_work.commit()


def _basis(index: Index, matcher: PictureMatcher) -> Any:
    return None if index.basis is None else index.basis.to(matcher.device)


def _row(file: File, one: Opened) -> dict[str, Any]:
    frame = one.pixels if one.seconds is None else one.pixels[len(one.pixels) // 2]
    return picture_row(file, frame, one.width, one.height, one.seconds)


def picture_row(
    file: File, pixels: np.ndarray, width: int, height: int, seconds: float | None = None
) -> dict[str, Any]:
    """All of a row but its codes, of a photo or, where it has a length in seconds, a video."""
    facts = picture_facts(file.path) if seconds is None else {}
    taken = facts.get("taken") or datetime.fromtimestamp(max(0, file.mtime) / 1e9)
    return {
        **_facts(file, content_hash(file.path)),
        "kind": "photo" if seconds is None else "video",
        "taken": taken,
        "year": taken.year,
        "month": taken.month,
        "camera": facts.get("camera"),
        "width": width,
        "height": height,
        "seconds": seconds,
        "labels": [],
        "thumbnail": thumbnail(pixels, width, height),
    }


def labels_of(regions: Sequence[RegionDescription]) -> list[str]:
    """What an extractor is sure to see in a picture: kinds of things, and of the whole picture whatever it says."""
    found = Counter[str]()
    for one in regions:
        named = {"kind": one.labels["kind"]} if "kind" in one.labels else one.labels
        found.update(label for name, label in named.items() if one.confidence.get(name, 0.0) >= SURE)
    return [label for label, _ in found.most_common(MOST_LABELS)]


def thumbnail(pixels: np.ndarray, width: int, height: int) -> bytes:
    """A JPEG of a picture that an extractor may have stretched, in its own proportions."""
    shrink = THUMBNAIL_SIDE / max(width, height, 1)
    size = max(1, round(width * shrink)), max(1, round(height * shrink))
    if max(width, height) < THUMBNAIL_SIDE:
        size = max(1, width), max(1, height)
    written = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(pixels)).resize(size, Image.Resampling.BILINEAR)
    image.save(written, "JPEG", quality=THUMBNAIL_QUALITY)
    return written.getvalue()


def _take_store(
    at_work: _Update, matcher: PictureMatcher, store: FeatureStore, known: Mapping[str, Mapping[str, Any]]
) -> int:
    """The rows of a feature store that are new; how many were there. A store's rows never change."""
    source = str(store.folder.absolute())
    digest = hashlib.blake2b(str(sorted(store.metadata.items())).encode(), digest_size=8).hexdigest()
    new = []
    for n, id in enumerate(store.ids):
        row = known.get(id)
        if row is not None and row["source"] != source and row["path"] and Path(row["path"]).exists():
            raise SaccadeError(f'"{id}" of {store.folder} is already in the index, from {row["source"]}')
        if row is None or row["hash"] != f"{digest}":
            new.append(n)
    at_work.report_progress(len(store) - len(new))
    basis = _basis(at_work.index, matcher)
    for start in range(0, len(new), BATCH_SIZE):
        part = new[start : start + BATCH_SIZE]
        regions = store.batch(part)
        names = [store.ids[n] for n in part]
        codes = encode(matcher, regions.to(matcher.device), at_work.index.settings.kept, basis, names)
        for n, id, code in zip(part, names, codes, strict=True):
            one = store.get(n)
            row = {
                "id": id,
                "path": "",
                "source": source,
                "kind": "regions" if one.seconds is None else "video",
                "size": 0,
                "mtime": 0,
                "hash": digest,
                "folder": "" if str(Path(id).parent) == "." else str(Path(id).parent),
                "width": one.width,
                "height": one.height,
                "seconds": one.seconds,
                "labels": [],
            }
            at_work.add(row, code)
        at_work.report_progress(len(part))
        at_work.commit()
    return len(store) - len(new)


def _checked_metadata(index: Index, metadata: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """Raises: SaccadeError if there is a column that the index was not made with."""
    known = {*index.settings.extra, "labels"}
    for own in metadata.values():
        for name in own:
            if name not in known:
                raise SaccadeError(f'the index has no column "{name}" of its own: make it anew with this metadata')
    return metadata
