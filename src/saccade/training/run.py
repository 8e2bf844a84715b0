"""A training run from its settings: data, model and task are put together and handed to the trainer."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from saccade.core.config import as_word, dotted, load_yaml, override, save_yaml, to_dict, update
from saccade.core.errors import SaccadeError, did_you_mean, not_among
from saccade.core.files import read_json
from saccade.data import DataConfig
from saccade.data.registry import DATA_SETS, same_data, share_pictures
from saccade.language import Vocabulary
from saccade.language.vectors import check_vectors
from saccade.models import Model, entries, entry, find_model
from saccade.models.base.card import Trained
from saccade.models.base.model import CONFIG as MODEL_CONFIG
from saccade.models.base.model import VOCABULARY, folder_weights
from saccade.tasks import task_of
from saccade.tasks.base import Task
from saccade.tasks.prepare import Prepared
from saccade.training.config import MAY_CHANGE, TrainerConfig, differing_key
from saccade.training.folder import RunFolder
from saccade.training.seeds import seed_everything
from saccade.training.trainer import FitResult, Trainer
from saccade.vision.augment import AugmentConfig
from saccade.vision.extractors import TrainableBackbone, trainable_backbone

CONFIG = "config.yaml"


@dataclass(frozen=True)
class BackboneConfig:
    """Whether the extractor is trained through the model's own loss, and how."""

    train: bool = False  # from pixels: the grid extractor `data.extractor` becomes part of the model
    freeze: int = 4  # so many of the backbone's first parts stay as they are (EfficientNet-Lite has nine)
    lr_scale: float = 0.2  # how fast the extractor learns, beside the rest of the model
    layer_decay: float = 1.0  # each part of the backbone learns so many times as fast as the part after it
    drop_path: float = 0.0  # the chance of a picture to pass the last residual branches by (dinov2 only)
    augment: AugmentConfig = field(default_factory=AugmentConfig)

    def __post_init__(self) -> None:
        if self.freeze < 0:
            raise SaccadeError(
                f"backbone.freeze counts parts of a backbone: it must be zero or more, not {self.freeze}"
            )
        if not self.lr_scale > 0:
            raise SaccadeError(
                f"backbone.lr_scale must be more than zero, not {self.lr_scale}: "
                "backbone.train=false leaves the extractor as it is"
            )
        if not 0 < self.layer_decay <= 1:
            raise SaccadeError(f"backbone.layer_decay must be more than 0 and at most 1, not {self.layer_decay}")
        if not 0 <= self.drop_path < 1:
            raise SaccadeError(f"backbone.drop_path must be at least 0 and less than 1, not {self.drop_path}")


@dataclass(frozen=True)
class RunConfig:
    """Everything a run depends on; saved as config.yaml in the run folder."""

    system: str = "scan"
    model: Any = None  # the system's own Config
    data: DataConfig = field(default_factory=DataConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    task: Any = None  # the settings of the system's task: MatchingConfig, CaptioningConfig …
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    start: Path | None = None  # a model or run folder whose weights are taken where name and shape are the same
    only: str | None = None  # train only weights whose names begin so, e.g. fuse,pool,judge


def recipe(name: str) -> dict[str, Any]:
    """The settings that Saccade ships for a system ("camp": its paper's) or one on a data set ("camp-world")."""
    with resources.as_file(resources.files("saccade") / "recipes" / f"{name}.yaml") as path:
        return load_yaml(path) if path.exists() else {}


def recipe_data(system: str) -> list[str]:
    """The data sets that Saccade ships a recipe for."""
    files = (resources.files("saccade") / "recipes").iterdir()
    return sorted(file.name.split("-", 1)[1][:-5] for file in files if file.name.startswith(f"{system}-"))


def fresh_config(system: str) -> RunConfig:
    """The defaults of a system and its task."""
    known = entry(system)
    return RunConfig(system, known.model.Config(), task=task_of(system).config())


def run_config(system: str, words: Sequence[str] = (), file: Path | None = None) -> RunConfig:
    """The paper's defaults, then the recipe for this data set, then a YAML file, then `key=value` words.

    `task=NAME` is the system fine-tuned for a task, `init=FOLDER` another word for start=FOLDER. A model that is
    fine-tuned (`keeps_words`) has the sizes of what it starts from, unless words say otherwise.
    """
    system, words = _with_task(system, words)
    paper = update(fresh_config(system), recipe(system), f"the recipe {system}")
    given = load_yaml(file) if file else {}
    if given.pop("system", system) != system:
        raise SaccadeError(f"{file} is for another system than {system}")

    keys = {word.partition("=")[0] for word in words}
    counted = keys & {"epochs", "trainer.epochs"} and not keys & {"steps", "trainer.steps"}
    words = [*words, "trainer.steps=null"] if counted else words  # a recipe's steps would outdo the given epochs

    data = {key: given[key] for key in given.keys() & {"data"}}  # alone: the rest may only go with the recipe
    named = [word for word in words if word.partition("=")[0] in ("data", "data.name")]
    name = f"{system}-{override(update(paper, data, str(file)), named).data.name}"
    found = update(update(paper, recipe(name), f"the recipe {name}"), given, str(file))
    start = override(found, [word for word in words if word.startswith("start=")]).start
    if start is not None and entry(system).model.keeps_words:
        found = replace(found, model=_sizes_of(start, found.model))
    return override(found, words)


def _with_task(system: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """The system that a `task=NAME` word means, and the other words. Raises: SaccadeError if it has no such task."""
    words = [f"start={word[5:]}" if word.startswith("init=") else word for word in words]
    named = [word[5:] for word in words if word.startswith("task=")]
    if not named or named[-1] == entry(system).task:
        return system, [word for word in words if not word.startswith("task=")]
    tasks = {one.task: one.name for one in entries() if one.fine_tunes and one.name == f"{system}_{one.task}"}
    if named[-1] not in tasks:
        raise SaccadeError(f"{system} has no task {not_among(named[-1], [entry(system).task, *tasks])}")
    return tasks[named[-1]], [word for word in words if not word.startswith("task=")]


def _sizes_of(folder: Path, config: Any) -> Any:
    """The settings with those of the model in a folder that shape what it knows, but for what it gives out."""
    given = read_json(find_model(folder)[0] / MODEL_CONFIG).get("config") or {}
    own = set(type(config).SIZES) & given.keys()
    return update(config, {name: given[name] for name in own}, str(folder))


def load_run_config(folder: Path | str) -> RunConfig:
    """The settings of a run folder."""
    path = Path(folder) / CONFIG
    if not path.exists():
        raise SaccadeError(f"{folder} is no run folder: it has no {CONFIG}")
    values = load_yaml(path)
    system = str(values.get("system"))
    return update(fresh_config(system), values, str(path))


def run_folder(folder: Path | str) -> Path | None:
    """The run that a folder is, or whose best or last model it is; None of a model that is no run's."""
    folder = Path(folder)
    places = (folder, folder.parent) if folder.name in ("best", "last") else (folder,)
    return next((place for place in places if (place / CONFIG).exists()), None)


def learned_from(folder: Path | str, data: DataConfig, split: str) -> bool:
    """Whether a run was trained on pictures of this split; of a model that is no run, nobody knows."""
    run = run_folder(folder)
    own = load_run_config(run).data if run is not None else None
    return own is not None and same_data(own, data) and share_pictures(own.train_split, split)


def check_unseen(folders: Iterable[Path | str], data: DataConfig, split: str, why: str) -> None:
    """Raises: SaccadeError, which ends with what to do, if a run was trained on pictures of the split."""
    for folder in folders:
        if learned_from(folder, data, split):
            raise SaccadeError(f'{folder} was trained on pictures of "{split}" of {data.root or data.name}: {why}')


def run_parts(
    config: RunConfig, train: Any, dev: Any, backbone: TrainableBackbone | None = None, console: Console | None = None
) -> tuple[Model, Task[Any], Prepared]:
    """A fresh model, its task, and what it was built from. The same seed gives the same weights."""
    spec, console = task_of(config.system), console or Console(quiet=True)
    prepared, kind = spec.prepare(train, config.task), entry(config.system).model
    if kind.keeps_words and config.start is not None:
        prepared = replace(prepared, vocabulary=Vocabulary.load(find_model(config.start)[0] / VOCABULARY), texts=())
    if backbone is not None:
        prepared = replace(prepared, widths={**prepared.widths, "region_dim": backbone.dim})
    seed_everything(config.trainer.seed)
    model: Model = spec.build(kind, config.model, prepared)
    if backbone is not None:
        prepare_backbone(backbone, config.backbone)
        model.backbone, model.backbone_lr_scale = backbone, config.backbone.lr_scale
    model.backbone_layer_decay = config.backbone.layer_decay  # detectors have their own backbone
    for note in prepared.notes:
        console.print(note, highlight=False)
    if config.start is not None:
        console.print(start_from(model, config.start), markup=False, highlight=False)
    if config.only is not None:
        count = train_only(model, config.only)
        console.print(f"training {count} of {len(list(model.parameters()))} weights", highlight=False)
    return model, spec.task(model, train, dev, config.task, config.backbone.augment), prepared


def prepare_backbone(backbone: TrainableBackbone, config: BackboneConfig) -> None:
    """Its first `freeze` parts stay as they are, and pictures may pass branches by (`drop_path`).

    Raises: SaccadeError if nothing would be left to train, or the backbone has no such branches.
    """
    parts = backbone.backbone.parts
    if config.freeze >= len(parts):
        raise SaccadeError(
            f"backbone.freeze={config.freeze} leaves nothing of the extractor {backbone.name} to train: it has "
            f"{len(parts)} part{'s' if len(parts) > 1 else ''}"
        )
    for part in parts[: config.freeze]:
        part.requires_grad_(False)
    backbone.backbone.set_drop_path(config.drop_path)


def train_run(config: RunConfig, folder: Path | str, resume: bool = False, console: Console | None = None) -> FitResult:
    """Train into a run folder (config.yaml, metrics.csv, best/, last/ …); see `docs/training.md`."""
    folder = Path(folder)
    RunFolder(folder).check(resume)
    if resume and (folder / CONFIG).exists():
        changed = differing_key(to_dict(load_run_config(folder)), to_dict(config), MAY_CHANGE)
        if changed:
            raise SaccadeError(f"{folder} was started with another {changed}; only the length of a run may change")
    if config.backbone.train and console is not None and not torch.cuda.is_available():
        console.print(
            "note: without a GPU, training the extractor takes days on photos; train=false learns from one that stays"
        )
    for key, value in dotted(to_dict(config.task)).items():
        if value and key.rpartition(".")[2] == "vectors":  # before pictures go through an extractor for an hour
            check_vectors(value)
    backbone = trainable_backbone(config.data.extractor) if config.backbone.train else None
    on_gpu = config.trainer.accelerator in ("auto", "cuda") and torch.cuda.is_available()
    train, dev = open_for_training(config, backbone.size if backbone else None, "cuda" if on_gpu else "cpu")
    begun = RunFolder(folder).checkpoint.exists()  # and holds all weights: where they once came from may be gone
    model, task, prepared = run_parts(replace(config, start=None) if begun else config, train, dev, backbone, console)
    model.trained = trained_on(config, train)
    save_yaml(config, folder / CONFIG)
    trainer = Trainer(config.trainer, folder, console, {"system": config.system, **prepared.facts})
    return trainer.fit(model, task, resume)


def train_command(config: RunConfig) -> str:
    """What trains such a model anew: the words by which the settings differ from the recipe's."""
    data = f"data={config.data.name}"
    recipe, own = (dotted(to_dict(one)) for one in (run_config(config.system, [data]), config))
    if config.data.root is not None:  # as users keep them; of several data sets, the folder of their folders
        own["data.root"] = "data" if "+" in config.data.name else f"data/{config.data.root.name}"
    words = [as_word(key, value) for key, value in own.items() if recipe.get(key) != value and key != "data.name"]
    return shlex.join(["saccade", "train", config.system, data, *words])


def trained_on(config: RunConfig, train: Any) -> Trained:
    """For the model's card: what it learned from, on whose terms, by which command."""
    pictures, texts = (getattr(train, name, None) for name in ("images", "texts"))
    return Trained(
        data=config.data.name,
        split=config.data.train_split,
        pictures=None if pictures is None else len(pictures),
        texts=None if texts is None else len(texts),
        licence="; ".join(DATA_SETS[name].licence for name in config.data.name.split("+") if name in DATA_SETS),
        command=train_command(config),
        measured_on="a held-out part of it" if config.data.held_out else f"the split {config.data.dev_split}",
    )


def open_for_training(config: RunConfig, pixels: int | None = None, device: str = "cpu") -> tuple[Any, Any]:
    """What a run learns from, and what judges it: the dev split, or with `data.held_out` a part of the training split.

    Raises: SaccadeError if the training split is too small to hold anything out, or the dev split is part of it.
    """
    data, open = config.data, task_of(config.system).open
    if not data.held_out and share_pictures(data.train_split, data.dev_split):
        raise SaccadeError(
            f"the run would be judged by pictures that it learns from: dev_split={data.dev_split} is part of "
            f"train_split={data.train_split}; give another, or held_out=10 to hold every tenth picture out"
        )
    train = open(replace(data, held_out=0), data.train_split, pixels, device)  # the whole: memory keeps it once
    if not hasattr(train, "select") and (data.held_out or data.train_limit):
        raise SaccadeError(f"data.held_out and data.train_limit choose among pictures, which {data.name} is no set of")
    if not data.held_out:
        few = train.select(range(len(train.images))[: data.train_limit]) if data.train_limit else train
        return few, open(data, data.dev_split, pixels, device)
    count = len(train.images)
    if count <= data.held_out:
        raise SaccadeError(f"data.held_out={data.held_out} is too many: the training split has {count} pictures")
    held_out = range(0, count, data.held_out)
    return train.select([i for i in range(count) if i not in held_out][: data.train_limit]), train.select(held_out)


@torch.no_grad()
def start_from(model: Model, folder: Path | str) -> str:
    """Take every weight of the same name and shape from a model or run folder, and say which; the rest stays as it is.

    Tables of words are taken word by word, so that the other model may know other words.
    """
    found, _ = find_model(folder, Model)
    ours = model.state_dict()
    theirs = folder_weights(found, ours)
    words = model.vocabulary.words if model.reads_text else ()
    known = Vocabulary.load(found / VOCABULARY).words if words else ()
    row = {word: n for n, word in enumerate(known)}
    shared = [(n, row[word]) for n, word in enumerate(words) if word in row]
    tables = _tables_of_words(model, len(words)) if words else set()
    names = []
    for name, own in ours.items():
        other = theirs.get(name)
        if other is None:
            continue
        if name in tables and known != words:
            if len(other) != len(known) or other.shape[1:] != own.shape[1:]:
                continue
            new, old = torch.tensor(shared).T
            own[new] = other[old].to(own)
        elif other.shape == own.shape:
            own.copy_(other)
        else:
            continue
        names.append(name)
    if not names:
        raise SaccadeError(f"start={folder}: it has no weight of the same name and shape as this {model.name}")
    text = f"started from {found}: {len(names)} of {len(ours)} weights taken"
    if len(shared) < len(words):
        text += f", {len(shared):,} of {len(words):,} words known there"
    fresh = [name for name in ours if name not in names]
    return f"{text}, fresh: {', '.join(fresh)}" if fresh else text


def _tables_of_words(model: Model, words: int) -> set[str]:
    """The weights with one row for every word: embeddings, and layers that answer with a word."""
    return {
        f"{name}.{kind}"
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding | nn.Linear) and len(module.weight) == words
        for kind, _ in module.named_parameters(recurse=False)
    }


def train_only(model: nn.Module, names: str) -> int:
    """Leave every weight as it is but those whose names begin with one of `names` (divided by commas); count these."""
    own = [name for name, _ in model.named_parameters()]
    prefixes = [part.strip() for part in names.split(",")]
    for prefix in prefixes:
        if not prefix or not any(name.startswith(prefix) for name in own):
            tops = list(dict.fromkeys(name.split(".")[0] for name in own))
            hint = f"{did_you_mean(prefix, tops)} (there are: {', '.join(tops)})"
            raise SaccadeError(f'only={names}: no weight begins with "{prefix}"{hint}')
    for name, weight in model.named_parameters():
        if not name.startswith(tuple(prefixes)):
            weight.requires_grad_(False)
    return sum(weight.requires_grad for weight in model.parameters())
