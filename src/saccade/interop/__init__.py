"""Official checkpoints and what they computed: import them, and verify our models against them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from saccade.interop import (
    verify_adaptive,
    verify_arctic_captions,
    verify_bottomup,
    verify_camp,
    verify_caption_metrics,
    verify_densecap,
    verify_gsmn,
    verify_imram,
    verify_recall,
    verify_scan,
    verify_sgae,
    verify_show_attend_tell,
    verify_unsupervised,
    verify_updown,
    verify_vsrn,
)
from saccade.interop.adaptive import import_adaptive
from saccade.interop.camp import import_camp
from saccade.interop.checkpoint import read_checkpoint
from saccade.interop.gsmn import import_gsmn
from saccade.interop.imram import import_imram
from saccade.interop.scan import import_scan
from saccade.interop.sgae import import_sgae
from saccade.interop.show_attend_tell import import_show_attend_tell
from saccade.interop.unsupervised import import_unsupervised
from saccade.interop.updown import import_updown
from saccade.interop.verification import Case, Stage, as_json, names, verify
from saccade.interop.vsrn import import_vsrn
from saccade.language import Vocabulary
from saccade.models import Model

Importer = Callable[[Path, Vocabulary | None], Model]  # official checkpoint and vocabulary → model
IMPORTERS: dict[str, Importer] = {
    "scan": import_scan,
    "vsrn": import_vsrn,
    "camp": import_camp,
    "imram": import_imram,
    "gsmn": import_gsmn,
    "sgae": import_sgae,
    "show_attend_tell": import_show_attend_tell,
    "unsupervised": import_unsupervised,
    "adaptive": import_adaptive,
    "updown": import_updown,
}

WITH_WORDS = frozenset({"adaptive", "sgae", "show_attend_tell", "updown"})  # words lie in or beside the checkpoint

__all__ = [
    "IMPORTERS",
    "Case",
    "Stage",
    "WITH_WORDS",
    "as_json",
    "import_adaptive",
    "import_camp",
    "import_gsmn",
    "import_imram",
    "import_scan",
    "import_sgae",
    "import_show_attend_tell",
    "import_unsupervised",
    "import_updown",
    "import_vsrn",
    "names",
    "read_checkpoint",
    "verify",
    "verify_adaptive",
    "verify_arctic_captions",
    "verify_bottomup",
    "verify_camp",
    "verify_caption_metrics",
    "verify_densecap",
    "verify_gsmn",
    "verify_imram",
    "verify_recall",
    "verify_scan",
    "verify_sgae",
    "verify_show_attend_tell",
    "verify_unsupervised",
    "verify_updown",
    "verify_vsrn",
]
