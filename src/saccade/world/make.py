"""Making a world: scenes, captions and pictures by several processes, written whole or not at all."""

from __future__ import annotations

import json
import multiprocessing
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.core.config import to_dict
from saccade.core.errors import SaccadeError
from saccade.core.files import atomic_folder, sha256, write_json
from saccade.core.threads import cores
from saccade.world.captions import caption_scene, twin_pair
from saccade.world.dice import Dice
from saccade.world.render import render
from saccade.world.sample import Wish, sample_scene
from saccade.world.scene import Scene, SceneCaption
from saccade.world.store import GENERATOR, SPLITS, RowWriter, SceneRow, World, WorldConfig, open_world

CHUNK = 32  # pictures (about) that one worker makes at a time, and one record batch on disk

Captioned = tuple[Scene, tuple[SceneCaption, ...]]


@dataclass(frozen=True)
class Order:
    """Some groups of one split to make: a group is a scene, or a pair of twins."""

    config: WorldConfig
    split: str
    start: int
    stop: int


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
            with RowWriter(path, config.size) as writer:
                for rows in _fulfil(_orders(config, split), workers):
                    writer.write(rows)
                    done += len(rows)
                    if progress:
                        progress(done, total)
            files[path.name] = {"pictures": counts[split], "bytes": path.stat().st_size, "sha256": sha256(path)}
        manifest = {"format": "saccade world", "generator": GENERATOR, "config": to_dict(config), "files": files}
        write_json(temporary / "manifest.json", manifest)
    return open_world(target)


def _pairs(config: WorldConfig, split: str) -> int:
    """How many groups of a split are pairs of twins; they come first."""
    if split == "hard":
        return config.hard_groups
    return round(config.counts()["train"] * config.twins / 2) if split == "train" else 0


def _orders(config: WorldConfig, split: str) -> list[Order]:
    groups = config.counts()[split] - _pairs(config, split)
    return [Order(config, split, n, min(n + CHUNK, groups)) for n in range(0, groups, CHUNK)]


def _fulfil(orders: list[Order], workers: int | None) -> Iterator[list[SceneRow]]:
    """The orders' rows, in order. Every group has a seed of its own, so the workers' number changes nothing."""
    count = min(workers or cores(), len(orders))
    if count <= 1:
        yield from map(make_rows, orders)
        return
    context = multiprocessing.get_context("fork" if sys.platform.startswith("linux") else "spawn")
    pool = ProcessPoolExecutor(count, mp_context=context)
    try:
        waiting: list[Future[list[SceneRow]]] = []
        for order in orders:
            waiting.append(pool.submit(make_rows, order))
            if len(waiting) > 3 * count:  # enough ahead to keep all busy, little enough to keep in memory
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()
    except BrokenProcessPool as error:
        raise SaccadeError("a process making pictures was ended from outside (out of memory?)") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def make_rows(order: Order) -> list[SceneRow]:
    """Draw, word and paint the groups of one order."""
    rows: list[SceneRow] = []
    pairs = _pairs(order.config, order.split)
    for group in range(order.start, order.stop):
        first = group * 2 if group < pairs else group + pairs
        for scene, captions in _group(order, group, first, group < pairs):
            picture = render(scene, order.config.size)
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


def _group(order: Order, group: int, first: int, paired: bool) -> tuple[Captioned, ...]:
    config, split = order.config, order.split
    dice = Dice(config.seed, split, group)
    names = (f"{split}-{first:06d}", f"{split}-{first + 1:06d}")
    if split == "hard":
        return twin_pair(dice, names, config.captions, hidden=0.12)
    if paired:  # some of their captions distinguish the twins, the others are ordinary
        pair = twin_pair(dice, names, (config.captions + 1) // 2, hidden=0.2)
        return tuple((scene, caption_scene(scene, dice, config.captions, given)) for scene, given in pair)
    wish = Wish(least=1, most=6, novel=True) if split == "novel" else Wish()
    scene = sample_scene(dice, names[0], wish)
    return ((scene, caption_scene(scene, dice, config.captions)),)
