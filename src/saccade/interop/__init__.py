"""Official checkpoints and what they computed: import them, and verify our models against them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from saccade.interop import (
    verify_bottomup,
    verify_camp,
    verify_gsmn,
    verify_imram,
    verify_recall,
    verify_scan,
    verify_sgae,
    verify_vsrn,
)
from saccade.interop.camp import import_camp
from saccade.interop.checkpoint import read_checkpoint
from saccade.interop.gsmn import import_gsmn
from saccade.interop.imram import import_imram
from saccade.interop.scan import import_scan
from saccade.interop.sgae import import_sgae
from saccade.interop.verification import Case, Stage, as_json, names, verify
from saccade.interop.vsrn import import_vsrn
from saccade.language import Vocabulary
from saccade.models import Matcher

Importer = Callable[[Path, Vocabulary | None], Matcher]  # official checkpoint and vocabulary → model
IMPORTERS: dict[str, Importer] = {
    "scan": import_scan,
    "vsrn": import_vsrn,
    "camp": import_camp,
    "imram": import_imram,
    "gsmn": import_gsmn,
    "sgae": import_sgae,
}

__all__ = [
    "IMPORTERS",
    "Case",
    "Stage",
    "as_json",
    "import_camp",
    "import_gsmn",
    "import_imram",
    "import_scan",
    "import_sgae",
    "import_vsrn",
    "names",
    "read_checkpoint",
    "verify",
    "verify_bottomup",
    "verify_camp",
    "verify_gsmn",
    "verify_imram",
    "verify_recall",
    "verify_scan",
    "verify_sgae",
    "verify_vsrn",
]
