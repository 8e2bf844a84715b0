"""Which pictures are meant: folders, files and lists as (id, path) pairs, and the names by which others know them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.data.store.broken import printable
from saccade.data.text.lines import read_lines
from saccade.vision.pictures import find_pictures


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


def by_name(ids: Iterable[str]) -> dict[str, str]:
    """What another file may call a picture → its id: the id itself, or the file name where only one picture has it."""
    ids = list(ids)
    owners: dict[str, list[str]] = {}
    for id in ids:
        owners.setdefault(PurePosixPath(id).name, []).append(id)
    short = {name: own[0] for name, own in owners.items() if len(own) == 1}
    return {**short, **{id: id for id in ids}}


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
