"""Photos as a user names them (folders, files, lists), seen into a store with their boxes and sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.data.formats.boxes import GivenBoxes, read_boxes
from saccade.data.formats.regions import read_sizes
from saccade.data.store.manifest import CAPTIONS, printable, write_captions
from saccade.data.text.captions import captions_of
from saccade.data.text.lines import read_lines
from saccade.features.extraction import Extraction, extract
from saccade.vision.extractors import KINDS, load_extractor
from saccade.vision.pictures import find_pictures, open_picture


def extract_photos_at(
    places: Sequence[Path],
    out: Path,
    regions: str = "bottomup",
    *,
    extractor: str | None = None,
    device: str = "cpu",
    captions: Path | None = None,
    sizes: Path | None = None,
    limit: int | None = None,
    batch_size: int = 32,
    workers: int | None = None,
    dtype: str = "float16",
    retry: bool = False,
    progress: Callable[[int, int], None] | None = None,
    waiting: Callable[[], None] | None = None,
) -> Extraction:
    """See the photos at `places` into the store `out`, with their sentences beside it: what `saccade extract` does.

    `regions` is the name of an extractor, or a file of boxes for `extractor` (grid, if not given) to look at. Files
    that do not fit the photos are refused before the first photo is seen.
    """
    pictures = list_pictures(places, limit)
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
        load_extractor((extractor or "grid") if from_file else regions, device),
        out,
        boxes=given.boxes if from_file else None,
        unit=given.unit,
        sizes=originals,
        batch_size=batch_size,
        workers=workers,
        dtype=dtype,
        retry=retry,
        progress=progress,
        waiting=waiting,
    )
    if sentences:
        write_captions(out / CAPTIONS, [c for c in sentences if c.image in found.store.index])
    return found


def list_pictures(places: Sequence[Path], limit: int | None = None) -> list[tuple[str, Path]]:
    """(id, path) of the pictures in folders (and the folders in them), of single files, and of lists (.txt), by id.

    The id is the path inside the folder, or as the list has it, with its ending: `1000268201_693b08cb0e.jpg`,
    `holiday/beach.jpg`. A single file, or an absolute path in a list, is known by its file name.
    """
    found: dict[str, Path] = {}
    for place in places:
        for id, path in _pictures(place):
            if id in found and found[id].resolve() != path.resolve():
                raise SaccadeError(
                    f'two pictures have the name "{id}", {printable(found[id])} and {printable(path)}: '
                    "give the folder that holds both, or rename one"
                )
            found.setdefault(id, path)
    return sorted(found.items())[:limit]


def _pictures(place: Path) -> Iterator[tuple[str, Path]]:
    if place.is_dir():
        for path in find_pictures(place):
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
