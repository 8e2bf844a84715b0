"""SCAN and the pooled baseline on Flickr8k's dev split, from raw photos: writes docs/results/flickr8k.{md,json}.

    python scripts/results_flickr8k.py --root data/flickr8k [--seeds 3] [--jobs 3] [--device cuda] [--only NAME …] \
        [--read grid:dinov2-s@336/12]

Every seed trains every variant anew with the shipped recipe, `jobs` of them at once; only the seed of the weights and
of the order of the pictures changes. Runs are kept in --runs: what is there is not trained again, so that a long table
can be made in several goes (--only). With --read, models that trained their DINOv2 are also measured with photos read
by another grid than in training.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from saccade.core.files import write_json, write_text
from saccade.data.records import CaptionedImages
from saccade.features import open_split
from saccade.metrics import CUTOFFS, chance, mean_and_spread, recall
from saccade.models import Matcher, load_model
from saccade.tasks.matching.evaluate import ensemble_of, similarity_table
from saccade.training.run import load_run_config
from saccade.vision.grid import GridConfig, GridNetwork, grid_config

IMAGE_TO_TEXT = ["queries=regions", "sharpness=4"]
VARIANTS = {
    "pooled": ("pooled cosine (VSE++)", "vse", []),
    "t2i": ("SCAN, text→image", "scan", []),
    "i2t": ("SCAN, image→text", "scan", IMAGE_TO_TEXT),
    "gru": ("SCAN, text→image, words by a GRU", "scan", ["word_encoder=gru", "min_count=3"]),
    "triplet": ("SCAN, text→image, hardest negatives", "scan", ["loss=triplet", "hard_negative_ramp_steps=400"]),
    "frozen-t2i": ("SCAN, text→image, DINOv2 not trained", "scan", ["backbone.train=false"]),
}
BOTH = ("t2i", "i2t")
COLUMNS = [f"{way}_r{k}" for way in ("i2t", "t2i") for k in CUTOFFS] + ["rsum"]
PUBLISHED = [  # test split, 1,000 photos; the features behind each are not ours
    ("DVSA (Karpathy, Fei-Fei, CVPR 2015; R-CNN regions)", (16.5, 40.6, 54.2, 11.8, 32.1, 44.7)),
    ("IMRAM-full (CVPR 2020; Visual Genome detector, ResNet-101)", (54.7, 84.2, 91.0, 41.0, 69.2, 79.9)),
]
console = Console()


def train(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """One run in a process of its own, unless it is finished."""
    _, system, words = VARIANTS[name]
    folder = arguments.runs / f"{name}-{seed}"
    if (folder / "last").exists():
        return
    start = ["--resume", str(folder)] if folder.exists() else [system, f"root={arguments.root}", "data=flickr8k"]
    settings = [] if folder.exists() else [*words, f"trainer.seed={seed}", "-o", str(folder)]
    accelerator = [] if folder.exists() else [f"accelerator={arguments.device}"]
    command = [sys.executable, "-m", "saccade", "train", *start, *settings, *accelerator, *arguments.settings]
    with (arguments.runs / f"{name}-{seed}.log").open("w") as log:
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env={"OMP_NUM_THREADS": "3", **os.environ})
    console.print(f"{folder.name}: {'done' if done.returncode == 0 else 'failed, see its .log'}", highlight=False)


def grid_named(name: str) -> GridConfig:
    return grid_config(name.removeprefix("grid:"))


def opened(
    folder: Path, grid: GridConfig | None, device: str, splits: dict[object, CaptionedImages]
) -> tuple[Matcher, object]:
    """A trained model, perhaps with another grid over its backbone, and the key of the dev split as it reads it."""
    model = load_model(folder, Matcher).to(device)
    if grid is not None and isinstance(model.backbone, GridNetwork):
        model.backbone.config, model.backbone.size = grid, grid.size or model.backbone.size
    size = model.backbone.size if model.backbone is not None else None
    key = (model.extractor, size)
    if key not in splits:
        config = load_run_config(folder)
        splits[key] = open_split(config.data, config.data.dev_split, size)
    return model, key


def row(name: str, runs: list[dict[str, float]]) -> str:
    return f"| {name} | " + " | ".join(mean_and_spread([run[column] for run in runs]) for column in COLUMNS) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("data/flickr8k"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="*", choices=VARIANTS, help="train just these")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--runs", type=Path, default=Path("runs/results-flickr8k"))
    parser.add_argument("--read", type=grid_named, help="a grid that reads photos larger than in training")
    parser.add_argument("--settings", nargs="*", default=[], help="KEY=VALUE words for every run")
    arguments = parser.parse_args()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    todo = [(name, seed) for seed in range(arguments.seeds) for name in arguments.only or VARIANTS]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda one: train(*one, arguments), todo))
    report(arguments)


def report(arguments: argparse.Namespace) -> None:
    """Measure every finished run on the dev split, and write the page."""
    splits: dict[object, CaptionedImages] = {}
    results: dict[str, list[dict[str, float]]] = {}
    tables: dict[tuple[str, int], np.ndarray] = {}
    owners = np.zeros(0)
    for name, (title, _, _) in VARIANTS.items():
        for seed in range(arguments.seeds):
            folder = arguments.runs / f"{name}-{seed}"
            if not (folder / "last").exists():
                continue
            for grid in (None, arguments.read) if arguments.read is not None else (None,):
                model, key = opened(folder, grid, arguments.device, splits)
                if grid is not None and model.backbone is None:
                    continue
                owners = splits[key].image_of_text
                tables[name, seed] = similarity_table(model, splits[key])  # the last: ensembles read large if asked to
                row_title = title if grid is None else f"{title}, read by `{grid.name}`"
                results.setdefault(row_title, []).append(recall(tables[name, seed], owners))
    if not results:
        console.print("no run is finished yet")
        return
    pairs = [[tables[name, seed] for name in BOTH if (name, seed) in tables] for seed in range(arguments.seeds)]
    both = [recall(ensemble_of(pair), owners) for pair in pairs if len(pair) == len(BOTH)]
    everything = [table for (name, _), table in tables.items() if name in BOTH]
    combined = {"SCAN, both averaged (2 models)": both} if both else {}
    if len(everything) > len(BOTH):
        combined[f"SCAN, both, all seeds ({len(everything)} models)"] = [recall(ensemble_of(everything), owners)]
    at_random = chance(owners, len(next(iter(splits.values())).images))
    ways = ("picture→text", "text→picture")
    heading = " | ".join(f"{way if k == CUTOFFS[0] else ''} R@{k}".strip() for way in ways for k in CUTOFFS)
    rows = [row("chance", [at_random])]
    rows += [row(name, runs) for name, runs in {**results, **combined}.items()]
    published = [
        f"| {name} | " + " | ".join(f"{v:.1f}" for v in (*values, sum(values))) + " |" for name, values in PUBLISHED
    ]
    words = f" --read {arguments.read.name}" if arguments.read is not None else ""
    words += " ".join(["", "--settings", *arguments.settings]) if arguments.settings else ""
    command = "python scripts/results_flickr8k.py --root data/flickr8k"
    command += f" --seeds {arguments.seeds} --device {arguments.device}{words}"
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else "the CPU"
    counts = f"{len(owners):,} captions of {len(next(iter(splits.values())).images):,} photos"
    page = f"""# Flickr8k, from raw photos

Recall in per cent on the **dev** split ({counts}), mean ± standard deviation over {arguments.seeds} seeds; rsum is the
sum of the six. Trained on the train and extra splits; every setting was chosen on dev, and the model kept is the one
best on dev, so that these figures are a little kind. The recipes' extractor is DINOv2-S, read at 8 × 8 cells of photos
of 224 pixels and trained along, and MiniLM reads the words, unless the row says otherwise.

| | {heading} | rsum |
|---|{"---:|" * len(COLUMNS)}
{chr(10).join(rows)}

Published on Flickr8k's **test** split, with other features (another split, shown for scale; the papers were not at
hand to check the figures against):

| | {heading} | rsum |
|---|{"---:|" * len(COLUMNS)}
{chr(10).join(published)}

Made by `{command}` on {where}.
"""
    write_text(arguments.out / "flickr8k.md", page)
    facts = {"command": command, "chance": at_random}
    write_json(arguments.out / "flickr8k.json", {**facts, "results": {**results, **combined}})
    console.print(page)


if __name__ == "__main__":
    main()
