"""`saccade world`: make the built-in world, look at it, ask about it, and count what is in it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from saccade.cli import described
from saccade.core.config import override
from saccade.core.errors import SaccadeError, not_among
from saccade.core.files import atomic_file, write_text
from saccade.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from saccade.world import World, WorldConfig  # imported when a command runs, so that `--help` is quick
    from saccade.world.questions.balance import KindBalance
    from saccade.world.videos.films import Clip

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
def questions(
    folder: Path | None = None,
    *,
    split: str = "dev",
    kind: str | None = None,
    count: int = 11,
    balance: bool = False,
    scenes: int = 1000,
) -> None:
    """Print questions about the pictures of a split, one kind after the other, with answers and programs.

    Example: saccade world questions --split test --kind relate
    """
    from saccade.world import WorldConfig, open_world
    from saccade.world.questions.balance import drawn_questions, picture_balance, question_balance
    from saccade.world.questions.make import KINDS, ask
    from saccade.world.questions.programs import spelled
    from saccade.world.store import locate_split

    console = Console()
    kinds = _chosen(kind, KINDS)
    settings, own = locate_split(split) if folder is None else ({}, split)
    config = WorldConfig(**settings) if folder is None else open_world(folder).config
    if balance:
        learned, asked = (drawn_questions(config, name, scenes) for name in ("train", own))
        console.print(_balance(question_balance(learned, asked), kinds, picture_balance(config, own, scenes)))
        return
    part = _open(folder, console, config).split(own)
    table = Table("picture", "kind", Column("question, and what it asks", overflow="fold"), "answer", box=None)
    for i in range(len(part)):
        if count and table.row_count == count:
            break
        wanted = kinds[table.row_count % len(kinds)]
        found = next((q for q in ask(part.scene(i), config.wish(own)) if q.kind == wanted), None)
        if found is not None:
            table.add_row(part.ids[i], found.kind, f"{found.text}\n{escape(spelled(found.program))}", found.answer)
    console.print(table)


@app.command()
@described
def videos(
    settings: list[str] | None = None,
    *,
    split: str = "test",
    count: int = 5,
    start: int = 0,
    out: Path = Path("films.png"),
    films: Path | None = None,
    rate: float = 12.0,
) -> None:
    """Draw videos of the world as film strips, with sentences at the times in which they happen; or write them as MP4.

    With --films FOLDER every clip is written there, with captions.jsonl (what `saccade extract --captions` takes) and
    moments.jsonl (every sentence with its spans in seconds, and its roles).

    Example: saccade world videos --split hard --count 4 --out twins.png

    Example: saccade world videos --count 20 --films films/
    """
    from saccade.world.videos.films import FilmConfig, make_clips
    from saccade.world.videos.sheet import film_sheet

    config = override(FilmConfig(), settings or [])
    clips = make_clips(config, split)
    chosen = clips[start : start + (count or len(clips))]
    if not chosen:
        raise SaccadeError(f"{split} has {len(clips)} videos: none from {start} on")
    console = Console()
    if films is not None:
        _write_films(chosen, split, films, config.size, rate)
        console.print(f"{len(chosen)} videos of {split} in {escaped(films)}", soft_wrap=True, markup=False)
        return
    sheet = film_sheet(chosen, f"Videos of the world, split “{split}”")
    with atomic_file(out) as temporary:
        sheet.save(temporary, format="JPEG" if out.suffix.lower() in (".jpg", ".jpeg") else "PNG", quality=88)
    console.print(f"{len(chosen)} videos of {split} on {escaped(out)}", soft_wrap=True, markup=False)


def _write_films(clips: Sequence[Clip], split: str, folder: Path, size: int, rate: float) -> None:
    """The clips as MP4, and what is said of them."""
    from saccade.core.progress import one_by_one, progress_bar
    from saccade.vision.videos import write_video
    from saccade.world.videos.films import draw_frames

    folder.mkdir(parents=True, exist_ok=True)
    captions, moments = [], []
    with progress_bar("filming") as show_progress:
        done = one_by_one(show_progress, len(clips))
        for clip in clips:
            name = f"{clip.story.id}.mp4"
            write_video(folder / name, draw_frames(clip.story, size, rate), rate)
            captions += [{"image": name, "text": caption.text, "split": split} for caption in clip.described]
            moments += [
                {"video": name, "seconds": clip.story.seconds, **caption.to_json()} for caption in clip.captions
            ]
            done()
    for file, rows in (("captions.jsonl", captions), ("moments.jsonl", moments)):
        write_text(folder / file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


@app.command()
@described
def concepts(*, split: str = "dev", kind: str | None = None, count: int = 10, balance: bool = False) -> None:
    """Print questions about how two concepts are related (metaconcepts), with answers; they need no picture.

    Example: saccade world concepts --kind hypernym
    """
    from saccade.world.questions.balance import question_balance
    from saccade.world.questions.metaconcepts import METACONCEPTS, metaconcept_questions

    kinds = _chosen(kind, METACONCEPTS)
    asked = metaconcept_questions(split)
    if balance:
        Console().print(_balance(question_balance(metaconcept_questions("train"), asked), kinds))
        return
    table = Table("kind", "question", "answer", box=None, pad_edge=False)
    by_kind = [[q for q in asked if q.kind == name] for name in kinds]
    for question in [own[n] for n in range(max(map(len, by_kind))) for own in by_kind if n < len(own)][: count or None]:
        table.add_row(question.kind, question.text, question.answer)
    Console().print(table)


def _chosen(kind: str | None, kinds: tuple[str, ...]) -> tuple[str, ...]:
    if kind is not None and kind not in kinds:
        raise SaccadeError(f"there is no kind of question {not_among(kind, kinds)}")
    return kinds if kind is None else (kind,)


def _balance(rows: Sequence[KindBalance], kinds: tuple[str, ...], pictures: Mapping[str, float] | None = None) -> Table:
    columns = ["questions", "answers", "uniform", "majority", "question only"]
    table = Table(
        Column("kind", no_wrap=True), *columns, *(["picture only"] if pictures else []), box=None, pad_edge=False
    )
    for name in kinds:
        for row in (row for row in rows if row.kind == name):
            alone = [] if pictures is None else [pictures[name]]
            accuracies = (f"{each:.1f}" for each in (row.uniform, row.majority, row.question_only, *alone))
            table.add_row(name, f"{row.questions:,}", str(row.answers), *accuracies)
    return table


@app.command()
@described
def clicks(settings: list[str] | None = None, *, out: Path) -> None:
    """Write the world's shoppers as a behaviour log: items.parquet with pictures, and impressions of each split.

    `data=world_clicks` needs no such folder. This one shows the layout that `data=clicks root=FOLDER` reads.

    Example: saccade world clicks items=500 users=1000 redundancy=1 --out shop
    """
    from saccade.core.files import check_writable
    from saccade.data.datasets.made.world_clicks import export_world_clicks
    from saccade.world.shoppers import ShopConfig

    check_writable(out)
    config = override(ShopConfig(), settings or [])
    export_world_clicks(config, out)
    typer.echo(f"{config.items:,} items and {config.users:,} users are in {escaped(out)}")


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


def _open(folder: Path | None, console: Console, config: WorldConfig | None = None) -> World:
    """The world in a folder, or else the one of these settings in the cache."""
    from saccade.world import WorldConfig, make_world, open_world

    if folder is not None:
        return open_world(folder)
    config = config or WorldConfig()
    if not (config.folder() / "manifest.json").is_file():
        console.print("making the world first (once) …")
    return make_world(config)


def _counts(world: World) -> Table:
    table = Table("split", "pictures", "captions", box=None, pad_edge=False)
    for name in world.splits:
        split = world.split(name)
        table.add_row(name, f"{len(split):,}", f"{len(split) * world.config.captions:,}")
    return table
