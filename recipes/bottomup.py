"""Train a bottom-up region detector: on the world, on Flickr8k's photos, or on boxes of your own.

    python recipes/bottomup.py --data flickr8k --root data/flickr8k --out runs/bottomup  # minutes on one GPU
    python recipes/bottomup.py --data world --backbone world --size 128 --pictures 600 --epochs 6 --out /tmp/detector
    python recipes/bottomup.py --data coco --root data/coco --split train2017 --test-split val2017 --out runs/coco

All pictures are decoded once and stay on the device as bytes; they are mirrored, cropped and recoloured there. It
writes bottomup_DATA.safetensors and bottomup_DATA.json (config, names, figures, the command), which the extractor
`bottomup:FOLDER` opens.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from saccade.cli.options import Device
from saccade.core.errors import SaccadeError, did_you_mean
from saccade.core.weights import Form
from saccade.metrics.detection import detector_figures
from saccade.vision.backbones.base import load_backbone
from saccade.vision.detectors.bottomup import BottomUpConfig, BottomUpExtractor, BottomUpNetwork
from saccade.vision.detectors.training import BoxedPictures, NamedBoxes, detector_loss, label_names, load_boxed_pictures
from saccade.world import Split, WorldConfig, make_world

console = Console()
BEST_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
SMALLEST = 0.025  # of a side: a sliver behind another thing is not asked for
WARM_UP = 0.05  # of the steps
DECAY = 0.05
MOST_RECENT = 0.999  # how much of the averaged weights stays at each step


@dataclass(frozen=True)
class WorldPicture:
    """A scene of the world as a detector learns from it: kinds as classes; colour, size and material as attributes."""

    path: np.ndarray
    boxes: np.ndarray
    names: tuple[str, ...]
    attributes: tuple[tuple[str, ...], ...]


def boxed_world(split: Split) -> list[WorldPicture]:
    found = []
    for i in range(len(split)):
        things, boxes = split.scene(i).things, split.boxes(i)
        seen = [j for j in range(len(things)) if (boxes[j, 2:] - boxes[j, :2] > SMALLEST).all()]
        attributes = tuple(
            tuple(str(a) for a in (things[j].colour, things[j].size, things[j].material) if a) for j in seen
        )
        found.append(WorldPicture(split.image(i), boxes[seen], tuple(things[j].kind for j in seen), attributes))
    return found


def boxed_pictures(data: str, root: Path | None, split: str, world: tuple[int, int]) -> Sequence[NamedBoxes]:
    """The pictures of a split with their named boxes, whatever data set they are from."""
    readers = ("world", "flickr8k", "coco", "visual-genome")
    if data not in readers:
        raise SaccadeError(f'there is no data "{data}"{did_you_mean(data, readers)} (there are: {", ".join(readers)})')
    if data == "world":
        pictures, seed = world
        config = WorldConfig(pictures=pictures, seed=seed, captions=1, twins=0.0, hard_groups=0, novel=0)
        return boxed_world(make_world(config).split(split))
    if root is None:
        raise SaccadeError(f"--data {data} needs --root, the folder it is in")
    if data == "flickr8k":
        from saccade.data.datasets.entities import boxed_entities

        return boxed_entities(root, split)
    if data == "coco":
        from saccade.data.datasets.coco import boxed_coco

        return boxed_coco(root, split)
    from saccade.data.datasets.visual_genome import boxed_visual_genome

    return boxed_visual_genome(root, split)


def load(pictures: Sequence[NamedBoxes], classes: Sequence[str], attributes: Sequence[str], size: int) -> BoxedPictures:
    with Progress(*COLUMNS, console=console) as progress:
        bar = progress.add_task("opening pictures", total=len(pictures))
        return load_boxed_pictures(
            pictures,
            classes,
            attributes,
            size,
            workers=os.cpu_count() or 1,
            progress=lambda n: progress.update(bar, completed=n),
        )


class Average:
    """The running mean of the weights, which is what is kept: smoother than the last step's."""

    def __init__(self, network: BottomUpNetwork) -> None:
        self.weights = [p for p in network.parameters() if p.requires_grad]
        self.means = [p.detach().clone() for p in self.weights]
        self.steps = 0

    @torch.no_grad()
    def update(self) -> None:
        self.steps += 1
        share = 1 - min(MOST_RECENT, self.steps / (self.steps + 10))
        torch._foreach_lerp_(self.means, [p.detach() for p in self.weights], share)

    @torch.no_grad()
    def put(self) -> None:
        for weight, mean in zip(self.weights, self.means, strict=True):
            weight.copy_(mean)


def groups(network: BottomUpNetwork, rate: float, backbone_rate: float) -> list[dict[str, Any]]:
    """The backbone learns more slowly, or not at all; one-dimensional weights do not decay."""
    found: list[dict[str, Any]] = []
    inside = {id(p) for p in network.backbone.parameters()}
    for is_backbone, share in ((True, backbone_rate), (False, 1.0)):
        if not share:
            network.backbone.requires_grad_(False)
            continue
        mine = [p for p in network.parameters() if (id(p) in inside) == is_backbone]
        found.append({"params": [p for p in mine if p.ndim > 1], "lr": rate * share, "weight_decay": DECAY})
        found.append({"params": [p for p in mine if p.ndim <= 1], "lr": rate * share, "weight_decay": 0.0})
    return found


def teach(
    network: BottomUpNetwork,
    pictures: BoxedPictures,
    epochs: int,
    batch_size: int,
    rate: float,
    backbone_rate: float = 0.1,
    device: str = "cpu",
) -> list[dict[str, float]]:
    """Train in place; returns the mean of every part of the loss, epoch by epoch."""
    kind = torch.device(device).type
    network.to(device=device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    pictures = pictures.to(device)
    batch_size = min(batch_size, len(pictures))
    steps = len(pictures) // batch_size
    parameters = groups(network, rate, backbone_rate)
    optimiser = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.99), fused=kind == "cuda")
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        [g["lr"] for g in parameters],
        total_steps=epochs * steps + 1,
        pct_start=WARM_UP,
        cycle_momentum=False,
    )
    average = Average(network)
    learned = [p for g in parameters for p in g["params"]]
    history: list[dict[str, float]] = []
    with Progress(*COLUMNS, console=console) as progress:
        bar = progress.add_task("teaching the detector", total=epochs * steps)
        for _ in range(epochs):
            order = torch.randperm(len(pictures), device=device)
            total: Any = None
            for step in range(steps):
                batch = pictures.select(order[step * batch_size : (step + 1) * batch_size])
                with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
                    losses = detector_loss(network, batch)
                parts = torch.stack(list(losses.values()))
                optimiser.zero_grad(set_to_none=True)
                parts.sum().backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(learned, 5.0)
                optimiser.step()
                schedule.step()
                average.update()
                total = parts.detach() if total is None else total + parts.detach()
                progress.advance(bar)
            means = (total / steps).tolist()
            if not np.isfinite(means).all():
                raise SaccadeError("the loss is no longer a number: try a lower --rate")
            history.append({name: round(value, 4) for name, value in zip(losses, means, strict=True)})
            progress.update(bar, description=f"teaching the detector, loss {sum(means):.3f}")
    average.put()
    return history


def main(
    data: Annotated[str, typer.Option(help="What to learn from: world, flickr8k, coco or visual-genome.")] = "flickr8k",
    root: Annotated[Path | None, typer.Option(help="The folder of the data, e.g. data/flickr8k.")] = None,
    out: Annotated[Path, typer.Option(help="Where the weights go.")] = Path("runs/bottomup"),
    split: Annotated[str, typer.Option(help="The split to learn from.")] = "train",
    test_split: Annotated[str, typer.Option(help="The split to measure on.")] = "dev",
    epochs: Annotated[int, typer.Option(min=1, help="How often each picture is shown.")] = 24,
    size: Annotated[int, typer.Option(min=32, help="Pictures are stretched to this square, in pixels.")] = 320,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures a step.")] = 32,
    rate: Annotated[float, typer.Option(min=0.0, help="Highest learning rate.")] = 1e-3,
    backbone_rate: Annotated[
        float, typer.Option(min=0.0, help="Its share for the backbone; 0 keeps it as it is.")
    ] = 0.1,
    backbone: Annotated[
        str, typer.Option(help="The backbone, e.g. efficientnet-lite0 or world.")
    ] = "efficientnet-lite0",
    pretrained: Annotated[bool, typer.Option(help="Start from the backbone's own weights.")] = True,
    class_count: Annotated[int, typer.Option(min=1, help="A name is a class if it stands on so many boxes.")] = 15,
    attribute_count: Annotated[int, typer.Option(min=1, help="The same for attributes.")] = 15,
    pictures: Annotated[
        int, typer.Option(min=0, help="Of the world: pictures to make; of other data: at most, 0 all.")
    ] = 0,
    form: Annotated[Form, typer.Option(help="How weights are kept: float32, float16, or int8.")] = "int8",
    seed: Annotated[int, typer.Option(help="Of the weights, the order, and the world.")] = 7002,
    device: Device = BEST_DEVICE,
) -> None:
    """Open pictures with named boxes, teach a detector to find, name and describe them, measure it, and keep it."""
    started = time.perf_counter()
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    body = load_backbone(backbone, pretrained)  # before the pictures: opening them takes minutes
    world = (pictures or 8000, seed)
    taught_with = boxed_pictures(data, root, split, world)
    tested_with = boxed_pictures(data, root, test_split, world)
    if pictures and data != "world":
        taught_with, tested_with = taught_with[:pictures], tested_with[:pictures]
    if not taught_with or not tested_with:
        raise SaccadeError(f"--data {data}: {split} has {len(taught_with)} pictures, {test_split} {len(tested_with)}")
    classes, attributes = label_names(taught_with, class_count, attribute_count)
    console.print(f"{len(taught_with)} pictures, {len(classes)} classes, {len(attributes)} attributes")
    train, test = (load(p, classes, attributes, size) for p in (taught_with, tested_with))
    opened = time.perf_counter()

    config = BottomUpConfig(backbone=backbone, size=size, classes=classes, attributes=attributes)
    network = BottomUpNetwork(config, body)
    history = teach(network, train, epochs, batch_size, rate, backbone_rate, device)
    taught = time.perf_counter()
    extractor = BottomUpExtractor(network, f"bottomup:{out}")
    figures = detector_figures(extractor, test)
    ended = time.perf_counter()
    facts: dict[str, object] = {
        "data": data,
        "figures": {test_split: {name: round(value, 4) for name, value in figures.items()}},
        "pictures": {split: len(train), test_split: len(test)},
        "boxes": {split: int(train.real.sum()), test_split: int(test.real.sum())},
        "loss": history,
        "seconds": {
            "opening": round(opened - started, 1),
            "training": round(taught - opened, 1),
            "testing": round(ended - taught, 1),
        },
        "machine": torch.cuda.get_device_name() if device.startswith("cuda") else f"CPU, {platform.machine()}",
        "torch": torch.__version__,
        "command": f"python {shlex.join(sys.argv)}",
    }
    extractor.save(out, facts, stem=f"bottomup_{data.replace('-', '_')}", form=form)
    table = Table("figure", test_split, title="the detector on pictures it has not been taught with")
    for name, value in figures.items():
        table.add_row(name, f"{value:.3f}")
    console.print(table)
    console.print(f"wrote {out} after {time.perf_counter() - started:.0f} s, {taught - opened:.0f} s of them training")


if __name__ == "__main__":
    try:
        typer.run(main)
    except SaccadeError as error:
        sys.exit(f"error: {error}")
