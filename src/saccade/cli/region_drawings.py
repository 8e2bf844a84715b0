"""What commands share that draw regions on photos: which photos, how large, and one picture or a sheet of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from saccade.explain.panels.regions import RegionPicture

ONE, MANY = 2400, 800  # the longer side of a photo kept for its drawing: on its own, on a sheet


def listed_photos(photos: Sequence[Path]) -> list[Path]:
    """Photos, and those in folders; one that is missing is told before a network is loaded."""
    from saccade.core.errors import explain_os_errors
    from saccade.vision import find_pictures

    files = [file for place in photos for file in (find_pictures(place) if place.is_dir() else [place])]
    for file in files:
        with explain_os_errors(file, "read"):
            file.stat()
    return files


def save_drawings(drawings: Sequence[RegionPicture], out: Path, top: int | None) -> None:
    """One photo in full, or the first of several on a sheet."""
    from saccade.explain.panels.regions import MAX_SHEET_PHOTOS, save_sheet

    if len(drawings) == 1:
        drawings[0].save(out, top)
    else:
        save_sheet(list(drawings[:MAX_SHEET_PHOTOS]), out, top)


def tell_where(out: Path, count: int, err: bool = False) -> None:
    """Where the picture is, and whether it shows all photos."""
    from saccade.explain.panels.regions import MAX_SHEET_PHOTOS

    some = f" (the first {MAX_SHEET_PHOTOS} of {count} photos)" if count > MAX_SHEET_PHOTOS else ""
    typer.echo(f"the picture is in {out}{some}", err=err)
