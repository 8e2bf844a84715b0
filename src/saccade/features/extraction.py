"""Pictures → feature store: batched, decoded ahead, and going on where it stopped, to the byte.

The pictures are cut into batches by their place in the list, always the same way: a batch goes through the network
whole or, after a kill, whole again. What a network computes can depend on the batch in the last digit, so this is what
makes the store of an interrupted run equal to that of an unbroken one. A broken picture keeps its place and leaves it
empty.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import compress, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import only_one, sweep_lock
from saccade.core.progress import note_once
from saccade.core.threads import ahead, behind
from saccade.data.formats.captions import captions_of
from saccade.data.formats.regions import GivenBoxes, Unit, read_boxes, read_sizes
from saccade.data.records import PictureFile, RegionSource, RegionSubset
from saccade.data.store.arrow import FeatureStore, StoreWriter
from saccade.data.store.manifest import (
    BROKEN,
    CAPTIONS,
    MANIFEST,
    Broken,
    Manifest,
    printable,
    read_broken,
    write_broken,
    write_captions,
)
from saccade.data.text_files import read_lines
from saccade.features.decoding import Listed, Opened, Opener, open_ahead
from saccade.vision import RegionExtractor
from saccade.vision.extractors import KINDS, VIDEO_EXTRACTORS, Precision, load_extractor
from saccade.vision.pictures import VIDEO_SUFFIXES, find_pictures, find_videos, open_picture
from saccade.vision.videos.files import import_av

SHARD_ROWS = 512  # pictures a shard: what is held in memory before it is written
FLUSH_SECONDS = 10.0  # between two writings of an unfinished shard: what a kill may cost …
FLUSH_PATIENCE = 20  # … or so many times what the last one took, so that a slow disk never costs more than a twentieth


@dataclass(frozen=True)
class Extraction:
    """A finished store and how it came about."""

    store: FeatureStore
    images: RegionSource  # of the store, the given pictures in their order
    broken: tuple[Broken, ...]  # of the given pictures, those that are not in the store
    written: int  # pictures extracted by this run
    already: int  # pictures that were there before
    seconds: float


def extract(
    pictures: Sequence[Listed],
    extractor: RegionExtractor,
    folder: Path | str,
    *,
    boxes: Mapping[str, np.ndarray] | None = None,
    unit: Unit = "fraction",
    sizes: Mapping[str, tuple[int, int]] | None = None,
    seconds: Mapping[str, float] | None = None,
    batch_size: int = 32,
    workers: int | None = None,
    dtype: str = "float16",
    retry: bool = False,
    progress: Callable[[int, int], None] | None = None,
    waiting: Callable[[], None] | None = None,
) -> Extraction:
    """Extract the regions of `pictures` (id, file) into the store `folder`, or go on with it.

    `boxes`: regions to describe, by id, x1 y1 x2 y2; without them the extractor finds its own. `sizes`: (width,
    height) of the originals where the files were made smaller. `seconds`: of videos that are drawn, not decoded.
    `workers`: processes that decode pictures, or threads where there are few (None: by the number of cores).
    `retry`: try again what was broken before. `progress` gets how many pictures are done, and of how many;
    `waiting` is called if another process is at work on the folder.
    """
    started, folder = time.perf_counter(), Path(folder)
    if batch_size < 1 or (workers is not None and workers < 1):
        raise SaccadeError(f"batch_size ({batch_size}) and workers ({workers}) must be at least 1")
    ids = _check_ids(pictures)
    facts = {"extractor_digest": extractor.digest}
    if extractor.precision != "fp32":
        facts["precision"] = extractor.precision
    if boxes is not None:
        facts["boxes"] = boxes_digest(boxes, unit)
    _refuse_other_settings(folder, extractor, dtype, facts)
    if not retry and (finished := _finished(folder, ids)) is not None:  # needs no lock, and no right to write
        sweep_lock(folder)  # of a process killed after its last file was written
        return finished
    opener = Opener(extractor, boxes, unit, sizes or {}, seconds or {})
    with only_one(folder, waiting):
        _refuse_other_settings(folder, extractor, dtype, facts)  # again: another process may have begun meanwhile
        with StoreWriter(folder, extractor.dim, dtype, extractor.name, facts, SHARD_ROWS) as writer:
            already = len(ids & writer.done)
            known = {id: one for id, one in read_broken(folder).items() if id not in writer.done}
            if retry:
                known = {id: one for id, one in known.items() if id not in ids}
            found = _extract(pictures, extractor, writer, frozenset(known), opener, batch_size, workers, progress)
        broken = {**known, **{one.id: one for one in found}}
        write_broken(folder, broken.values())
    store = FeatureStore.open(folder)
    return _report(folder, store, ids, broken, already, started)


def _extract(
    pictures: Sequence[Listed],
    extractor: RegionExtractor,
    writer: StoreWriter,
    known: frozenset[str],
    opener: Opener,
    batch_size: int,
    workers: int | None,
    progress: Callable[[int, int], None] | None,
) -> list[Broken]:
    """Append every picture that is neither in the store nor known to be broken; those that turn out to be."""
    batches = [pictures[i : i + batch_size] for i in range(0, len(pictures), batch_size)]
    todo = [b for b in batches if any(id not in writer.done and id not in known for id, _ in b)]
    whole = [[one for one in b if one[0] not in known] for b in todo]
    done_count = len(pictures) - sum(id not in writer.done and id not in known for id, _ in pictures)
    broken: list[Broken] = []
    opened = open_ahead(opener, [one for b in whole for one in b], workers, batch_size)

    def collect(batch: Sequence[Listed]) -> list[Opened | Broken]:
        return [next(opened) for _ in batch]

    def extract_batch(results: list[Opened | Broken]) -> tuple[list[Opened | Broken], list[PackedRegions]]:
        good = [one for one in results if isinstance(one, Opened)]
        missing = any(one.id not in writer.done for one in good)
        return results, _regions(good, extractor, batch_size, writer.manifest.dtype) if missing else []

    flushed, rest = time.perf_counter(), FLUSH_SECONDS

    def write(batch: tuple[list[Opened | Broken], list[PackedRegions]]) -> tuple[list[Broken], int]:
        """The pictures of a batch that are broken, and how many were not there before."""
        nonlocal flushed, rest
        results, parts = batch
        new = sum(one.id not in writer.done for one in results)
        for one in results:
            if isinstance(one, Opened) and one.note:
                note_once(one.note)
        good = (one for one in results if isinstance(one, Opened))
        for part in parts:
            _append(list(islice(good, len(part.counts))), part, writer)
        if time.perf_counter() - flushed > rest:
            begun = time.perf_counter()
            writer.flush()
            flushed = time.perf_counter()
            rest = max(FLUSH_SECONDS, FLUSH_PATIENCE * (flushed - begun))
        return [one for one in results if isinstance(one, Broken)], new

    # While a batch goes through the network, the next is collected and the one before is written. A GPU's kernels are
    # launched by this thread, which has done so before. On a CPU the network has a thread of its own: OpenMP's threads
    # spin while they wait unless there are more of them than cores, and would take these from the decoders.
    own_thread = int(extractor.device.type == "cpu")
    with (
        closing(opened),
        closing(ahead(collect, whole, workers=1, most=1)) as collected,
        closing(ahead(extract_batch, collected, workers=own_thread, most=1)) as extracted,
        closing(behind(write, extracted)) as written,
    ):
        if progress:
            progress(done_count, len(pictures))
        for found, new in written:
            broken += found
            done_count += new
            if progress:
                progress(done_count, len(pictures))
    return broken


class PackedRegions(NamedTuple):
    """The regions of some pictures one after the other, `counts` of them for each, as a store keeps them."""

    counts: list[int]
    features: np.ndarray
    boxes: np.ndarray
    scores: np.ndarray | None


def _regions(good: Sequence[Opened], extractor: RegionExtractor, batch_size: int, dtype: str) -> list[PackedRegions]:
    """The regions of a whole batch, in the parts in which it went through the network."""
    given = [one.boxes for one in good if one.boxes is not None and one.seconds is None]
    try:
        parts = extractor.each_batch([one.seen for one in good], given or None, batch_size)
        return [_pack(regions, dtype) for regions in parts]
    except torch.OutOfMemoryError as error:
        raise SaccadeError(
            f"{extractor.device} has too little memory for {len(good)} pictures at once: take a smaller batch size"
        ) from error


@torch.inference_mode()
def _pack(regions: RegionBatch, dtype: str) -> PackedRegions:
    """Regions without padding. A GPU rounds them too: it does so at once, and sends less."""
    mask = regions.mask.cpu()
    real = None if mask.all() else mask.flatten().nonzero()[:, 0].to(regions.features.device)

    def packed(part: Tensor) -> Tensor:
        return part.flatten(0, 1) if real is None else part.flatten(0, 1)[real]

    features = packed(regions.features).float()
    if features.is_cuda:
        rounded = features.to(getattr(torch, dtype))
        features = rounded if rounded.isfinite().all() else features  # or the writer says what is wrong with them
    boxes = packed(regions.boxes).cpu().numpy()
    scores = None if regions.scores is None else packed(regions.scores).cpu().numpy()
    return PackedRegions(mask.sum(dim=1).tolist(), features.cpu().numpy(), boxes, scores)


def _append(good: Sequence[Opened], regions: PackedRegions, writer: StoreWriter) -> None:
    """Write the pictures that are not there yet."""
    new = [one.id not in writer.done for one in good]
    counts, features, boxes, scores = regions
    if not all(new):
        kept = np.repeat(new, counts)
        counts, features, boxes = list(compress(counts, new)), features[kept], boxes[kept]
        scores = None if scores is None else scores[kept]
        good = list(compress(good, new))
    sizes = [(one.width, one.height) for one in good]
    writer.append_batch([one.id for one in good], counts, features, boxes, sizes, scores, [one.seconds for one in good])


def _check_ids(pictures: Sequence[Listed]) -> KeysView[str]:
    if not pictures:
        raise SaccadeError("there are no pictures to extract")
    first: dict[str, PictureFile] = {}
    for id, source in pictures:
        if id in first:
            raise SaccadeError(f'two pictures have the name "{id}": {first[id]} and {source}')
        first[id] = source
    return first.keys()


def _refuse_other_settings(folder: Path, extractor: RegionExtractor, dtype: str, facts: Mapping[str, str]) -> None:
    """Raises: SaccadeError if a folder was begun with another extractor, number type or boxes; nothing is changed."""
    if folder.exists() and not folder.is_dir():
        raise SaccadeError(f"{folder} is a file, a folder was expected")
    if not (folder / MANIFEST).exists():
        holds_others = folder.exists() and any(not p.name.endswith(".part") for p in folder.iterdir())
        if not (folder / MANIFEST).exists():  # still: another process may have begun the store meanwhile
            if holds_others:
                raise SaccadeError(f"{folder} is in the way: it is not empty and holds no feature store")
            return
    manifest = Manifest.load(folder)
    differences = {
        f'the extractor "{manifest.extractor}", not "{extractor.name}"': manifest.extractor != extractor.name,
        f"{manifest.metadata.get('precision', 'fp32')}, not {extractor.precision}": manifest.metadata.get("precision")
        != facts.get("precision"),
        f'other weights of the extractor "{extractor.name}"': manifest.metadata.get("extractor_digest")
        != facts["extractor_digest"],
        f"{manifest.dtype}, not {dtype}": manifest.dtype != dtype,
        "other boxes": manifest.metadata.get("boxes") != facts.get("boxes"),
    }
    for what, differs in differences.items():
        if differs:
            raise SaccadeError(f"{folder} was begun with {what}: choose another folder, or remove this one")


def _finished(folder: Path, ids: KeysView[str]) -> Extraction | None:
    started = time.perf_counter()
    if not (folder / MANIFEST).exists():
        return None
    store, broken = FeatureStore.open(folder), read_broken(folder)
    done = ids & store.index.keys()
    if len(done) + sum(id in broken for id in ids - done) < len(ids):
        return None
    return _report(folder, store, ids, broken, len(done), started)


def _report(
    folder: Path, store: FeatureStore, ids: KeysView[str], broken: Mapping[str, Broken], already: int, started: float
) -> Extraction:
    places = [store.index[id] for id in ids if id in store.index]
    missing = tuple(broken[id] for id in sorted(ids - store.index.keys()))
    if not places:
        raise SaccadeError(
            f"none of the {len(ids)} pictures could be read, for one: {missing[0].reason} (all: {folder / BROKEN})"
        )
    images = store if places == list(range(len(store))) else RegionSubset(store, places)
    return Extraction(store, images, missing, len(places) - already, already, time.perf_counter() - started)


def boxes_digest(boxes: Mapping[str, np.ndarray], unit: Unit) -> str:
    digest = hashlib.sha256(unit.encode())
    for id in sorted(boxes):
        digest.update(f"\0{id}\0".encode())
        digest.update(np.asarray(boxes[id], dtype="<f4").tobytes())
    return f"given in {unit}s, {digest.hexdigest()[:16]}"


def extract_photos_at(
    places: Sequence[Path],
    out: Path,
    regions: str = "bottomup",
    *,
    extractor: str | None = None,
    device: str = "cpu",
    precision: Precision = "fp32",
    captions: Path | None = None,
    sizes: Path | None = None,
    limit: int | None = None,
    passed_over: Counter[str] | None = None,
    **options: Any,
) -> Extraction:
    """Extract the photos at `places` into the store `out`, with their sentences beside it, as `saccade extract` does.

    `regions` is the name of an extractor, or a file of boxes for `extractor` (grid, if not given) to describe; files
    that do not fit the photos are refused before the first photo is opened. `options` are those of `extract`.
    """
    videos = regions.startswith(VIDEO_EXTRACTORS)
    if videos:
        import_av("reading videos")
    pictures = list_pictures(places, limit, passed_over, videos)
    ids = [id for id, _ in pictures]
    from_file = regions.lower().endswith((".json", ".json.gz")) and regions.partition(":")[0] not in KINDS
    if extractor is not None and not from_file:
        raise SaccadeError(
            f"--extractor {extractor} goes with a file of boxes; without one, --regions {extractor} is what to say"
        )
    given = read_boxes(Path(regions)).of(ids, Path(regions)) if from_file else GivenBoxes({})
    known = {**(given.sizes or {}), **({} if sizes is None else read_sizes(sizes))}
    originals = {id: size for id in ids if (size := known.get(id) or known.get(Path(id).name)) is not None}
    sentences = () if captions is None else captions_of(captions, ids)
    found = extract(
        pictures,
        load_extractor((extractor or "grid") if from_file else regions, device, precision),
        out,
        boxes=given.boxes if from_file else None,
        unit=given.unit,
        sizes=originals,
        **options,
    )
    if sentences:
        write_captions(out / CAPTIONS, [c for c in sentences if c.image in found.store.index])
    return found


def list_pictures(
    places: Sequence[Path], limit: int | None = None, passed_over: Counter[str] | None = None, videos: bool = False
) -> list[tuple[str, Path]]:
    """(id, path) of the pictures or videos in folders (and the folders in them), of single files, and of lists (.txt),
    by id.

    The id is the path inside the folder, or as the list has it, with its ending: `1000268201_693b08cb0e.jpg`,
    `holiday/beach.jpg`. A single file, or an absolute path in a list, is known by its file name. `passed_over` counts
    the files of the folders that are no pictures, by their endings.
    """
    found: dict[str, Path] = {}
    for place in places:
        for id, path in pictures_at(place, passed_over, videos):
            if id in found and found[id].resolve() != path.resolve():
                raise SaccadeError(
                    f'two pictures have the name "{id}", {printable(found[id])} and {printable(path)}: '
                    "give the folder that holds both, or rename one"
                )
            found.setdefault(id, path)
    return sorted(found.items())[:limit]


def hold_videos(places: Sequence[Path]) -> bool:
    """Whether videos lie there and no pictures, judged by their endings; in lists, by the first name."""

    def is_video(place: Path) -> bool:
        if place.is_dir():
            try:
                return bool(find_videos(place)) and not _any_picture(place)
            except SaccadeError:
                return False
        if place.suffix.lower() == ".txt" and place.is_file():
            first = next((line.strip() for _, line in read_lines(place) if line.strip()), "")
            return Path(first).suffix.lower() in VIDEO_SUFFIXES
        return place.suffix.lower() in VIDEO_SUFFIXES

    return bool(places) and all(map(is_video, places))


def _any_picture(folder: Path) -> bool:
    try:
        return bool(find_pictures(folder))
    except SaccadeError:
        return False


def stores_among(places: Sequence[Path]) -> tuple[list[Path], list[FeatureStore]]:
    """The other places, and the feature stores among them, which are folders with a manifest."""
    stored = [place for place in places if (place / MANIFEST).is_file()]
    return [place for place in places if place not in stored], [FeatureStore.open(place) for place in stored]


def pictures_at(
    place: Path, passed_over: Counter[str] | None = None, videos: bool = False
) -> Iterator[tuple[str, Path]]:
    """(id, path) of the pictures, or videos, of a folder, of a list (.txt), or of one file."""
    if place.is_dir():
        for path in (find_videos if videos else find_pictures)(place, passed_over):
            yield printable(path.relative_to(place).as_posix()), path
        return
    with explain_os_errors(place, "read"):
        place.stat()
    if place.suffix.lower() != ".txt":
        yield printable(place.name), place
        return
    for _, line in read_lines(place):
        if name := line.strip():
            path = Path(name)
            yield (path.name if path.is_absolute() else path.as_posix()), place.parent / path


def unreadable_photos(paths: Iterable[Path], advance: Callable[[], None] = lambda: None) -> Iterator[str]:
    """A sentence for each photo that does not open."""
    for path in dict.fromkeys(paths):
        try:
            open_picture(path)
        except SaccadeError as error:
            yield str(error)
        advance()
