"""The detector against grids, sliding windows and a linear classifier: writes docs/results/detector.{md,json}.

    python scripts/results_detector.py --root data/flickr8k [--weights runs/bottomup] [--device cuda]
        [--out docs/results] [--before docs/results/detector.json] [--baseline efficientnet-lite0]

Boxes are those of Flickr30k Entities on Flickr8k's dev photos, which the detector was not taught with. The windows that
are chosen, the linear classifier and the frequencies come from the train photos, as the detector does.
"""

from __future__ import annotations

import argparse
import platform
import time
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from rich.console import Console
from torch import Tensor
from torch.nn import functional

from saccade.core.files import read_json, write_json, write_text
from saccade.data.datasets.photos.entities import open_entity_boxes
from saccade.metrics.detection import (
    Tally,
    found_boxes,
    name_figures,
    tally_attributes,
    tally_names,
    tally_relations,
)
from saccade.models.detectors import BottomUp
from saccade.tasks.detection.task import REGION_COUNTS as COUNTS
from saccade.tasks.detection.task import bottomup_figures
from saccade.vision.backbones.base import Backbone, load_backbone
from saccade.vision.boxes import UNKNOWN, clip, iou, valid
from saccade.vision.detectors.bottomup import SHIPPED, BottomUpConfig, BoxedPictures, load_bottomup
from saccade.vision.detectors.relations import stated_predicates
from saccade.vision.detectors.rpn import anchor_boxes, anchor_sides
from saccade.vision.extractors import read_detector_config
from saccade.vision.grid import cell_boxes
from saccade.vision.roi import mean_under

console = Console()
GRIDS = {10: (3, 1), 36: (6,), 100: (10,)}
PYRAMIDS = {10: (3, 1), 36: (5, 3, 1), 59: (7, 3, 1), 100: (8, 5, 3, 1)}
SCALES, RATIOS = (0.15, 0.3, 0.55, 0.85), (0.5, 1.0, 2.0)
BANK_SCALES, BANK_RATIOS = (0.1, 0.15, 0.22, 0.32, 0.45, 0.6, 0.8, 0.95), (0.35, 0.6, 1.0, 1.7, 2.8)
EPOCHS = 25


def sliding_windows(count: int) -> Float[Tensor, "region 4"]:
    """Windows of every scale and ratio, each sliding by half of its sides; `count` of them, evenly taken."""
    found = []
    for scale in SCALES:
        for ratio in RATIOS:
            width, height = min(scale * ratio**0.5, 1.0), min(scale / ratio**0.5, 1.0)
            columns, rows = (max(1, round(2 * (1 - side) / side) + 1) for side in (width, height))
            x = torch.linspace(0, 1 - width, columns) if columns > 1 else torch.tensor([(1 - width) / 2])
            y = torch.linspace(0, 1 - height, rows) if rows > 1 else torch.tensor([(1 - height) / 2])
            top, left = (part.flatten() for part in torch.meshgrid(y, x, indexing="ij"))
            found.append(torch.stack([left, top, left + width, top + height], dim=1))
    every = torch.cat(found[::-1])  # large ones first
    return every[torch.linspace(0, len(every) - 1, min(count, len(every))).round().long()]


def grid_boxes(cells: tuple[int, ...]) -> Float[Tensor, "region 4"]:
    """The cells of n × n grids, for each n."""
    return torch.cat([cell_boxes(n, n) for n in cells])


def chosen_windows(truth: Float[Tensor, "thing 4"], count: int) -> Float[Tensor, "region 4"]:
    """One by one the window of a large bank that covers most of the true boxes not yet covered, best first."""
    bank = clip(anchor_boxes(14, 14, anchor_sides(BANK_SCALES, BANK_RATIOS).to(truth.device)))
    bank = bank[valid(bank, 0.05)]
    covers = torch.cat([iou(part, truth) >= 0.5 for part in bank.split(256)])
    left = torch.ones(len(truth), device=truth.device)
    chosen = []
    for _ in range(count):
        best = int((covers.float() @ left).argmax()) if truth.is_cuda else int(_gain(covers, left).argmax())
        chosen.append(best)
        left = left * ~covers[best]
    return bank[chosen]


def _gain(covers: Tensor, left: Tensor) -> Tensor:
    """The same product in parts, for machines with little memory."""
    return torch.cat([part.float() @ left for part in covers.split(512)])


def window_recall(windows: Float[Tensor, "region 4"], pictures: BoxedPictures) -> float:
    """The same windows in every picture."""
    there = torch.ones(1, len(windows), dtype=torch.bool, device=windows.device)
    tally = Tally()
    for start in range(0, len(pictures), 64):
        boxes, real = (part[start : start + 64].to(windows.device) for part in (pictures.boxes, pictures.real))
        tally.add("found", found_boxes(windows, there, boxes, real))
        tally.add("things", real)
    return tally.share("found", "things")


@torch.inference_mode()
def features_under_boxes(
    backbone: Backbone, pictures: BoxedPictures, device: str
) -> tuple[Float[Tensor, "thing dim"], Int[Tensor, " thing"], Int[Tensor, "thing some"]]:
    """The mean of the backbone's last map under every true box, with its class and its attributes."""
    found = []
    for start in range(0, len(pictures), 64):
        batch = pictures.select(slice(start, start + 64)).to(device)
        coarse = backbone(backbone.normalise(batch.pixels).contiguous(memory_format=torch.channels_last))[-1]
        found.append(
            (mean_under(coarse, batch.boxes)[batch.real], batch.labels[batch.real], batch.attributes[batch.real])
        )
    vectors, labels, attributes = (torch.cat(part) for part in zip(*found, strict=True))
    return vectors, labels, attributes


def linear_reader(
    vectors: Float[Tensor, "thing dim"], targets: Float[Tensor, "thing label"], rate: float = 2e-3
) -> torch.nn.Module:
    """A linear softmax classifier of standardised vectors; a target row is a distribution, or all 0 if unknown."""
    mean, spread = vectors.mean(dim=0), vectors.std(dim=0) + 1e-3
    reader = torch.nn.Linear(vectors.shape[1], targets.shape[1]).to(vectors.device)
    optimiser = torch.optim.AdamW(reader.parameters(), lr=rate, weight_decay=0.05)
    known = targets.sum(dim=1).nonzero()[:, 0]
    steps = EPOCHS * (len(known) // 512 + 1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        batch = known[torch.randint(len(known), (512,), device=known.device)]
        loss = functional.cross_entropy(reader((vectors[batch] - mean) / spread), targets[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():  # the standardisation becomes part of the reader
        reader.weight /= spread
        reader.bias -= reader.weight @ mean
    return reader.requires_grad_(False)


def class_targets(labels: Int[Tensor, " thing"], classes: int) -> Float[Tensor, "thing label"]:
    return functional.one_hot(labels.clamp(min=0), classes + 1).float() * (labels != UNKNOWN)[:, None]


def attribute_targets(attributes: Int[Tensor, "thing some"], count: int) -> Float[Tensor, "thing label"]:
    listed = attributes != UNKNOWN
    rows = (functional.one_hot(attributes.clamp(min=0), count + 1) * listed[..., None]).sum(dim=1).float()
    return rows / rows.sum(dim=1, keepdim=True).clamp(min=1)


def naming_baselines(
    backbone: Backbone, train: BoxedPictures, dev: BoxedPictures, device: str, classes: int, attributes: int
) -> dict[str, dict[str, float]]:
    """Names at true boxes by a linear classifier of frozen features, and by always saying the most frequent."""
    vectors, labels, described = features_under_boxes(backbone.to(device), train, device)
    wanted, qualities = class_targets(labels, classes), attribute_targets(described, attributes)
    readers = {
        "linear": (linear_reader(vectors, wanted), linear_reader(vectors, qualities)),
        "frequent": (lambda v: wanted.sum(0).expand(len(v), -1), lambda v: qualities.sum(0).expand(len(v), -1)),
    }
    vectors, labels, described = features_under_boxes(backbone, dev, device)
    found = {}
    for name, (name_reader, attribute_reader) in readers.items():
        tally = Tally()
        tally_names(tally, name_reader(vectors), labels)
        tally_attributes(tally, attribute_reader(vectors), described)
        found[name] = name_figures(tally)
    return found


def relation_baselines(
    train: BoxedPictures, dev: BoxedPictures, classes: int, predicates: int
) -> dict[str, dict[str, float]]:
    """Predicates of true pairs by how often each is said of two things of these (true) names, and of any two."""
    assert train.relations is not None
    assert dev.relations is not None
    subject, other, predicate = train.relations[train.relations[..., 2] > 0].T
    image = (train.relations[..., 2] > 0).nonzero()[:, 0]
    names = train.labels.clamp(min=0)
    counts = torch.zeros(classes + 1, classes + 1, predicates + 1)
    counts.index_put_((names[image, subject], names[image, other], predicate), torch.ones(len(image)), accumulate=True)
    overall = counts.sum(dim=(0, 1)) / len(image)
    tallies = {"by_names": Tally(), "frequent": Tally()}
    for start in range(0, len(dev), 50):
        batch = dev.select(slice(start, start + 50))
        assert batch.relations is not None
        stated = stated_predicates(batch.relations, batch.real, predicates + 1)
        names = batch.labels.clamp(min=0)
        said = counts[names[:, :, None], names[:, None, :]] + overall
        tally_relations(tallies["by_names"], said.log(), stated, batch.real)
        tally_relations(tallies["frequent"], overall.log().expand_as(said), stated, batch.real)
    return {name: name_figures(tally) for name, tally in tallies.items()}


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def markdown(results: dict[str, Any]) -> str:
    facts, counts = results["detector"], results["counts"]
    lines = [
        "# The detector on Flickr8k",
        "",
        f"Made by `{results['command']}` with the weights of `{facts['command']}` (one run;"
        " [how to train others](../detector.md#train-it-on-your-own-boxes)).",
        "",
        f"{counts['dev_pictures']:,} dev photos with {counts['dev_boxes']:,} boxes of Flickr30k Entities; detector, "
        f"chosen windows, linear classifier and frequencies learned from {counts['train_pictures']:,} train photos "
        f"with {counts['train_boxes']:,} boxes. {counts['classes']} classes, {counts['attributes']} attributes.",
        "",
        "## Finding: recall of the true boxes at IoU 0.5, per cent",
        "",
        "| regions a picture | " + " | ".join(str(n) for n in COUNTS) + " |",
        "|---|" + "---:|" * len(COUNTS),
    ]
    for name, row in results["recall"].items():
        lines.append(f"| {name} | " + " | ".join(percent(row[str(n)]) for n in COUNTS) + " |")
    rule = results["rule"]
    lines += [
        "",
        f"Its rule (confidence 0.2, 10 to 100 regions) keeps {rule['regions']:.1f} regions a photo and finds "
        f"{percent(rule['recall'])} per cent; the multi-scale grid 7×7 + 3×3 + 1 has 59 and finds "
        f"{percent(results['pyramid_59'])} per cent. The whole picture, which the extractor adds as its last region, "
        "is not counted for the detector. "
        f"Mean average precision at 0.5 over the {counts['classes']} classes: {percent(rule['map'])}.",
        "",
        "## Naming: what is in a true box",
        "",
        f"Objects: the {counts['dev_named']:,} dev boxes whose name is a class. Attributes: the "
        f"{counts['dev_described']:,} dev boxes with a known attribute; right if the best guess is one of the box's; "
        "the rank is that of the best-placed of them.",
        "",
        "| | object top-1 | object top-5 | attribute top-1 | attribute top-5 | attribute mean rank |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    titles = {
        "detector": "detector's heads",
        "linear": f"linear classifier on frozen {results['baseline']}, averaged under the box",
        "frequent": "always the most frequent",
    }
    for key, title in titles.items():
        row = results["naming"][key]
        cells = [percent(row[k]) for k in ("object_top1", "object_top5", "attribute_top1", "attribute_top5")]
        lines.append(f"| {title} | " + " | ".join(cells) + f" | {row['attribute_rank']:.1f} |")
    if "relations" in results:
        lines += [
            "",
            "## Relations: which predicate holds between two true boxes",
            "",
            f"{counts['predicates']} predicates; the {counts['dev_related']:,} dev triplets that captions state of two "
            "boxes. Top-1: of pairs of which something is stated, is the best guess among it? Recall: of all that is "
            "stated, how much is among the 20 surest triplets of the photo, whatever pair.",
            "",
            "| | top-1 | top-5 | recall of 20 |",
            "|---|---:|---:|---:|",
        ]
        titles = {
            "detector": "detector's relation head, names as it guesses them",
            "by_names": "the most frequent for the two true names",
            "frequent": "always the most frequent",
        }
        for key, title in titles.items():
            row = results["relations"][key]
            recall = percent(row["relation_recall_20"]) if key == "detector" else ""
            lines.append(f"| {title} | {percent(row['relation_top1'])} | {percent(row['relation_top5'])} | {recall} |")
    if "before" in results:
        old = results["before"]
        lines += ["", "## Before and after", "", f"| | {old['backbone']}, before | {results['backbone']} |"]
        lines += ["|---|---:|---:|"]
        first = next(iter(results["recall"]))
        for title, path in {
            **{f"recall with {n} regions": ("recall", first, str(n)) for n in COUNTS},
            "mean average precision": ("rule", "map"),
            "object top-1": ("naming", "detector", "object_top1"),
            "object top-5": ("naming", "detector", "object_top5"),
            "attribute top-1": ("naming", "detector", "attribute_top1"),
        }.items():
            cells = [percent(reduce(lambda value, key: value[key], path, part)) for part in (old, results)]
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("data/flickr8k"))
    parser.add_argument("--weights", type=Path, default=None, help="a run folder; the package's weights if not given")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--before", type=Path, default=None, help="an earlier detector.json, to stand beside")
    parser.add_argument("--baseline", default=None, help="the linear classifier's backbone, if not the detector's")
    parser.add_argument("--pictures", type=int, default=None, help="at most so many a split, for a try")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    started, device = time.perf_counter(), arguments.device
    extractor = load_bottomup(arguments.weights or SHIPPED)
    extractor.to(device)
    c = extractor.config
    model = BottomUp(c)
    pictures = {name: open_entity_boxes(name, arguments.root)[: arguments.pictures] for name in ("train", "dev")}
    splits = {name: model.tensors(some) for name, some in pictures.items()}
    train, dev = splits["train"], splits["dev"]
    console.print(f"opened {len(train)} and {len(dev)} photos after {time.perf_counter() - started:.0f} s")
    figures = bottomup_figures(extractor.network, dev)
    chosen = chosen_windows(train.boxes[train.real].to(device), max(COUNTS))
    rows = {
        "detector: regions by its rule with this fixed number": {n: figures[f"recall_{n}"] for n in COUNTS},
        "detector: best proposals, before naming": {n: figures[f"proposal_recall_{n}"] for n in COUNTS},
        "best fixed windows, chosen on the train boxes": {n: window_recall(chosen[:n], dev) for n in COUNTS},
        "sliding windows, 4 scales × 3 ratios": {n: window_recall(sliding_windows(n).to(device), dev) for n in COUNTS},
        "grid (3×3 + 1; 6×6; 10×10)": {n: window_recall(grid_boxes(GRIDS[n]).to(device), dev) for n in COUNTS},
        "multi-scale grid (3×3 + 1; 5×5 + 3×3 + 1 = 35; 8×8 + 5×5 + 3×3 + 1 = 99)": {
            n: window_recall(grid_boxes(PYRAMIDS[n]).to(device), dev) for n in COUNTS
        },
    }
    baseline = arguments.baseline or c.backbone
    naming = naming_baselines(load_backbone(baseline), train, dev, device, len(c.classes), len(c.attributes))
    naming = {"detector": {k: v for k, v in figures.items() if k.startswith(("object", "attribute"))}, **naming}
    weights = arguments.weights or SHIPPED
    facts = read_json(read_detector_config(weights, "bottomup", BottomUpConfig)[0] / "config.json")
    shown = f" --weights {arguments.weights}" if arguments.weights else ""
    shown += f" --baseline {arguments.baseline}" if arguments.baseline else ""
    results: dict[str, Any] = {
        "command": f"python scripts/results_detector.py --root data/flickr8k{shown} --device {device}",
        "machine": torch.cuda.get_device_name() if device.startswith("cuda") else f"CPU, {platform.machine()}",
        "seconds": round(time.perf_counter() - started, 1),
        "backbone": c.backbone,
        "baseline": baseline,
        "detector": {"command": facts.get("command", f"saccade train {facts['model']}"), "sha256": facts.get("sha256")},
        "counts": {
            "classes": len(c.classes),
            "attributes": len(c.attributes),
            **{f"{name}_pictures": len(split) for name, split in splits.items()},
            **{f"{name}_boxes": int(split.real.sum()) for name, split in splits.items()},
            "dev_named": int((dev.real & (dev.labels != UNKNOWN)).sum()),
            "dev_described": int((dev.real & (dev.attributes != UNKNOWN).any(dim=2)).sum()),
        },
        "recall": {name: {str(n): round(v, 4) for n, v in row.items()} for name, row in rows.items()},
        "pyramid_59": round(window_recall(grid_boxes(PYRAMIDS[59]).to(device), dev), 4),
        "rule": {
            "regions": round(figures["regions"], 2),
            "recall": round(figures["recall_rule"], 4),
            "map": round(figures["map"], 4),
        },
        "naming": {name: {k: round(v, 4) for k, v in row.items()} for name, row in naming.items()},
    }
    if c.predicates and dev.relations is not None:
        results["counts"] |= {"predicates": len(c.predicates), "dev_related": int((dev.relations[..., 2] > 0).sum())}
        relations = relation_baselines(train, dev, len(c.classes), len(c.predicates))
        relations["detector"] = {k: v for k, v in figures.items() if k.startswith("relation")}
        results["relations"] = {
            name: {k: round(v, 4) for k, v in row.items() if k.startswith("relation")}
            for name, row in relations.items()
        }
    if arguments.before is not None:
        results["before"] = {k: v for k, v in read_json(arguments.before).items() if k != "before"}
    write_json(arguments.out / "detector.json", results)
    write_text(arguments.out / "detector.md", markdown(results))
    console.print(markdown(results))


if __name__ == "__main__":
    main()
