"""Official checkpoints and goldens of the captioning papers, and what the official metrics say of captions."""

from saccade.interop.captioning import (
    verify_adaptive,
    verify_arctic_captions,
    verify_caption_metrics,
    verify_sgae,
    verify_show_attend_tell,
    verify_unsupervised,
    verify_updown,
)
from saccade.interop.captioning.adaptive import import_adaptive
from saccade.interop.captioning.sgae import import_sgae
from saccade.interop.captioning.show_attend_tell import import_show_attend_tell
from saccade.interop.captioning.unsupervised import import_unsupervised
from saccade.interop.captioning.updown import import_updown

__all__ = [
    "import_adaptive",
    "import_sgae",
    "import_show_attend_tell",
    "import_unsupervised",
    "import_updown",
    "verify_adaptive",
    "verify_arctic_captions",
    "verify_caption_metrics",
    "verify_sgae",
    "verify_show_attend_tell",
    "verify_unsupervised",
    "verify_updown",
]
