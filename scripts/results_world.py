"""SCAN against the pooled baseline on the world, over several seeds: writes docs/results/scan-world.{md,json}.

    python scripts/results_world.py [--seeds 3] [--device cpu] [--out docs/results]

Every seed trains every variant anew on the same world with the shipped recipes; only the seed of the weights and of
the order of the pictures changes. Runs are kept in --runs and taken up again if the script was stopped.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from saccade.core.files import write_json, write_text
from saccade.data import open_split
from saccade.metrics import chance, mean_and_spread, recall
from saccade.models import Matcher, load_model
from saccade.tasks.matching.evaluate import similarity_table
from saccade.training.run import RunConfig, run_config, train_run

VARIANTS = {
    "pooled cosine (VSE++)": ("vse", []),
    "Sum-Max, text→image (eq. 9)": ("scan", ["attention=max", "pool=sum"]),
    "SCAN, text→image": ("scan", []),
    "SCAN, image→text": ("scan", ["queries=regions"]),
}
ENSEMBLE = "SCAN, both averaged"
SPLITS = {"test": "test", "hard": "hard twins", "novel": "novel compositions"}
COLUMNS = [(split, figure) for split in SPLITS for figure in ("i2t_r1", "t2i_r1", "rsum")]
Figures = dict[str, dict[str, float]]  # by split, then by name


def evaluate(models: list[Matcher], config: RunConfig) -> Figures:
    found = {}
    for split in SPLITS:
        data = open_split(config.data, split)
        table = np.mean([similarity_table(model, data) for model in models], axis=0)
        found[split] = recall(table, data.image_of_text)
    return found


def table(results: dict[str, list[Figures]]) -> str:
    heading = " | ".join(
        f"{SPLITS[s]}: {f.replace('i2t_r1', 'picture→text R@1').replace('t2i_r1', 'text→picture R@1')}"
        for s, f in COLUMNS
    )
    lines = [f"| | {heading} |", "|---|" + "---:|" * len(COLUMNS)]
    for name, runs in results.items():
        lines.append(
            f"| {name} | " + " | ".join(mean_and_spread([run[s][f] for run in runs]) for s, f in COLUMNS) + " |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--runs", type=Path, default=Path("runs/results-world"))
    parser.add_argument("settings", nargs="*", help="KEY=VALUE words for every run")
    arguments = parser.parse_args()
    console = Console()
    results: dict[str, list[Figures]] = {name: [] for name in (*VARIANTS, ENSEMBLE)}
    for seed in range(arguments.seeds):
        trained = {}
        for name, (system, words) in VARIANTS.items():
            folder = arguments.runs / f"{system}-{'-'.join(words) or 'recipe'}-{seed}".replace("=", "_")
            config = run_config(system, [*words, *arguments.settings])
            trainer = replace(config.trainer, seed=seed, accelerator="cuda" if arguments.device == "cuda" else "cpu")
            config = replace(config, trainer=trainer)
            train_run(config, folder, resume=folder.exists(), console=Console(quiet=True))
            trained[name] = load_model(folder, Matcher).to(arguments.device)
            results[name].append(evaluate([trained[name]], config))
            console.print(
                f"seed {seed}, {name}: " + ", ".join(f"{s} {f} {results[name][-1][s][f]:.1f}" for s, f in COLUMNS)
            )
        results[ENSEMBLE].append(evaluate([m for n, m in trained.items() if n.startswith("SCAN")], config))
    splits = {split: open_split(config.data, split) for split in SPLITS}
    at_random = {split: chance(data.image_of_text, len(data.images)) for split, data in splits.items()}
    gain = [
        np.mean(
            [
                s["hard"][f] - p["hard"][f]
                for s, p in zip(results["SCAN, text→image"], results["pooled cosine (VSE++)"], strict=True)
            ]
        )
        for f in ("i2t_r1", "t2i_r1")
    ]
    counts = ", ".join(
        f"{name} {len(splits[s].images)} pictures / {len(splits[s].texts)} texts" for s, name in SPLITS.items()
    )
    words = " ".join(["", *arguments.settings])
    command = f"python scripts/results_world.py --seeds {arguments.seeds} --device {arguments.device}{words}"
    page = f"""# SCAN on the world

Recall@1 in percent both ways, and the sum of the six recalls (rsum, at most 600): mean ± standard deviation over
{arguments.seeds} seeds. Sizes: {counts}.
In a group of hard twins every caption has a twin of the very same words that fits the other picture.

{table({"chance": [at_random], **results})}

On hard twins SCAN (text→image) stands {gain[0]:+.1f} points of recall@1 from pictures to texts and {gain[1]:+.1f}
points from texts to pictures against the pooled baseline.

Made by `{command}`.
"""
    write_text(arguments.out / "scan-world.md", page)
    write_json(arguments.out / "scan-world.json", {"command": command, "chance": at_random, "results": results})
    console.print(page)


if __name__ == "__main__":
    main()
