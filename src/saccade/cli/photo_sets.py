"""What `saccade data info` and `check` say of a photo data set: its parts, its splits, its faults, its source."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.cli.faults import report_faults
from saccade.core.progress import one_by_one, progress_bar
from saccade.data.datasets.photo_sets import PhotoDataSet, find_data_set, recognise
from saccade.features.check import SplitCounts, broken_photos, parts_of, split_counts


def photo_set_at(path: Path, name: str | None) -> PhotoDataSet | None:
    """The data set named, else the one that lies at `path`; None for feature files."""
    from saccade.data.formats.precomp import precomp_splits

    if name is not None:
        return find_data_set(name)
    if not path.is_dir() or (path / "manifest.json").exists() or precomp_splits(path):
        return None
    return recognise(path)


def show_photo_set(path: Path, data_set: PhotoDataSet, most: int = 20, photos: bool = False) -> None:
    """Tables of parts and splits, then the faults; exit code 2 if there is one."""
    console = Console()
    table = Table(title=escape(f"{path} as {data_set.title}"), title_justify="left")
    for heading in ("part", "state", "holds"):
        table.add_column(heading, overflow="fold")
    for row in parts_of(data_set, path):
        table.add_row(*map(escape, row))
    console.print(table)
    console.print(escape(f"from {data_set.home}; {data_set.terms}"), soft_wrap=True)
    faults: list[str] = []
    with console.status(escape(f"reading {path}")):
        counts = list(split_counts(data_set, path, faults))
    if counts:
        console.print(_split_table(counts))
    if photos and not faults:
        total = sum(len(split.paths) for split in counts)
        with progress_bar("opening photos") as tell:
            faults += islice(broken_photos(counts, one_by_one(tell, total)), most + 1)
    report_faults(console, path, faults, most)


def _split_table(counts: list[SplitCounts]) -> Table:
    table = Table("split", "photos", "captions", "boxes", "")
    for split in counts:
        boxes = "–" if split.boxes is None else f"{split.boxes:,}"
        numbers = ("–",) * 3 if split.note else (f"{split.photos:,}", f"{split.captions:,}", boxes)
        table.add_row(split.split, *numbers, escape(split.note))
    return table
