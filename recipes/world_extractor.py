"""Train the extractor of the world: the region network whose weights come with the package.

    python recipes/world_extractor.py --device cuda   # the shipped weights, minutes on a GPU
    python recipes/world_extractor.py --pictures 400 --epochs 8 --out /tmp/extractor       # a try on a CPU

The extractor is taught on a world of its own seed, never on the pictures of the demo, and tested on held-out pictures
and on held-out compositions. It writes world.safetensors and world.json: config, figures, and the command used.
"""

from __future__ import annotations

import platform
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, read_text, write_text
from saccade.vision.backbones.base import fold
from saccade.vision.backbones.world import PICTURE_ATTRIBUTES, REGION_ATTRIBUTES, WorldExtractorConfig, parameter_count
from saccade.vision.detectors.world import WEIGHTS, WorldExtractor, WorldNetwork
from saccade.vision.detectors.world_training import UNKNOWN, LabelledPictures, extractor_loss, extractor_metrics
from saccade.world import Split, World, WorldConfig, make_world
from saccade.world.catalogue import BACKGROUNDS, COLOURS, KINDS, LIGHTINGS, MATERIALS, SIZES

console = Console()
COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
POSES = ("still", "running", "holding", "pushing", "sitting")
FACINGS = ("left", "right")
SMALLEST = 0.025  # of a side: a sliver of three pixels behind another thing is not asked for
SHOWS_FACING = frozenset(k for k, v in KINDS.items() if v.roles & {"creature", "mover", "mount"}) | {"fish"}


def world_config() -> WorldExtractorConfig:
    return WorldExtractorConfig(
        kinds=tuple(KINDS),
        colours=tuple(COLOURS),
        sizes=tuple(SIZES),
        materials=tuple(MATERIALS),
        poses=POSES,
        facings=FACINGS,
        backgrounds=tuple(BACKGROUNDS),
        lightings=tuple(LIGHTINGS),
    )


def draw_world(config: WorldConfig, workers: int | None) -> World:
    with Progress(*COLUMNS, console=console) as progress:
        bar = progress.add_task("drawing the world", total=None)
        return make_world(config, workers=workers, progress=lambda n, all: progress.update(bar, completed=n, total=all))


def labelled(split: Split, config: WorldExtractorConfig) -> LabelledPictures:
    """A split of the world as tensors: every picture in memory once, as bytes."""
    scenes = [split.scene(i) for i in range(len(split))]
    most = max((len(s.things) for s in scenes), default=1) or 1
    pixels = np.stack([split.image(i) for i in range(len(split))])
    boxes = np.zeros((len(scenes), most, 4), dtype=np.float32)
    real = np.zeros((len(scenes), most), dtype=bool)
    things = np.full((len(scenes), most, len(REGION_ATTRIBUTES)), UNKNOWN, dtype=np.int64)
    places = np.full((len(scenes), len(PICTURE_ATTRIBUTES)), UNKNOWN, dtype=np.int64)
    number = {name: {label: i for i, label in enumerate(labels)} for name, labels in config.labels.items()}
    for i, scene in enumerate(scenes):
        found = split.boxes(i)
        usable = (found[:, 2:] - found[:, :2] > SMALLEST).all(axis=1)  # what is hidden has no box to find
        boxes[i, : len(found)], real[i, : len(found)] = found, usable
        for j, thing in enumerate(scene.things):
            for k, attribute in enumerate(REGION_ATTRIBUTES):
                label = getattr(thing, attribute)
                if attribute == "facing":
                    label = ("left" if thing.facing < 0 else "right") if thing.kind in SHOWS_FACING else None
                things[i, j, k] = number[attribute].get(label, UNKNOWN)
        for k, attribute in enumerate(PICTURE_ATTRIBUTES):
            places[i, k] = number[attribute].get(getattr(scene, attribute), UNKNOWN)
    parts = (torch.from_numpy(a) for a in (pixels, boxes, real, things, places))
    return LabelledPictures(*parts)


def teach(
    network: WorldNetwork, pictures: LabelledPictures, epochs: int, batch_size: int, rate: float, device: str
) -> list[float]:
    """Train in place; returns the mean loss of each epoch."""
    network.to(device=device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    pictures, kind = pictures.to(device), torch.device(device).type
    decayed = [p for p in network.parameters() if p.ndim > 1]
    plain = [p for p in network.parameters() if p.ndim <= 1]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}]
    steps = max(len(pictures) // batch_size, 1)
    optimiser = torch.optim.AdamW(groups, lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=epochs * steps, pct_start=0.15)
    means: list[float] = []
    with Progress(*COLUMNS, console=console) as progress:
        bar = progress.add_task("teaching the extractor", total=epochs * steps)
        for _ in range(epochs):
            order = torch.randperm(len(pictures), device=device)
            total = torch.zeros((), device=device)
            for step in range(steps):
                batch = pictures.select(order[step * batch_size : (step + 1) * batch_size])
                with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
                    loss = torch.stack(list(extractor_loss(network, batch).values())).sum()
                optimiser.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(network.parameters(), 10.0)
                optimiser.step()
                schedule.step()
                total += loss.detach()
                progress.advance(bar)
            means.append(float(total) / steps)
            progress.update(bar, description=f"teaching the extractor, loss {means[-1]:.3f}")
    return means


def main(
    pictures: Annotated[int, typer.Option(help="Pictures of the world to make, all splits together.")] = 16000,
    epochs: Annotated[int, typer.Option(help="How often each picture is shown.")] = 50,
    batch_size: Annotated[int, typer.Option(help="Pictures a step.")] = 128,
    rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 3e-3,
    seed: Annotated[int, typer.Option(help="Of the world and of the weights; not the demo's, which is 0.")] = 7001,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda" if torch.cuda.is_available() else "cpu",
    workers: Annotated[int | None, typer.Option(help="Processes that draw the world; all cores unless told.")] = None,
    out: Annotated[Path, typer.Option(help="Where world.safetensors and world.json go.")] = WEIGHTS,
    docs: Annotated[Path | None, typer.Option(help="A page to write the figures into, e.g. docs/vision.md.")] = None,
    report_only: Annotated[bool, typer.Option(help="Train nothing: only write the figures into --docs.")] = False,
) -> None:
    """Make a world, teach an extractor to find and name what is in it, test it, and keep it."""
    if report_only:
        report(out, docs)
        return
    started = time.perf_counter()
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    config = world_config()
    console.print(f"making a world of {pictures} pictures (seed {seed})")
    drawn = WorldConfig(pictures=pictures, seed=seed, captions=1, twins=0.0, hard_groups=0, novel=pictures // 20)
    world = draw_world(drawn, workers)
    splits = {name: labelled(world.split(name), config) for name in ("train", "test", "novel")}
    made = time.perf_counter()
    network = WorldNetwork(config)
    console.print(
        f"{len(splits['train'])} pictures to learn from, {parameter_count(network) / 1e6:.2f} M weights, {device}"
    )
    losses = teach(network, splits["train"], epochs, batch_size, rate, device)
    taught = time.perf_counter()
    fold(network.eval())
    figures = {name: extractor_metrics(network, splits[name]) for name in ("test", "novel") if len(splits[name])}
    facts = {
        "figures": {k: {name: round(v, 4) for name, v in f.items()} for k, f in figures.items()},
        "pictures": {name: len(split) for name, split in splits.items()},
        "loss": [round(loss, 4) for loss in losses],
        "seconds": {"world": round(made - started, 1), "training": round(taught - made, 1)},
        "machine": torch.cuda.get_device_name() if device.startswith("cuda") else f"CPU, {platform.machine()}",
        "command": f"python recipes/world_extractor.py --pictures {pictures} --epochs {epochs} "
        f"--batch-size {batch_size} --rate {rate} --seed {seed} --device {device}",
    }
    WorldExtractor(network.to("cpu")).save(out, facts)
    console.print(_table(figures))
    report(out, docs)
    console.print(f"wrote {out / 'world.safetensors'} after {time.perf_counter() - started:.0f} s")


def report(out: Path, docs: Path | None) -> None:
    """Put the figures kept beside the weights into a page, between its two comment lines."""
    if docs is None:
        return
    facts = read_json(out / "world.json")
    if "figures" not in facts:
        raise SaccadeError(f"{out / 'world.json'} holds no figures: train the extractor first")
    page = read_text(docs)
    start, end = "<!-- figures:", "<!-- end of figures -->"
    if start not in page or end not in page:
        raise SaccadeError(f'{docs} has no lines "{start} … -->" and "{end}" to write between')
    head, _, rest = page.partition(start)
    first_line, tail = rest.partition("\n")[0], rest.partition(end)[2]
    write_text(docs, f"{head}{start}{first_line}\n\n{markdown(facts)}\n{end}{tail}")


def markdown(facts: dict[str, Any]) -> str:
    names = list(facts["figures"])
    counts = facts["pictures"]
    meaning = {
        "recall": "things that a proposal overlaps by ≥ 0.5",
        "overlap": "mean IoU of those",
        "precision": "proposals that match a thing",
        "proposals": "proposals a picture",
        "all_four": "kind, colour, size and material all right",
    }
    lines = [
        f"`{facts['command']}`: {counts['train']} pictures, {len(facts['loss'])} epochs, "
        f"{facts['seconds']['training']:.0f} s on {facts['machine']}. "
        f"Tested on pictures never taught (one training run): "
        + ", ".join(f"{counts[n]} of `{n}`" for n in names)
        + ". Attributes are read from the best proposal of each thing that was found.",
        "",
        "| | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for key in facts["figures"][names[0]]:
        values = [facts["figures"][n].get(key, float("nan")) for n in names]
        shown = [f"{v:.2f}" if key in ("proposals", "overlap") else f"{100 * v:.1f} %" for v in values]
        lines.append(f"| {meaning.get(key, key)} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _table(figures: dict[str, dict[str, float]]) -> Table:
    table = Table("figure", *figures, title="the extractor on pictures it has not been taught with")
    for name in next(iter(figures.values())):
        table.add_row(name, *(f"{f[name]:.3f}" if name in f else "" for f in figures.values()))
    return table


if __name__ == "__main__":
    try:
        typer.run(main)
    except SaccadeError as error:
        sys.exit(f"error: {error}")
