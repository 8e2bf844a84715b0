"""Official checkpoints and goldens of the matching papers."""

from saccade.interop.matching import verify_camp, verify_gsmn, verify_imram, verify_recall, verify_scan, verify_vsrn
from saccade.interop.matching.camp import import_camp
from saccade.interop.matching.gsmn import import_gsmn
from saccade.interop.matching.imram import import_imram
from saccade.interop.matching.scan import import_scan
from saccade.interop.matching.vsrn import import_vsrn

__all__ = [
    "import_camp",
    "import_gsmn",
    "import_imram",
    "import_scan",
    "import_vsrn",
    "verify_camp",
    "verify_gsmn",
    "verify_imram",
    "verify_recall",
    "verify_scan",
    "verify_vsrn",
]
