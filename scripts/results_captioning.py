"""Every captioner on one data set, with cross-entropy and self-critical: writes docs/results/captioning-DATA.{md,json}.

    python scripts/results_captioning.py world [--seeds 3] [--jobs 4] [--device cuda]
    python scripts/results_captioning.py flickr8k --root data/flickr8k [--only updown …]

On the world, cross-entropy runs are those of `saccade claims`, in the same folder: what the one has trained, the other
need not. On Flickr8k they are those of the recipes. Every one then goes on with rewards, `jobs` captioners at once.
What was measured is kept in --runs and not made again, so that a long table can be made in several goes (--only), and
written from the captions alone (--report).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from saccade.core.files import read_json, write_json, write_text
from saccade.features import open_split
from saccade.lab.claims.claim import ClaimData, load_claim
from saccade.lab.claims.plan import Request, Run, digest, run_of, settings_that_matter
from saccade.lab.claims.run import fill_caches, is_finished, train_and_measure
from saccade.lab.workers import Ended, run_jobs
from saccade.metrics import (
    CAPTION_METRICS,
    caption_scores,
    mean_and_spread,
)
from saccade.metrics.captions.meteor import MeteorTables, find_meteor_tables, read_meteor_tables
from saccade.tasks.captioning.evaluate import references_of
from saccade.tasks.captioning.task import RewardConfig
from saccade.training.run import run_config

METRICS = {key: CAPTION_METRICS[key] for key in ("bleu4", "meteor", "rouge_l", "cider_d", "bleu1", "bleu2", "bleu3")}
CLAIMED = {  # title, and the variant of which claim
    "soft": ("Show, Attend and Tell, soft", "sat-attention", "attention"),
    "hard": ("Show, Attend and Tell, hard", "sat-hard", "hard"),
    "adaptive": ("Adaptive attention", "adaptive-sentinel", "sentinel"),
    "updown": ("Up-Down", "updown-regions", "regions"),
    "sgae": ("SGAE", "sgae-dictionary", "dictionary"),
    "unsupervised": ("Unsupervised, no pairs", "unsupervised-rewards", "initialised"),
}
RECIPES = {  # title, system and settings beside its recipe for photos
    "soft": ("Show, Attend and Tell, soft", "show_attend_tell", ()),
    "hard": ("Show, Attend and Tell, hard", "show_attend_tell", ("attention=hard",)),
    "adaptive": ("Adaptive attention", "adaptive", ("extractor=grid:tuned:scan-flickr8k@224/8", "epochs=13")),
    "updown": ("Up-Down", "updown", ()),
    "updown-regions": ("Up-Down, 36 regions of the detector", "updown", ("extractor=bottomup@36", "epochs=16")),
    "sgae": ("SGAE, 36 regions of the detector", "sgae", ()),
    "unsupervised": ("Unsupervised, no pairs, 36 regions of the detector", "unsupervised", ()),
}
CAPTIONERS = {"world": CLAIMED, "flickr8k": RECIPES}
ALONE = ("unsupervised",)  # has rewards of its own
REWARD = RewardConfig(after=0, num_samples=5, baseline="samples", temperature=0.5)


@dataclass(frozen=True)
class DataSet:
    split: str  # measured
    epochs: int  # of self-critical training, which goes on from a trained model
    rate: float  # of it, as a share of cross-entropy's
    beams: int
    about: str


DATA = {
    "world": DataSet(
        "test", 4, 0.3, 3, "The built-in world. Cross-entropy runs are made as in the [claims](../claims/index.md)."
    ),
    "flickr8k": DataSet(
        "dev",
        10,
        0.3,
        5,
        "Cross-entropy runs are those of the recipes: where a row says no other, a picture is 8 × 8 cells of the\n"
        "DINOv2 that the package's matcher trained along. Trained on the train and extra splits, not on dev, though\n"
        "settings were chosen on it.",
    ),
}
PUBLISHED = [  # Xu et al., ICML 2015, table 1
    ("Show, Attend and Tell, soft", {"bleu1": 67.0, "bleu2": 44.8, "bleu3": 29.9, "bleu4": 19.5, "meteor": 18.93}),
    ("Show, Attend and Tell, hard", {"bleu1": 67.0, "bleu2": 45.7, "bleu3": 31.4, "bleu4": 21.3, "meteor": 20.30}),
]
console = Console()


def cross_entropy_run(name: str, seed: int, arguments: argparse.Namespace) -> Run:
    """The run trained with cross-entropy: that of a claim, or of the recipe."""
    data, split = arguments.data, DATA[arguments.data].split
    if data == "world":
        _, about, label = CLAIMED[name]
        claim = load_claim(about)
        variant = next(variant for variant in claim.variants if variant.label == label)
        request = Request((data,), arguments.seeds, root=arguments.root, device=arguments.device)
        return run_of(claim, variant, ClaimData(data, splits=(split,)), seed, request)
    _, system, words = RECIPES[name]
    beam = ("decoding.strategy=beam", f"decoding.num_beams={DATA[data].beams}")
    config = run_config(system, (f"data={data}", f"root={arguments.root}", *words, *beam))
    trainer = replace(config.trainer, seed=seed, accelerator=arguments.device.partition(":")[0])
    return Run(f"{data}/{name}-s{seed}", replace(config, trainer=trainer), (split,))


def rewarded(run: Run, arguments: argparse.Namespace) -> Run:
    """The run that goes on from there with rewards."""
    data, config = DATA[arguments.data], run.config
    task = replace(config.task, reward=REWARD, items="pictures")
    rate = data.rate * config.trainer.learning_rate
    trainer = replace(config.trainer, epochs=data.epochs, steps=None, learning_rate=rate, warmup_steps=20, average=0.99)
    config = replace(config, task=task, trainer=trainer, start=arguments.runs / run.name)
    known = digest(settings_that_matter(replace(config, start=None)))
    return replace(run, name=f"{run.name.rpartition('-s')[0]}-critical-{known}-s{run.seed}", config=config)


def train(runs: Sequence[Run], arguments: argparse.Namespace) -> None:
    """Carry out those that are not there."""
    todo = [run for run in runs if not is_finished(run, arguments.runs)]
    if not todo:
        return
    fill_caches(todo, console)

    def ended(end: Ended[Run]) -> None:
        console.print(f"{end.job.name}: {end.failure or f'done in {end.seconds:.0f} s'}", highlight=False, markup=False)

    job = partial(train_and_measure, runs=arguments.runs, lean=False)
    run_jobs(todo, job, min(arguments.jobs, len(todo)), ended=ended)


def captions_of(run: Run, arguments: argparse.Namespace) -> Path:
    return Path(arguments.runs) / run.name / f"captions-{DATA[arguments.data].split}.json"


def measure(run: Run, arguments: argparse.Namespace, tables: MeteorTables, references: Any) -> dict[str, Any]:
    """The figures of a finished run's captions."""
    captions = read_json(captions_of(run, arguments))
    scores = caption_scores([one["caption"] for one in captions], references, meteor_tables=tables, only=list(METRICS))
    return {name: 100 * scores[name].corpus for name in METRICS}


def row(title: str, how: str, runs: list[dict[str, Any]]) -> str:
    cells = [mean_and_spread([one[metric] for one in runs]) for metric in METRICS]
    return f"| {' | '.join([title, how, *cells, str(len(runs))])} |"


def report(plain: dict[str, list[Run]], critical: dict[str, list[Run]], arguments: argparse.Namespace) -> None:
    """Measure the captions of every finished run, and write the page."""
    place, data = find_meteor_tables(), DATA[arguments.data]
    tables = read_meteor_tables(place) if place is not None else MeteorTables()
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    some: Run | None = None
    references: list[list[str]] = []
    for name, (title, _, _) in CAPTIONERS[arguments.data].items():
        ways = {"rewards without pairs" if name in ALONE else "cross-entropy": plain.get(name, [])}
        for how, runs in {**ways, "self-critical": critical.get(name, [])}.items():
            finished = [run for run in runs if captions_of(run, arguments).exists()]
            if finished and some is None:
                some = finished[0]
                references = references_of(open_split(some.config.data, data.split))
            if finished:
                found = [measure(run, arguments, tables, references) for run in finished]
                results.setdefault(title, {})[how] = found
    if some is None:
        console.print("no run is finished yet")
        return
    where = read_json(arguments.runs / some.name / "measured.json")["device"]
    head = f"| captioner | learned by | {' | '.join(METRICS.values())} | seeds |"
    rows = [row(title, how, runs) for title, ways in results.items() for how, runs in ways.items()]
    command = (
        f"python scripts/results_captioning.py {arguments.data} --seeds {arguments.seeds} --device {arguments.device}"
    )
    command += f" --root data/{arguments.data}" if arguments.data != "world" else ""
    page = f"""# Captioning on {"the world" if arguments.data == "world" else "Flickr8k, from raw photos"}

The **{data.split}** split ({sum(map(len, references)):,} captions of {len(references):,} pictures), all figures times
100, mean ± standard deviation over seeds. {data.about}
The model is the one after the last step; captions are found by a beam of {data.beams}. Self-critical training goes on
from the cross-entropy runs for {data.epochs} epochs with CIDEr-D as its reward, {REWARD.num_samples} captions
a picture; a metric that is optimised goes up more than captions get better.
METEOR matches by {", ".join(tables.stages)}.

{head}
|---|---|{"---:|" * (len(METRICS) + 1)}
{chr(10).join(rows)}
{published() if arguments.data == "flickr8k" else ""}
Made by `{command}` on {where}.
"""
    write_text(arguments.out / f"captioning-{arguments.data}.md", page)
    facts = {"command": command, "device": where, "meteor": list(tables.stages)}
    write_json(arguments.out / f"captioning-{arguments.data}.json", {**facts, "results": results})
    console.print(page, markup=False)


def published() -> str:
    printed = [metric for metric in METRICS if metric in PUBLISHED[0][1]]
    names = [METRICS[metric] for metric in printed]
    rows = [f"| {name} | {' | '.join(f'{values[metric]:.1f}' for metric in printed)} |" for name, values in PUBLISHED]
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
    parser.add_argument("--root", type=Path, default=None, help="of the photos")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="*", choices=[*CLAIMED, *RECIPES], help="train just these")
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--runs", type=Path, default=Path("runs/claims"))
    arguments = parser.parse_args()
    names = CAPTIONERS[arguments.data]
    plain = {name: [cross_entropy_run(name, seed, arguments) for seed in range(arguments.seeds)] for name in names}
    critical = {name: [rewarded(run, arguments) for run in plain[name]] for name in names if name not in ALONE}
    wanted = arguments.only or list(names)
    if not arguments.report:
        train([run for name in wanted for run in plain[name]], arguments)
        train([run for name in wanted for run in critical.get(name, [])], arguments)
    report(plain, critical, arguments)


if __name__ == "__main__":
    main()
