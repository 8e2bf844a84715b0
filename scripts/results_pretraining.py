"""Pre-training and what comes of it: writes docs/results/pretraining-DATA.{md,json} and .png with the loss curves.

    python scripts/results_pretraining.py world [--seeds 3] [--jobs 4] [--device cuda] [--only interbert …]
    python scripts/results_pretraining.py flickr8k --root data/flickr8k

On the world: retrieval by InterBERT and Pixel-BERT, pre-trained or from scratch, learned from all pictures or from 200,
beside SCAN and IMRAM. On Flickr8k: both re-rank what SCAN finds on the cells that InterBERT reads, beside SCAN and
IMRAM on these; and visual entailment beside the sentence alone. There Pixel-BERT is pre-trained on the world first.

Every run is a command of `saccade` with its recipe and another seed, in a process of its own, `jobs` at once; a run
that starts from another waits for it. Runs and figures are kept in --runs and not made again, so that a long table
can be made in several goes (--only), and written from what is there (--report). Rows of which --runs has nothing stay
as the page had them. `--settings` are for every run, of the world as of Flickr8k.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Semaphore
from typing import Any

from results_answering import command_of, saccade, table_parser
from rich.console import Console

from saccade.core.config import as_word
from saccade.core.files import read_json, write_json, write_text
from saccade.lab.curves import draw_run_curves
from saccade.lab.reports import markdown_table
from saccade.metrics import mean_and_spread
from saccade.training.run import recipe

Figures = dict[str, float]


@dataclass(frozen=True)
class Row:
    """A run: what it is called in the table, its command, and the row whose run it starts from."""

    title: str
    words: tuple[str, ...]
    table: str | None = None  # where it stands; None: it is there for others to start from
    after: str | None = None
    data: str | None = None  # if not that of the page
    teacher: str | None = None  # the row that says which wrong pairs are hard
    first: str | None = None  # the row, or the package's matcher, whose best are re-ranked; nothing is trained

    @property
    def needs(self) -> list[str]:
        """The rows whose runs must be there first."""
        return [name for name in (self.after, self.teacher, self.first) if name and name != SHIPPED]


def recipe_words(name: str) -> tuple[str, ...]:
    """Model, backbone and extractor of a recipe, for other data."""
    found = recipe(name)
    parts = {"model": found["model"], "backbone": found["backbone"], "data": {"extractor": found["data"]["extractor"]}}
    return tuple(as_word(f"{part}.{key}", value) for part, own in parts.items() for key, value in own.items())


INTERBERT, PIXELBERT = "[InterBERT](../systems/interbert.md)", "[Pixel-BERT](../systems/pixelbert.md)"
SHIPPED = "scan-flickr8k"  # the matcher of the package
ON_THE_WORLD = (
    *("epochs=2", "batch_size=64", "optimiser=adamw", "learning_rate=0.0003"),
    *("schedule=warmup_linear", "precision=bf16"),
)
FEW = ("train_limit=200", "steps=2500", "evaluate_every=250")


def tuned(system: str, title: str) -> dict[str, Row]:
    """A system fine-tuned for retrieval on all pictures and on few, pre-trained and from scratch."""
    words, pre = ("train", system, "task=matching"), f"{system}-pre"
    return {
        pre: Row(f"{title}, pre-training", ("pretrain", system)),
        system: Row(f"[{title}](../systems/{system}.md), pre-trained", words, "retrieval", pre),
        f"{system}-scratch": Row(f"{title}, from scratch", words, "retrieval"),
        f"{system}-few": Row(f"{title}, pre-trained, 200 pictures", (*words, *FEW), "retrieval", pre),
        f"{system}-scratch-few": Row(f"{title}, from scratch, 200 pictures", (*words, *FEW), "retrieval"),
    }


WORLD = {
    "scan": Row("[SCAN](../systems/scan.md)", ("train", "scan"), "retrieval"),
    "imram": Row("[IMRAM](../systems/imram.md)", ("train", "imram"), "retrieval"),
    **tuned("interbert", "InterBERT"),
    **tuned("pixelbert", "Pixel-BERT"),
}
CELLS = (
    *(f"extractor={recipe('interbert-flickr8k')['data']['extractor']}", "backbone.train=false", "in_memory=true"),
    *("epochs=12", "evaluate_every=600"),
)
FLICKR8K = {
    "scan": Row("[SCAN](../systems/scan.md) on those cells", ("train", "scan", *CELLS), "retrieval"),
    "imram": Row("[IMRAM](../systems/imram.md) on those cells", ("train", "imram"), "retrieval"),
    "interbert-pre": Row("InterBERT, pre-training", ("pretrain", "interbert")),
    "interbert": Row("InterBERT, fine-tuned", ("train", "interbert", "task=matching"), after="interbert-pre"),
    "interbert-taught": Row(
        "InterBERT, fine-tuned with wrong pairs of that SCAN's choice",
        ("train", "interbert", "task=matching"),
        after="interbert-pre",
        teacher="scan",
    ),
    "pixelbert-world": Row(
        "Pixel-BERT, pre-training on the world",
        ("pretrain", "pixelbert", *recipe_words("pixelbert-flickr8k"), "model.used_pieces=false", *ON_THE_WORLD),
        data="world",
    ),
    "pixelbert-pre": Row("Pixel-BERT, pre-training", ("pretrain", "pixelbert"), after="pixelbert-world"),
    "pixelbert": Row("Pixel-BERT, fine-tuned", ("train", "pixelbert", "task=matching"), after="pixelbert-pre"),
    "interbert-rerank": Row(INTERBERT, (), "retrieval", "interbert", first="scan"),
    "taught-rerank": Row(f"{INTERBERT}, taught", (), "retrieval", "interbert-taught", first="scan"),
    "pixelbert-rerank": Row(PIXELBERT, (), "retrieval", "pixelbert", first="scan"),
    "taught-shipped": Row(f"{INTERBERT}, taught", (), "retrieval", "interbert-taught", first=SHIPPED),
    "interbert-entails": Row(INTERBERT, ("train", "interbert", "task=entailment"), "entailment", "interbert-pre"),
    "interbert-blind": Row(
        "InterBERT, shown the sentence alone",
        ("train", "interbert", "task=entailment", "shown=hypothesis"),
        *("entailment", "interbert-pre"),
    ),
}
DATA = {"world": WORLD, "flickr8k": FLICKR8K}
SPLITS = {"world": "test", "flickr8k": "dev"}
RERANKED, BLENDS = "8,16,32", "0,1,3"
MEASURED_AT_ONCE = 3  # a table of a cross-encoder fills a GPU
FLOORS = {"chance": "by chance", "most frequent": "the most frequent label"}
RECALLS = {
    "i2t_r1": "picture→text R@1", "i2t_r5": "R@5", "i2t_r10": "R@10",
    "t2i_r1": "text→picture R@1", "t2i_r5": "R@5", "t2i_r10": "R@10", "rsum": "rsum",
}  # fmt: skip
ACCURACIES = {
    "accuracy": "accuracy", "entailment": "entailed", "neutral": "left open", "contradiction": "contradicted",
}  # fmt: skip
READ = {
    "world": "",
    "flickr8k": " InterBERT reads the\n8 × 8 cells that the DINOv2 of the package's matcher sees, Pixel-BERT pixels; "
    "MiniLM is what their words start from.\nWhat SCAN reaches when its own DINOv2 learns along is "
    "[elsewhere](flickr8k.md).",
}
TITLES = {"world": "Pre-training on the world", "flickr8k": "Pre-training for Flickr8k"}
console = Console()


def run_of(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    folder: Path = arguments.runs / arguments.data / f"{name}-{seed}"
    return folder


def figures_of(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    return run_of(name, seed, arguments).with_name(f"{name}-{seed}.{arguments.split}.json")


def waves(rows: dict[str, Row], wanted: Sequence[str]) -> Iterator[list[str]]:
    """Rows whose runs can be trained beside each other: what a wave starts from is in one before it."""
    needed = list(wanted)
    for name in needed:  # grows
        needed += [other for other in rows[name].needs if other not in needed]
    done: set[str] = set()
    while rest := [name for name in rows if name in needed and name not in done]:
        ready = [name for name in rest if done.issuperset(rows[name].needs)]
        yield ready
        done |= set(ready)


def run_all(rows: dict[str, Row], wanted: Sequence[str], arguments: argparse.Namespace) -> None:
    """Train every run as soon as what it starts from is there, `jobs` at once, and measure it."""
    begun: dict[tuple[str, int], Future[None]] = {}
    measuring = Semaphore(MEASURED_AT_ONCE)

    def run(name: str, seed: int) -> None:
        for other in rows[name].needs:
            begun[other, seed].result()
        train(name, seed, arguments)
        if name in wanted:
            with measuring:
                measure(name, seed, arguments)

    with ThreadPoolExecutor(arguments.jobs) as pool:  # takes them in this order, so that none waits for one behind it
        for wave in waves(rows, wanted):
            for seed in range(arguments.seeds):
                for name in wave:
                    begun[name, seed] = pool.submit(run, name, seed)
    for future in begun.values():
        future.result()


def train(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """One run in a process of its own, unless it is finished or what it starts from is missing."""
    row, folder = DATA[arguments.data][name], run_of(name, seed, arguments)
    start, teacher = (run_of(name, seed, arguments) if name else None for name in (row.after, row.teacher))
    if row.first or (folder / "last").exists() or not all((run / "last").exists() for run in (start, teacher) if run):
        return
    data = row.data or arguments.data
    place = [f"root={arguments.root}"] if arguments.root and data == arguments.data else []
    words = [*row.words, f"data={data}", *place, *([f"init={start}"] if start is not None else [])]
    words += [f"task.teacher={teacher}"] if teacher is not None else []
    words += [f"trainer.seed={seed}", f"accelerator={arguments.device}", *arguments.settings, "-o", str(folder)]
    again = ["train", "--resume", str(folder)]
    done = saccade(again if folder.exists() else words, folder.with_suffix(".log"))
    console.print(f"{folder.name}: {'trained' if done else f'failed, see {folder.name}.log'}", highlight=False)


def first_of(row: Row, seed: int, arguments: argparse.Namespace) -> Path | str | None:
    """The model whose best are re-ranked."""
    return row.first if row.first in (None, SHIPPED) else run_of(str(row.first), seed, arguments)


def measure(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """Its figures, unless they are there; of pre-training the curve says all."""
    row, figures = DATA[arguments.data][name], figures_of(name, seed, arguments)
    own = run_of(row.after, seed, arguments) if row.first and row.after else run_of(name, seed, arguments)
    first = first_of(row, seed, arguments)
    if row.table is None or figures.exists() or not (own / "last").exists():
        return
    if isinstance(first, Path) and not (first / "last").exists():
        return
    words = ["eval", str(own), "--split", arguments.split, "--json", str(figures), "--device", arguments.device]
    words += ["--first", str(first), "--rerank", RERANKED, "--blend", BLENDS] if first is not None else []
    done = saccade(words, run_of(name, seed, arguments).with_suffix(".log"))
    console.print(f"{figures.name}: {'done' if done else 'could not be measured, see the log'}", highlight=False)


def found_rows(name: str, row: Row, seed: int, arguments: argparse.Namespace) -> dict[str, Figures]:
    """The rows that a run adds to its table, by title; the first is a floor that needs no run."""
    path = figures_of(name, seed, arguments)
    if not path.exists():
        return {}
    results: dict[str, Figures] = read_json(path)["results"]
    if row.first:
        first, reader = (str(one) for one in (first_of(row, seed, arguments), run_of(str(row.after), seed, arguments)))
        given = "the package's SCAN" if row.first == SHIPPED else "SCAN"
        told = {first: DATA[arguments.data][row.first].title if row.first in DATA[arguments.data] else given}
        found = {}
        for key, value in results.items():
            own, _, count = key.partition(", best ")
            own = own.replace(first, given).replace(reader, row.title)
            found[told.get(key, f"{own}: the best {count} of {given}")] = value
        return {key: value for key, value in found.items() if not key.startswith("chance")}
    (floor, least), (_, figures) = results.items()
    return {FLOORS[floor]: least, row.title: figures}


def tables(arguments: argparse.Namespace) -> dict[str, dict[str, list[Figures]]]:
    """The figures of all seeds, by table and title."""
    found: dict[str, dict[str, dict[int, Figures]]] = {}
    for name, row in DATA[arguments.data].items():
        for seed in range(arguments.seeds):
            for title, figures in found_rows(name, row, seed, arguments).items():
                assert row.table is not None
                same = 0 if title in FLOORS.values() else seed  # a floor is the same for all
                found.setdefault(row.table, {}).setdefault(title, {})[same] = figures
    return {table: {title: [*runs.values()] for title, runs in rows.items()} for table, rows in found.items()}


ABOUT = {
    "retrieval": (
        "[Recall](../glossary.md#recall) both ways. Where a cross-encoder reads the best 8, 16 or 32 answers to each "
        "query by SCAN, it puts those in its own order, or by the sum of its score and so many times SCAN's, both "
        "brought to one spread over a query's candidates; all others keep their places. *Perfect order* is what the "
        "same candidates would reach with every right answer on top. A row without such words is of all pairs."
    ),
    "entailment": (
        "Whether a photo entails a sentence, contradicts it or leaves it open (e-SNLI-VE on Flickr8k's photos). The "
        "floor is the same model that was never shown a photo."
    ),
}


def report(arguments: argparse.Namespace) -> None:
    name = f"pretraining-{arguments.data}"
    page, facts, picture = (arguments.out / f"{name}{ending}" for ending in (".md", ".json", ".png"))
    before: dict[str, Any] = read_json(facts) if facts.exists() else {}
    found = tables(arguments)
    for table, earlier in before.get("results", {}).items():
        found[table] = {**earlier, **found.get(table, {})}
    if not found:
        console.print("no run is finished yet")
        return
    parts = []
    for table, rows in found.items():
        columns = ACCURACIES if table == "entailment" else RECALLS
        lines = [
            [title, *(mean_and_spread([run[key] for run in runs]) for key in columns), str(len(runs))]
            for title, runs in rows.items()
        ]
        shown = markdown_table(["", *columns.values(), "seeds"], lines)
        parts.append(f"## {table.capitalize()}\n\n{ABOUT[table]}\n\n{shown}\n")
    runs = [run_of(one, seed, arguments) for one in DATA[arguments.data] for seed in range(arguments.seeds)]
    environments = [run / "environment.json" for run in runs]
    devices = {str(read_json(file)["device"]) for file in environments if file.exists()}
    devices |= set(before.get("device", []))
    curves = [run for run in runs if run.name.rpartition("-")[0].endswith("-pre") and (run / "last").exists()]
    if curves:
        draw_run_curves(curves, picture)
    if picture.exists():
        parts.append(f"## Curves\n\n![Losses of pre-training, by step]({picture.name})\n")
    command = command_of("results_pretraining", arguments, SPLITS[arguments.data])
    body = "\n".join(parts)
    text = f"""# {TITLES[arguments.data]}

The **{arguments.split}** split. Per cent, mean ± standard deviation over seeds. InterBERT and Pixel-BERT are
[cross-encoders](../pretraining.md): they read a picture and a text together.{READ[arguments.data]}

{body}
Made by `{command}` on {" and ".join(sorted(devices))}.
"""
    write_text(page, text)
    kept: dict[str, Any] = {"command": command, "device": sorted(devices), "split": arguments.split, "results": found}
    write_json(facts, kept)
    console.print(text, markup=False)


def main() -> None:
    parser = table_parser(__doc__, "pretraining", DATA, sorted({*WORLD, *FLICKR8K}))
    arguments = parser.parse_args()
    arguments.split = arguments.split or SPLITS[arguments.data]
    (arguments.runs / arguments.data).mkdir(parents=True, exist_ok=True)
    rows = DATA[arguments.data]
    wanted = [name for name in rows if not arguments.only or name in arguments.only]
    if not arguments.report:
        run_all(rows, wanted, arguments)
    report(arguments)


if __name__ == "__main__":
    main()
