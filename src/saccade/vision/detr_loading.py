"""Detectors of transformers from the hub or a folder: safetensors only, all weights there, or a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from saccade.errors import SaccadeError
from saccade.vision.detr_pictures import PictureForm, read_form
from saccade.vision.hub_loading import (
    PROCESSORS,
    first_line,
    import_transformers,
    load_whole,
    processor_file,
    quietly,
)


def load_detector(source: str) -> tuple[Any, PictureForm]:
    """The network, and the form in which it wants its pictures."""
    source = str(Path(source).expanduser()) if source.startswith("~") else source
    if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
        raise SaccadeError(f"{source} holds no config.json: a folder that `save_pretrained` wrote was expected")
    network, form = _load(source), processor_file(source)
    if form is None:
        missing = Path(source) / PROCESSORS[0] if Path(source).is_dir() else f'the {PROCESSORS[0]} of "{source}"'
        raise SaccadeError(f"{missing} is missing: it says how the detector wants its pictures (size, mean, std)")
    return network, read_form(form)


def _load(source: str) -> Any:
    transformers = import_transformers(f'the detector "{source}"')
    try:
        with quietly(transformers):
            return load_whole(transformers.AutoModelForObjectDetection.from_pretrained, source)
    except SaccadeError:
        raise
    except ImportError as error:
        raise SaccadeError(f'the detector "{source}" needs a package that is missing: {first_line(error)}') from error
    except OSError as error:
        if Path(source).is_dir():
            raise SaccadeError(f"{source} is not a folder that holds a detector: {first_line(error)}") from error
        raise SaccadeError(
            f'the detector "{source}" is not a folder here, and the model hub has none of that name with safetensors '
            "weights, or cannot be reached"
        ) from error
    except Exception as error:  # a network of another kind, damaged weights, a config that does not fit them
        raise SaccadeError(f'"{source}" cannot be loaded as an object detector: {first_line(error)}') from error
