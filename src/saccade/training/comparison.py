"""What sets one run apart from another: the settings that matter for what comes out, and how two differ in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saccade.config import to_dict
from saccade.training.run import RunConfig

NO_MATTER = {  # settings that say where and how a run is carried out, not what comes out; and the seed
    "data": {"root", "test_split"},
    "task": {"eval_batch"},
    "trainer": {
        "accelerator",
        "devices",
        "nodes",
        "strategy",
        "seed",
        "checkpoint_every",
        "log_every",
        "prefetch",
    },
}


def settings_that_matter(config: RunConfig) -> dict[str, Any]:
    """The settings as dotted keys (`model.pool`); runs that differ in none of them differ by chance alone."""
    kept = to_dict(config)
    for section, keys in NO_MATTER.items():
        kept[section] = {key: value for key, value in kept[section].items() if key not in keys}
    return _dotted(kept)


def _dotted(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _dotted(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
