"""What commands that take photos share: which photos, drawing their regions, and what could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from saccade.data.store.manifest import Broken
    from saccade.explain.panels.regions import RegionPicture

SIDE_ALONE, SIDE_ON_SHEET = 2400, 800  # the longer side of a photo kept for its drawing, in pixels
BROKEN_SHOWN = 10


def listed_photos(photos: Sequence[Path]) -> list[Path]:
    """Photos, and those in folders; one that is missing is named before a network is loaded."""
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


def print_where(out: Path, count: int, err: bool = False) -> None:
    """Where the picture is, and whether it shows all photos."""
    from saccade.explain.panels.regions import MAX_SHEET_PHOTOS

    some = f" (the first {MAX_SHEET_PHOTOS} of {count} photos)" if count > MAX_SHEET_PHOTOS else ""
    typer.echo(f"the picture is in {out}{some}", err=err)


def report_broken(broken: Sequence[Broken], total: int) -> None:
    """What could not be read, one line each, and the exit code that says so."""
    for one in broken[:BROKEN_SHOWN]:
        typer.echo(f"error: {one.reason}", err=True)
    if len(broken) > BROKEN_SHOWN:
        typer.echo(f"error: and {len(broken) - BROKEN_SHOWN:,} more", err=True)
    if broken:
        if total > 1:
            typer.echo(f"{len(broken):,} of {total:,} pictures could not be read", err=True)
        raise typer.Exit(2)
