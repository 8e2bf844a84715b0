"""Which box a phrase means, by every model that can say: writes docs/results/grounding-DATA.{md,json}, and
grounding-DATA-SPLIT of another split than the data set's own.

    python scripts/results_grounding.py world [--seeds 3] [--jobs 4] [--device cuda] [--only multilevel …]
    python scripts/results_grounding.py flickr8k --root data/flickr8k [--split test]

Weakly supervised models have seen pictures and captions, no box; beside them stand a grounder that has learned from
boxes, and boxes that need no model. Every run is `saccade train SYSTEM data=DATA` with its recipe and another seed, in
a process of its own, `jobs` at once, measured by `saccade eval --task grounding`. Both are kept in --runs and not made
again, so that a long table can be made in several goes (--only), and written from what is there (--report). Rows of
which --runs has nothing stay as the page had them. A model of the package is measured as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from results_answering import command_of, saccade, table_parser, trained_on
from rich.console import Console

from saccade.core.files import read_json, write_json, write_text
from saccade.lab.reports import markdown_table
from saccade.metrics import mean_and_spread

PROPOSALS = "bottomup@36"
FIGURES = {
    "accuracy": "accuracy",
    "accuracy_merged": "merged",
    "pointing": "pointing",
    "recall_5": "R@5",
    "recall_10": "R@10",
    "upper_bound": "upper bound",
}
BASELINES = {"centre box": "a box in the middle", "largest box": "the largest box", "at random": "a box at random"}
WEAK, FULL = "captions", "boxes"


@dataclass(frozen=True)
class Row:
    """A model: what it is called, what it learned from, its system (or a model of the package), and settings over its
    recipe."""

    title: str
    learned: str
    system: str
    settings: Sequence[str] = ()
    boxes: str | None = None  # an extractor among whose boxes a heat map chooses
    trained: str | None = None  # the row whose runs are measured again; None: its own


MATCHERS = {
    name: Row(f"[{title}](../systems/{name}.md)", WEAK, name)
    for name, title in (
        ("vse", "VSE++"),
        ("scan", "SCAN"),
        ("vsrn", "VSRN"),
        ("camp", "CAMP"),
        ("imram", "IMRAM"),
        ("gsmn", "GSMN"),
    )
}
OURS = {
    "multilevel": Row("[multi-level](../systems/multilevel.md)", WEAK, "multilevel"),
    "align2ground": Row("[Align2Ground](../systems/align2ground.md)", WEAK, "align2ground"),
}
CELLS = "grid:tuned:scan-flickr8k@224/8"
JUDGED = ["eval_pictures=200"]  # a table of all pairs takes the slower ones longer than an epoch
FROZEN = [  # the pooled baseline's recipe trains a backbone along; here it reads what the other matchers read
    *("backbone.train=false", f"extractor={CELLS}", "word_encoder=gru", "bidirectional=true"),
    *("word_dim=200", "dim=256", "dropout=0.2", "temperature=0.05", "min_count=3", "batch_size=64"),
    *("learning_rate=1e-3", "warmup_steps=60", "average=0.995", "evaluate_every=380"),
]
EPOCHS = {"vse": 8, "vsrn": 8, "camp": 6, "imram": 6, "gsmn": 6}  # to save time
DETECTED = f"boxes of `{PROPOSALS}`"
DATA: dict[str, dict[str, Row]] = {
    "world": {
        **MATCHERS,
        **OURS,
        "hierarchical": Row(
            "[hierarchical](../systems/hierarchical.md), grounding alone",
            FULL,
            "hierarchical",
            ["task.parts=grounding", "steps=5000"],
        ),
    },
    "flickr8k": {
        "scan-flickr8k": Row("SCAN of the package", WEAK, "scan-flickr8k"),
        "scan-flickr8k-boxes": Row(
            f"the same, {DETECTED}", WEAK, "scan-flickr8k", boxes=PROPOSALS, trained="scan-flickr8k"
        ),
        **{
            name: replace(row, settings=[*(FROZEN if name == "vse" else ()), *JUDGED, f"epochs={EPOCHS[name]}"])
            for name, row in MATCHERS.items()
            if name != "scan"
        },
        "multilevel": replace(OURS["multilevel"], settings=JUDGED),
        "multilevel-boxes": Row(f"multi-level, {DETECTED}", WEAK, "multilevel", boxes=PROPOSALS, trained="multilevel"),
        "align2ground": replace(
            OURS["align2ground"], title=f"{OURS['align2ground'].title} on {DETECTED}", settings=JUDGED
        ),
        "align2ground-pooled": Row("… its local scores summed up", WEAK, "align2ground", ["score=pooled", *JUDGED]),
        "align2ground-cells": Row("Align2Ground on cells", WEAK, "align2ground", [f"extractor={CELLS}", *JUDGED]),
        "hierarchical": Row(
            "[hierarchical](../systems/hierarchical.md), grounding alone", FULL, "hierarchical", ["held_out=20"]
        ),
        "hierarchical-boxes": Row(
            f"the same, {DETECTED}", FULL, "hierarchical", boxes=PROPOSALS, trained="hierarchical"
        ),
        "hierarchical-regions": Row(
            f"hierarchical on {DETECTED}",
            FULL,
            "hierarchical",
            [f"extractor={PROPOSALS}", "steps=3000", "held_out=20"],
        ),
    },
}
SPLIT = {"world": "test", "flickr8k": "dev"}
PACKAGED = ("scan-flickr8k",)
console = Console()


def run_of(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    row = DATA[arguments.data][name]
    folder: Path = arguments.runs / arguments.data / f"{row.trained or name}-{seed}"
    return folder


def figures_of(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    return run_of(name, seed, arguments).with_name(f"{name}-{seed}.{arguments.split}.json")


def seeds_of(name: str, arguments: argparse.Namespace) -> range:
    """A model of the package is there once."""
    return range(1 if DATA[arguments.data][name].system in PACKAGED else arguments.seeds)


def train(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """One run in a process of its own, unless it is finished."""
    row, folder = DATA[arguments.data][name], run_of(name, seed, arguments)
    if row.system in PACKAGED or row.trained or (folder / "last").exists():
        return
    words = [row.system, f"data={arguments.data}", *root_word(arguments), *row.settings, "in_memory=true"]
    words += [f"trainer.seed={seed}", f"accelerator={arguments.device}", *arguments.settings, "-o", str(folder)]
    done = saccade(["train", *(["--resume", str(folder)] if folder.exists() else words)], folder.with_suffix(".log"))
    console.print(f"{folder.name}: {'trained' if done else f'failed, see {folder.name}.log'}", highlight=False)


def measure(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """Its figures, unless they are there."""
    row, folder, figures = DATA[arguments.data][name], run_of(name, seed, arguments), figures_of(name, seed, arguments)
    packaged = row.system in PACKAGED
    if figures.exists() or not (packaged or (folder / "last").exists()):
        return
    words = ["eval", row.system if packaged else str(folder), "--task", "grounding", f"data={arguments.data}"]
    words += [*root_word(arguments), *(arguments.settings if packaged else []), "--split", arguments.split]
    words += ["--proposals", row.boxes] if row.boxes else []
    done = saccade([*words, "--json", str(figures), "--device", arguments.device], folder.with_suffix(".log"))
    console.print(f"{figures.name}: {'done' if done else 'could not be measured, see the log'}", highlight=False)


def root_word(arguments: argparse.Namespace) -> list[str]:
    return [f"root={arguments.root}"] if arguments.root else []


def collect(
    arguments: argparse.Namespace,
) -> tuple[dict[str, list[dict[str, float]]], dict[str, dict[str, float]], dict[str, int]]:
    """By row the figures of every seed, from --runs or, if it has none, as the page was last written from; what needs
    no model, by title; and how many phrases of each type there are."""
    path = page_of(arguments).with_suffix(".json")
    before = read_json(path) if path.exists() else {}
    found: dict[str, list[dict[str, float]]] = {}
    floors: dict[str, dict[str, float]] = before.get("baselines", {})
    counts: dict[str, int] = before.get("phrases", {})
    for name in DATA[arguments.data]:
        for seed in seeds_of(name, arguments):
            path = figures_of(name, seed, arguments)
            if not path.exists():
                continue
            kept = read_json(path)
            counts = counts or kept["phrases"]
            models = {row: own for row, own in kept["results"].items() if row not in BASELINES}
            found.setdefault(name, []).extend(models.values())
            of = f", {DETECTED}" if DATA[arguments.data][name].boxes else ""
            if of or not floors:
                floors |= {f"{title}{of}": kept["results"][row] for row, title in BASELINES.items()}
    rows = {**before.get("results", {}), **found}
    return {name: rows[name] for name in DATA[arguments.data] if name in rows}, floors, counts


def page_of(arguments: argparse.Namespace) -> Path:
    """The page, without its ending."""
    other = f"-{arguments.split}" if arguments.split != SPLIT[arguments.data] else ""
    folder: Path = arguments.out
    return folder / f"grounding-{arguments.data}{other}"


def cells(runs: Sequence[Mapping[str, float]], names: Sequence[str]) -> list[str]:
    return [mean_and_spread([run[n] for run in runs]) if all(n in run for run in runs) else "–" for n in names]


def report(arguments: argparse.Namespace) -> None:
    rows, (found, floors, counts) = DATA[arguments.data], collect(arguments)
    if not found:
        console.print("no run is finished yet")
        return
    floors = {title: own for title, own in floors.items() if title != f"{BASELINES['centre box']}, {DETECTED}"}
    table = [[title, "nothing", *cells([own], list(FIGURES)), ""] for title, own in floors.items()]
    table += [
        [rows[name].title, rows[name].learned, *cells(runs, list(FIGURES)), str(len(runs))]
        for name, runs in found.items()
    ]
    kinds = [kind for kind in counts if kind and f"pointing_{kind}" in next(iter(found.values()))[0]]
    by_kind = []
    for figure in ("pointing", "accuracy") if kinds else ():
        names = [f"{figure}_{kind}" for kind in kinds]
        lines = [[title, *cells([own], names)] for title, own in floors.items()]
        lines += [[rows[name].title, *cells(runs, names)] for name, runs in found.items()]
        head = [figure, *(f"{kind} ({counts[kind]:,})" for kind in kinds)]
        by_kind.append(markdown_table(head, lines))
    path = page_of(arguments).with_suffix(".json")
    earlier = str(read_json(path)["device"]).split(" and ") if path.exists() else []
    where = " and ".join(sorted({*trained_on(arguments, found), *earlier})) or arguments.device
    command = command_of("results_grounding", arguments, SPLIT[arguments.data])
    title = "Phrases of the world" if arguments.data == "world" else "Flickr30k Entities on Flickr8k's photos"
    detector = (
        f" The detector behind `{PROPOSALS}` has: it learned from the boxes of the training photos and the nouns of\n"
        "their phrases. What reads its regions is weakly supervised for phrases, not for things."
        if arguments.data == "flickr8k"
        else ""
    )
    page = f"""# {title}

The **{arguments.split}** split, {sum(counts.values()):,} phrases that have a box; per cent, mean ± standard deviation
over seeds. A phrase's best box is right if it overlaps one of its true boxes by half (accuracy; merged: one box around
all of them), and it points right if the middle of its strongest region lies in one
([what the columns are](../grounding.md)). Models that learned from *captions* have seen no box of a phrase; those of
*boxes* have.{detector}

{markdown_table(["", "learned from", *FIGURES.values(), "seeds"], table, words=2)}

{(chr(10) * 2).join(by_kind)}

Made by `{command}` on {where}.
"""
    write_text(page_of(arguments).with_suffix(".md"), page)
    facts = {"command": command, "device": where, "split": arguments.split, "phrases": counts}
    write_json(path, {**facts, "baselines": floors, "results": found})
    console.print(page, markup=False)


def main() -> None:
    parser = table_parser(__doc__, "grounding", DATA, None)
    arguments = parser.parse_args()
    arguments.split = arguments.split or SPLIT[arguments.data]
    (arguments.runs / arguments.data).mkdir(parents=True, exist_ok=True)
    unknown = sorted(set(arguments.only or ()) - set(DATA[arguments.data]))
    if unknown:
        parser.error(f"there is no row {unknown[0]}: {', '.join(DATA[arguments.data])}")
    wanted = [name for name in DATA[arguments.data] if not arguments.only or name in arguments.only]
    if not arguments.report:
        todo = [(name, seed) for seed in range(arguments.seeds) for name in wanted if seed in seeds_of(name, arguments)]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for step in (train, measure):  # rows that share runs are measured when all are trained
                list(pool.map(lambda one, step=step: step(*one, arguments), todo))  # type: ignore[misc]
    report(arguments)


if __name__ == "__main__":
    main()
