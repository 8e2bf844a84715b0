"""Values out of a YAML file, each checked, with a sentence on what was expected where it is none of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from saccade.core.errors import SaccadeError, did_you_mean


def check_keys(values: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in values:
        if key not in known:
            raise SaccadeError(
                f'{where}: there is no key "{key}"{did_you_mean(str(key), known)} (there are: {", ".join(known)})'
            )


def check_name(name: Any, known: Sequence[str], where: str, what: str) -> None:
    if name not in known:
        raise SaccadeError(
            f'{where}: there is no {what} "{name}"{did_you_mean(str(name), known)} (there are: {", ".join(known)})'
        )


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SaccadeError(f"{where} must be a mapping of keys to values, not {value!r}")
    return value


def number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SaccadeError(f"{where} must be a number, not {value!r}")
    return float(value)


def text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SaccadeError(f"{where} must be text, not {value!r}")
    return value.strip()


def texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise SaccadeError(f"{where} must be a list of texts, not {value!r}")
    return tuple(text(one, where) for one in value)
