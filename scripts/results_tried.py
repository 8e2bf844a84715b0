"""What was tried on Flickr8k and MSVD, run by run, what helped and what did not: writes docs/results/tried.{md,json}.

    python scripts/results_tried.py runs/tried runs/tried/commands.txt

The folder holds the metrics.csv of each run as NAME.csv; the file of commands has lines `NAME | saccade train …`. What
docs/results/tried.json knows from before stays, so that runs of several days make one page. `--report` writes the page
anew from it.
"""

from __future__ import annotations

import argparse
import csv
from itertools import product
from pathlib import Path
from typing import Any

from saccade.core.files import read_json, write_json, write_text
from saccade.lab.reports import markdown_table
from saccade.metrics import mean_and_spread

OUT = Path("docs/results")
DATA = {"flickr8k": "Flickr8k", "msvd": "MSVD"}
SUBJECTS = {  # the measure a run is judged by → heading, further figures of that row
    "rsum": ("Matching", ["i2t_r1", "t2i_r1"]),
    "cider_d": ("Captioning", ["bleu4"]),
    "map": ("Detection", ["recall_36", "object_top1", "attribute_top1", "relation_top1"]),
}


def read(name: str, command: str, path: Path) -> dict[str, Any] | None:
    """The best dev row of a run by its task's measure; None if it was never measured."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "dev"]
    if not rows:
        return None
    measure = next(key for key in SUBJECTS if key in rows[-1])
    best = max(rows, key=lambda row: float(row[measure]))
    figures = {key: float(best[key]) for key in (measure, *SUBJECTS[measure][1])}
    steps = {"best_step": int(best["step"]), "last_step": int(rows[-1]["step"])}
    return {"name": name, "command": command, "measure": measure, **steps, "figures": figures}


def page(runs: list[dict[str, Any]]) -> str:
    parts = [
        "# What was tried",
        "One seed each unless the name has another, judged on the **dev** split (1,000 photos of Flickr8k, 131 clips "
        "of MSVD), which chooses the settings: the "
        "figures are those of the best evaluation. A run whose best is its last may have gone on rising, and those "
        "that say *cut* were stopped before their end to save time: compare them at equal steps.",
    ]
    for data, (measure, (heading, others)) in product(DATA, SUBJECTS.items()):
        own = [run for run in runs if run["measure"] == measure and f"data={data} " in run["command"]]
        own.sort(key=lambda run: -run["figures"][measure])
        digits = 1 if measure != "map" else 3
        rows = [
            [run["name"], *(f"{run['figures'][key]:.{digits}f}" for key in (measure, *others)),
             f"{run['best_step']:,} of {run['last_step']:,}", f"`{run['command']}`"]
            for run in own
        ]  # fmt: skip
        if rows:
            parts += [
                f"## {heading}, {DATA[data]}",
                markdown_table(["run", measure, *others, "best at step", "command"], rows),
            ]
        seeds: dict[str, list[dict[str, float]]] = {}
        for run in own:
            name, among, _ = run["name"].partition("-seed")
            if among and "(cut)" not in run["name"]:
                seeds.setdefault(name, []).append(run["figures"])
        if seeds:
            several = [
                [
                    name,
                    *(mean_and_spread([one[key] for one in found], digits) for key in (measure, *others)),
                    str(len(found)),
                ]
                for name, found in seeds.items()
            ]
            parts += ["Over seeds:", markdown_table(["runs", measure, *others, "seeds"], several)]
    parts.append("Made by `python scripts/results_tried.py RUNS COMMANDS`.")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?")
    parser.add_argument("commands", type=Path, nargs="?")
    parser.add_argument("--report", action="store_true", help="write the page from what is known")
    arguments = parser.parse_args()
    known = {run["name"]: run for run in read_json(OUT / "tried.json")} if (OUT / "tried.json").exists() else {}
    if not arguments.report:
        for line in arguments.commands.read_text().splitlines():
            name, _, command = (part.strip() for part in line.partition("|"))
            path = arguments.runs / f"{name}.csv"
            if (run := read(name, command, path) if path.exists() else None) is not None:
                known[name] = run
        write_json(OUT / "tried.json", list(known.values()))
    write_text(OUT / "tried.md", page(list(known.values())))


if __name__ == "__main__":
    main()
