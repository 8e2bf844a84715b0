"""Official checkpoints and what they computed: import them, and verify our models against them."""

from saccade.interop.checkpoint import read_checkpoint
from saccade.interop.goldens import GOLDENS, verify
from saccade.interop.harness import Case, Golden, Stage, as_json
from saccade.interop.importer import Imported, Importer
from saccade.interop.importers import IMPORTERS

__all__ = [
    "GOLDENS",
    "IMPORTERS",
    "Case",
    "Golden",
    "Imported",
    "Importer",
    "Stage",
    "as_json",
    "read_checkpoint",
    "verify",
]
