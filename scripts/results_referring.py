"""PLAN beside what words, boxes or a picture alone give away: writes docs/results/referring-DATA.{md,json}.

    python scripts/results_referring.py world [--seeds 3] [--jobs 4] [--device cuda] [--only both …]
    python scripts/results_referring.py flickr8k --root data/flickr8k

Every run is `saccade train plan data=DATA` with its recipe and another seed, in a process of its own, `jobs` at once,
measured by `saccade eval`. Both are kept in --runs and not made again (--only, --report), as in results_answering.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from results_answering import command_of, of_each_seed, saccade, table_parser
from rich.console import Console

from saccade.core.files import read_json, write_json, write_text
from saccade.lab.reports import markdown_table
from saccade.metrics import mean_and_spread

RUNS = {  # title, settings over the recipe
    "text": ("words alone", ["shown=text"]),
    "picture": ("picture and boxes, no words", ["shown=picture"]),
    "boxes": ("words, places and categories of the boxes, no picture", ["shown=boxes"]),
    "expressions": ("[PLAN](../systems/plan.md), expressions alone", ["reads=expressions"]),
    "dialogs": ("[PLAN](../systems/plan.md), dialogs alone", ["reads=dialogs"]),
    "image": ("… attends to the picture alone", ["levels=image"]),
    "proposal": ("… attends to the candidates alone", ["levels=proposal"]),
    "plan": ("[PLAN](../systems/plan.md)", []),
}
DATA: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {  # title, what it is, split, runs
    "world": (
        "Expressions and dialogs about the world",
        "Texts choose among the true boxes of all things in a picture, and mean each equally often\n"
        "([how](../world.md#expressions-and-dialogs)).",
        "test",
        tuple(RUNS),
    ),
    "flickr8k": (
        "Phrases of Flickr8k's captions",
        "A phrase chooses among the photo's boxes of its type in Flickr30k Entities, of which there are two or more\n"
        "([how](../referring.md#data)). Dev chose the settings.",
        "dev",
        ("text", "picture", "boxes", "image", "proposal", "plan"),
    ),
}
RANDOM = "at random"
console = Console()


def figures_of(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    folder: Path = arguments.runs / arguments.data / f"{name}-{seed}"
    return folder.with_name(f"{folder.name}.{arguments.split}.json")


def train_and_measure(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """One run in a process of its own, unless it is finished; then its figures, unless they are there."""
    folder: Path = arguments.runs / arguments.data / f"{name}-{seed}"
    root = [f"root={arguments.root}"] if arguments.root else []
    log, figures = folder.with_suffix(".log"), figures_of(name, seed, arguments)
    if not (folder / "last").exists():
        words = ["plan", f"data={arguments.data}", *root, *RUNS[name][1], "in_memory=true", f"trainer.seed={seed}"]
        words += [f"accelerator={arguments.device}", *arguments.settings, "-o", str(folder)]
        if not saccade(["train", *(["--resume", str(folder)] if folder.exists() else words)], log):
            console.print(f"{folder.name}: failed, see {log}", highlight=False)
            return
    words = ["eval", str(folder), *root, "--split", arguments.split, "--json", str(figures)]
    if not figures.exists() and not saccade([*words, "--device", arguments.device], log):
        console.print(f"{folder.name}: could not be measured, see {log}", highlight=False)
        return
    console.print(f"{folder.name}: done", highlight=False)


def report(arguments: argparse.Namespace) -> None:
    title, about, _, names = DATA[arguments.data]
    found: dict[str, list[dict[str, float]]] = {}
    for name in names:
        for path in (figures_of(name, seed, arguments) for seed in range(arguments.seeds)):
            if path.exists():
                results = read_json(path)["results"]
                chance = results.pop(RANDOM)
                found[RANDOM] = [max([chance, *found.get(RANDOM, [])], key=len)]  # one that has every kind
                found.setdefault(name, []).extend(results.values())
    if not found:
        console.print("no run is finished yet")
        return
    columns = [column for column in found[RANDOM][0] if column != "chance"]
    rows = [
        [
            RUNS[name][0] if name in RUNS else "a candidate drawn at random",
            *(mean_and_spread([run[c] for run in runs]) if all(c in run for run in runs) else "–" for c in columns),
            str(len(runs)) if name in RUNS else "",
        ]
        for name, runs in found.items()
    ]
    files = [(arguments.runs / arguments.data).glob(f"{name}-*/environment.json") for name in found]
    where = " and ".join(sorted({str(read_json(file)["device"]) for own in files for file in own}))
    command = command_of("results_referring", arguments, arguments.split)
    head = ["", *(column.removeprefix("accuracy_").replace("_", " ") for column in columns), "seeds"]
    page = f"""# {title}

The **{arguments.split}** split; how often the right box is chosen, in per cent, of all texts and of each kind; mean ±
standard deviation over seeds. {about}

{markdown_table(head, rows)}

Made by `{command}` on {where}.
"""
    write_text(arguments.out / f"referring-{arguments.data}.md", page)
    facts = {"command": command, "device": where, "split": arguments.split}
    write_json(arguments.out / f"referring-{arguments.data}.json", {**facts, "results": found})
    console.print(page, markup=False)


def main() -> None:
    arguments = table_parser(__doc__, "referring", DATA, RUNS).parse_args()
    arguments.split = arguments.split or DATA[arguments.data][2]
    (arguments.runs / arguments.data).mkdir(parents=True, exist_ok=True)
    wanted = [name for name in DATA[arguments.data][3] if not arguments.only or name in arguments.only]
    if not arguments.report:
        of_each_seed(wanted, arguments, train_and_measure)
    report(arguments)


if __name__ == "__main__":
    main()
