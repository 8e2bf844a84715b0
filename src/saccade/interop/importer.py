"""Importers: an official file → a model of ours, by a table of settings and a table of weights.

An `Importer` says all that is a system's own: how options, words and weights lie in its files (`reads`), which of our
settings each option is (`config`), and which of our weights each weight is (`weights`, in the words of `mapping`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import Options
from saccade.interop.mapping import Table, WeightMap
from saccade.interop.words import OfficialWords, numbered_words
from saccade.language import Vocabulary
from saccade.models import Model

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Source:
    """What an official file holds, with what lies beside it."""

    path: Path
    title: str
    options: Options
    weights: dict[str, Tensor]
    vocabulary: Vocabulary
    words: OfficialWords | None = None  # None: official ids are ours


Term = str | Callable[[Source], Any]  # an option by its name, or a function of all


def const(value: Any) -> Term:
    return lambda source: value


def choice(option: str, table: Mapping[Any, Any]) -> Term:
    """What the table has for the option. Raises: SaccadeError if it has nothing."""
    return lambda source: source.options(option, table)


def optional(option: str, default: Any) -> Term:
    return lambda source: type(default)(source.options.get(option, default))


def unless(option: str) -> Term:
    """Our switch is on where theirs is off, or not there."""
    return lambda source: not source.options.get(option, False)


@dataclass(frozen=True)
class Imported(Generic[M]):
    """A model, and the file that it was made from."""

    model: M
    source: Source
    importer: Importer[M]
    weight_map: WeightMap

    def gradients(self) -> dict[str, Tensor]:
        """After backward(): the gradients of the official weights, by their official names."""
        return self.weight_map.gradients(self.source.weights)

    def variant(self, **settings: Any) -> M:
        """The same weights under other settings; those that have no place there are left out."""
        config = replace(self.model.config, **settings)
        dtype = next(self.model.parameters()).dtype
        return self.importer.build(config, self.source, dtype, strict=False).model


@dataclass(frozen=True)
class Importer(Generic[M]):
    system: str  # in `saccade import SYSTEM`
    title: str  # in sentences
    model: type[M]
    reads: Callable[[Path, Vocabulary | None, str], Source]  # file, the words that came with it, title
    config: Mapping[str, Term]
    weights: Table | Callable[[Any], Table]  # for a config
    brings_words: bool = False  # they lie in or beside the file
    zeros: tuple[str, ...] = ()  # our parameters that have no counterpart
    check: Callable[[Source], None] | None = None  # Raises: SaccadeError for options that have no form here
    other_files: Mapping[str, Importer[M]] = field(default_factory=dict)  # by suffix

    def __call__(self, path: Path | str, vocabulary: Vocabulary | None = None) -> M:
        """The model in an official file. Raises: SaccadeError if it is damaged, of another kind or not whole."""
        return self.read(path, vocabulary).model

    def read(
        self,
        path: Path | str,
        vocabulary: Vocabulary | None = None,
        more: Mapping[str, Tensor] | None = None,
        words: OfficialWords | None = None,
        dtype: torch.dtype = torch.float32,
        **settings: Any,
    ) -> Imported[M]:
        """The model with its source.

        `more` are weights from elsewhere; `words` and `settings` take the place of the file's own.
        """
        path = Path(path)
        if path.suffix in self.other_files:
            return self.other_files[path.suffix].read(path, vocabulary, more, words, dtype, **settings)
        source = self.reads(path, vocabulary, self.title)
        source.weights.update(more or {})
        if words is not None:
            source = replace(source, words=words, vocabulary=words.vocabulary)
        if self.check is not None:
            self.check(source)
        config = self.model.Config(**{**{name: self._setting(name, source) for name in self.config}, **settings})
        return self.build(config, source, dtype)

    def build(self, config: Any, source: Source, dtype: torch.dtype, strict: bool = True) -> Imported[M]:
        model = self.model(config, source.vocabulary).to(dtype)
        table = self.weights(config) if callable(self.weights) else self.weights
        weight_map = WeightMap(table, model, source.words, self.zeros)
        weight_map.load(source.weights, source.path, self.title, strict)
        return Imported(model.eval(), source, self, weight_map)

    def _setting(self, name: str, source: Source) -> Any:
        """Options are of the type of our setting: 0 and 1 are switches there."""
        term = self.config[name]
        if callable(term):
            return term(source)
        return type(getattr(self.model.Config, name))(source.options(term))


def fitting_vocabulary(vocabulary: Vocabulary | None, size: int, path: Path | str) -> Vocabulary:
    """The words of a file that knows `size` of them; without a table, they are named by their numbers."""
    if vocabulary is not None and len(vocabulary) != size:
        raise SaccadeError(f"{path} knows {size} words, the vocabulary has {len(vocabulary)}")
    return vocabulary or numbered_words(size)
