"""Configurations: frozen dataclasses filled from YAML files and `key=value` words, with every key and type checked."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.core.files import read_text, write_text

C = TypeVar("C")


def to_dict(config: Any) -> dict[str, Any]:
    """A dataclass as plain YAML-able values."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        return str(value) if isinstance(value, Path) else value

    result: dict[str, Any] = plain(config)
    return result


def dotted(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"model": {"pool": "mean"}} as {"model.pool": "mean"}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= dotted(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def as_word(key: str, value: Any) -> str:
    """A setting as a user would write it: pool=mean, bias=true, vectors=none."""
    return f"{key}={str(value).lower() if value is None or isinstance(value, bool) else value}"


def from_dict(cls: type[C], values: Mapping[str, Any], where: str = "") -> C:
    """Build `cls`, refusing unknown keys and values of the wrong type by name."""
    if not isinstance(values, Mapping):
        raise SaccadeError(f"{where or 'the configuration'} must be a mapping of keys to values, not {values!r}")
    return update(cls(), values, where)


def update(config: C, values: Mapping[str, Any], where: str = "") -> C:
    """A copy of `config` with `values` (nested mappings for nested dataclasses) put in."""
    hints = typing.get_type_hints(type(config))
    names = [f.name for f in dataclasses.fields(config)]  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{where}.{key}" if where else str(key)
        if key not in names:
            raise SaccadeError(
                f'there is no setting "{path}"{did_you_mean(str(key), names)} (there are: {", ".join(names)})'
            )
        current = getattr(config, key)
        if dataclasses.is_dataclass(current) and isinstance(value, Mapping):
            changes[key] = update(current, value, path)
        else:
            changes[key] = _convert(value, hints[key], path)
    return dataclasses.replace(config, **changes)  # type: ignore[type-var]


def override(config: C, words: Sequence[str]) -> C:
    """Apply `key=value` words. A key is a dotted path, or a bare field name if only one section has it.

    All words are put in at once, so that settings which only go together may come in any order.
    """
    values: dict[str, Any] = {}
    for word in words:
        key, separator, text = word.partition("=")
        if not separator or not key:
            raise SaccadeError(f'"{word}" is not of the form key=value')
        settings = _settings(config)
        path = _find(settings, key)
        section = values
        for part in path[:-1]:
            section = section.setdefault(part, {})
        section[path[-1]] = _read_word(text, settings[path], word)
    return update(config, values)


def _read_word(text: str, hint: Any, word: str) -> Any:
    """The value of a `key=value` word. Where text or a path is wanted, 007, no and @home are meant as written."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        as_written = text in options
    else:
        union = origin in (typing.Union, types.UnionType)
        as_written = (set(options) - {type(None)} if union else {hint}) <= {str, Path}
    try:
        value = yaml.load(text, _PlainLoader) if text else ""
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if as_written:
            return text
        raise SaccadeError(f'"{word}": the value is not valid YAML') from error
    return value if value is None or isinstance(value, str) or not as_written else text


class _PlainLoader(yaml.SafeLoader):
    """Without aliases: a few lines of them, each naming the line before ten times, would grow without end."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not read", mark)
        return super().compose_node(parent, index)


def load_yaml(path: Path | str) -> dict[str, Any]:
    try:
        values = yaml.load(read_text(path), _PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # of dates and numbers that are none; of depth
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}" if mark is not None else ""
        why = ": aliases (*name) are not read" if "aliases" in str(getattr(error, "problem", "")) else ""
        raise SaccadeError(f"{path} is not valid YAML{at}{why}") from error
    if not isinstance(values, dict):
        raise SaccadeError(f"{path} must hold a mapping of settings")
    return values


def load_table(path: Path) -> dict[str, Any]:
    """A table of this package, by PyYAML's compiled reader where there is one: twenty times as fast."""
    table: dict[str, Any] = yaml.load(read_text(path), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return table


def save_yaml(config: Any, path: Path | str) -> None:
    write_text(path, yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True))


Settings = dict[tuple[str, ...], Any]  # every field, also those of sections: path → annotated type


def _settings(config: Any, prefix: tuple[str, ...] = ()) -> Settings:
    found: Settings = {}
    hints = typing.get_type_hints(type(config))
    for f in dataclasses.fields(config):
        path, value = (*prefix, f.name), getattr(config, f.name)
        found[path] = hints[f.name]
        if dataclasses.is_dataclass(value):
            found |= _settings(value, path)
    return found


def _find(paths: Settings, key: str) -> tuple[str, ...]:
    """The field that `key` means: an exact path, a section's `name` field, or the only field of that name."""
    wanted = tuple(key.split("."))
    if wanted in paths:
        return (*wanted, "name") if (*wanted, "name") in paths else wanted
    ending = [p for p in paths if p[-len(wanted) :] == wanted]
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise SaccadeError(f'"{key}" is ambiguous: give one of {", ".join(".".join(p) for p in ending)}')
    names = {".".join(p) for p in paths} | {p[-1] for p in paths}
    raise SaccadeError(f'there is no setting "{key}"{did_you_mean(key, sorted(names))}')


def _convert(value: Any, hint: Any, path: str) -> Any:
    """`value` as the annotated type. Raises: SaccadeError if it cannot be one."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        if value in options:
            return value
        choices = ", ".join(map(str, options))
        raise SaccadeError(
            f"{path} must be one of {choices}, not {value!r}{did_you_mean(str(value), map(str, options))}"
        )
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in options:
            return None
        return _convert_to_one_of([o for o in options if o is not type(None)], value, path)
    if origin is tuple:
        items = list(value) if isinstance(value, list | tuple) else [value]
        kinds = [options[0]] * len(items) if len(options) == 2 and options[1] is Ellipsis else list(options)
        if len(kinds) != len(items):
            raise SaccadeError(f"{path} needs {len(kinds)} values, not {len(items)}")
        return tuple(_convert(v, k, path) for v, k in zip(items, kinds, strict=True))
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_dict(hint, value, path)
    if hint is Path and isinstance(value, str | Path):
        return Path(value)
    if hint is float and isinstance(value, str):
        try:  # YAML 1.1 reads 2e-4 as a string
            return float(value)
        except ValueError:
            pass
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise SaccadeError(f"{path} must be {_EXPECTED.get(hint, str(hint))}, not {value!r}")


_EXPECTED = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}


def _convert_to_one_of(hints: Sequence[Any], value: Any, path: str) -> Any:
    """For `int | str`: the option that is the value's own type if there is one, else the first that takes it."""
    errors = []
    for hint in sorted(hints, key=lambda hint: hint is not type(value)):
        try:
            return _convert(value, hint, path)
        except SaccadeError as error:
            errors.append(error)
    raise errors[0]


RANGES: Mapping[str, Callable[[float], bool]] = {
    "at least 1": lambda value: value >= 1,
    "zero or more": lambda value: value >= 0,
    "more than zero": lambda value: value > 0,
    "between 0 and 1": lambda value: 0 <= value <= 1,
    "at least 0 and less than 1": lambda value: 0 <= value < 1,
    "more than 0 and at most 1": lambda value: 0 < value <= 1,
}


def check_ranges(config: Any, names: str, expected: str) -> None:
    """Raises: SaccadeError if one of these settings (None: not given) is not in the range of this name."""
    for name in names.split():
        value = getattr(config, name)
        if value is not None and not RANGES[expected](value):
            raise SaccadeError(f"{name} must be {expected}, not {value}")
