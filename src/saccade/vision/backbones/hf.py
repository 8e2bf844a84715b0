"""Any vision model of transformers as a backbone: `hf:HUB/NAME`, or `hf:FOLDER` as `save_pretrained` wrote it.

Models that transformers knows as backbones (ResNet, ConvNeXt, Swin, DINO …) give a map for each stride; ViT and the
vision towers of CLIP and SigLIP give one, their patches' last hidden states laid out as the patches were. Which strides
there are is found by one grey picture: of several maps of a stride the last is taken.

Weights are read from safetensors alone, none may be missing, and what the library prints becomes one error message.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, UInt8
from safetensors import SafetensorError
from torch import Tensor, nn

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.core.hub import first_line, model_folder
from saccade.vision.backbones.base import IMAGENET_MEAN, IMAGENET_STD, Backbone, normalise_by

PROCESSORS = ("preprocessor_config.json", "processor_config.json")  # newer releases write the second


def import_transformers(what: str) -> Any:
    """The library. Raises: SaccadeError if it is not installed; `what` is what needs it."""
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise SaccadeError(f'{what} needs transformers: pip install "saccade[hf]" brings it') from error


def load_whole(load: Callable[..., Any], place: Path, harmless: re.Pattern[str] | None = None, **options: Any) -> Any:
    """What `load` (some class's `from_pretrained`) makes of `place`. No pickle is read, and no code that lies there.

    Raises: SaccadeError if the file lacks a weight, which would then be random, unless its name is `harmless`.
    """
    network, report = load(place, use_safetensors=True, trust_remote_code=False, output_loading_info=True, **options)
    missing = sorted(name for name in report["missing_keys"] if harmless is None or not harmless.search(name))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise SaccadeError(f'the weights of "{place}" are not those of its config: they lack {missing[0]}{more}')
    return network


def processor_file(folder: Path) -> Path | None:
    """The file that says how a network wants its pictures, or None if it has none."""
    return next((path for name in PROCESSORS if (path := folder / name).is_file()), None)


def read_processor(path: Path) -> dict[str, Any]:
    """The settings in a processor's file. Raises: SaccadeError if it holds none."""
    values = read_json(path)
    found = values.get("image_processor", values) if isinstance(values, dict) else None  # newer releases nest them
    if not isinstance(found, dict):
        raise SaccadeError(f"{path} must hold an object with size, image_mean and image_std")
    return found


@contextmanager
def quietly(transformers: Any) -> Iterator[None]:
    """Without the library's progress bars and tables of weights."""
    log = transformers.utils.logging
    bars, verbosity = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity_error()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()


DEFAULT_SIZE = 224
# What a classifier's checkpoint lacks: nothing is read from the first two, the third starts as a plain normalisation.
UNUSED = re.compile(r"\b(pooler|mask_token|hidden_states_norms)\b")


class HubBackbone(Backbone):
    """A transformers network behind our interface. Its mean and spread are buffers, part of its state."""

    mean: Tensor
    std: Tensor

    def __init__(self, source: str, network: nn.Module, patch: int, processor: dict[str, Any], size: int) -> None:
        super().__init__()
        self.name = f"hf:{source}"
        self.network = network
        self.patch = patch  # pixels a side, of models that cut the picture into patches
        self.size = size
        plain = processor.get("do_normalize") is False
        mean = [0.0] * 3 if plain else processor.get("image_mean", IMAGENET_MEAN)
        std = [1.0] * 3 if plain else processor.get("image_std", IMAGENET_STD)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32))
        options = inspect.signature(network.forward).parameters
        self.options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in options else {}
        self._probe()

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        return normalise_by(pixels, self.mean, self.std)

    def forward(
        self, pictures: Float[Tensor, "image 3 height width"]
    ) -> tuple[Float[Tensor, "image channel row column"], ...]:
        found = self._every_map(pictures)
        return tuple(found[i] for i in self.taken)

    def _every_map(self, pictures: Tensor) -> list[Tensor]:
        output = self.network(pictures, **self.options)
        values = getattr(output, "feature_maps", None) or (output.last_hidden_state,)
        return [self._as_map(value, pictures) for value in values]

    def _as_map(self, value: Tensor, pictures: Tensor) -> Tensor:
        """Tokens as the grid they were cut from; those in front (class, registers) have no place in it."""
        if value.ndim == 4:
            return value
        height, width = pictures.shape[-2:]
        rows, columns = height // self.patch, width // self.patch
        while rows * columns > value.shape[1]:  # patches that were merged, two by two
            rows, columns = math.ceil(rows / 2), math.ceil(columns / 2)
        grid = value[:, value.shape[1] - rows * columns :].transpose(1, 2)
        return grid.reshape(len(value), -1, rows, columns)

    @torch.no_grad()
    def _probe(self) -> None:
        """Find which maps there are; the last of each stride is the backbone's."""
        training = self.network.training
        maps = self._every_map(torch.zeros(1, 3, self.size, self.size))
        self.network.train(training)
        last = {found.shape[-1]: i for i, found in enumerate(maps)}
        self.taken = tuple(sorted(last.values()))
        self.strides = tuple(round(self.size / maps[i].shape[-1]) for i in self.taken)
        self.channels = tuple(maps[i].shape[1] for i in self.taken)


def open_backbone(name: str, pretrained: bool = True) -> HubBackbone:
    """`hf:HUB/NAME` or `hf:FOLDER`; without `pretrained` only its config is read, and its weights are random.

    Raises: SaccadeError if it cannot be had or is no vision model.
    """
    source = name.partition(":")[2]
    if not source:
        raise SaccadeError("hf: needs the name of a model, such as hf:microsoft/resnet-50, or a folder")
    transformers = import_transformers(f'the backbone "hf:{source}"')
    place = model_folder(source)
    with readable_errors(source), quietly(transformers):
        config = transformers.AutoConfig.from_pretrained(place, trust_remote_code=False)
        vision = getattr(config, "vision_config", config)
        if not hasattr(vision, "num_channels"):
            raise SaccadeError(f'"hf:{source}" is a model of type {config.model_type}, which does not see pictures')
        network = _build(transformers, place, config, pretrained)
        file = processor_file(place)
        processor = {} if file is None else read_processor(file)
        patch = getattr(vision, "patch_size", 1)
        return HubBackbone(
            source,
            network.eval(),
            patch if isinstance(patch, int) else patch[0],
            processor,
            _size(processor, vision),
        )


def _build(transformers: Any, place: Path, config: Any, pretrained: bool) -> nn.Module:
    staged = transformers.models.auto.modeling_auto.MODEL_FOR_BACKBONE_MAPPING
    if type(config) in staged:  # AutoBackbone itself asks the hub even about folders
        config.out_features = [name for name in config.stage_names if name != "stem"]
        build = staged[type(config)]._from_config
        load = staged[type(config)].from_pretrained
    else:
        build, load = transformers.AutoModel.from_config, transformers.AutoModel.from_pretrained
    network = load_whole(load, place, UNUSED, config=config) if pretrained else build(config)
    tower: nn.Module = getattr(network, "vision_model", network)  # CLIP and its kin also read text
    return tower


def _size(processor: dict[str, Any], vision: Any) -> int:
    """The side of the squares it was trained on: the crop, else the resize, else what the config says."""
    cropped = processor.get("crop_size") if processor.get("do_center_crop", True) else None
    for value in (cropped, processor.get("size"), getattr(vision, "image_size", None)):
        if isinstance(value, dict):
            value = value.get("height") or value.get("shortest_edge")
        if isinstance(value, list | tuple) and value:
            value = value[0]
        if isinstance(value, int):
            return value
    return DEFAULT_SIZE


@contextmanager
def readable_errors(source: str) -> Iterator[None]:
    """Raises: SaccadeError, one line that names the model, for what transformers and the hub raise."""
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        raise SaccadeError(f'could not open "hf:{source}": {first_line(error)}') from error
    except (RuntimeError, TypeError, AttributeError) as error:
        raise SaccadeError(
            f'"hf:{source}" is not a backbone that can be used here: its weights do not fit its config, '
            "or it needs more than a picture"
        ) from error
