"""What commands share: `--device`, the KEY=VALUE words of the data, tables of figures, photos and their drawings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.markup import escape as escape_markup
from rich.table import Table

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.core.text import escaped

if TYPE_CHECKING:
    from saccade.data import DataConfig
    from saccade.data.store.manifest import Broken
    from saccade.explain.panels.regions import RegionPicture
    from saccade.language import Vocabulary

Result = TypeVar("Result")


class NumberType(str, Enum):
    """How features are kept."""

    float32 = "float32"
    float16 = "float16"


class NumberPrecision(str, Enum):
    """How a network computes."""

    fp32 = "fp32"
    bf16 = "bf16"


def escape(text: object) -> str:
    """For tables and other markup: neither brackets nor line breaks and terminal commands do anything."""
    return escape_markup(escaped(text))


def say(text: object, err: bool = False) -> None:
    """Print one line, whatever the names in it hold."""
    typer.echo(escaped(text), err=err)


def check_device(name: str) -> str:
    """The name of a device that works here; `auto` is the GPU if there is one.

    Raises: SaccadeError if there is no such device.
    """
    if name == "cpu":  # known without asking PyTorch, which takes a while to come
        return name
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        if torch.device(name).type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # the second, where PyTorch was built without CUDA
        why = (str(error).splitlines() or ["unknown"])[0].rstrip(".")
        raise SaccadeError(f'there is no device "{name}" here ({why}): try --device cpu') from error
    return name


Device = Annotated[
    str,
    typer.Option(
        "--device",
        help="Where the network runs: cpu, cuda, cuda:1 …; auto: on the GPU if there is one.",
        callback=check_device,
    ),
]


# For photographs, of the package.
MATCHER, GROUNDER, REFERRER = "scan-flickr8k", "hierarchical-flickr8k", "plan-flickr8k"


def default_model(run: str = "runs/scan", *shipped: str) -> str:
    """What was trained last with the default folder; or the first of these models that comes with the package, of which
    the matcher for photographs is the one where none is named.

    Raises: SaccadeError if there is neither.
    """
    if Path(run).exists():
        return run
    names = shipped or (MATCHER,)
    if (found := next(filter(is_shipped, names), None)) is None:
        raise SaccadeError(f"there is no {run}, and no {names[0]} comes with the package: give --model FOLDER")
    return found


def is_shipped(name: str) -> bool:
    """Whether a trained model comes with the package."""
    from saccade.models import shipped_models

    return name in shipped_models()


def report_unknown(vocabulary: Vocabulary, texts: list[str]) -> None:
    """Say on standard error which words the model does not know; refuse a sentence of only such words."""
    note_unknown(sorted({word for text in texts for word in vocabulary.check(text)}))


def note_unknown(words: Sequence[str]) -> None:
    if words:
        say("note: the model does not know " + ", ".join(f'"{word}"' for word in words), err=True)


def sort_words(given: Sequence[str], split: str | None) -> tuple[list[str], list[str], str | None]:
    """Folders, settings of the data, and the split: `split=dev` is as good as `--split dev`."""
    folders = [word for word in given if "=" not in word or Path(word).is_dir()]
    settings = [word for word in given if word not in folders and not word.startswith("split=")]
    named = [word.removeprefix("split=") for word in given if word.startswith("split=")]
    return list(dict.fromkeys(folders)), settings, named[-1] if named else split


def is_data_word(word: str) -> bool:
    """Whether `root=data/flickr8k` sets something of the data; otherwise the word before = is a name a user chose."""
    from saccade.data import DataConfig

    key = word.partition("=")[0]
    return key in {"data", "split", *(field.name for field in fields(DataConfig))} or key.startswith("data.")


def run_data(folder: Path | str) -> DataConfig:
    """The data of a run folder or of a model in one; of a model that is no run's, the world."""
    from saccade.data import DataConfig
    from saccade.training.run import load_run_config, run_folder

    run = run_folder(folder)
    return load_run_config(run).data if run is not None else DataConfig()


def with_words(data: DataConfig, words: Sequence[str]) -> DataConfig:
    """The data as the words say: only settings of the data, since trained models are what they are."""
    from saccade.core.config import override
    from saccade.data import DataConfig
    from saccade.training.run import RunConfig

    names = ["data", "split", *(field.name for field in fields(DataConfig))]
    for word in words:
        if not is_data_word(word):
            key = word.partition("=")[0]
            raise SaccadeError(f'"{key}" is no setting of the data{did_you_mean(key, names)} ({", ".join(names)})')
    # `data=` and `data.root=` are understood within a whole run; `seed=` alone means the data's here
    plain = [word if word.startswith("data") else f"data.{word}" for word in words]
    return override(replace(RunConfig(), data=data), plain).data


PHOTOS = ("photos", "pictures", "places")  # parameters whose folders are read for the pictures in them
MODEL_FILES = ("config.*", "model.safetensors", "vocabulary.json", "*.ckpt")
DATA_FILES = ("manifest.json", "*.arrow", "captions.*", "dataset*.json", "*_ims.npy", "*_caps.txt", "*.tsv*")


def check_outputs(given: Mapping[str, Any], written: Collection[str]) -> None:
    """Raises: SaccadeError if a command would write to a file that it reads, given by name or in a folder or list."""
    from saccade.core.files import check_distinct

    outputs = [value for name, value in given.items() if name in written and isinstance(value, Path)]
    if any(path.is_file() for path in outputs):
        read = (file for name, value in given.items() if name not in written for file in _files_read(name, value))
        check_distinct([path for path in outputs if path.is_file()], read)


def _files_read(name: str, value: Any) -> Iterator[Path]:
    """The files that a parameter stands for: a path, several, or words such as root=FOLDER and file:PATH."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _files_read(name, one)
    elif isinstance(value, str):
        for part in {value, value.partition("=")[2], value.partition(":")[2]} - {""}:
            if "\0" not in part and os.path.lexists(part):
                yield from _files_read(name, Path(part))
    elif isinstance(value, Path) and value.is_dir():
        if name in PHOTOS:
            from saccade.vision.pictures import find_pictures

            with suppress(SaccadeError):  # it holds none, which the command will say
                yield from find_pictures(value)
        for folder in (value, value / "best"):
            yield from (file for kept in (*MODEL_FILES, *DATA_FILES) for file in folder.glob(kept))
    elif isinstance(value, Path):
        yield value
        if name in PHOTOS and value.suffix == ".txt" and value.is_file():
            lines = value.read_text(encoding="utf-8", errors="replace").splitlines()
            yield from (value.parent / line.strip() for line in lines if line.strip())


MAX_UNBROKEN = 8  # letters of a heading


def figure_table(title: str, headings: Sequence[str]) -> Table:
    """A first column of words, then figures, set to the right; short headings are kept whole in a narrow terminal."""
    table = Table(title=escape(title), title_justify="left")
    first, *others = ([escape(line) for line in heading.split("\n")] for heading in headings)  # breaks are meant
    table.add_column("\n".join(first), overflow="fold")
    for lines in others:
        short = max(map(len, lines)) <= MAX_UNBROKEN
        table.add_column("\n".join(lines), justify="right", overflow="fold", no_wrap=short)
    return table


SIDE_ALONE, SIDE_ON_SHEET = 2400, 800  # the longer side of a photo kept for its drawing, in pixels
BROKEN_SHOWN = 10


def listed_photos(places: Sequence[Path], videos: bool = False) -> list[Path]:
    """Photos (or videos), those in folders and in lists (.txt), each once; says which other files are left out.

    Raises: SaccadeError if a place is missing, before a network is loaded.
    """
    from saccade.features.extraction import pictures_at

    passed_over = Counter[str]()
    files = list(dict.fromkeys(path for place in places for _, path in pictures_at(place, passed_over, videos)))
    report_passed_over(passed_over)
    return files


def report_passed_over(passed_over: Counter[str], what: str = "picture") -> None:
    """Say on standard error how many files of which endings are no pictures, or no videos."""
    from saccade.vision.pictures import others_told

    if passed_over:
        say(f"note: {others_told(passed_over, what)}", err=True)


def without_broken(found: Iterable[Result | Broken], title: str, total: int) -> tuple[list[Result], list[Broken]]:
    """What was made of pictures, and the pictures that could not be read, with a bar meanwhile."""
    from saccade.core.progress import progress_bar
    from saccade.data.store.manifest import Broken

    done: list[Result] = []
    broken: list[Broken] = []
    with progress_bar(title) as progress:
        if total > 1:
            progress(0, total)
        for one in found:
            if isinstance(one, Broken):
                broken.append(one)
            else:
                done.append(one)
            progress(len(done) + len(broken), total)
    return done, broken


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
    say(f"the picture is in {out}{some}", err)


def report_broken(broken: Sequence[Broken], total: int, what: str = "picture") -> None:
    """What could not be read, one line each, and the exit code that says so."""
    for one in broken[:BROKEN_SHOWN]:
        say(f"error: {one.reason}", err=True)
    if len(broken) > BROKEN_SHOWN:
        typer.echo(f"error: and {len(broken) - BROKEN_SHOWN:,} more", err=True)
    if broken:
        if total > 1:
            typer.echo(f"{len(broken):,} of {total:,} {what}s could not be read", err=True)
        raise typer.Exit(2)
