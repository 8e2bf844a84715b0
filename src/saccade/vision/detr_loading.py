"""Detectors of transformers from the hub or a folder: safetensors only, all weights there, or a sentence."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saccade.errors import SaccadeError
from saccade.vision.detr_pictures import PictureForm, read_form


def load_detector(source: str) -> tuple[Any, PictureForm]:
    """The network, and the form in which it wants its pictures."""
    source = str(Path(source).expanduser()) if source.startswith("~") else source
    if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
        raise SaccadeError(f"{source} holds no config.json: a folder that `save_pretrained` wrote was expected")
    return _load(source), read_form(_beside(source))


def _load(source: str) -> Any:
    """The network with all its weights, from safetensors only."""
    try:
        transformers = importlib.import_module("transformers")
        auto = transformers.AutoModelForObjectDetection
    except (ImportError, AttributeError) as error:
        raise SaccadeError('detectors by name need transformers: pip install "saccade[hf]"') from error
    try:
        with _quietly(transformers.utils.logging):
            network, report = auto.from_pretrained(
                source, use_safetensors=True, trust_remote_code=False, output_loading_info=True
            )
    except ImportError as error:
        raise SaccadeError(f'the detector "{source}" needs a package that is not installed: {_line(error)}') from error
    except OSError as error:
        if Path(source).is_dir():
            raise SaccadeError(f"{source} is not a folder that holds a detector: {_line(error)}") from error
        raise SaccadeError(
            f'the detector "{source}" is not a folder here, and the model hub has none of that name with safetensors '
            "weights, or cannot be reached"
        ) from error
    except Exception as error:  # a network of another kind, damaged weights, a config that does not fit them
        raise SaccadeError(f'"{source}" cannot be loaded as an object detector: {_line(error)}') from error
    if report["missing_keys"]:
        first, rest = sorted(report["missing_keys"])[0], len(report["missing_keys"]) - 1
        raise SaccadeError(f'the weights of "{source}" lack {first} and {rest} more: is it an object detector?')
    return network


@contextmanager
def _quietly(logging: Any) -> Iterator[None]:
    """Without progress bars and tables of weights: what matters in them becomes a sentence."""
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _beside(source: str) -> Path:
    """The file that says how the detector wants its pictures: newer releases write the second name."""
    names = ("preprocessor_config.json", "processor_config.json")
    if Path(source).is_dir():
        for name in names:
            if (Path(source) / name).exists():
                return Path(source) / name
        missing = Path(source) / names[0]
        raise SaccadeError(f"{missing} is missing: it says how the detector wants its pictures (size, mean, std)")
    hub = importlib.import_module("huggingface_hub")
    for name in names:
        try:
            return Path(hub.hf_hub_download(source, name))
        except Exception as error:  # the hub's errors are many, and all say that the file is not to be had
            reason = _line(error)
    raise SaccadeError(f'the {names[0]} of "{source}" cannot be had from the model hub: {reason}')


def _line(error: Exception) -> str:
    """The first line of what a library says, shortened."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return text if len(text) <= 160 else text[:160] + "…"
