"""`saccade world`: make the built-in world, look at it, and count what is in it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from saccade.cli import described
from saccade.core.config import override
from saccade.core.errors import SaccadeError
from saccade.core.files import atomic_file
from saccade.core.text import escaped

if TYPE_CHECKING:
    from saccade.world import World  # imported when a command runs, so that `--help` is quick

app = typer.Typer(help="Make and look at the built-in world of toys.", no_args_is_help=True)


@app.command()
@described
def make(settings: list[str] | None = None, *, out: Path | None = None, workers: int | None = None) -> None:
    """Make a world: pictures, captions, boxes, masks and relations, all from one seed.

    A world made before with the same settings is found in the cache and not made again.

    Example: saccade world make pictures=5000 seed=1 --out worlds/five-thousand
    """
    from saccade.core.progress import progress_bar
    from saccade.world import WorldConfig, make_world

    console = Console()
    config = override(WorldConfig(), settings or [])
    started = time.perf_counter()
    made = 0
    with progress_bar("painting") as show:

        def tell(done: int, total: int) -> None:
            nonlocal made
            made = done
            show(done, total)

        world = make_world(config, out, workers, tell)
    seconds = time.perf_counter() - started
    console.print(_counts(world))
    if made:
        console.print(f"{made:,} pictures in {seconds:.1f} s: {60 * made / seconds:,.0f} a minute")
    else:
        console.print("made before, found whole")
    console.print(escaped(world.folder), soft_wrap=True, markup=False)


@app.command()
@described
def show(
    folder: Path | None = None,
    *,
    split: str = "test",
    count: int = 12,
    start: int = 0,
    out: Path = Path("sheet.png"),
    redraw: bool = False,
    light: bool = False,
) -> None:
    """Draw a contact sheet: pictures with boxes, captions with each phrase in the colour of its box.

    Example: saccade world show --split hard --count 8 --out twins.png
    """
    from PIL import Image

    from saccade.world.sheet import contact_sheet

    console = Console()
    world = _open(folder, console)
    part = world.split(split)
    indices = range(start, min(start + (count or len(part)), len(part)))
    if not indices:
        raise SaccadeError(f"{split} has {len(part)} pictures: none from {start} on")
    sheet = contact_sheet(part, indices, f"The world, split “{split}”", redraw=redraw)
    with atomic_file(out) as temporary:
        if light:
            palette = sheet.quantize(256, kmeans=1)
            sheet.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(
                temporary, format="PNG", optimize=True
            )
        else:
            sheet.save(temporary, format="PNG", compress_level=7)
    console.print(f"{len(indices)} pictures of {split} on {escaped(out)}", soft_wrap=True, markup=False)


@app.command()
@described
def info(folder: Path | None = None, *, check: bool = False) -> None:
    """Count what a world holds: pictures, things, relations, words.

    Example: saccade world info worlds/five-thousand --check
    """
    from saccade.world import open_world
    from saccade.world.store import census

    console = Console()
    world = _open(folder, console)
    if check:
        open_world(world.folder, check=True)
        console.print("every byte is as written")
    console.print(_counts(world))
    table = Table("of", "different", "the most frequent", box=None, pad_edge=False)
    for name, counts in census(world).items():
        most = ", ".join(f"{word} {n:,}" for word, n in counts.most_common(6))
        table.add_row(name, f"{len(counts):,}", most)
    console.print(table)
    console.print(escaped(world.folder), soft_wrap=True, markup=False)


def _open(folder: Path | None, console: Console) -> World:
    from saccade.world import WorldConfig, make_world, open_world

    if folder is not None:
        return open_world(folder)
    config = WorldConfig()
    if not (config.folder() / "manifest.json").is_file():
        console.print("making the default world first (once) …")
    return make_world(config)


def _counts(world: World) -> Table:
    table = Table("split", "pictures", "captions", box=None, pad_edge=False)
    for name in world.splits:
        split = world.split(name)
        table.add_row(name, f"{len(split):,}", f"{len(split) * world.config.captions:,}")
    return table
