# mypy: disable-error-code="attr-defined"
"""A world's settings, and a world on disk: one Arrow file a split, memory-mapped, and a manifest of its files.

Scenes, captions and pictures are made by several processes, and written whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_type_hints

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line
from jaxtyping import Bool, Float32, UInt8

from saccade.core.arrow import map_batches
from saccade.core.cache import cached, close_to_others
from saccade.core.config import from_dict, to_dict
from saccade.core.errors import SaccadeError, not_among
from saccade.core.files import atomic_folder, read_json, sha256, write_json
from saccade.core.interrupt import end_with_parent, without_interrupts
from saccade.core.threads import cores
from saccade.world.captions import caption_scene, twin_pair
from saccade.world.dice import Dice
from saccade.world.render import render
from saccade.world.sample import Colouring, Wish, sample_scene
from saccade.world.scene import Scene, SceneCaption, SceneRelation

T = TypeVar("T")
GENERATOR = 4  # raised whenever the same configuration would give another picture or sentence

SPLITS = ("train", "dev", "test", "hard", "novel")
CHUNK = 32  # pictures (about) that one worker makes at a time, and one record batch on disk


# Of train and dev, and of test.
_COLOURINGS: dict[str, tuple[Colouring, Colouring]] = {
    "any": ("any", "any"),
    "biased": ("biased", "any"),
    "cogent": ("cogent_a", "cogent_b"),
}


@dataclass(frozen=True)
class WorldConfig:
    """A world of 2,000 pictures with the twins and novelties that test a model on it."""

    pictures: int = 2000  # train, dev and test together: 80, 10 and 10 per cent
    seed: int = 0
    size: int = 128  # of a picture's side, in pixels
    captions: int = 5  # a picture
    twins: float = 0.3  # share of the train pictures that come in pairs differing in one binding only
    hard_groups: int = 150  # pairs of twins in `hard`
    novel: int = 200  # pictures of compositions never shown in any other split
    colours: Literal["any", "biased", "cogent"] = "any"  # of train and dev; test has any, or the other halves

    def __post_init__(self) -> None:
        for name, least in (("pictures", 0), ("size", 32), ("captions", 1), ("hard_groups", 0), ("novel", 0)):
            if getattr(self, name) < least:
                raise SaccadeError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not 0.0 <= self.twins <= 1.0:
            raise SaccadeError(f"twins is a share of the train pictures, from 0 to 1, not {self.twins}")

    def counts(self) -> dict[str, int]:
        """Pictures per split."""
        tenth = self.pictures // 10
        return {
            "train": self.pictures - 2 * tenth,
            "dev": tenth,
            "test": tenth,
            "hard": 2 * self.hard_groups,
            "novel": self.novel,
        }

    def wish(self, split: str) -> Wish:
        """How the scenes of a split are drawn (but for twins)."""
        if split == "novel":
            return Wish(least=1, most=6, novel=True)
        if split in ("train", "dev"):
            return Wish(colouring=_COLOURINGS[self.colours][0])
        return Wish(colouring=_COLOURINGS[self.colours][1] if split == "test" else "any")

    def digest(self) -> str:
        fields = {name: value for name, value in to_dict(self).items() if name != "colours" or value != "any"}
        text = json.dumps({"generator": GENERATOR, **fields}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def folder(self) -> Path:
        """Where this world is kept by default."""
        return cached("world", self.digest())


# Splits of worlds in which colours go with kinds, by the names under which readers have them.
COLOURED_SPLITS = {
    "biased": ("biased", "train"),
    "biased_dev": ("biased", "dev"),
    "cogent_a": ("cogent", "train"),
    "cogent_a_dev": ("cogent", "dev"),
    "cogent_b": ("cogent", "test"),
}


def locate_split(split: str) -> tuple[dict[str, Any], str]:
    """The settings of the world that has a split, and its name there. Raises: SaccadeError if none has."""
    if split in COLOURED_SPLITS:
        colours, own = COLOURED_SPLITS[split]
        return {"colours": colours, "hard_groups": 0, "novel": 0}, own
    if split not in SPLITS:
        raise SaccadeError(f"the world has no split {not_among(split, (*SPLITS, *COLOURED_SPLITS))}")
    return {}, split


class SceneRow(NamedTuple):
    """One picture as it is stored."""

    id: str
    group: int
    scene: str  # JSON
    captions: str  # JSON
    boxes: bytes  # float32 [thing, 4]
    owners: bytes  # uint8 [row, column], compressed: 0 is background, n is thing n - 1
    image: bytes  # uint8 [row, column, 3]


class Triplet(NamedTuple):
    """A relation with where its two things are."""

    relation: SceneRelation
    subject_box: Float32[np.ndarray, 4]
    object_box: Float32[np.ndarray, 4]


_TYPES = {str: pa.string(), int: pa.int32(), bytes: pa.binary()}
_SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in get_type_hints(SceneRow).items()])


class Split:
    """Pictures 0 … n - 1 with everything known about them, read on demand."""

    def __init__(self, name: str, path: Path, size: int) -> None:
        self.name, self.path, self.size = name, path, size
        self._table: Any = pa.Table.from_batches(map_batches(path, _SCHEMA, "a world"), _SCHEMA)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._table.column("id").to_pylist())

    @cached_property
    def groups(self) -> np.ndarray:
        """int32 [picture]: twins have the same number, every other picture one of its own."""
        return np.asarray(self._table.column("group").to_numpy())

    def _cell(self, column: str, i: int) -> Any:
        if not -len(self) <= i < len(self):
            raise IndexError(f"{self.name} has {len(self)} pictures, there is no picture {i}")
        return self._table.column(column)[i % len(self)]

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, zlib.error) as error:
            raise SaccadeError(f"{self.path} is damaged: make the world again") from error

    def scene(self, i: int) -> Scene:
        text = self._cell("scene", i).as_py()
        with self._damage_named():
            return Scene.from_json(json.loads(text))

    def captions(self, i: int) -> tuple[SceneCaption, ...]:
        text = self._cell("captions", i).as_py()
        with self._damage_named():
            return tuple(SceneCaption.from_json(c) for c in json.loads(text))

    def image(self, i: int) -> UInt8[np.ndarray, "row column 3"]:
        """Read-only, straight from the mapped file."""
        pixels = self._cell("image", i).as_buffer()
        with self._damage_named():
            return np.frombuffer(pixels, np.uint8).reshape(self.size, self.size, 3)

    def boxes(self, i: int) -> Float32[np.ndarray, "thing 4"]:
        """xyxy in 0..1, of the visible part of each thing (zeros if there is none)."""
        numbers = self._cell("boxes", i).as_buffer()
        with self._damage_named():
            return np.frombuffer(numbers, np.float32).reshape(-1, 4)

    def masks(self, i: int) -> Bool[np.ndarray, "thing row column"]:
        """The visible part of each thing."""
        packed, size = self._cell("owners", i).as_py(), self.size
        with self._damage_named():
            unpacked = zlib.decompressobj().decompress(packed, size * size + 1)  # no more, whatever is in it
            owners = np.frombuffer(unpacked, np.uint8).reshape(size, size)
        return np.equal(owners[None], np.arange(1, len(self.boxes(i)) + 1, dtype=np.uint8)[:, None, None])

    def triplets(self, i: int) -> tuple[Triplet, ...]:
        boxes, relations = self.boxes(i), self.scene(i).relations
        with self._damage_named():
            return tuple(Triplet(r, boxes[r.subject], boxes[r.object]) for r in relations)


class World:
    """Splits by name, and the configuration they were made from."""

    splits: tuple[str, ...] = SPLITS

    def __init__(self, folder: Path, config: WorldConfig, splits: dict[str, Split]) -> None:
        self.folder, self.config, self._splits = folder, config, splits

    def split(self, name: str) -> Split:
        if name not in self._splits:
            raise SaccadeError(f'a world has no split "{name}": there are {", ".join(SPLITS)}')
        return self._splits[name]

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {len(split)}" for name, split in self._splits.items())
        return f"World({self.folder}: {counts})"


def make_world(
    config: WorldConfig,
    folder: Path | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> World:
    """Make the world, or open it if it was made before. `progress` gets (pictures made, pictures in all)."""
    target = Path(folder) if folder is not None else config.folder()
    if (target / "manifest.json").is_file():
        world = open_world(target)
        if world.config == config:
            return world
        if folder is not None:
            raise SaccadeError(f"{target} holds a world of other settings: choose another folder or remove it")
    elif target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise SaccadeError(f"{target} is in the way: it exists and holds no world")
    counts, total, done = config.counts(), sum(config.counts().values()), 0
    with atomic_folder(target) as temporary:
        files = {}
        for split in SPLITS:
            path = temporary / f"{split}.arrow"
            schema = _SCHEMA.with_metadata({"size": str(config.size)})
            with pa.ipc.new_file(str(path), schema) as writer, closing(_made(config, split, workers)) as made:
                for rows in made:
                    columns = [pa.array(c, kind.type) for c, kind in zip(zip(*rows, strict=True), schema, strict=True)]
                    writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
                    done += len(rows)
                    if progress:
                        progress(done, total)
            files[path.name] = {"pictures": counts[split], "bytes": path.stat().st_size, "sha256": sha256(path)}
        manifest = {"format": "saccade world", "generator": GENERATOR, "config": to_dict(config), "files": files}
        write_json(temporary / "manifest.json", manifest)
        if folder is None:
            close_to_others(temporary)
    return open_world(target)


def _pairs(config: WorldConfig, split: str) -> int:
    """How many groups of a split are pairs of twins; they come first.

    There are none in train where colours go with kinds: twins exchange them.
    """
    if split == "hard":
        return config.hard_groups
    return round(config.counts()["train"] * config.twins / 2) if split == "train" and config.colours == "any" else 0


def _made(config: WorldConfig, split: str, workers: int | None) -> Generator[list[SceneRow], None, None]:
    """The rows of a split, in order. Every group has a seed of its own, so the workers' number changes nothing."""
    groups = config.counts()[split] - _pairs(config, split)  # a group is a scene, or a pair of twins
    chunks = [range(n, min(n + CHUNK, groups)) for n in range(0, groups, CHUNK)]
    yield from in_processes(make_rows, [(config, split, chunk) for chunk in chunks], workers)


def in_processes(
    make: Callable[..., T], jobs: Sequence[tuple[Any, ...]], workers: int | None = None
) -> Generator[T, None, None]:
    """What `make` gives for the arguments of each job, in order, made by several processes."""
    alone = multiprocessing.current_process().daemon  # such a process may have no children
    count = 1 if alone else min(workers or cores(), len(jobs))
    if count <= 1:
        yield from (make(*job) for job in jobs)
        return
    context = multiprocessing.get_context("fork" if sys.platform.startswith("linux") else "spawn")
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=end_with_parent)
    try:
        waiting: list[Future[T]] = []
        for job in jobs:
            with without_interrupts():
                waiting.append(pool.submit(make, *job))
            if len(waiting) > 3 * count:  # enough ahead to keep all busy, little enough to keep in memory
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()
    except BrokenProcessPool as error:
        raise SaccadeError("a process making the world was ended from outside (out of memory?)") from error
    except BaseException:  # what they are at is of no use any more
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def make_rows(config: WorldConfig, split: str, groups: Iterable[int]) -> list[SceneRow]:
    """Draw, word and paint some groups of a split."""
    rows: list[SceneRow] = []
    for group in groups:
        for scene, captions in _group(config, split, group):
            picture = render(scene, config.size)
            owners = np.zeros(picture.image.shape[:2], np.uint8)  # 0: background, n: thing n - 1
            for n, mask in enumerate(picture.masks):
                owners[mask] = n + 1
            rows.append(
                SceneRow(
                    id=scene.id,
                    group=group,
                    scene=json.dumps(scene.to_json(), separators=(",", ":")),
                    captions=json.dumps([c.to_json() for c in captions], separators=(",", ":"), ensure_ascii=False),
                    boxes=picture.boxes.tobytes(),
                    owners=zlib.compress(owners.tobytes(), 1),
                    image=picture.image.tobytes(),
                )
            )
    return rows


def _group(config: WorldConfig, split: str, group: int) -> tuple[tuple[Scene, tuple[SceneCaption, ...]], ...]:
    dice = Dice(config.seed, split, group)
    pairs = _pairs(config, split)
    first = group * 2 if group < pairs else group + pairs
    names = (f"{split}-{first:06d}", f"{split}-{first + 1:06d}")
    if split == "hard":
        return twin_pair(dice, names, config.captions, hidden=0.12)
    if group < pairs:  # some of their captions distinguish the twins, the others are ordinary
        pair = twin_pair(dice, names, (config.captions + 1) // 2, hidden=0.2)
        return tuple((scene, caption_scene(scene, dice, config.captions, given)) for scene, given in pair)
    scene = sample_scene(dice, names[0], config.wish(split))
    return ((scene, caption_scene(scene, dice, config.captions)),)


def open_world(folder: Path | str, check: bool = False) -> World:
    """Open what `make_world` made. With `check`, every byte is compared with the manifest's checksums."""
    folder = Path(folder)
    path = folder / "manifest.json"
    if not path.is_file():
        raise SaccadeError(f"{folder} holds no world: manifest.json is missing (`saccade world make` makes one)")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != "saccade world":
        raise SaccadeError(f"{path} is not the manifest of a world")
    if manifest.get("generator") != GENERATOR:
        raise SaccadeError(
            f"{folder} was made by generator version {manifest.get('generator')}, this is version {GENERATOR}: "
            "make the world again"
        )
    config = from_dict(WorldConfig, manifest.get("config", {}), where=f"{path}: config")
    splits, files = {}, manifest.get("files")
    for name in SPLITS:
        file = folder / f"{name}.arrow"
        known = files.get(file.name) if isinstance(files, dict) else None
        if not isinstance(known, dict):
            raise SaccadeError(f"{path} does not list {file.name}")
        if not file.is_file():
            raise SaccadeError(f"{file} is missing: make the world again")
        if file.stat().st_size != known.get("bytes"):
            raise SaccadeError(
                f"{file} has {file.stat().st_size} bytes, {known.get('bytes')} were written: it is corrupt"
            )
        if check and sha256(file) != known.get("sha256"):
            raise SaccadeError(f"{file} differs from what was written (checksum): it is corrupt, make the world again")
        splits[name] = Split(name, file, config.size)
    return World(folder, config, splits)


def census(world: World) -> dict[str, Counter[str]]:
    """How often each kind, colour, … is shown, each predicate holds and each word is said, over all splits."""
    names = ("kinds", "colours", "sizes", "materials", "backgrounds", "relations", "words")
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for name in world.splits:
        split = world.split(name)
        for i in range(len(split)):
            scene = split.scene(i)
            for thing in scene.things:
                for key, value in zip(names, thing.identity, strict=False):
                    counts[key][value] += 1
            counts["backgrounds"][scene.background] += 1
            counts["relations"].update(r.predicate for r in scene.relations)
            for caption in split.captions(i):
                counts["words"].update(caption.text.replace(",", " ,").split())
    return counts
