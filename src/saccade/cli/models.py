"""Verbs that serve every task: list the models, train one, evaluate some, explain what one did."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from importlib.metadata import entry_points
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from saccade.cli.options import (
    GROUNDER,
    MATCHER,
    Device,
    default_model,
    escape,
    figure_table,
    is_shipped,
    report_unknown,
    run_data,
    say,
    sort_words,
    with_words,
)
from saccade.core.errors import SaccadeError, not_among
from saccade.core.files import read_json
from saccade.core.text import escaped
from saccade.tasks import eval_options, find_task, task_names

if TYPE_CHECKING:
    from saccade.data import DataConfig
    from saccade.tasks.base import TaskSpec

PACKAGE = Path(__file__).parents[1]


def models(*, as_json: bool = False) -> None:
    """List the systems (task, paper, recipes, whether official checkpoints can be imported) and the trained models.

    A system is a name for `saccade train`; a trained model is one for `--model`, `saccade eval` and `saccade.load`.

    Example: saccade models
    """
    systems, trained = _systems(), _trained()
    if as_json:
        typer.echo(json.dumps({"systems": systems, "trained": trained}, indent=2, ensure_ascii=False))
        return
    table = Table(title="Systems, for `saccade train NAME data=…`", title_justify="left")
    for heading in ("name", "task", "paper", "recipes for", "import"):
        table.add_column(heading)
    for row in systems:
        paper = f"{row['title']} ({row['venue']})"
        table.add_row(
            row["name"], row["task"], escape(paper), ", ".join(row["recipes"]), "yes" if row["import"] else ""
        )
    console = Console()
    console.print(table)
    table = Table(title="Trained models that come with the package, for --model NAME", title_justify="left")
    for heading in ("name", "system", "extractor", "parameters", "words", "MB"):
        table.add_column(heading, justify="right" if heading in ("parameters", "words", "MB") else "left")
    for row in trained:
        sizes = (f"{row['parameters']:,}", f"{row['words']:,}", f"{row['bytes'] / 1e6:.1f}")
        table.add_row(row["name"], row["system"], escape(row["extractor"] or "–"), *sizes)
    console.print(table)


def _systems() -> list[dict[str, Any]]:
    """What `@register(NAME, task=…, title=…, venue=…)` says in each file, read without importing a model."""
    recipes = [path.stem for path in (PACKAGE / "recipes").glob("*.yaml")]
    tables = (path.read_text(encoding="utf-8") for path in (PACKAGE / "interop" / "importers").glob("*.py"))
    importers = {name for text in tables for name in re.findall(r'^    system="(\w+)"', text, re.MULTILINE)}
    return sorted(
        (
            {
                "name": name,
                **said,
                "recipes": sorted(recipe.split("-", 1)[1] for recipe in recipes if recipe.startswith(f"{name}-")),
                "import": name in importers,
            }
            for name, said in [*_registered(), *_of_other_packages()]
        ),
        key=lambda row: (row["task"], row["name"]),
    )


def _registered() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "\n@register(" not in text:
            continue
        for node in ast.parse(text).body:
            for call in node.decorator_list if isinstance(node, ast.ClassDef) else ():
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "register":
                    said = {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}
                    yield ast.literal_eval(call.args[0]), said


def _of_other_packages() -> Iterator[tuple[str, dict[str, Any]]]:
    """The models that other packages offer: these are imported, and PyTorch with them."""
    if entry_points(group="saccade.models"):
        from saccade.models import entries

        for known in entries():
            if not known.model.__module__.startswith("saccade."):
                yield known.name, {"task": known.task, "title": known.title, "venue": known.venue}


def _trained() -> list[dict[str, Any]]:
    task_of = {name: said["task"] for name, said in _registered()}
    rows = []
    for folder in sorted(path.parent for path in (PACKAGE / "models" / "weights").glob("*/config.json")):
        described = read_json(folder / "config.json")
        backbone = described.get("backbone")
        rows.append(
            {
                "name": folder.name,
                "system": described["model"],
                "task": task_of[described["model"]],
                "extractor": f"{backbone}, its own" if backbone is not None else described["extractor"],
                "parameters": _parameter_count(folder),
                "words": len(read_json(folder / "vocabulary.json")["words"]),
                "bytes": sum(file.stat().st_size for file in folder.iterdir()),
            }
        )
    return rows


def _parameter_count(folder: Path) -> int:
    """All trained numbers of a model, those that it shares with another of the package included."""
    own, base = _shapes(folder), read_json(folder / "config.json").get("base")
    return sum(map(prod, (own if base is None else {**_shapes(folder.with_name(base["model"])), **own}).values()))


def _shapes(folder: Path) -> dict[str, list[int]]:
    """What training changes, by a safetensors file's header: a length in 8 bytes, then names with shapes as JSON."""
    with (folder / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    others = ("__metadata__", "::scale", "standardise.mean", "standardise.variance")
    return {name: header[name]["shape"] for name in header if not name.endswith(others)}


def train(
    system: str | None = None,
    settings: list[str] | None = None,
    *,
    out: Path | None = None,
    config: Path | None = None,
    resume: Path | None = None,
    show: bool = False,
) -> None:
    """Train a model into a run folder.

    Settings are the paper's unless Saccade has a recipe for the data set; a KEY is a name (dim, epochs, margin) or a
    path (model.dim, trainer.seed). A killed run goes on with --resume and ends as if it had never stopped.

    Example: saccade train scan data=world epochs=10 --out runs/scan
    """
    from saccade.core.config import override, to_dict
    from saccade.core.interrupt import advise
    from saccade.tasks import task_of
    from saccade.training.run import CONFIG, load_run_config, recipe, run_config, train_run

    console = Console()
    if resume is not None:
        words = [*([system] if system and "=" in system else []), *(settings or [])]
        run, out = override(load_run_config(resume), words), resume
        if system and "=" not in system and system != run.system:
            raise SaccadeError(f"{resume} is a run of {run.system}, not of {system}")
    elif system is None:
        raise SaccadeError("name a model to train, e.g. `saccade train scan data=world`; `saccade models` lists them")
    else:
        run = run_config(system, settings or [], config)
        out = out or Path("runs") / run.system
    if show:
        import yaml

        console.out(yaml.safe_dump(to_dict(run), sort_keys=False), end="", highlight=False)
        return
    known = {f"{run.system}-{run.data.name}": "the recipe for it", run.system: "the paper's settings"}
    shipped = next((words for name, words in known.items() if recipe(name)), "the trainer's defaults")
    console.print(
        f"training {run.system} on {run.data.name} with {shipped}, into {escaped(out)}", markup=False, highlight=False
    )
    folder = out
    again = f"`saccade train --resume {shlex.quote(str(out))}` goes on"
    advise(lambda: again if (folder / CONFIG).exists() else "nothing was written; the same command begins again")
    result = train_run(run, out, resume is not None, console)
    best = ", ".join(f"{name} {value:.1f}" for name, value in result.headline().items())
    console.print(f"best at step {result.best_step}: {best} ({result.seconds:.0f} s in all)", highlight=False)
    for command in next_steps(task_of(run.system), run.data, out, run.system):
        console.print(f"next: {escaped(command)}", markup=False, highlight=False, soft_wrap=True)


def pretrain(
    system: str,
    settings: list[str] | None = None,
    *,
    out: Path | None = None,
    config: Path | None = None,
    show: bool = False,
) -> None:
    """Pre-train a model on captioned pictures into a run folder, to be fine-tuned for a task afterwards.

    Masked words, masked regions, and whether a caption belongs to a picture: `saccade curves` draws how losses fell.
    `saccade train SYSTEM task=TASK init=RUN` fine-tunes; `saccade train --resume RUN` goes on with a killed run.

    Example: saccade pretrain interbert data=world --out runs/pre

    Example: saccade pretrain interbert data=flickr8k root=data/flickr8k bert=minilm
    """
    from saccade.models import entries, entry

    ready = [one.name for one in entries() if one.task == "pretraining"]
    if entry(system).task != "pretraining":
        raise SaccadeError(
            f"{system} is trained at once, by `saccade train {system}`; pre-trained are: {', '.join(ready)}"
        )
    train(system, settings, out=out, config=config, show=show)


def next_steps(spec: TaskSpec[Any, Any], data: DataConfig, out: Path, system: str = "") -> Iterator[str]:
    """What can be done with a trained run: commands that work with it, on data that are there."""
    from saccade.data.registry import DATA_SETS, open_records
    from saccade.models import find_model
    from saccade.tasks.predict import RegionPredictor

    described = read_json(find_model(out)[0] / "config.json")
    blind = issubclass(spec.predictor, RegionPredictor) and not (described["extractor"] or described.get("backbone"))
    split = ""
    if data.name in DATA_SETS and "captions" in DATA_SETS[data.name].readers:
        try:
            open_records(data, data.test_split)
        except SaccadeError:
            split = f" --split {data.dev_split}"
    same = f"data={data.name}" + (f" root={shlex.quote(str(data.root))}" if data.root is not None else "")
    for command in spec.next_steps:
        if not (blind and "PHOTO" in command):
            yield command.format(run=shlex.quote(str(out)), split=split, system=system, data=same)


def with_task_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of every task, between its own, and in its help what each task's EvalOptions say."""
    first, split, *own, _ = inspect.signature(command, eval_str=True).parameters.values()
    added = [p for options in eval_options() for p in inspect.signature(options, eval_str=True).parameters.values()]
    said = "\n\n".join(inspect.getdoc(options) or "" for options in eval_options())
    command.__doc__ = (inspect.getdoc(command) or "").replace("{tasks}", said)
    command.__signature__ = inspect.Signature([first, split, *added, *own])  # type: ignore[attr-defined]
    return command


@with_task_options
def evaluate(
    models: list[str],
    *,
    split: str | None = None,
    task: str | None = None,
    device: Device = "auto",
    json_file: Path | None = None,
    **given: Any,
) -> None:
    """How good trained models are, each by the measures of its task.

    {tasks}

    The data are those of the first run unless KEY=VALUE words say otherwise (data=precomp root=f30k_precomp). Models
    may be of different systems and extractors.

    Example: saccade eval runs/scan runs/vse --split hard --ensemble

    Example: saccade eval runs/interbert --first scan-flickr8k --rerank 8,32 split=dev

    Example: saccade eval runs/updown runs/adaptive --num-beams 5 --captions said.json

    Example: saccade eval runs/scan --task grounding data=flickr8k split=dev root=data/flickr8k
    """
    from saccade.core.files import check_writable, write_json
    from saccade.tasks.evaluator import EvalRequest
    from saccade.training.run import CONFIG, check_unseen, learned_from, load_run_config

    folders, words, split = sort_words(models, split)
    if not folders:
        raise SaccadeError("name at least one run or model folder to evaluate")
    spec = _task(folders, task)
    options = _options(spec, given, folders[0])
    config = with_words(run_data(folders[0]), words)
    settings = {folder: load_run_config(folder).task for folder in folders if (Path(folder) / CONFIG).exists()}
    first = getattr(options, "first", None)
    listed = folders if first is None else [*folders, first]
    if split is None:
        split = config.test_split
        check_unseen(listed, config, split, f"give another split, or --split {split} to see what it knows by heart")
    check_writable(json_file)
    seen = [folder for folder in listed if learned_from(folder, config, split)]
    found = spec.evaluator.compare(EvalRequest(tuple(folders), config, split, device, options, settings))
    table = figure_table(found.title + (" (TRAINED ON)" if seen else ""), found.headings)
    for row in found.rows:
        table.add_section() if row is None else table.add_row(*map(escape, row))
    Console().print(table)
    for note in found.notes:
        typer.echo(note)
    for folder in seen:
        typer.echo(
            f'{folder} was trained on pictures of "{split}": its figures say what it knows by heart, nothing of new '
            "pictures; give a split that it did not learn from"
        )
    if json_file is not None:
        write_json(json_file, {**found.figures, **({"trained_on": seen} if seen else {})})


def _task(folders: Sequence[str], task: str | None) -> TaskSpec[Any, Any]:
    """What all these models are for, or the task by which they are to be measured.

    Raises: SaccadeError, before the first is evaluated, if they differ in that, or cannot be measured so.
    """
    from saccade.models import Model, find_model

    kinds: list[type[Model]] = [find_model(folder)[1] for folder in folders]
    if task is not None:
        if task not in task_names():
            raise SaccadeError(f"--task takes no {not_among(task, task_names())}")
        wanted = find_task(task)
        for folder, kind in zip(folders, kinds, strict=True):
            if not issubclass(kind, (wanted.protocol, *wanted.measures)):
                raise SaccadeError(
                    f"{folder} is a {find_task(kind.task).noun}: it cannot be measured as a {wanted.noun}"
                )
        return wanted
    specs = [find_task(kind.task) for kind in kinds]
    for folder, spec in zip(folders, specs, strict=True):
        if spec.evaluator is not specs[0].evaluator:
            raise SaccadeError(
                f"{folders[0]} is a {specs[0].noun} and {folder} a {spec.noun}: what they do has no measure in common, "
                "evaluate them one after the other"
            )
    return specs[0]


def _options(spec: TaskSpec[Any, Any], given: Mapping[str, Any], folder: str) -> Any:
    """The options of this task. Raises: SaccadeError if one was given that only others have."""
    for options in eval_options():
        option = next((o.name for o in fields(options) if given.get(o.name, o.default) != o.default), None)
        if option is not None and options is not spec.options:
            other = next(one.noun for one in map(find_task, task_names()) if one.options is options)
            raise SaccadeError(f"--{option.replace('_', '-')} is for {other}s, and {folder} is a {spec.noun}")
    return spec.options(**{o.name: given.get(o.name, o.default) for o in fields(spec.options)})


def explain(
    picture: Path,
    text: str | None = None,
    *,
    model: str | None = None,
    out: Path = Path("why.png"),
    device: Device = "auto",
) -> None:
    """Draw which part of the picture each word found, or came from; of a video, which frames each phrase found.

    Without --model, the run in runs/scan is used, or else the matcher for photographs that comes with the package.
    Where the package has a grounder too, all words of a phrase are then shown where that finds the phrase; --model
    scan-flickr8k shows where the matcher itself found each word. A captioner draws where it attended for each word of
    its own caption, or would attend if it had to say TEXT; `saccade caption --attention` does the first for many
    photos, with all options of decoding.

    Example: saccade explain holiday.jpg "two dogs run on the grass"

    Example: saccade explain scene.png "a red cube left of a blue ball" --model runs/scan -o why.png

    Example: saccade explain holiday.jpg --model runs/updown

    Example: saccade explain clip.mp4 "a man plays the guitar" --model runs/hgr
    """
    from saccade.explain import Explanation
    from saccade.tasks.predict import load

    name = model or default_model()
    predictor = load(name, device)
    if text is not None:
        report_unknown(predictor.model.vocabulary, [text])
    explanation, placed = predictor.explain(picture, text), ""
    by_default = model is None and name == MATCHER and is_shipped(GROUNDER)
    if by_default and text is not None and isinstance(explanation, Explanation) and explanation.fits:
        explanation = load(GROUNDER, device).place_phrases(explanation, text)
        placed = f"; phrases found by {GROUNDER}" if explanation.word_boxes else ""
    score = f"log-probability {explanation.score:.2f}" if explanation.generated else explanation.score_note
    explanation.save(out)
    if text is None:
        say(" ".join(explanation.words))
    say(f"{score}{placed}; the picture is in {out}")
