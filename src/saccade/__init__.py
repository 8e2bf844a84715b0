"""Saccade: fine-grained vision–language alignment. Which words go with which part of a picture?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from saccade.version import __version__

if TYPE_CHECKING:
    from saccade.search.client import open_index
    from saccade.tasks.predict import load

__all__ = ["__version__", "load", "open_index"]


def __getattr__(name: str) -> object:
    if name == "load":  # imported on first use, so that `import saccade` stays quick
        from saccade.tasks.predict import load

        return load
    if name == "open_index":
        from saccade.search.client import open_index

        return open_index
    raise AttributeError(f"module 'saccade' has no attribute {name!r}")
