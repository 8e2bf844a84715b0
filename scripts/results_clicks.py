"""MARN beside concatenation, attention fusion and a DIN-style ranker: writes docs/results/clicks-world.{md,json,png}.

    python scripts/results_clicks.py world_clicks [--seeds 3] [--jobs 4] [--device cuda] [--only marn concat …]
    python scripts/results_clicks.py clicks --root data/log

On the world every row is trained at three redundancies: how often a title says what another modality shows. Every run
is `saccade train marn` with its recipe, the row's settings and another seed, in a process of its own, `jobs` at once,
measured by `saccade eval`. Both are kept in --runs and not made again (--only, --report), as in results_answering.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from results_answering import of_each_seed, saccade, table_parser
from rich.console import Console

from saccade.core.files import read_json, write_json, write_text
from saccade.lab.reports import INK, colour, markdown_table, new_figure, quiet, save_figure
from saccade.metrics import mean_and_spread
from saccade.tasks.clicks.evaluate import CONSTANT, TRUTH

MAIN = "auc"
FIGURES = {"auc": ("AUC", 2), "gauc": ("GAUC", 2), "logloss": ("LogLoss", 4)}
NO_ADVERSARY = ("discriminators=0", "specific=false")
ROWS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "concat": ("concatenation", (*NO_ADVERSARY, "fusion=concat", "invariant=none")),
    "din": (
        "concatenation, DIN-style ranker",
        (*NO_ADVERSARY, "fusion=concat", "invariant=none", "sequence=din", "attention_normaliser=none"),
    ),
    "attention": ("attention fusion alone", (*NO_ADVERSARY, "invariant=none")),
    "parts": ("MARN without adversaries", NO_ADVERSARY),
    "one": ("MARN, one discriminator", ("discriminators=1",)),
    "pairwise": ("MARN, one against one", ("adversary=pairwise",)),
    "unspecific": ("MARN without the specific discriminator", ("specific=false",)),
    "marn": ("[MARN](../systems/marn.md)", ()),
}
console = Console()


class Source(NamedTuple):
    title: str
    about: str
    redundancies: tuple[float, ...] = ()


DATA: Mapping[str, Source] = {
    "world_clicks": Source(
        "Clicks of the world's shoppers",
        "At a redundancy of 0 a title says nothing that another modality shows; at 1 it names kind, colour, material "
        "and brand.\nWhat users click on is the same at all three ([how](../clicks.md#shoppers-in-the-world)).",
        (0.0, 0.5, 1.0),
    ),
    "clicks": Source("Clicks of a behaviour log", "[How such a log is read](../clicks.md#logs)."),
    "amazon_reviews": Source("Reviews as clicks", "[How reviews are read](../clicks.md#logs)."),
}


def place(name: str, redundancy: float | None, seed: int, arguments: argparse.Namespace) -> Path:
    """The folder of a run."""
    level = "" if redundancy is None else f"-r{redundancy:g}"
    folder: Path = arguments.runs / arguments.data / f"{name}{level}-{seed}"
    return folder


def figures_of(folder: Path, split: str) -> Path:
    return folder.with_name(f"{folder.name}.{split}.json")


def levels(arguments: argparse.Namespace) -> tuple[float | None, ...]:
    return DATA[arguments.data].redundancies or (None,)


def train_and_measure(key: str, seed: int, arguments: argparse.Namespace) -> None:
    """One run in a process of its own, unless it is finished; then its figures, unless they are there."""
    name, _, level = key.partition("@")
    redundancy = float(level) if level else None
    folder = place(name, redundancy, seed, arguments)
    log, figures = folder.with_name(f"{folder.name}.log"), figures_of(folder, arguments.split)
    if not (folder / "last").exists():
        given = ["marn", f"data={arguments.data}", *ROWS[name][1], f"trainer.seed={seed}"]
        given += [f"root={arguments.root}"] if arguments.root else []
        given += [f"redundancy={redundancy:g}"] if redundancy is not None else []
        given += [f"accelerator={arguments.device}", *arguments.settings, "-o", str(folder)]
        if not saccade(["train", *(["--resume", str(folder)] if folder.exists() else given)], log):
            console.print(f"{folder.name}: failed, see {log}", highlight=False)
            return
    asked = ["eval", str(folder), "--split", arguments.split, "--json", str(figures), "--device", arguments.device]
    if not figures.exists() and not saccade(asked, log):
        console.print(f"{folder.name}: could not be measured, see {log}", highlight=False)
        return
    console.print(f"{folder.name}: done", highlight=False)


Found = dict[float | None, dict[str, list[dict[str, float]]]]  # by redundancy and row: of every seed


def collect(arguments: argparse.Namespace) -> tuple[Found, dict[str, float]]:
    found: Found = {}
    facts: dict[str, float] = {}
    for level in levels(arguments):
        rows: dict[str, list[dict[str, float]]] = {}
        for name in ROWS:
            for seed in range(arguments.seeds):
                folder = place(name, level, seed, arguments)
                path = figures_of(folder, arguments.split)
                if not path.exists():
                    continue
                facts = read_json(path)
                for row, figures in facts["results"].items():  # type: ignore[attr-defined]
                    if row in (CONSTANT, TRUTH):
                        rows[row] = [figures]
                    else:
                        rows.setdefault(name, []).append(figures)
        if rows:
            found[level] = {key: rows[key] for key in (CONSTANT, *ROWS, TRUTH) if key in rows}
    return found, facts


def report(arguments: argparse.Namespace) -> None:
    source = DATA[arguments.data]
    found, facts = collect(arguments)
    if not found:
        console.print("no run is finished yet")
        return
    titles = {CONSTANT: "one probability for all", TRUTH: "the probabilities that clicks were drawn with"}
    titles |= {name: title for name, (title, _) in ROWS.items()}
    parts = []
    for level, rows in found.items():
        table = [
            [
                titles[name],
                *(mean_and_spread([run[key] for run in runs], digits) for key, (_, digits) in FIGURES.items()),
                str(len(runs)) if name in ROWS else "",
            ]
            for name, runs in rows.items()
        ]
        heading = f"## Redundancy {level:g}\n\n" if level is not None else ""
        parts.append(heading + markdown_table(["", *(title for title, _ in FIGURES.values()), "seeds"], table))
    files = (arguments.runs / arguments.data).glob("*/environment.json")
    where = " and ".join(sorted({str(read_json(file)["device"]) for file in files}))
    words = [
        "python scripts/results_clicks.py",
        arguments.data,
        f"--split {arguments.split}",
        f"--seeds {arguments.seeds}",
    ]
    words += [f"--root data/{arguments.data}"] if arguments.root else []
    words += [f"--device {arguments.device}", *(["--settings", *arguments.settings] if arguments.settings else [])]
    command = " ".join(words)
    name = "clicks-world" if arguments.data == "world_clicks" else f"clicks-{arguments.data}"
    drawn = ""
    if len(found) > 1:
        draw(found, arguments.out / f"{name}.png")
        drawn = f"\n![AUC of each model at each redundancy]({name}.png)\n"
    blocks = "\n\n".join(parts)
    page = f"""# {source.title}

The **{arguments.split}** split: {facts["impressions"]:,} impressions of {facts["users"]:,} users, none of whom was
learned from. AUC over all impressions and GAUC within users, in per cent; mean ± standard deviation over seeds. Less
than 0.1 of AUC is no difference.
{source.about}

{blocks}
{drawn}
{verdict(found)}
Made by `{command}` on {where}.
"""
    write_text(arguments.out / f"{name}.md", page)
    kept = {"command": command, "device": where, "split": arguments.split}
    results = {"all" if level is None else f"{level:g}": rows for level, rows in found.items()}
    write_json(arguments.out / f"{name}.json", kept | {"results": results})
    console.print(page, markup=False)


def verdict(found: Found) -> str:
    """How far MARN is from each of the others, at every redundancy."""
    said = []
    for level, rows in found.items():
        if "marn" not in rows:
            continue
        own = np.array([run[MAIN] for run in rows["marn"]])
        apart = {
            name: float(own.mean() - np.mean([run[MAIN] for run in runs]))
            for name, runs in rows.items()
            if name in ROWS and name != "marn"
        }
        words = ", ".join(f"{value:+.2f} to {ROWS[name][0]}" for name, value in apart.items())
        at = "" if level is None else f" at redundancy {level:g}"
        said.append(f"AUC of MARN{at}: {words}.")
    return "\n".join(said) + "\n" if said else ""


def draw(found: Found, path: Path) -> None:
    """AUC against redundancy, a line for every row, with the spread of seeds."""
    figure = new_figure((7.2, 4.4), 160, layout="constrained")
    axes = figure.subplots()
    quiet(axes)
    for number, (name, (title, _)) in enumerate(ROWS.items()):
        points = [
            (float(level or 0), [run[MAIN] for run in rows[name]]) for level, rows in found.items() if name in rows
        ]
        middle = [float(np.mean(values)) for _, values in points]
        spread = [float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for _, values in points]
        label, places = title.partition("](")[0].lstrip("["), [level for level, _ in points]
        tone, wide = (INK, 2.6) if name == "marn" else (colour(number), 1.2)
        axes.errorbar(places, middle, spread, label=label, color=tone, linewidth=wide, marker="o", capsize=3)
    axes.set_xticks([float(level or 0) for level in found])
    axes.set_xlabel("redundancy of the titles")
    axes.set_ylabel("AUC in per cent")
    axes.legend(fontsize=7, frameon=False)
    save_figure(figure, path)


def main() -> None:
    arguments = table_parser(__doc__, "clicks", DATA, ROWS).parse_args()
    arguments.split = arguments.split or "test"
    (arguments.runs / arguments.data).mkdir(parents=True, exist_ok=True)
    wanted = [name for name in ROWS if not arguments.only or name in arguments.only]
    if not arguments.report:
        keys = [f"{name}@{level:g}" if level is not None else name for level in levels(arguments) for name in wanted]
        of_each_seed(keys, arguments, train_and_measure)
    report(arguments)


if __name__ == "__main__":
    main()
