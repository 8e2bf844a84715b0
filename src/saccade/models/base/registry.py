"""The registry: which models there are, for which task, from which paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from saccade.core.errors import SaccadeError, did_you_mean

if TYPE_CHECKING:
    from saccade.models.base.model import Model

M = TypeVar("M", bound="type[Model]")


@dataclass(frozen=True)
class Entry:
    name: str
    task: str
    title: str
    venue: str
    model: type[Model]


_entries: dict[str, Entry] = {}


def register(name: str, *, task: str, title: str, venue: str) -> Callable[[M], M]:
    """Class decorator: `@register("scan", task="matching", title="Stacked Cross Attention …", venue="ECCV 2018")`."""

    def add(model: M) -> M:
        model.name, model.task = name, task
        _entries[name] = Entry(name, task, title, venue, model)
        return model

    return add


def entries() -> list[Entry]:
    return sorted(_entries.values(), key=lambda e: (e.task, e.name))


def entry(name: str) -> Entry:
    if name not in _entries:
        hint = did_you_mean(name, _entries)
        raise SaccadeError(f'there is no model "{name}"{hint or ";"} `saccade models` lists them')
    return _entries[name]
