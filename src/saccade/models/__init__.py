"""One file per paper, read beside the paper; the registry knows them all."""

from saccade.models.matcher import Matcher
from saccade.models.model import Model, load_model
from saccade.models.registry import Entry, entries, entry, register
from saccade.models.scan import Scan, ScanConfig
from saccade.models.vse import Vse, VseConfig

__all__ = [
    "Entry",
    "Matcher",
    "Model",
    "Scan",
    "ScanConfig",
    "Vse",
    "VseConfig",
    "entries",
    "entry",
    "load_model",
    "register",
]
