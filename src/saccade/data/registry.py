"""The list of data sets and feature files: what each is called, what it holds, who reads it, where to get it.

`datasets.yaml` is the one table. A new data set is a file in `datasets/` with a reader for each kind of annotation that
it holds, and a row there. A reader is a function `open(split, root, **options)`; the options it may ask for are the
settings of `DataConfig` named in `OPTIONS`. What it returns is a record of `saccade.data.records`, by annotation:

    captions   CaptionedImages (regions), CaptionedPhotos (files) or CaptionedDrawings
    boxes      a tuple of BoxedPicture
    phrases    (id, photo or drawing, PhrasedBoxes) of each picture
    questions  Questions about CaptionedPhotos, CaptionedDrawings or CaptionedImages, whose texts they are
    grounding  Groundings: sentences of the same, with boxes of their phrases
    relations  Relations: pictures and how their things stand to each other; or boxes, where these have relations
    referring  Referrals: expressions and dialogs about the same, each of which means one of several boxes
    moments    Moments: sentences about videos, with the spans in which they happen
    entailment Questions, whose texts are sentences and whose answers are what these are to the picture
    clicks     Clicks: items with pictures and titles, and impressions with what users did before

Of a data set of videos, captions are CaptionedImages (frame features) or CaptionedVideos (files).
A task that learns from something else adds its own word here and its own record there.
Readers are named as "module:function" below `saccade.data` and imported when first asked for, so that one format never
needs another's code.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from saccade.core.config import load_table
from saccade.core.errors import SaccadeError, not_among

Annotation = Literal[
    "captions",
    "boxes",
    "phrases",
    "questions",
    "grounding",
    "relations",
    "referring",
    "moments",
    "entailment",
    "clicks",
]
Function = TypeVar("Function", bound=Callable[..., Any])

OPTIONS = ("seed", "pictures", "language", "extractor", "redundancy")  # settings that a reader may ask for
VALIDATION = ("dev", "val", "validation")  # three names of one split: whichever a data set has is meant


@dataclass(frozen=True)
class DataConfig:
    """Which data set, where it lies, and how much of it."""

    name: str = "world"  # a row of DATA_SETS: world, precomp, store …; of questions also several: flickr8k+daquar
    root: Path | None = None  # the data set's folder; the world needs none; of a sum, the folder of their folders
    train_split: str = "train"
    dev_split: str = "dev"
    test_split: str = "test"
    held_out: int = 0  # every so many-th picture of train_split is not learned from: it judges in dev_split's place
    limit: int | None = None  # at most so many pictures of each split
    train_limit: int | None = None  # at most so many pictures to learn from
    in_memory: bool = False  # read all regions once and keep them on the training device: quicker, where they fit
    extractor: str = "grid"  # of photos: grid, bottomup …; the world has its own, or grid:world/7
    language: str = "en"  # of the captions, where a data set has several
    seed: int = 0  # the world's
    pictures: int = 2000  # the world's size
    redundancy: float = 0.5  # of the world's shoppers: how often a title says what another modality shows

    def __post_init__(self) -> None:
        if self.train_limit is not None and self.train_limit < 1:
            raise SaccadeError(f"data.train_limit must be at least 1, not {self.train_limit}")
        if self.held_out < 0 or self.held_out == 1:
            raise SaccadeError(f"data.held_out must be 0 (nothing is held out) or at least 2, not {self.held_out}")


@dataclass(frozen=True)
class Part:
    """A file or folder ("NAME/") of a data set; any one of `names` will do, and "*" stands for anything."""

    names: tuple[str, ...]
    holds: str
    needed: bool = True
    home: str = ""  # where to get it, if not where the data set is from

    def found(self, folder: Path) -> tuple[Path, ...]:
        return find_part(folder, self.names)


@dataclass(frozen=True)
class DataSet:
    """One row: a published data set of photos, a format of feature files, or the world."""

    name: str
    title: str
    kind: Literal["photos", "features", "captions", "made", "logs"] = "photos"
    readers: Mapping[Annotation, str | Callable[..., Any]] = field(default_factory=dict)
    splits: str = ""  # "module:function" that gives the names of the splits in a folder of photos
    signs: tuple[str, ...] = ()  # a folder with one of these is taken for this data set …
    recognise: str = ""  # … or what "module:function" says of a path
    layouts: tuple[tuple[Part, ...], ...] = ()  # the ways in which its parts may lie in a folder
    home: str = ""  # where to get it
    licence: str = ""

    def reader(self, annotation: Annotation) -> Callable[..., Any]:
        """Raises: SaccadeError if it holds no such annotations."""
        found = self.readers.get(annotation)
        if found is None:
            known = ", ".join(names_with(annotation))
            raise SaccadeError(f"data={self.name} has no {annotation} (there are in: {known})")
        return imported(found) if isinstance(found, str) else found

    def is_at(self, path: Path) -> bool:
        """Whether this is what lies at a path, judged by files that only it has."""
        if self.recognise:
            return bool(imported(self.recognise)(path))
        return path.is_dir() and any(find_part(path, (sign,)) for sign in self.signs)

    def layout_at(self, folder: Path) -> tuple[Part, ...]:
        """The layout of which most of the needed parts are there; the first of equals."""

        def share(layout: tuple[Part, ...]) -> float:
            needed = [part for part in layout if part.needed]
            return sum(bool(part.found(folder)) for part in needed) / len(needed)

        return max(self.layouts, key=share)

    def missing(self, folder: Path) -> Iterator[str]:
        """An error text for each needed part that is not there: what it is, and where it is to be had."""
        for part in self.layout_at(folder):
            if part.needed and not part.found(folder):
                names = " or ".join(islice(part.names, 2))
                yield f"{folder} has no {names} ({part.holds}): get it from {part.home or self.home}"


def _rows() -> Iterator[DataSet]:
    for name, row in load_table(Path(__file__).with_name("datasets.yaml")).items():
        layouts = tuple(
            tuple(Part(**{**part, "names": tuple(part["names"])}) for part in parts) for parts in row.get("layouts", ())
        )
        yield DataSet(name, **{**row, "signs": tuple(row.get("signs", ())), "layouts": layouts})


DATA_SETS = {row.name: row for row in _rows()}  # in the order in which a path is judged: the first that it fits


def reader(name: str, annotation: Annotation = "captions") -> Callable[[Function], Function]:
    """Register a reader of one's own under a name: `@reader("holidays")` over `open(split, root, **options)`."""

    def register(function: Function) -> Function:
        row = DATA_SETS.get(name) or DataSet(name, name)
        DATA_SETS[name] = replace(row, readers={**row.readers, annotation: function})
        return function

    return register


def names_with(annotation: Annotation) -> tuple[str, ...]:
    """The data sets that hold such annotations."""
    return tuple(name for name, row in DATA_SETS.items() if annotation in row.readers)


def find_photos(name: str) -> DataSet:
    """A data set of photos by name. Raises: SaccadeError if there is none."""
    known = [row.name for row in DATA_SETS.values() if row.layouts]
    if name not in known:
        raise SaccadeError(f"there is no photo data set {not_among(name, known)}")
    return DATA_SETS[name]


def recognise(path: Path, kinds: Collection[str] = ("photos", "features", "captions")) -> DataSet | None:
    """What lies at a path, judged by its files and first bytes; None if it is of none of these kinds."""
    return next((row for row in DATA_SETS.values() if row.kind in kinds and row.is_at(path)), None)


def open_records(config: DataConfig, split: str, annotation: Annotation = "captions") -> Any:
    """The records of one split, as its reader gives them with the settings that it asks for.

    Raises: SaccadeError if there is no such data set.
    """
    if config.name not in DATA_SETS:
        raise SaccadeError(f"there is no data set {not_among(config.name, names_with(annotation))}")
    row = DATA_SETS[config.name]
    if row.layouts and annotation != "captions":
        need_root(config.root, row.name, ", ".join(part.names[0] for part in row.layouts[0]))
    read = row.reader(annotation)
    options: dict[str, Any] = {name: getattr(config, name) for name in OPTIONS}
    parameters = inspect.signature(read).parameters.values()
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        options = {k: v for k, v in options.items() if k in {p.name for p in parameters}}
    root = config.root
    if root is not None and (row.signs or row.recognise) and not row.is_at(root) and row.is_at(root / row.name):
        root = root / row.name  # the folder of all data sets' folders was given
    try:
        return read(split, root, **options)
    except SaccadeError as error:
        if row.layouts and root is not None and root.is_dir() and any(row.missing(root)) and row.home not in str(error):
            raise type(error)(f"{error}; get it from {row.home}") from error
        raise


def need_root(root: Path | None, name: str, holds: str) -> Path:
    """The folder of a data set. Raises: SaccadeError if none was given or it is not there."""
    if root is None:
        raise SaccadeError(f"data={name} needs a folder: give root=FOLDER, which holds {holds}")
    if not root.is_dir():
        raise SaccadeError(f"{root} is not a folder: give root=FOLDER; data={name} reads one that holds {holds}")
    return root


class NoSplit(SaccadeError):
    """A split that a data set does not have."""


def chosen_splits(split: str, known: Collection[str], where: object) -> frozenset[str]:
    """The parts of a split's name: "train+extra" are two. Raises: NoSplit if one is not known.

    "dev" and "val" mean the same, and "train" means "train2017", where only the other is known.
    """
    parts = set()
    for part in split.split("+"):
        names = [part, *VALIDATION] if part in VALIDATION else [part]
        years = [name for name in sorted(known, reverse=True) if name[-4:].isdecimal() and name[:-4] in names]
        found = next((name for name in [*names, *years] if name in known), None)
        if found is None:
            raise NoSplit(f"{where} has no split {not_among(part, sorted(known))}")
        parts.add(found)
    return frozenset(parts)


def parts_of(config: DataConfig) -> tuple[DataConfig, ...]:
    """The data sets that are meant: "flickr8k+daquar" are two, each in the folder of its name inside `root`.

    Raises: SaccadeError if one is named twice, or several have no folder.
    """
    names = config.name.split("+")
    if len(names) == 1:
        return (config,)
    if len(set(names)) < len(names):
        raise SaccadeError(f"data={config.name} names a data set twice")
    root = need_root(config.root, config.name, " and ".join(f"{name}/" for name in names))
    return tuple(replace(config, name=name, root=root / name) for name in names)


def own_split(config: DataConfig, split: str, annotation: Annotation) -> str:
    """Of a sum of splits those that a data set has: of "train+extra" DAQUAR has "train"; all of them if it has none."""
    row = DATA_SETS.get(config.name)
    if row is None or not row.splits or config.root is None or not config.root.is_dir():
        return split
    found = imported(row.splits)(config.root)
    known = found.get(annotation, found.get("captions", ()))  # questions read off captions are of their splits

    def has(part: str) -> bool:
        try:
            return bool(chosen_splits(part, known, config.root))
        except NoSplit:
            return False

    return "+".join(part for part in split.split("+") if has(part)) or split


def share_pictures(split: str, other: str) -> bool:
    """Whether two splits of one data set, or sums of them, have pictures in common, judged by their names."""
    one, two = ({_plain_name(part) for part in name.split("+")} for name in (split, other))
    return "all" in one | two or bool(one & two)


def _plain_name(part: str) -> str:
    name = re.sub(r"20\d\d$", "", part)
    return VALIDATION[0] if name in VALIDATION else name


def same_data(one: DataConfig, other: DataConfig) -> bool:
    """Whether splits of the same name hold the same pictures in both: one data set of each is the same, at the same
    place."""

    def facts(config: DataConfig) -> set[tuple[str, Path | None, int]]:
        return {
            (
                part.name,
                part.root and part.root.resolve(),
                part.seed if part.name.startswith("world") else 0,
            )
            for part in parts_of(config)
        }

    return bool(facts(one) & facts(other))


def find_part(folder: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    """What is there of a part; a name that ends in "/" must be a folder."""
    for name in names:
        matches = sorted(p for p in folder.glob(name.rstrip("/")) if p.is_dir() == name.endswith("/"))
        if matches:
            return tuple(matches)
    return ()


def imported(name: str) -> Callable[..., Any]:
    """The function that "module:function" names, of a module in `saccade.data`."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"saccade.data.{module}"), function)
    return found
