"""Answerers beside what a question or a picture alone gives away: writes docs/results/answering-DATA.{md,json}, and
answering-DATA-SPLIT of another split than the data set's own.

    python scripts/results_answering.py world [--seeds 3] [--jobs 4] [--device cuda] [--only updown_vqa …]
    python scripts/results_answering.py world --only vcml vcml_parsed --parser runs/program_parser
    python scripts/results_answering.py daquar --root data/daquar [--split test]
    python scripts/results_answering.py vqa_rad --root data/vqa_rad
    python scripts/results_answering.py flickr8k+daquar --root data

Every run is `saccade train SYSTEM data=DATA` with its recipe and another seed, in a process of its own, `jobs` at once,
measured by `saccade eval`. Both are kept in --runs and not made again, so that a long table can be made in several goes
(--only), and written from what is there (--report). Rows of which --runs has nothing stay as the page had them. Without
--split it is dev, which also chose the settings; a test split is for the end.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from saccade.core.files import read_json, write_json, write_text
from saccade.lab.claims.plan import data_defaults
from saccade.lab.reports import markdown_table
from saccade.metrics import mean_and_spread

DCN_WORDS = (*data_defaults()["world"].systems["dcn"], "epochs=40")  # an ablation, by the settings of the claims
SYSTEMS = {  # title, system, settings over its recipe
    "question": ("question alone (Up-Down)", "updown_vqa", ["shown=question", "standardise=false"]),  # ones stay ones
    "picture": ("picture alone (Up-Down)", "updown_vqa", ["shown=picture"]),
    "updown_vqa": ("[Up-Down](../systems/updown_vqa.md)", "updown_vqa", []),
    "dcn": ("[DCN](../systems/dcn.md)", "dcn", []),
    "dcn_words": ("DCN, words alone take in regions", "dcn", DCN_WORDS),
    "hierarchical": ("[hierarchical](../systems/hierarchical.md), three tasks in one run", "hierarchical", []),
    "vcml": ("[VCML](../systems/vcml.md), programs known", "vcml", []),
    "vcml_parsed": ("the same, programs of a [trained parser](../systems/program_parser.md)", "vcml", []),
}
FLOORS = ("question", "picture")
FREQUENT = "most frequent"  # of each kind; among what `saccade eval` prints of answerers


@dataclass(frozen=True)
class DataSet:
    title: str
    about: str
    split: str = "dev"
    systems: Sequence[str] = ("question", "picture", "updown_vqa", "dcn")
    options: Sequence[str] = ()  # of `saccade eval`
    published: Sequence[tuple[str, Mapping[str, float]]] = ()  # source, and its figures by our names
    published_note: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)  # what to call them, if not by their own names
    margin: float | None = None  # points above both floors that are asked for, of every kind of question


DATA = {
    "world": DataSet(
        "Questions about the world",
        "Questions are drawn so that their words say nothing of the answer ([how](../world.md)).",
        "test",
        tuple(SYSTEMS),
        kinds={"query_colour": "colour", "query_kind": "kind", "query_size": "size", "query_material": "material"},
        margin=10,
    ),
    "daquar": DataSet(
        "DAQUAR, from raw photos",
        "Indoor photos of NYU Depth v2; all 894 kinds of things, answers that are lists among them. WUPS counts near\n"
        "synonyms by WordNet.",
        options=["--wups"],
        published=[
            ("Multi-World", {"accuracy": 7.9, "WUPS 0.9": 11.9, "WUPS 0.0": 38.8}),
            ("Ask Your Neurons, question alone", {"accuracy": 19.1, "WUPS 0.9": 25.2, "WUPS 0.0": 65.1}),
            ("Ask Your Neurons", {"accuracy": 21.7, "WUPS 0.9": 28.0, "WUPS 0.0": 65.0}),
            ("CNN for image and question (Ma et al.)", {"accuracy": 23.4, "WUPS 0.9": 29.6, "WUPS 0.0": 63.0}),
            ("Stacked attention (SAN)", {"accuracy": 29.3, "WUPS 0.9": 35.1, "WUPS 0.0": 68.6}),
            ("people", {"accuracy": 50.2, "WUPS 0.9": 50.8, "WUPS 0.0": 67.3}),
        ],
        published_note="Published for the official **test** questions (table 1 of Yang et al., Stacked Attention\n"
        "Networks, CVPR 2016, read in a transcript of it). The networks there are asked only what one word answers,\n"
        "nine questions in ten; the table above has all questions:",
    ),
    "vqa_rad": DataSet(
        "VQA-RAD, from raw pictures",
        "Radiology images, seen by a network that learned from photographs. Dev is a fifth of the images.",
        published=[
            ("MEVF with stacked attention (SAN)", {"open": 40.7, "closed": 74.1}),
            ("MEVF with bilinear attention (BAN)", {"open": 43.9, "closed": 75.1}),
        ],
        published_note="Published for the official **test** questions, with networks trained on radiology images (the\n"
        "repository of MEVF, Nguyen et al., MICCAI 2019, github.com/aioz-ai/MICCAI19-MedVQA):",
    ),
    "flickr8k+daquar": DataSet(
        "Plain questions about photos",
        "Read off Flickr8k's captions by rules ([how, and how often they are wrong](../data/questions.md)), and those\n"
        "of DAQUAR; one model learns both, and answers the questions about Flickr8k's photos by kind.",
        systems=("question", "picture", "updown_vqa"),
        kinds={"flickr8k_is": "is it so", "flickr8k_object": "riding, holding, playing"},
    ),
}
console = Console()


def saccade(words: Sequence[str], log: Path) -> bool:
    """Run a command of Saccade; whether it went well."""
    with log.open("a") as file:
        done = subprocess.run(
            [sys.executable, "-m", "saccade", *words],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={"OMP_NUM_THREADS": "3", **os.environ},
        )
    return done.returncode == 0


def train_and_measure(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """One run in a process of its own, unless it is finished; then its figures, unless they are there."""
    _, system, settings = SYSTEMS[name]
    folder, root = run_of(name, seed, arguments), [f"root={arguments.root}"] if arguments.root else []
    log, figures = folder.with_suffix(".log"), figures_of(name, seed, arguments)
    if not (folder / "last").exists():
        words = [system, f"data={arguments.data}", *root, *settings, "in_memory=true", f"trainer.seed={seed}"]
        words += [
            f"accelerator={arguments.device}",
            *arguments.settings,
            "-o",
            str(folder),
        ]
        if not saccade(["train", *(["--resume", str(folder)] if folder.exists() else words)], log):
            console.print(f"{folder.name}: failed, see {log}", highlight=False)
            return
    if not figures.exists():
        words = ["eval", str(folder), *root, "--split", arguments.split, "--json", str(figures)]
        options = [] if system == "vcml" else list(DATA[arguments.data].options)
        options += ["--parser", str(arguments.parser)] if name == "vcml_parsed" else []
        if not saccade([*words, *options, "--device", arguments.device], log):
            console.print(f"{folder.name}: could not be measured, see {log}", highlight=False)
            return
    console.print(f"{folder.name}: done", highlight=False)


def run_of(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    folder: Path = arguments.runs / arguments.data / f"{name.removesuffix('_parsed')}-{seed}"
    return folder


def figures_of(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    run = run_of(name, seed, arguments)
    return run.with_name(f"{name}-{seed}.{arguments.split}.json")


def read_figures(path: Path) -> dict[str, dict[str, float]]:
    """By model, the most frequent answer among them; kinds of question by their own names, of joint runs too."""
    results = read_json(path)["results"]
    return {
        model: {
            re.sub(r"^(… )?(answering_)?(accuracy_)?", "", name): value
            for name, value in figures.items()
            if "answering_accuracy" not in figures or name.startswith("answering_")
        }
        for model, figures in results.items()
    }


def collect(arguments: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """By row of the table: the figures of every seed that was measured, here or when the page was last written."""
    found: dict[str, list[dict[str, float]]] = {}
    for name in DATA[arguments.data].systems:
        for seed in range(arguments.seeds):
            path = figures_of(name, seed, arguments)
            if path.exists():
                models = read_figures(path)
                most = models.pop(FREQUENT, None)
                if most is not None and "metaconcepts" not in most:  # that of concept learners has further kinds
                    found[FREQUENT] = [most]
                found.setdefault(name, []).extend(models.values())
    rows = {**before(arguments).get("results", {}), **found}
    return {name: rows[name] for name in (FREQUENT, *DATA[arguments.data].systems) if name in rows}


def page_of(arguments: argparse.Namespace) -> Path:
    """The page, without its ending."""
    other = f"-{arguments.split}" if arguments.split != DATA[arguments.data].split else ""
    folder: Path = arguments.out
    return folder / f"answering-{arguments.data.replace('+', '-')}{other}"


def before(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the page was last written from."""
    path = page_of(arguments).with_suffix(".json")
    return read_json(path) if path.exists() else {}


def trained_on(arguments: argparse.Namespace, found: Mapping[str, Sequence[object]]) -> list[str]:
    """What the runs say of the processors that trained them."""
    folders = (run_of(name, seed, arguments) for name in found for seed in range(arguments.seeds))
    files = [folder / "environment.json" for folder in folders]
    return sorted({str(read_json(file)["device"]) for file in files if file.exists()})


def above_floors(found: Mapping[str, list[dict[str, float]]], columns: Sequence[str], margin: float) -> list[str]:
    """For each model: of which kinds of question it is not so many points above both floors, with every seed."""
    lines = []
    for name, runs in found.items():
        if name in (*FLOORS, FREQUENT) or not all(floor in found for floor in FLOORS):
            continue
        floor = {c: max(run.get(c, 0.0) for other in FLOORS for run in found[other]) for c in columns}
        short = [c for c in columns if any(run[c] < floor[c] + margin for run in runs if c in run)]
        verdict = f"but for {', '.join(short)}" if short else "of every kind"
        lines.append(f"- {SYSTEMS[name][0]}: at least {margin} points above both floors with every seed, {verdict}.")
    return lines


def report(arguments: argparse.Namespace) -> None:
    data, found = DATA[arguments.data], collect(arguments)
    if not found:
        console.print("no run is finished yet")
        return
    columns = [c for c in next(iter(found.values()))[0] if c not in ("mean_kind", "metaconcepts")]
    rows = [
        [
            SYSTEMS[name][0] if name in SYSTEMS else "the most frequent answer of each kind",
            *(mean_and_spread([run[c] for run in runs]) if all(c in run for run in runs) else "–" for c in columns),
            str(len(runs)) if name in SYSTEMS else "",
        ]
        for name, runs in found.items()
    ]
    earlier = str(before(arguments).get("device", "")).split(" and ")
    where = " and ".join(sorted({*trained_on(arguments, found), *earlier} - {""}))
    command = command_of("results_answering", arguments, data.split)
    named = (data.kinds.get(c, c.removeprefix("flickr8k_").replace("_", " ")) for c in columns)
    head = ["", *named, "seeds"]
    chosen = " No run learned from dev's photos; dev chose the settings." if arguments.data != "world" else ""
    page = f"""# {data.title}

The **{arguments.split}** split; accuracy in per cent, of all questions and of each kind; mean ± standard deviation over
seeds. {data.about}{chosen}
What a model reaches without the picture, or without the question, is the floor that seeing must beat.

{markdown_table(head, rows)}

{chr(10).join(above_floors(found, columns, data.margin)) + chr(10) if data.margin else ""}{published(data)}
Made by `{command}` on {where}.
"""
    write_text(page_of(arguments).with_suffix(".md"), page)
    facts = {"command": command, "device": where, "split": arguments.split}
    write_json(page_of(arguments).with_suffix(".json"), {**facts, "results": found})
    console.print(page, markup=False)


def published(data: DataSet) -> str:
    if not data.published:
        return ""
    columns = list(dict.fromkeys(c for _, figures in data.published for c in figures))
    rows = [[source, *(f"{f[c]:.1f}" if c in f else "–" for c in columns)] for source, f in data.published]
    return f"\n{data.published_note}\n\n{markdown_table(['published', *columns], rows)}\n"


def table_parser(
    about: str | None, subject: str, data: Iterable[str], rows: Iterable[str] | None
) -> argparse.ArgumentParser:
    """The options of every script that trains the rows of a table with several seeds."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=list(data))
    parser.add_argument("--root", type=Path, default=None, help="the folder of the data set")
    parser.add_argument("--split", default=None, help="what is measured; the data set's own if not given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    choices = None if rows is None else list(rows)
    parser.add_argument("--only", nargs="*", choices=choices, help="train and measure just these rows")
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--runs", type=Path, default=Path(f"runs/results-{subject}"))
    parser.add_argument("--settings", nargs="*", default=[], help="KEY=VALUE words for every run")
    return parser


def command_of(script: str, arguments: argparse.Namespace, own_split: str) -> str:
    """The command that makes a table anew."""
    words = ["python", f"scripts/{script}.py", arguments.data]
    root = "data" if "+" in arguments.data else f"data/{arguments.data}"  # several data sets lie in one folder
    words += ["--root", root] if arguments.data != "world" else []
    words += ["--split", arguments.split] if arguments.split != own_split else []
    words += ["--seeds", str(arguments.seeds), "--device", arguments.device]
    return " ".join([*words, "--settings", *arguments.settings] if arguments.settings else words)


def of_each_seed(
    names: Sequence[str], arguments: argparse.Namespace, do: Callable[[str, int, argparse.Namespace], None]
) -> None:
    """`do(name, seed, arguments)` for the runs of a table, some at once, the first seed of all rows first."""
    todo = [(name, seed) for seed in range(arguments.seeds) for name in names]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda one: do(*one, arguments), todo))


def main() -> None:
    parser = table_parser(__doc__, "answering", DATA, SYSTEMS)
    parser.add_argument("--parser", type=Path, default=None, help="a trained program_parser, for vcml_parsed")
    arguments = parser.parse_args()
    arguments.split = arguments.split or DATA[arguments.data].split
    (arguments.runs / arguments.data).mkdir(parents=True, exist_ok=True)
    wanted = [name for name in DATA[arguments.data].systems if not arguments.only or name in arguments.only]
    if not arguments.report:
        trained = [name for name in wanted if name != "vcml_parsed"]
        parsed = ["vcml_parsed"] if arguments.parser and "vcml_parsed" in wanted else []  # the same runs, afterwards
        for names in (trained, parsed):
            of_each_seed(names, arguments, train_and_measure)
    report(arguments)


if __name__ == "__main__":
    main()
