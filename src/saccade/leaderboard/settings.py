"""What sets one run apart from another: the settings that matter for what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saccade.claims.plan import NO_MATTER
from saccade.config import to_dict
from saccade.training.run import RunConfig


def settings_that_matter(config: RunConfig) -> dict[str, Any]:
    """The settings as dotted keys (`model.pool`); runs that differ in none of them differ by chance alone.

    What does not matter is what the claims lab leaves out when it names its runs, the seed among it.
    """
    kept = to_dict(config)
    for section, keys in NO_MATTER.items():
        kept[section] = {key: value for key, value in kept[section].items() if key not in keys}
    return _dotted(kept)


def _dotted(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _dotted(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
