"""Networks of transformers, from the hub or a folder: safetensors only, every weight there, and quietly."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError

from saccade.errors import SaccadeError

PROCESSORS = ("preprocessor_config.json", "processor_config.json")  # newer releases write the second


def import_transformers(what: str) -> Any:
    """The library, or a sentence on what brings it; `what` needs it."""
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise SaccadeError(f'{what} needs transformers: pip install "saccade[hf]" brings it') from error


def load_whole(load: Callable[..., Any], place: str, harmless: re.Pattern[str] | None = None, **options: Any) -> Any:
    """What `load` (some class's `from_pretrained`) makes of `place`. No pickle is read, and no code that lies there.

    A weight that the file lacks would be a random number. None may be missing but those whose name is `harmless`.
    """
    network, report = load(place, use_safetensors=True, trust_remote_code=False, output_loading_info=True, **options)
    missing = sorted(name for name in report["missing_keys"] if harmless is None or not harmless.search(name))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise SaccadeError(f'the weights of "{place}" are not those of its config: they lack {missing[0]}{more}')
    return network


def processor_file(place: str) -> Path | None:
    """The file that says how a network wants its pictures, or None if it has none."""
    if Path(place).is_dir():
        return next((path for name in PROCESSORS if (path := Path(place) / name).is_file()), None)
    for name in PROCESSORS:
        try:
            return Path(hf_hub_download(place, name))
        except EntryNotFoundError:  # it has none, or we are offline and it was never fetched
            continue
        except Exception as error:  # the hub's errors are many; a network without its file would see wrongly
            raise SaccadeError(f'the {name} of "{place}" cannot be had from the hub: {first_line(error)}') from error
    return None


@contextmanager
def quietly(transformers: Any) -> Iterator[None]:
    """Without progress bars and tables of weights: what matters in them becomes a sentence."""
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


def first_line(error: Exception) -> str:
    """The first line of what a library says, shortened."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
    return text if len(text) <= 160 else text[:160] + "…"
