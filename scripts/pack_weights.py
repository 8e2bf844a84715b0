"""Pack a trained run into the package: weights in a smaller form, and what was measured before and after.

    saccade train scan data=flickr8k root=data/flickr8k --out runs/scan-flickr8k
    python scripts/pack_weights.py runs/scan-flickr8k src/saccade/models/weights/scan-flickr8k \
        --read grid:dinov2-s@336/12

    python scripts/pack_weights.py scan-flickr8k src/saccade/models/weights/scan-small \
        --read grid:tuned:scan-flickr8k@140/10 --root data/flickr8k
    saccade calibrate src/saccade/models/weights/scan-small data=flickr8k root=data/flickr8k split=dev

    saccade train show_attend_tell data=flickr8k root=data/flickr8k --out runs/soft
    saccade train show_attend_tell data=flickr8k root=data/flickr8k start=runs/soft reward.after=0 epochs=10 \
        learning_rate=3e-4 warmup_steps=20 average=0.99 --out runs/soft-rewards
    python scripts/pack_weights.py runs/soft-rewards src/saccade/models/weights/show_attend_tell-flickr8k

    saccade train updown_vqa data=flickr8k+daquar root=data --out runs/updown_vqa
    python scripts/pack_weights.py runs/updown_vqa src/saccade/models/weights/updown_vqa-flickr8k

    saccade train plan data=flickr8k root=data/flickr8k among=all category=false ranks=false dim=128 text_dim=128 \
        attention_dim=128 referring_dim=128 word_dim=64 min_count=3 --out runs/plan
    python scripts/pack_weights.py runs/plan src/saccade/models/weights/plan-flickr8k

    saccade train analogy data=flickr8k root=data/flickr8k hold_out=0 hidden_dim=192 dim=128 spatial_dim=128 \
        appearance_dim=96 transform_dim=256 --out runs/analogy
    python scripts/pack_weights.py runs/analogy src/saccade/models/weights/analogy-flickr8k

    saccade train hierarchical data=flickr8k root=data/flickr8k --out runs/hierarchical
    python scripts/pack_weights.py runs/hierarchical src/saccade/models/weights/hierarchical-flickr8k --limit 300

    saccade train bottomup data=flickr8k root=data/flickr8k epochs=12 --out runs/bottomup
    python scripts/pack_weights.py runs/bottomup src/saccade/vision/weights/bottomup

    saccade train world_extractor precision=bf16 --out runs/world_extractor
    python scripts/pack_weights.py runs/world_extractor src/saccade/vision/weights/world --docs docs/vision.md

A model of the package in place of a run is packed to read photos by another grid; its weights stay where they are.
A run that was trained elsewhere is measured on the photos of `--root`. `--limit` measures so many photos, and the card
says so: on a CPU all phrases of the dev split take the grounder some minutes, before and after.
`--docs` writes the figures of the world's extractor into a page; with the package's folder alone
(`pack_weights.py src/saccade/vision/weights/world --docs docs/vision.md`) nothing is packed. Of a run on several data
sets (data=flickr8k+daquar root=data) the card has the figures of each.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, read_text, write_json, write_text
from saccade.core.pretrained import PRETRAINED
from saccade.core.weights import write_weights
from saccade.data import DataConfig
from saccade.data.registry import DATA_SETS, parts_of
from saccade.lab.reports import markdown_table
from saccade.models import Detector, Hierarchical, Matcher, Model, WorldDetector, load_model
from saccade.models.base.card import Trained
from saccade.models.base.model import shipped_models
from saccade.tasks import find_task
from saccade.tasks.base import TaskSpec
from saccade.tasks.grounding.evaluate import ground_all
from saccade.training.run import load_run_config, train_command
from saccade.vision.extractors import trainable_backbone

PHRASES = {"people": "people", "animals": "animals", "clothing": "clothing", "vehicles": "vehicles", "scene": "scene",
           "bodyparts": "body parts", "instruments": "instruments", "other": "other"}  # by their types  # fmt: skip
FIGURES = {  # of a model's card, by its task
    "matching": {"i2t_r1": "picture→text R@1", "i2t_r5": "R@5", "i2t_r10": "R@10", "t2i_r1": "text→picture R@1",
                 "t2i_r5": "R@5", "t2i_r10": "R@10", "rsum": "rsum"},
    "captioning": {"bleu1": "BLEU-1", "bleu4": "BLEU-4", "rouge_l": "ROUGE-L", "cider_d": "CIDEr-D"},
    "answering": {"accuracy": "all questions", "accuracy_exist": "is there", "accuracy_count": "how many",
                  "accuracy_colour": "colour", "accuracy_doing": "doing", "accuracy_wearing": "wearing",
                  "accuracy_where": "where", "accuracy_is": "is it so", "accuracy_who": "who",
                  "accuracy_animal": "animal", "accuracy_sport": "sport", "accuracy_object": "riding, holding, playing",
                  "accuracy_daquar": "DAQUAR's dev questions"},
    "referring": {"accuracy": "right box", "accuracy_people": "people", "accuracy_clothing": "clothing",
                  "accuracy_animals": "animals", "accuracy_bodyparts": "body parts", "accuracy_vehicles": "vehicles",
                  "accuracy_other": "other", "accuracy_scene": "scene", "chance": "at random"},
    "relations": {"map": "mAP", "map_seen": "seen", "map_rare": "rare", "map_unseen": "unseen"},
    "grounding": {f"{figure}{kind and '_'}{kind}": f"{title}{kind and ', '}{said}"
                  for figure, title in (("accuracy", "right box (IoU ≥ 0.5)"), ("pointing", "points into the box"))
                  for kind, said in {"": "", **PHRASES}.items()},
}  # fmt: skip
MOST_COLUMNS = 10  # of a card's table; with more figures it has a row for each
LEARNED = {  # from what, and what measures it, by task
    "matching": ("five English captions each", "5,000 captions"),
    "captioning": ("five English captions each", "5,000 captions"),
    "answering": ("29,003 questions that rules read off their captions", "4,716 such questions"),
    "referring": ("phrases of their captions that mean one of the photo's boxes", "such phrases"),
    "relations": ("what their captions say of two things that have a box", "the relations stated there"),
    "grounding": ("phrases of their captions with the boxes of what they name", "13,123 such phrases"),
}
OPTIONS = {"captioning": " --num-beams 5", "grounding": " --task grounding"}  # of `saccade eval`, by task
TRAINED_BY = ("saccade train scan data=flickr8k", "grid:dinov2-s@224/8")  # the package's matcher: by what, on what
MEANING = {
    "recall": "things that a proposal overlaps by ≥ 0.5",
    "overlap": "mean IoU of those",
    "precision": "proposals that match a thing",
    "proposals": "proposals a picture",
    "all_four": "kind, colour, size and material all right",
    "found_and_named": "things found, with all four right",
}
console = Console()


def main(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    out: Annotated[Path | None, typer.Argument(help="Where the packed model goes.")] = None,
    docs: Annotated[Path | None, typer.Option(help="A page to write the world's figures into.")] = None,
    read: Annotated[
        str | None, typer.Option(help="The grid by which the packed model reads photos, if not that of the run.")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(help="The data's folder, to measure a model of the package, or if not that of the run."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Measure on so many photos of the dev split, not on all.")] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cpu",
) -> None:
    """Pack, measure, and keep what was measured beside the weights."""
    if out is not None:
        model = load_model(run).to(device)
        if str(run) in shipped_models() and isinstance(model, Matcher) and read is not None:
            pack_reader(model, run.name, out, read, DataConfig("flickr8k", root=root), device)
        elif isinstance(model, Detector):
            pack_detector(model, run, out)
        elif measured_task(model) in FIGURES:
            pack_model(model, run, out, read, root, limit, device)
        else:
            raise SaccadeError(f"{run} holds a model of {model.name}: {', '.join(FIGURES)} and detection are packed")
    if docs is not None:
        write_figures(out or run, docs)


def pack_detector(model: Detector, run: Path, out: Path) -> None:
    config = load_run_config(run)
    spec = find_task(model.task)
    is_world = isinstance(model, WorldDetector)
    names = ("test", "novel") if is_world else (config.data.dev_split,)
    splits = {name: spec.open(config.data, name) for name in names}
    figures = {name: spec.evaluator.evaluate(model, split, config.task) for name, split in splits.items()}
    facts = {
        "data": config.data.name,
        "figures": {name: {k: round(v, 4) for k, v in found.items()} for name, found in figures.items()},
        "pictures": {name: len(split.pictures) for name, split in splits.items()},
        "epochs": config.trainer.epochs,
        "command": f"saccade train {config.system} data={config.data.name}",
    }
    extractor: Any = model.to("cpu").as_extractor()
    extractor.save(out, facts, **({} if is_world else {"form": "int8"}))
    console.print(facts["figures"])


def measured_task(model: Model) -> str:
    """By which a model is measured and described: its own, or of a joint model the only one that it was trained for."""
    parts = model.config.parts if isinstance(model, Hierarchical) else ()
    return parts[0] if len(parts) == 1 else model.task


def measure(spec: TaskSpec[Any, Any], model: Model, data: Any, settings: Any) -> dict[str, float]:
    """The figures of a split; of phrases those of every type too."""
    if spec.name == "grounding":
        return ground_all(model, data, settings.eval_batch).report()  # type: ignore[arg-type]
    return dict(spec.evaluator.evaluate(model, data, settings))


def pack_model(
    model: Model, run: Path, out: Path, read: str | None, root: Path | None, limit: int | None, device: str
) -> None:
    """Weights in bytes, a quarter of the size; the model's card says what they can do before and after."""
    config, task = load_run_config(run), measured_task(model)
    spec, settings = find_task(task), config.task if task == model.task else getattr(config.task, task)
    data = replace(config.data, root=root or config.data.root, limit=limit or config.data.limit)
    if hasattr(settings, "among"):
        settings = replace(settings, among="given")  # as `saccade eval` measures a model without its run

    def measured(folder: Path) -> dict[str, float]:
        """On the dev split of its data set; of several, all figures of the first and the headline of the others."""
        found = load_model(folder).to(device)
        size = found.backbone.size if found.backbone is not None else None
        first, *others = (
            (part.name, measure(spec, found, spec.open(part, "dev", size), settings)) for part in parts_of(data)
        )
        headline = spec.evaluator.metric
        return first[1] | {f"{headline}_{name}": figures[headline] for name, figures in others}

    rows = {"as trained": measured(run)}
    if hasattr(model.config, "budget_mb"):
        model.config = replace(model.config, budget_mb=256)  # training's is for a GPU alone
    model.save_pretrained(out)
    write_weights(out / "model.safetensors", model.own_weights()[0], "int8")
    rows["in bytes"] = measured(out)
    if read is not None:
        described = read_json(out / "config.json")
        write_json(out / "config.json", {**described, "backbone": read})
        rows[f"in bytes, photos read by `{read}`, as shipped"] = measured(out)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        own = read_text(Path(folder) / "README.md").replace("this folder", out.name)
    backbone = model.backbone.name if model.backbone is not None else config.data.extractor
    command = train_command(config)
    base, lent = read_json(out / "config.json").get("base"), re.search(r"\btuned:([\w-]+)", backbone)
    shared = base["model"] if base is not None else lent[1] if lent is not None else None
    write_text(out / "README.md", card(out.name, own, rows, command, backbone, task, shared, data.name, data.limit))
    console.print(rows)


def pack_reader(model: Matcher, base: str, out: Path, read: str, data: DataConfig, device: str) -> None:
    """A matcher of the package that reads photos by another grid, on which its scores must be calibrated anew."""
    spec = find_task(model.task)
    model.backbone, model.calibration = trainable_backbone(read), None
    model.save_pretrained(out)
    found, dev = load_model(out).to(device), spec.open(data, "dev", model.backbone.size)
    describe_reader(model, base, out, read, dict(spec.evaluator.evaluate(found, dev, spec.config())))


def describe_reader(model: Matcher, base: str, out: Path, read: str, figures: dict[str, float]) -> None:
    """What made it, and its card."""
    packed = f"python scripts/pack_weights.py {base} {out} --read {read} --root data/flickr8k"
    command, licence = f"{TRAINED_BY[0]} root=data/flickr8k\n{packed}", DATA_SETS["flickr8k"].licence
    shown = tuple((name, round(figures[name], 1)) for name in FIGURES["matching"])
    model.trained = Trained("flickr8k", "train+extra", 6091, None, licence, command, "the split dev", shown)
    model.save_pretrained(out)
    own = read_text(out / "README.md").replace("this folder", out.name)
    rows = {f"photos read by `{read}`, as shipped": figures}
    write_text(out / "README.md", card(out.name, own, rows, *TRAINED_BY, model.task, base))
    console.print(rows)


def card(
    name: str,
    own: str,
    rows: dict[str, dict[str, float]],
    command: str,
    extractor: str,
    task: str,
    base: str | None,
    data: str = "flickr8k",
    limit: int | None = None,
) -> str:
    (learned, measured), first = LEARNED[task], next(iter(rows.values()))
    figures = {figure: title for figure, title in FIGURES[task].items() if figure in first}
    others = [DATA_SETS[part].title for part in data.split("+")[1:]]
    also = f"and on the training questions of {' and '.join(others)}, " if others else ""
    lines = [["weights", *figures.values()]]
    lines += [[row, *(f"{found[figure]:.1f}" for figure in figures)] for row, found in rows.items()]
    if tall := len(FIGURES[task]) > MOST_COLUMNS:
        lines = [list(line) for line in zip(*lines, strict=True)]
    photos = f"1,000 photos and {measured}" if limit is None else f"first {limit:,} photos"
    words = OPTIONS.get(task, "") + ("" if limit is None else f" limit={limit}")
    sources = [p for known, p in PRETRAINED.items() if known in f"{own} {extractor}"]
    begun = "; ".join(f"{source.about} ({source.licence})" for source in sources)
    began = f"Training began with the weights of others: {begun}." if begun else ""
    if base is not None:
        began = f"What it shares with `{base}` is read from there, and that model's card says where training began."
    return f"""{own}
## What it can do

Trained on Flickr8k's train and extra splits (6,091 photos, {learned}) {also}by `{command}`, with the
extractor `{extractor}`. It knows what those captions mention: people, dogs, sports, streets, water. The
photos were given for research; mind that if you use the model for anything else.
{began}

In per cent on the {photos} of the dev split, which also chose the settings:

{markdown_table(lines[0], lines[1:])}

The last {"column" if tall else "row"} is what `saccade eval {name} data=flickr8k root=DIR split=dev{words}` prints.
"""


def write_figures(folder: Path, docs: Path) -> None:
    """Put the figures kept beside the weights into a page, between its two comment lines.

    Raises: SaccadeError if there are no figures, or the page has no place for them.
    """
    facts = read_json(folder / "config.json")
    if "figures" not in facts:
        raise SaccadeError(f"{folder / 'config.json'} holds no figures: pack a run first")
    page = read_text(docs)
    start, end = "<!-- figures:", "<!-- end of figures -->"
    if start not in page or end not in page:
        raise SaccadeError(f'{docs} has no lines "{start} … -->" and "{end}" to write between')
    head, _, rest = page.partition(start)
    first_line, tail = rest.partition("\n")[0], rest.partition(end)[2]
    write_text(docs, f"{head}{start}{first_line}\n\n{figures_table(facts)}\n{end}{tail}")


def figures_table(facts: dict[str, Any]) -> str:
    names = list(facts["figures"])
    lines = [
        f"Trained by `{facts['command']}`. Tested on pictures never taught (one training run): "
        + ", ".join(f"{facts['pictures'][n]} of `{n}`" for n in names)
        + ". Attributes are read from the best proposal of each thing that was found.",
        "",
        "| | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for key in facts["figures"][names[0]]:
        values = [facts["figures"][n].get(key, float("nan")) for n in names]
        shown = [f"{v:.2f}" if key in ("proposals", "overlap") else f"{100 * v:.1f} %" for v in values]
        lines.append(f"| {MEANING.get(key, key)} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    typer.run(main)
