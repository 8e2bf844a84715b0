"""Every captioner on one data set, with cross-entropy and self-critical: writes docs/results/captioning-DATA.{md,json}.

    python scripts/results_captioning.py world [--seeds 3] [--jobs 4] [--device cuda]
    python scripts/results_captioning.py flickr8k --root data/flickr8k [--only updown …]

Every seed trains every captioner anew with the shipped recipe, then goes on from its best model with rewards, `jobs`
captioners at once. Runs and what was measured of them are kept in --runs: what is there is not made again, so that a
long table can be made in several goes (--only).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from saccade.decoding import DecodingConfig
from saccade.files import read_json, write_json, write_text
from saccade.metrics import (
    CAPTION_METRICS,
    MeteorTables,
    caption_scores,
    find_meteor_tables,
    mean_and_spread,
    read_meteor_tables,
)
from saccade.models import Captioner, load_model
from saccade.tasks import SplitForModels, caption_all, references_of
from saccade.training.run import load_run_config

METRICS = {key: name for key, name in CAPTION_METRICS.items() if key not in ("cider", "scene_graph_f")}
CAPTIONERS: dict[str, tuple[str, str, list[str]]] = {
    "soft": ("Show, Attend and Tell, soft", "show_attend_tell", ["attention=soft"]),
    "hard": ("Show, Attend and Tell, hard", "show_attend_tell", ["attention=hard"]),
    "adaptive": ("Adaptive attention", "adaptive", []),
    "updown": ("Up-Down", "updown", []),
    "sgae": ("SGAE", "sgae", []),
    "unsupervised": ("Unsupervised, no pairs", "unsupervised", []),
}
ALONE = ("unsupervised",)  # has rewards of its own
REWARDED = ["reward.after=0", "reward.samples=5", "reward.baseline=samples", "items=pictures"]


@dataclass(frozen=True)
class DataSet:
    split: str  # measured
    rewarded: tuple[str, ...]  # of self-critical training, which goes on from a model that can speak
    about: str


DATA = {
    "world": DataSet(
        "test",
        ("epochs=6", "batch_size=16", "learning_rate=5e-4"),
        "The built-in world; each model is the one best on the dev split.",
    ),
    "flickr8k": DataSet(
        "dev",
        ("epochs=10", "batch_size=64", "learning_rate=2e-4"),
        "Photos are seen by the detector that comes with Saccade, 36 regions each.\n"
        "Trained on the train and extra splits; the recipes were chosen on dev, and the model kept is the one best on\n"
        "dev, so that these figures are a little kind.",
    ),
}
PUBLISHED = [  # Xu et al., ICML 2015, table 1
    ("Show, Attend and Tell, soft", (67.0, 44.8, 29.9, 19.5, 18.93)),
    ("Show, Attend and Tell, hard", (67.0, 45.7, 31.4, 21.3, 20.30)),
]
console = Console()


def train(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """Cross-entropy, then rewards; each in a process of its own, unless it is finished."""
    _, system, words = CAPTIONERS[name]
    data = DATA[arguments.data]
    plain = folder_of(arguments, name, seed)
    shared = [f"data={arguments.data}", f"trainer.seed={seed}", f"accelerator={arguments.device}", *words]
    shared += [f"root={arguments.root}"] if arguments.data != "world" else []
    done = run(plain, system, [*shared, *arguments.settings])
    if done and name not in ALONE:
        rewarded = [*REWARDED, *data.rewarded, f"start={plain}"]
        run(folder_of(arguments, name, seed, rewarded=True), system, [*shared, *rewarded, *arguments.settings])


def folder_of(arguments: argparse.Namespace, name: str, seed: int, rewarded: bool = False) -> Path:
    runs: Path = arguments.runs / arguments.data
    return runs / f"{name}{'-critical' if rewarded else ''}-{seed}"


def run(folder: Path, system: str, words: list[str]) -> bool:
    """Train into a folder, or go on there; whether it is finished."""
    if (folder / "last").exists():
        return True
    what = ["--resume", str(folder)] if (folder / "last.ckpt").exists() else [system, *words, "-o", str(folder)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with folder.with_suffix(".log").open("w") as log:
        command = [sys.executable, "-m", "saccade", "train", *what]
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env={"OMP_NUM_THREADS": "3", **os.environ})
    state = "failed, see its .log" if code.returncode else f"done in {time.perf_counter() - started:.0f} s"
    console.print(f"{folder.name}: {state}", highlight=False)
    return code.returncode == 0


def measure(folder: Path, split: str, device: str, tables: MeteorTables) -> dict[str, Any]:
    """The figures of a finished run, measured once."""
    path = folder / f"captions-{split}.figures.json"
    if path.exists():
        known: dict[str, Any] = read_json(path)
        return known
    config = load_run_config(folder)
    model = load_model(folder, Captioner).to(device)
    data = SplitForModels(config.data, split).seen_by(model, folder)
    beam = replace(config.task.decoding, how="beam", beam=3, longest=config.task.longest + 1)
    assert isinstance(beam, DecodingConfig)
    said = caption_all(model, data, beam)
    write_json(
        folder / f"captions-{split}.json",
        [{"image_id": id, "caption": text} for id, text in zip(data.images.ids, said, strict=True)],
    )
    scores = caption_scores(said, references_of(data), meteor_tables=tables, only=list(METRICS))
    found = {name: 100 * scores[name].corpus for name in METRICS}
    write_json(path, {**found, "pictures": len(said), "texts": len(data.texts)})
    return read_json(path)  # type: ignore[no-any-return]


def row(title: str, how: str, runs: list[dict[str, Any]]) -> str:
    cells = [mean_and_spread([one[metric] for one in runs]) for metric in METRICS]
    return f"| {' | '.join([title, how, *cells, str(len(runs))])} |"


def report(arguments: argparse.Namespace) -> None:
    """Measure every finished run, and write the page."""
    place, data = find_meteor_tables(), DATA[arguments.data]
    tables = read_meteor_tables(place) if place is not None else MeteorTables()
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name, (title, _, _) in CAPTIONERS.items():
        for rewarded in (False, True):
            folders = [folder_of(arguments, name, seed, rewarded) for seed in range(arguments.seeds)]
            finished = [folder for folder in folders if (folder / "last").exists()]
            if finished:
                how = "self-critical" if rewarded else "rewards without pairs" if name in ALONE else "cross-entropy"
                found = [measure(folder, data.split, arguments.device, tables) for folder in finished]
                results.setdefault(title, {})[how] = found
    if not results:
        console.print("no run is finished yet")
        return
    some = next(iter(next(iter(results.values())).values()))[0]
    head = f"| captioner | learned by | {' | '.join(METRICS.values())} | seeds |"
    rows = [row(title, how, runs) for title, ways in results.items() for how, runs in ways.items()]
    command = (
        f"python scripts/results_captioning.py {arguments.data} --seeds {arguments.seeds} --device {arguments.device}"
    )
    command += f" --root data/{arguments.data}" if arguments.data != "world" else ""
    command += " ".join(["", "--settings", *arguments.settings]) if arguments.settings else ""
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else "the CPU"
    page = f"""# Captioning on {"the world" if arguments.data == "world" else "Flickr8k, from raw photos"}

The **{data.split}** split ({some["texts"]:,} captions of {some["pictures"]:,} pictures), all figures times 100, mean ±
standard deviation over seeds. {data.about}
Captions are found by a beam of 3. Self-critical training goes on from the cross-entropy run with CIDEr-D as its reward;
a metric that is optimised goes up more than captions get better. METEOR matches by {", ".join(tables.stages)}.

{head}
|---|---|{"---:|" * (len(METRICS) + 1)}
{chr(10).join(rows)}
{published() if arguments.data == "flickr8k" else ""}
Made by `{command}` on {where}, {arguments.jobs} runs at a time.
"""
    write_text(arguments.out / f"captioning-{arguments.data}.md", page)
    facts = {"command": command, "device": where, "meteor": list(tables.stages)}
    write_json(arguments.out / f"captioning-{arguments.data}.json", {**facts, "results": results})
    console.print(page, markup=False)


def published() -> str:
    names = list(METRICS.values())[:5]
    rows = [f"| {name} | {' | '.join(f'{value:.1f}' for value in values)} |" for name, values in PUBLISHED]
    return f"""
Published for Flickr8k's **test** split, with 14 × 14 VGG features of a photo and the original METEOR (Xu et al., *Show,
Attend and Tell*, ICML 2015, table 1): other pictures and other features, shown for scale.

| | {" | ".join(names)} |
|---|{"---:|" * len(names)}
{chr(10).join(rows)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--root", type=Path, default=Path("data/flickr8k"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="*", choices=CAPTIONERS, help="train just these")
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--runs", type=Path, default=Path("runs/results-captioning"))
    parser.add_argument("--settings", nargs="*", default=[], help="KEY=VALUE words for every run")
    arguments = parser.parse_args()
    todo = [(name, seed) for seed in range(arguments.seeds) for name in arguments.only or CAPTIONERS]
    if not arguments.report:
        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(lambda one: train(one[0], one[1], arguments), todo))
    report(arguments)


if __name__ == "__main__":
    main()
