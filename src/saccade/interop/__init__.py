"""Official checkpoints and what they computed: import them, and verify our models against them."""

from saccade.interop.checkpoint import read_checkpoint
from saccade.interop.goldens import GOLDENS, verify
from saccade.interop.harness import Stage, as_json
from saccade.interop.importers import IMPORTERS

__all__ = ["GOLDENS", "IMPORTERS", "Stage", "as_json", "read_checkpoint", "verify"]
