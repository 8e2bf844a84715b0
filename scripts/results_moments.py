"""DRN beside sliding windows, whole videos and chance: writes docs/results/moments-DATA.{md,json}.

    python scripts/results_moments.py world_videos [--seeds 3] [--jobs 4] [--device cuda] [--only drn …]
    python scripts/results_moments.py msvd --root data/msvd

Every run is `saccade train SYSTEM` with its recipe and another seed, in a process of its own, `jobs` at once, measured
by `saccade eval --task moments`. Both are kept in --runs and not made again (--only, --report), as in
results_answering.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from results_answering import of_each_seed, saccade, table_parser
from rich.console import Console

from saccade.core.files import read_json, write_json, write_text
from saccade.lab.reports import markdown_table
from saccade.metrics import mean_and_spread
from saccade.tasks.moments.evaluate import FIGURES, MEAN, RANDOM, TIMED, WHOLE, WINDOWS

MAIN = "r1_iou0.5"


class Row(NamedTuple):
    title: str
    system: str
    data: str | None = None  # what it is trained on, if not on the data set itself
    settings: tuple[str, ...] = ()


ROWS = {
    "clips": Row("sliding windows, pooled matcher trained on clips", "vse"),
    "moments": Row("sliding windows, pooled matcher trained on moments", "vse", "world_moments"),
    "hgr": Row("sliding windows, [HGR](../systems/hgr.md)", "hgr"),
    "first": Row("[DRN](../systems/drn.md), after the first stage", "drn", None, ("task.stage_epochs=[99, 0]",)),
    "drn": Row("[DRN](../systems/drn.md)", "drn"),
}


class Source(NamedTuple):
    title: str
    about: str
    rows: tuple[str, ...]
    words: tuple[str, ...] = ()


DATA: Mapping[str, Source] = {
    "world_videos": Source(
        "Moments of the world's videos",
        "Sentences tell of one event, or of two in their order; a clip has up to four events\n([how](../video.md)).",
        tuple(ROWS),
        ("pictures=1200",),
    ),
    "msvd": Source(
        "Moments of MSVD's clips, one after the other",
        "Four to ten clips of different YouTube videos are put together; a sentence tells of one of them\n"
        "([how](../moments.md#data)). Real frame features, real sentences, exact times.",
        ("clips", "hgr", "first", "drn"),
    ),
}
console = Console()


def figures_of(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    folder: Path = arguments.runs / arguments.data / f"{name}-{seed}"
    return folder.with_name(f"{folder.name}.{arguments.split}.json")


def train_and_measure(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """One run in a process of its own, unless it is finished; then its figures, unless they are there."""
    row, folder = ROWS[name], arguments.runs / arguments.data / f"{name}-{seed}"
    root = [f"root={arguments.root}"] if arguments.root else []
    words = [*DATA[arguments.data].words, *root]
    log, figures = folder.with_suffix(".log"), figures_of(name, seed, arguments)
    if not (folder / "last").exists():
        given = [row.system, f"data={row.data or arguments.data}", *words, *row.settings, "in_memory=true"]
        given += [f"trainer.seed={seed}", f"accelerator={arguments.device}", *arguments.settings, "-o", str(folder)]
        if not saccade(["train", *(["--resume", str(folder)] if folder.exists() else given)], log):
            console.print(f"{folder.name}: failed, see {log}", highlight=False)
            return
    asked = ["eval", str(folder), "--task", "moments", f"data={arguments.data}", *words, "--split", arguments.split]
    asked += ["--json", str(figures), "--device", arguments.device]
    if not figures.exists() and not saccade(asked, log):
        console.print(f"{folder.name}: could not be measured, see {log}", highlight=False)
        return
    console.print(f"{folder.name}: done", highlight=False)


def report(arguments: argparse.Namespace) -> None:
    source = DATA[arguments.data]
    found: dict[str, list[dict[str, float]]] = {}
    facts: dict[str, float] = {}
    for name in source.rows:
        for path in (figures_of(name, seed, arguments) for seed in range(arguments.seeds)):
            if path.exists():
                facts = read_json(path)
                results = facts["results"]
                for floor in (RANDOM, WHOLE):
                    found[floor] = [results.pop(floor)]
                for row, figures in results.items():
                    way = next((f" ({way})" for way in WINDOWS.values() if row.endswith(f"({way})")), "")
                    found.setdefault(name + way, []).append(figures)
    if not found:
        console.print("no run is finished yet")
        return
    columns = [*FIGURES, MEAN, *([TIMED] if TIMED in found[RANDOM][0] else [])]
    names = {**{name: label.replace(",", ", ") for name, label in FIGURES.items()}, MEAN: "mean IoU"}
    names[TIMED] = "R@1, IoU=0.5, temporal words"
    rows = [
        [
            title(name),
            *(mean_and_spread([run[column] for run in runs]) for column in columns),
            str(len(runs)) if name not in (RANDOM, WHOLE) else "",
        ]
        for name, runs in found.items()
    ]
    files = [(arguments.runs / arguments.data).glob(f"{name}-*/environment.json") for name in found]
    where = " and ".join(sorted({str(read_json(file)["device"]) for own in files for file in own}))
    command = f"python scripts/results_moments.py {arguments.data}"
    command += f" --root data/{arguments.data}" if arguments.root else ""
    command += f" --split {arguments.split} --seeds {arguments.seeds} --device {arguments.device}"
    page = f"""# {source.title}

The **{arguments.split}** split: {facts["videos"]:,} videos, {facts["sentences"]:,} sentences, a frame every
{facts["seconds_a_frame"]:.2f} seconds. Per cent of the sentences; R@n, IoU=m: one of the best n moments overlaps a true
one by m, moments that overlap a better one by more than m − 0.05 left out; mean ± standard deviation over seeds.
Windows are scored by their similarity to the sentence, or, those that stand out, by how much better their frames fit
than the others.
{source.about}

{markdown_table(["", *(names[column] for column in columns), "seeds"], rows)}
{verdict(found)}
Made by `{command}` on {where}.
"""
    write_text(arguments.out / f"moments-{arguments.data}.md", page)
    kept = {"command": command, "device": where, "split": arguments.split, "results": found}
    write_json(arguments.out / f"moments-{arguments.data}.json", kept)
    console.print(page, markup=False)


def title(name: str) -> str:
    row, way, _ = name.partition(" (")
    return (
        name
        if row not in ROWS
        else ROWS[row].title.replace("windows", name[len(row) + 2 : -1])
        if way
        else ROWS[row].title
    )


def verdict(found: Mapping[str, list[dict[str, float]]]) -> str:
    """DRN beside the best windows of either kind."""
    means = {name: sum(run[MAIN] for run in runs) / len(runs) for name, runs in found.items()}
    said = []
    for way in WINDOWS.values():
        windows = [mean for name, mean in means.items() if name.endswith(f"({way})")]
        if "drn" in means and windows:
            apart = means["drn"] - max(windows)
            said.append(f"{abs(apart):.1f} {'above' if apart >= 0 else 'below'} the best {way}")
    return f"\nR@1 at IoU 0.5: DRN is {', '.join(said)}.\n" if said else ""


def main() -> None:
    arguments = table_parser(__doc__, "moments", DATA, ROWS).parse_args()
    arguments.split = arguments.split or "test"
    (arguments.runs / arguments.data).mkdir(parents=True, exist_ok=True)
    wanted = [name for name in DATA[arguments.data].rows if not arguments.only or name in arguments.only]
    if not arguments.report:
        of_each_seed(wanted, arguments, train_and_measure)
    report(arguments)


if __name__ == "__main__":
    main()
