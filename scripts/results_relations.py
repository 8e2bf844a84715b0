"""Relations that were never seen, by analogy and without: writes docs/results/relations-DATA.{md,json}.

    python scripts/results_relations.py world [--seeds 3] [--jobs 4] [--device cuda] [--only analogy …]
    python scripts/results_relations.py flickr8k --root data/flickr8k

Every run is `saccade train analogy data=DATA` with its recipe and another seed, in a process of its own, `jobs` at
once, measured by `saccade eval`. Both are kept in --runs and not made again (--only, --report), as in
results_answering.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from results_answering import command_of, of_each_seed, saccade, table_parser
from rich.console import Console

from saccade.core.files import read_json, write_json, write_text
from saccade.lab.reports import markdown_table
from saccade.metrics import mean_and_spread

ALONE = ["transfer=none", "transfer_from=0"]  # as many steps of the branches alone
UNMOVED = " without transfer"  # what `saccade eval` appends to the name of a run that it also scores so
RANDOM = "at random"


@dataclass(frozen=True)
class Row:
    """A model: its title, settings over the recipe, and whose run it is."""

    title: str
    settings: Sequence[str] = ()
    run: str | None = None  # the row whose run is measured again
    unmoved: bool = False  # without its transfer
    options: Sequence[str] = ()  # of `saccade eval`


ROWS = {
    "parts": Row("subject, predicate and object, no phrase", [*ALONE, "mixture=s-r-o"]),
    "phrase": Row("the phrase alone, no transfer", [*ALONE, "mixture=sro"]),
    "branches": Row("all branches, no transfer", ALONE),
    "unmoved": Row("[Analogy](../systems/analogy.md), its transfer left out", run="analogy", unmoved=True),
    "analogy": Row("[Analogy](../systems/analogy.md)"),
    "printed": Row("… Γ as printed", ["gamma=vp"]),
    "unigram": Row("… Γ of the words' own branches", ["gamma=unigram"]),
    "analogy-parts": Row("… with the predicate's branch", run="analogy", options=["--mixture", "s-r-o-sro"]),
}
COLUMNS = {"map": "mAP", "map_seen": "seen", "map_rare": "rare", "map_unseen": "unseen"}
DATA: Mapping[str, tuple[str, str, str]] = {  # title, what it is, split
    "world": (
        "Relations of the world that were never seen",
        "Regions are what the world's detector finds; `novel` shows combinations of doer, act and thing that no\n"
        "training picture has, though each part is known ([more](../systems/analogy.md#figures)).",
        "novel",
    ),
    "flickr8k": (
        "Relations that Flickr8k's captions state",
        "Triplets parsed from captions whose both ends have a box in Flickr30k Entities; the true boxes are given.\n"
        "One in ten kinds of triplet is never learned ([more](../systems/analogy.md#data)). Dev chose the settings.",
        "dev",
    ),
}
console = Console()


def run_of(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    folder: Path = arguments.runs / arguments.data / f"{ROWS[name].run or name}-{seed}"
    return folder


def figures_of(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    """Rows of one run that are measured with the same options share a file."""
    row = ROWS[name]
    own = name if row.options or row.run is None else row.run
    return run_of(name, seed, arguments).with_name(f"{own}-{seed}.{arguments.split}.json")


def root_word(arguments: argparse.Namespace) -> list[str]:
    return [f"root={arguments.root}"] if arguments.root else []


def train(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """One run in a process of its own, unless it is finished."""
    row, folder = ROWS[name], run_of(name, seed, arguments)
    if row.run or (folder / "last").exists():
        return
    words = ["analogy", f"data={arguments.data}", *root_word(arguments), *row.settings, "in_memory=true"]
    words += [f"trainer.seed={seed}", f"accelerator={arguments.device}", *arguments.settings, "-o", str(folder)]
    done = saccade(["train", *(["--resume", str(folder)] if folder.exists() else words)], folder.with_suffix(".log"))
    console.print(f"{folder.name}: {'trained' if done else f'failed, see {folder.name}.log'}", highlight=False)


def measure(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """Its figures, unless they are there, or come with those of another row."""
    row, folder, figures = ROWS[name], run_of(name, seed, arguments), figures_of(name, seed, arguments)
    if row.unmoved or figures.exists() or not (folder / "last").exists():
        return
    words = ["eval", str(folder), *root_word(arguments), "--split", arguments.split, *row.options]
    done = saccade([*words, "--json", str(figures), "--device", arguments.device], folder.with_suffix(".log"))
    console.print(f"{figures.name}: {'done' if done else 'could not be measured, see the log'}", highlight=False)


def collect(arguments: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """By row: the figures of every seed that was measured; first those of pairs in an order drawn at random."""
    found: dict[str, list[dict[str, float]]] = {}
    for name, row in ROWS.items():
        for path in (figures_of(name, seed, arguments) for seed in range(arguments.seeds)):
            if path.exists():
                results = read_json(path)["results"]
                found.setdefault(RANDOM, [results[RANDOM]])
                own = [model for model in results if model != RANDOM and model.endswith(UNMOVED) == row.unmoved]
                found.setdefault(name, []).extend(results[model] for model in own)
    return found


def report(arguments: argparse.Namespace) -> None:
    (title, about, _), found = DATA[arguments.data], collect(arguments)
    if not found:
        console.print("no run is finished yet")
        return
    rows = [
        [
            ROWS[name].title if name in ROWS else "pairs of boxes in an order drawn at random",
            *(mean_and_spread([run[c] for run in runs]) if all(c in run for run in runs) else "–" for c in COLUMNS),
            str(len(runs)) if name in ROWS else "",
        ]
        for name, runs in found.items()
    ]
    files = [(arguments.runs / arguments.data).glob(f"{name}-*/environment.json") for name in found]
    where = " and ".join(sorted({str(read_json(file)["device"]) for own in files for file in own}))
    command = command_of("results_relations", arguments, DATA[arguments.data][2])
    page = f"""# {title}

The **{arguments.split}** split; mean average precision of finding the pairs of boxes of each triplet, in per cent: over
all triplets, those that training had, had fewer than ten times, and never had; mean ± standard deviation over seeds.
{about}

{markdown_table(["", *COLUMNS.values(), "seeds"], rows)}

Made by `{command}` on {where}.
"""
    write_text(arguments.out / f"relations-{arguments.data}.md", page)
    facts = {"command": command, "device": where, "split": arguments.split}
    write_json(arguments.out / f"relations-{arguments.data}.json", {**facts, "results": found})
    console.print(page, markup=False)


def main() -> None:
    arguments = table_parser(__doc__, "relations", DATA, ROWS).parse_args()
    arguments.split = arguments.split or DATA[arguments.data][2]
    (arguments.runs / arguments.data).mkdir(parents=True, exist_ok=True)
    wanted = [name for name in ROWS if not arguments.only or name in arguments.only]
    if not arguments.report:
        for step in (train, measure):  # rows that share runs are measured when all are trained
            of_each_seed(wanted, arguments, step)
    report(arguments)


if __name__ == "__main__":
    main()
