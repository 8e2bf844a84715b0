"""The demo: the whole path, from a made-up world to pictures found by a sentence and the reasons why."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from saccade.core.errors import SaccadeError
from saccade.core.files import atomic_file, write_json
from saccade.core.progress import note_once, progress_bar
from saccade.data import CaptionedImages, DataConfig
from saccade.explain import (
    Explanation,
    Found,
    Query,
    Report,
    ReportRow,
    ReportStage,
    Results,
    Twin,
    Value,
    save_explanation,
)
from saccade.features import open_split
from saccade.lab.workers import Ended, cores, run_jobs
from saccade.language import tokenise
from saccade.metrics import CUTOFFS, chance, recall
from saccade.models import Matcher, load_model
from saccade.tasks.matching.evaluate import similarity_table
from saccade.training.run import RunConfig, run_config, train_run
from saccade.version import __version__
from saccade.world import Split, World, WorldConfig, make_world

if TYPE_CHECKING:
    from saccade.search.coding import Encoded

MARK = "demo.json"  # says that a folder is a demo's, so that the next one may replace what is in it
SYSTEMS = {"scan": "SCAN", "vse": "Pooled cosine (VSE++)"}


class Clock:
    """Prints each stage with its time, and keeps them for the report."""

    def __init__(self, console: Console, total: int) -> None:
        self.console, self.total = console, total
        self.stages: list[ReportStage] = []

    @contextmanager
    def stage(self, name: str, detail: str) -> Iterator[None]:
        at = f"{len(self.stages) + 1}/{self.total}"
        self.console.print(f"[bold]{at}  {name}[/bold]  {detail}", highlight=False)
        start = time.perf_counter()
        yield
        self.stages.append(ReportStage(name, time.perf_counter() - start, detail))
        self.console.print(f"     {self.stages[-1].seconds:.1f} s", highlight=False)


def run_demo(settings: Sequence[str], out: Path, pictures: int, seed: int, console: Console) -> tuple[Path, str]:
    """Make a world, train SCAN and a pooled baseline on it, measure both, and write the report into `out`.

    Raises: SaccadeError, before any work, if a setting is misspelt or `out` holds something else.
    """
    words = ["data=world", f"data.pictures={pictures}", f"data.seed={seed}", f"trainer.seed={seed}", *settings]
    runs = {system: run_config(system, words) for system in SYSTEMS}
    make_room(out)
    write_json(out / MARK, {"saccade": __version__, "pictures": pictures, "seed": seed, "settings": list(settings)})
    clock = Clock(console, 6)

    world_config = WorldConfig(pictures=pictures, seed=seed)
    counts = world_config.counts()
    with (
        clock.stage("World", f"{sum(counts.values()):,} pictures of toys, five captions each"),
        progress_bar("painting") as tell,
    ):
        world = make_world(world_config, progress=tell)
    with clock.stage("Features", "the regions that the extractor finds in each picture"):
        data = DataConfig("world", pictures=pictures, seed=seed)
        splits = {name: open_split(data, name) for name in ("train", "dev", "test", "hard")}

    texts, epochs = len(splits["train"].texts), runs["scan"].trainer.epochs
    folders = {system: out / "models" / system for system in SYSTEMS}
    with clock.stage("Training", f"SCAN and a pooled baseline side by side, {texts:,} captions, {epochs} epochs"):
        steps = epochs * (texts // runs["scan"].trainer.batch_size)
        train_side_by_side([Job(runs[name], folders[name], SYSTEMS[name], steps) for name in SYSTEMS], console)
    trained = [
        Trained(system, label, folders[system], load_model(folders[system], Matcher))
        for system, label in SYSTEMS.items()
    ]
    with clock.stage("Evaluation", "every sentence with every picture"):
        for one in trained:
            one.tables.update({name: similarity_table(one.model, splits[name]) for name in ("test", "hard")})
    if find_spec("lancedb") is None:
        clock.total -= 1
        note_once("the demo's pictures are not indexed, which takes LanceDB: pip install 'saccade[search]'")
    else:
        with clock.stage("Index", "the test pictures and the twins, to be searched by any sentence"):
            index_world(world, splits, out, folders["scan"])
    with clock.stage("Report", "ten searches, six pairs of twins, drawn at random"):
        return write_report(out, world, splits, trained, clock.stages, seed)


def index_world(world: World, splits: Mapping[str, CaptionedImages], out: Path, model: Path) -> None:
    """Write pictures of the world into OUT/world and index them, with the regions that are known, into OUT/index."""
    from saccade.search.coding import encode
    from saccade.search.index import Index
    from saccade.search.reading import BATCH_SIZE, list_files, picture_row

    place, pixels = out / "world", dict[str, UInt8[np.ndarray, "row column 3"]]()
    for name in SETS:
        split = world.split(name)
        for number in range(len(split)):
            pixels[f"{name}/{number:04d}.png"] = split.image(number)
            with atomic_file(place / name / f"{number:04d}.png") as temporary:
                Image.fromarray(split.image(number)).save(temporary, format="PNG")
    files = {file.id: file for file in list_files([place], False, None)}
    with Index.create(out / "index", str(model)) as index:
        matcher = index.matcher()
        for name in SETS:
            regions, rows = splits[name].regions, list[dict[str, Any]]()
            codes: list[Encoded] = []
            for start in range(0, len(regions), BATCH_SIZE):
                part = range(start, min(start + BATCH_SIZE, len(regions)))
                ids = [f"{name}/{number:04d}.png" for number in part]
                codes += encode(matcher, regions.batch(part), index.settings.kept, index.basis, ids)
                rows += [picture_row(files[id], pixels[id], *pixels[id].shape[1::-1]) for id in ids]
            index.put(rows, codes, False)


def make_room(out: Path) -> None:
    """Make room for a demo: an earlier one is replaced, anything else is left alone."""
    if out.exists() and not out.is_dir():
        raise SaccadeError(f"{out} is a file: --out names the folder for the demo")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).exists():
        raise SaccadeError(f"{out} holds files that are not a demo's: give another folder with --out")
    for part in ("models", "strips", "pictures", "world", "index"):
        shutil.rmtree(out / part, ignore_errors=True)
    (out / "report.html").unlink(missing_ok=True)


@dataclass(frozen=True)
class Job:
    """What to train, into which folder, under which name, and how many steps it will take."""

    run: RunConfig
    folder: Path
    label: str
    steps: int


def train_side_by_side(jobs: Sequence[Job], console: Console) -> None:
    """Train all at once, each in a process of its own with its share of the cores, or in turn where there is one.

    Small recurrent models keep one core busy and gain next to nothing from a second one, so two trainings side by side
    take hardly longer than one. Raises: SaccadeError if a training fails; the others are ended then.
    """
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bars = [progress.add_task(job.label, total=job.steps) for job in jobs]

        def show() -> None:
            for bar, job in zip(bars, jobs, strict=True):
                progress.update(bar, completed=steps_done(job.folder))

        def ended(end: Ended[Job]) -> None:
            if end.failure is not None:
                raise SaccadeError(end.failure)

        if cores() < 2:
            for job in jobs:
                train_job(job)
                show()
        else:
            run_jobs(jobs, train_job, len(jobs), max(1, cores() // len(jobs)), ended=ended, tick=show)


def train_job(job: Job) -> None:
    train_run(job.run, job.folder, console=Console(quiet=True))


def steps_done(folder: Path) -> int:
    """How far a run is, by the last line of its metrics.csv."""
    try:
        return int((folder / "metrics.csv").read_text(encoding="utf-8").splitlines()[-1].partition(",")[0])
    except (OSError, ValueError, IndexError):
        return 0


QUERIES, TOP, TWINS = 10, 5, 6
SETS = {"test": "ordinary pictures", "hard": "hard twins"}
WAYS = {"t2i": "sentence → picture", "i2t": "picture → sentence"}


@dataclass(frozen=True)
class Trained:
    """A trained model and its similarity tables, by split."""

    system: str
    label: str
    folder: Path
    model: Matcher
    tables: dict[str, Float[np.ndarray, "image text"]] = field(default_factory=dict)


def write_report(
    out: Path,
    world: World,
    splits: Mapping[str, CaptionedImages],
    trained: Sequence[Trained],
    stages: Sequence[ReportStage],
    seed: int,
) -> tuple[Path, str]:
    """Write report.html, the strips of its searches, and the pictures its commands name; its path, and the result."""
    best = trained[0]
    rng = np.random.default_rng(seed)
    queries = [_query(best, splits["test"], world.split("test"), text) for text in _drawn_texts(world, rng)]
    for number, query in enumerate(queries, start=1):
        assert query.explanation is not None
        save_explanation(query.explanation, out / "strips" / f"{number:02d}.png")
        with atomic_file(out / "pictures" / f"{number:02d}.png") as temporary:
            Image.fromarray(query.explanation.image).save(temporary, format="PNG")
    pairs = twins_of(world.split("hard"))
    preferred = {one.label: _preferred(one.tables["hard"], splits["hard"], pairs) for one in trained}
    results = _results(trained, splits, preferred)
    seconds = sum(stage.seconds for stage in stages)
    figures = {one.label: recall(one.tables["hard"], splits["hard"].image_of_text)["t2i_r1"] for one in trained}
    first, second = trained[0].label, trained[1].label
    report = Report(
        title="Found by a sentence, and why",
        lead=f"Saccade made a world of {sum(world.config.counts().values()):,} small pictures, looked at each as a "
        "handful of regions (with an extractor that was taught beforehand to find and describe things), and learnt "
        "from captions which word goes with which region. No word was ever told where to look: the maps below are what "
        "the model found by itself.",
        highlights=(
            (f"{figures[first]:.0f} %", f"of hard sentences find their picture first, before its twin, with {first}"),
            (f"{figures[second]:.0f} %", f"with one vector per picture: {second}"),
            (f"{preferred[first]:.0f} : {preferred[second]:.0f}", "per cent of twins told apart; a coin gets 50"),
            (f"{seconds / 60:.1f} min", "all stages below; what the cache held from before is not counted"),
        ),
        stages=tuple(stages),
        results=results,
        queries=tuple(queries),
        twins=tuple(_twin(pair, trained, splits["hard"], world.split("hard")) for pair in _drawn_twins(world, rng)),
        commands=_commands(out, queries[0]),
        foot=f"Written by saccade demo, version {__version__}, {world.config.pictures:,} pictures, seed {seed}. "
        "Searches are drawn at random from the test sentences about two things or more, twins from all pairs.",
    )
    path = report.save(out / "report.html")
    summary = (
        f"hard twins, recall@1 from sentence to picture: {first} {figures[first]:.1f} %, "
        f"{second} {figures[second]:.1f} %; told apart: {preferred[first]:.1f} % and {preferred[second]:.1f} %"
    )
    return path, summary


def _results(
    trained: Sequence[Trained], splits: Mapping[str, CaptionedImages], preferred: Mapping[str, float]
) -> Results:
    groups = [(f"{SETS[name]}: {WAYS[way]}", tuple(f"R@{k}" for k in CUTOFFS)) for name in SETS for way in WAYS]
    keys = [f"{way}_r{k}" for way in WAYS for k in CUTOFFS]

    def values(figures: Sequence[Mapping[str, float]], apart: float) -> tuple[Value, ...]:
        return (*(Value(one[key]) for one in figures for key in keys), Value(apart))

    rows = [
        ReportRow(
            one.label,
            values([recall(one.tables[name], splits[name].image_of_text) for name in SETS], preferred[one.label]),
            "baseline" if number else "model",
        )
        for number, one in enumerate(trained)
    ]
    expected = [chance(splits[name].image_of_text, len(splits[name].images)) for name in SETS]
    rows.append(ReportRow("Chance", values(expected, 50.0), "chance"))
    note = (
        "Recall at K in per cent: how often the right one is among the first K. "
        + " ".join(
            f"{SETS[name].capitalize()}: {len(splits[name].images):,} pictures, {len(splits[name].texts):,} sentences."
            for name in SETS
        )
        + " Twins separated: how often a sentence scores its own picture above the twin. One training run each."
    )
    return Results((*groups, ("told", ("apart",))), tuple(rows), note)


def twins_of(split: Split) -> dict[int, int]:
    """Each picture's twin, both ways."""
    members: dict[int, list[int]] = {}
    for picture, group in enumerate(split.groups.tolist()):
        members.setdefault(group, []).append(picture)
    pairs = [group for group in members.values() if len(group) == 2]
    return {one: other for a, b in pairs for one, other in ((a, b), (b, a))}


def _preferred(table: Float[np.ndarray, "image text"], data: CaptionedImages, twin: Mapping[int, int]) -> float:
    """Per cent of the sentences that score their own picture above its twin (a tie is no success)."""
    own = data.image_of_text
    other = np.array([twin[i] for i in own.tolist()])
    texts = np.arange(len(own))
    return 100.0 * float((table[own, texts] > table[other, texts]).mean())


def _drawn_texts(world: World, rng: np.random.Generator) -> list[int]:
    """Sentences of the test split worth looking at: about two things or more. One a picture, at random."""
    split, texts, at = world.split("test"), [], 0
    for picture in range(len(split)):
        captions = split.captions(picture)
        rich = [at + n for n, caption in enumerate(captions) if len(caption.phrases) >= 2]
        at += len(captions)
        if rich:
            texts.append(int(rng.choice(rich)))
    return [texts[i] for i in rng.permutation(len(texts))[:QUERIES]]


def _query(one: Trained, data: CaptionedImages, split: Split, text: int) -> Query:
    scores = one.tables["test"][:, text]
    order = np.argsort(-scores, kind="stable")
    right = int(data.image_of_text[text])
    top = int(order[0])
    return Query(
        text=data.texts[text],
        found=tuple(Found(split.image(i), float(scores[i]), i == right) for i in map(int, order[:TOP])),
        rank=int(np.flatnonzero(order == right)[0]) + 1,
        explanation=explain(one.model, data, split, top, data.texts[text]),
    )


@torch.no_grad()
def explain(model: Matcher, data: CaptionedImages, split: Split, picture: int, text: str) -> Explanation:
    """Which of the picture's regions each word of the sentence found."""
    regions, words = data.regions.batch([picture]), model.read([text])
    alignment = model.locate(model.encode_images(regions), model.encode_texts(words))
    found = Explanation.from_alignment(alignment, 0, words.words[0], regions.boxes[0], split.image(picture))
    return replace(found, unknown=frozenset(model.vocabulary.unknown(text)))


def _drawn_twins(world: World, rng: np.random.Generator) -> list[tuple[int, int, str, str]]:
    """Pairs of twins with a sentence for each, of the same words: (picture, twin, its sentence, the twin's)."""
    split = world.split("hard")
    pairs = [(a, b) for a, b in twins_of(split).items() if a < b]
    drawn: list[tuple[int, int, str, str]] = []
    for i in rng.permutation(len(pairs)).tolist():
        a, b = pairs[i]
        theirs = {caption.text for caption in split.captions(b)}
        paired = [c for c in split.captions(a) if c.distractor in theirs]
        if paired and len(drawn) < TWINS:
            caption = paired[int(rng.integers(len(paired)))]
            assert caption.distractor is not None
            drawn.append((a, b, caption.text, caption.distractor))
    return drawn


def _twin(drawn: tuple[int, int, str, str], trained: Sequence[Trained], data: CaptionedImages, split: Split) -> Twin:
    a, b, one, other = drawn
    place = {
        (image, text): n for n, (image, text) in enumerate(zip(data.image_of_text.tolist(), data.texts, strict=True))
    }
    columns = [place[a, one], place[b, other]]
    scores = {model.label: model.tables["hard"][[a, b]][:, columns].T for model in trained}
    return Twin((split.image(a), split.image(b)), (one, other), scores)


def _commands(out: Path, query: Query) -> tuple[tuple[str, str], ...]:
    model, other, pictures, picture = (
        shlex.quote(str(out / part)) for part in ("models/scan", "models/vse", "pictures", "pictures/01.png")
    )
    short = " ".join(tokenise(query.text)[:12])
    return (
        (
            f"saccade explain {picture} {shlex.quote(query.text)} --model {model} -o why.html",
            "see why for any picture and sentence",
        ),
        (
            f"saccade score {pictures} --text {shlex.quote(short)} --model {model}",
            "score pictures against a sentence",
        ),
        (
            f"saccade search {shlex.quote(str(out / 'index'))} {shlex.quote(short)} --explain found.html",
            "search the index of its world, and see why each picture was found",
        ),
        (
            f"saccade eval {model} {other} --split novel",
            "recall on compositions never seen in training",
        ),
        ("saccade train scan data=world queries=regions --out runs/scan-regions", "train it the other way round"),
        ("saccade models", "the systems there are"),
    )
