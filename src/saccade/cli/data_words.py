"""KEY=VALUE words that say on which data trained models are compared: data=flickr8k root=data/flickr8k split=dev."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from saccade.core.errors import SaccadeError, did_you_mean

if TYPE_CHECKING:
    from saccade.data import DataConfig


def sort_words(given: Sequence[str], split: str | None) -> tuple[list[str], list[str], str | None]:
    """Folders, settings of the data, and the split: `split=dev` is as good as `--split dev`."""
    folders = [word for word in given if "=" not in word]
    settings = [word for word in given if "=" in word and not word.startswith("split=")]
    named = [word.removeprefix("split=") for word in given if word.startswith("split=")]
    return list(dict.fromkeys(folders)), settings, named[-1] if named else split


def is_data_word(word: str) -> bool:
    """Whether `root=data/flickr8k` sets something of the data; otherwise the word before = is a name a user chose."""
    from saccade.data import DataConfig

    key = word.partition("=")[0]
    return key in {"data", "split", *(field.name for field in fields(DataConfig))} or key.startswith("data.")


def run_data(folder: Path | str) -> DataConfig:
    """The data of a run folder; of a model that is no run, the world."""
    from saccade.data import DataConfig
    from saccade.training.run import CONFIG, load_run_config

    return load_run_config(folder).data if (Path(folder) / CONFIG).exists() else DataConfig()


def with_words(data: DataConfig, words: Sequence[str]) -> DataConfig:
    """The data as the words say: only settings of the data, since trained models are what they are."""
    from saccade.core.config import override
    from saccade.data import DataConfig
    from saccade.training.run import RunConfig

    names = ["data", "split", *(field.name for field in fields(DataConfig))]
    for word in words:
        if not is_data_word(word):
            key = word.partition("=")[0]
            raise SaccadeError(f'"{key}" is no setting of the data{did_you_mean(key, names)} ({", ".join(names)})')
    # `data=` and `data.root=` are understood within a whole run; `seed=` alone means the data's here
    plain = [word if word.startswith("data") else f"data.{word}" for word in words]
    return override(replace(RunConfig(), data=data), plain).data
