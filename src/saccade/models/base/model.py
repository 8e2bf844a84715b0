"""What every model is: an nn.Module with a frozen config and a vocabulary, saved to and loaded from a folder or hub.

The registry says which models there are, for which task, from which paper.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from saccade.batch import PictureBatch, RegionBatch, TextBatch
from saccade.core.config import from_dict, to_dict
from saccade.core.errors import SaccadeError, did_you_mean, not_among
from saccade.core.files import read_json, write_json, write_text
from saccade.core.hub import DUAL_ENCODERS, PREFIX, first_line, hub_folder, is_dual, looks_local
from saccade.core.progress import note_once
from saccade.core.weights import build_within, check_values, held_shapes, read_weights, write_weights
from saccade.language import Vocabulary
from saccade.metrics.calibration import Platt
from saccade.models.base.card import Trained, model_card
from saccade.version import __version__
from saccade.vision.backbones.tuned import base_file, with_base, without_base
from saccade.vision.extractors import TrainableBackbone, trainable_backbone

CONFIG, WEIGHTS, VOCABULARY = "config.json", "model.safetensors", "vocabulary.json"
CALIBRATION = "calibration.json"  # of a matcher whose scores were made probabilities
SHIPPED = Path(__file__).parents[1] / "weights"  # one folder for each trained model that comes with the package
M = TypeVar("M", bound="Model")


@dataclass(frozen=True)
class Entry:
    name: str
    task: str
    title: str
    venue: str
    model: type[Model]

    @property
    def fine_tunes(self) -> bool:
        """Whether it is another system with an output for a task: `interbert_matching`."""
        return self.name.endswith(f"_{self.task}")


GROUP = "saccade.models"  # of the entry points by which other packages offer theirs
_entries: dict[str, Entry] = {}


def register(name: str, *, task: str, title: str, venue: str) -> Callable[[type[M]], type[M]]:
    """Class decorator: `@register("scan", task="matching", title="Stacked Cross Attention …", venue="ECCV 2018")`."""

    def add(model: type[M]) -> type[M]:
        if not _is_ours(model):
            _import_ours(name)
            if name in _entries and _is_ours(_entries[name].model):
                raise SaccadeError(f'"{name}" is a model of Saccade: {model.__module__} must call its own otherwise')
        model.name, model.task = name, task
        _entries[name] = Entry(name, task, title, venue, model)
        return model

    return add


def _is_ours(model: type[Model]) -> bool:
    return model.__module__.startswith("saccade.")


def _import_ours(name: str = "") -> None:
    """Import the file of this model; of a model that shares its file with others, and without a name, all files."""
    from saccade.models import FILES

    for file in [name] if name in FILES else FILES:
        importlib.import_module(f"saccade.models.{file}")


def entries() -> list[Entry]:
    """Every model there is; a package whose model cannot be loaded gets a note."""
    _import_ours()
    for point in metadata.entry_points(group=GROUP):
        try:
            _load_foreign(point)
        except SaccadeError as error:
            note_once(str(error))
    return sorted(_entries.values(), key=lambda e: (e.task, e.name))


def _load_foreign(point: metadata.EntryPoint) -> None:
    """Import the model that another package offers. Raises: SaccadeError if that fails, or registers no such model."""
    if point.name in _entries:
        return
    where = f'the model "{point.name}" ({point.value}'
    where += f" of the package {point.dist.name})" if point.dist is not None else ")"
    try:
        point.load()
    except Exception as error:  # whatever another's code raises
        raise SaccadeError(f"{where} cannot be loaded: {type(error).__name__}: {first_line(error)}") from error
    if point.name not in _entries:
        raise SaccadeError(f'{where} does not register itself: @register("{point.name}", …) was expected')


def entry(name: str) -> Entry:
    """The model of this name, ours or another package's. Raises: SaccadeError if there is none."""
    if name not in _entries:
        _import_ours(name)
    for point in metadata.entry_points(group=GROUP) if name not in _entries else ():
        if point.name == name:
            _load_foreign(point)
    if name not in _entries:
        hint = did_you_mean(name, _entries)
        raise SaccadeError(f'there is no model "{name}"{hint or ";"} `saccade models` lists them')
    return _entries[name]


class Model(nn.Module):
    """A model folder holds config.json, model.safetensors, a model card, and vocabulary.json where it reads text."""

    Config: ClassVar[type]
    name: ClassVar[str]
    task: ClassVar[str]
    reads_text: ClassVar[bool] = True  # and so has a vocabulary
    keeps_words: ClassVar[bool] = False  # fine-tuned, it has the vocabulary and sizes of what it starts from
    keep_in_float32: ClassVar[tuple[str, ...]] = ()  # parts that compute in float32 even under autocast
    vocabulary: Vocabulary
    calibration: Platt | None = None  # from its scores to probabilities, if that was fitted
    trained: Trained | None = None  # how, if `saccade train` did it
    intended_use: str = "Research on how words and parts of pictures go together."

    def __init__(self, config: Any, vocabulary: Vocabulary | None = None, extractor: str | None = None) -> None:
        super().__init__()
        for setting, value in vars(config).items() if config is not None else ():
            if (setting == "dim" or setting.endswith("_dim")) and value is not None and value < 1:
                raise SaccadeError(f"model.{setting} must be at least 1, not {value}")
        self.config = config
        if vocabulary is not None:
            self.vocabulary = vocabulary
        self.extractor = extractor  # what made the region features it was trained on, and makes those of new pictures
        self.backbone: TrainableBackbone | None = None  # an extractor trained and saved with the model
        self.backbone_lr_scale = 1.0  # its learning rate, relative to the rest
        self.backbone_layer_decay = 1.0  # the rate of each of its parts, relative to the part after it

    def read(self, texts: Sequence[str]) -> TextBatch:
        """Sentences as this model takes them; some add which words depend on each other, or a scene graph."""
        return self.vocabulary.batch(texts)

    def extract(self, images: RegionBatch | PictureBatch) -> RegionBatch:
        """Regions as they are; pixels through the model's own extractor."""
        if isinstance(images, RegionBatch):
            return images
        if self.backbone is None:
            raise SaccadeError(
                f"this {self.name} model was trained on regions and has no extractor of its own for pixels"
            )
        regions: RegionBatch = self.backbone(images)
        return regions

    @classmethod
    def own_vocabulary(cls, config: Any, texts: Sequence[str]) -> Vocabulary | None:
        """The words of a model that does not read the task's; None: it does."""
        return None

    def begin(self) -> None:
        """Load what a fresh model starts training from, such as a backbone's trained weights."""

    def fit_to(self, weights: Mapping[str, Tensor]) -> None:
        """Called before `weights` are loaded, for models whose layers come in several forms."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The optimiser's groups; `factor` multiplies the learning rate."""
        own = [p for name, p in self.named_parameters() if not name.startswith("backbone.")]
        groups: list[dict[str, Any]] = [{"params": own, "factor": 1.0}]
        scale, decay = self.backbone_lr_scale, self.backbone_layer_decay
        if self.backbone is None or decay == 1:
            backbone = list(self.backbone.parameters()) if self.backbone is not None else []
            return [*groups, {"params": backbone, "factor": scale}]
        parts = self.backbone.backbone.parts
        return groups + [
            {"params": list(part.parameters()), "factor": scale * decay**depth}
            for depth, part in enumerate(reversed(parts))
        ]

    def own_weights(self) -> tuple[dict[str, Tensor], dict[str, str] | None]:
        """What a folder keeps of it, and the model of the package that has the rest (`with_base`)."""
        state = self.state_dict()
        return (state, None) if self.backbone is None else without_base(state, self.backbone.backbone.name)

    def parameter_count(self) -> int:
        return sum(p.numel() for p in self.parameters())

    def save_pretrained(
        self, save_directory: str | Path, *, repo_id: str | None = None, push_to_hub: bool = False, **options: Any
    ) -> str | None:
        """Write a model folder; with `push_to_hub` also to the hub, as `repo_id` or under the folder's name."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).unlink(missing_ok=True)  # which is written last
        self._save_pretrained(folder)
        return self.push_to_hub(repo_id or folder.name, **options) if push_to_hub else None

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Write it to the hub, with the `options` of Hugging Face's `PyTorchModelHubMixin`; where it is, as an address.

        It is called instead of inherited: to import the hub's client takes half a second, and most models stay here.
        """
        from huggingface_hub import PyTorchModelHubMixin

        return PyTorchModelHubMixin.push_to_hub(self, repo_id, **options)  # type: ignore[arg-type]

    def _save_pretrained(self, save_directory: Path) -> None:
        folder = Path(save_directory)
        state, base = self.own_weights()
        write_weights(folder / WEIGHTS, state)
        if self.reads_text:
            self.vocabulary.save(folder / VOCABULARY)
        if self.calibration is not None:
            write_json(folder / CALIBRATION, asdict(self.calibration))
        write_text(folder / "README.md", self._card())
        described: dict[str, Any] = {"model": self.name, "saccade": __version__, "extractor": self.extractor}
        described["config"] = to_dict(self.config)
        if self.backbone is not None:
            described["backbone"] = self.backbone.name
        if base is not None:
            described["base"] = base
        if self.trained is not None:
            described["trained"] = to_dict(self.trained)
        write_json(folder / CONFIG, described)

    @classmethod
    def from_pretrained(
        cls: type[M],
        pretrained_model_name_or_path: str | Path,
        *,
        dtype: torch.dtype | str | None = None,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        token: str | bool | None = None,
        **unknown: Any,
    ) -> M:
        """The model of a run or model folder, one of the package, or OWNER/NAME of the hub; its weights as `dtype`.

        Weights in 16 bits are used as in mixed precision, under `torch.autocast`.

        Raises: SaccadeError if there is no such model, it is of another class, or a keyword is unknown.
        """
        for word in unknown:
            known = [name for name in inspect.signature(cls.from_pretrained).parameters if name != "unknown"]
            raise SaccadeError(f"from_pretrained takes no {not_among(word, known[1:])}")
        number = _dtype(dtype)
        name = str(pretrained_model_name_or_path)
        if name.startswith(PREFIX) or not looks_local(name):
            name = str(
                hub_folder(
                    name.removeprefix(PREFIX),
                    revision=revision,
                    cache_dir=cache_dir,
                    force_download=force_download,
                    local_files_only=local_files_only,
                    token=token,
                )
            )
        model = load_model(name, cls)
        if number is not None:
            for part, module in model.named_children():
                module.to(torch.float32 if number.itemsize == 2 and part in cls.keep_in_float32 else number)
            for weight in model.parameters(recurse=False):
                weight.data = weight.data.to(number)
        return model

    @classmethod
    def described(cls, folder: Path) -> dict[str, Any]:
        """What a model folder says of itself: model, extractor, backbone, settings."""
        return dict(read_json(folder / CONFIG))

    @classmethod
    def read_folder(cls: type[M], folder: Path) -> M:
        """The model of a folder that `find_model` found to be of this class."""
        described = read_json(folder / CONFIG)
        settings: type[Any] = cls.Config
        config = from_dict(settings, described.get("config") or {}, f"{folder / CONFIG}: config")
        vocabulary = Vocabulary.load(folder / VOCABULARY) if cls.reads_text else None
        path = folder / WEIGHTS

        def build() -> M:
            model = cls(config, vocabulary, described.get("extractor"))
            if described.get("backbone") is not None:
                model.backbone = trainable_backbone(str(described["backbone"]), pretrained=False)
            return model

        model = build_within(build, held_shapes(path, *base_file(described.get("base"))), path)
        state = folder_weights(folder, model.state_dict())
        model.fit_to(state)
        wanted = {key: tuple(value.shape) for key, value in model.state_dict().items()}
        found = {key: tuple(value.shape) for key, value in state.items()}
        if wanted != found:
            key = sorted(k for k in wanted.keys() | found.keys() if wanted.get(k) != found.get(k))[0]
            raise SaccadeError(
                f"{path} is not for this {model.name} configuration: {key} is {found.get(key, 'missing')} in the file, "
                f"{wanted.get(key, 'absent')} in the model"
            )
        check_values(state, model.state_dict(), path)
        model.load_state_dict(state)
        if described.get("trained") is not None:
            model.trained = from_dict(Trained, described["trained"], f"{folder / CONFIG}: trained")
        if (folder / CALIBRATION).exists():
            model.calibration = from_dict(Platt, read_json(folder / CALIBRATION), str(folder / CALIBRATION))
        return model.eval()

    def _card(self) -> str:
        paper = entry(self.name)
        words = f", {len(self.vocabulary):,} words" if self.reads_text else ""
        regions = f", regions found by the extractor “{self.extractor}”" if self.extractor else ""
        about = (
            f"{paper.title} ({paper.venue}), as implemented in Saccade {__version__}. "
            f"{self.parameter_count():,} parameters{words}{regions}."
        )
        return model_card(self.name, self.task, about, self.trained, self.intended_use, to_dict(self.config))


def _dtype(given: torch.dtype | str | None) -> torch.dtype | None:
    """Raises: SaccadeError if it is no type of floating-point numbers."""
    found = getattr(torch, given, None) if isinstance(given, str) else given
    if given is not None and not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise SaccadeError(f'dtype={given}: a type of floating-point numbers was expected, "bfloat16" for one')
    return found


def shipped_models() -> list[str]:
    """Names of the trained models that come with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def find_model(folder: Path | str, expected: type[M] = Model) -> tuple[Path, type[M]]:  # type: ignore[assignment]
    """Where a model lies and of which class it is, without reading its weights.

    A run folder means its best model, a name without a folder one of those that come with the package, and
    hf:OWNER/NAME one of the hub. Every other name is a path: the hub is not asked for it.

    Raises: SaccadeError if there is no model, or it is no `expected`.
    """
    given = str(folder)
    folder = hub_folder(given.removeprefix(PREFIX)) if given.startswith(PREFIX) else Path(folder).expanduser()
    if not folder.exists() and folder.name == str(folder) and (SHIPPED / folder).is_dir():
        folder = SHIPPED / folder
    if not (folder / CONFIG).exists() and (folder / "best" / CONFIG).exists():
        folder = folder / "best"
    if not (folder / CONFIG).exists():
        if folder.exists():
            raise SaccadeError(f"{folder} is no model folder: it has no {CONFIG}")
        near = did_you_mean(given, shipped_models()) if folder.name == given else ""
        hub = "" if looks_local(given) else f", and {PREFIX}{given} asks the model hub"
        raise SaccadeError(
            f"{folder} is no model folder: it does not exist{near or ';'} with the package come "
            f"{', '.join(shipped_models())}{hub}"
        )
    described = read_json(folder / CONFIG)
    model_class: type[Model]
    if is_dual(described):  # of transformers
        model_class = importlib.import_module("saccade.models.dual_encoder").DualEncoder
    elif isinstance(described, dict) and isinstance(described.get("model_type"), str):
        kind, known = described["model_type"], ", ".join(DUAL_ENCODERS)
        raise SaccadeError(f"{folder} holds a {kind} of transformers, of which only {known} are read")
    elif not isinstance(described, dict) or not isinstance(described.get("model"), str):
        raise SaccadeError(f'{folder / CONFIG} names no model: expected a "model" field')
    else:
        model_class = entry(described["model"]).model
    if not issubclass(model_class, expected):
        wanted = getattr(expected, "name", expected.__name__.lower())
        raise SaccadeError(f"{folder} holds a model of {model_class.name}, a {wanted} was asked for")
    return folder, model_class


def folder_weights(folder: Path, wanted: Iterable[str]) -> dict[str, Tensor]:
    """All weights of a model folder; those of the `wanted` that it shares with a model of the package from there."""
    return with_base(read_weights(folder / WEIGHTS), read_json(folder / CONFIG).get("base"), wanted, folder)


def load_model(folder: Path | str, expected: type[M] = Model) -> M:  # type: ignore[assignment]
    """The model of a model folder, the best of a run folder, or one of the package by name, if it is an `expected`."""
    folder, model_class = find_model(folder, expected)
    return model_class.read_folder(folder)
