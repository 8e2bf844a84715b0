"""One table per system: official files → our models."""

from __future__ import annotations

from typing import Any

from saccade.interop.importer import Importer
from saccade.interop.importers.adaptive import ADAPTIVE
from saccade.interop.importers.camp import CAMP
from saccade.interop.importers.gsmn import GSMN
from saccade.interop.importers.imram import IMRAM
from saccade.interop.importers.scan import SCAN
from saccade.interop.importers.sgae import SGAE
from saccade.interop.importers.show_attend_tell import SHOW_ATTEND_TELL
from saccade.interop.importers.unsupervised import UNSUPERVISED
from saccade.interop.importers.updown import UPDOWN
from saccade.interop.importers.vsrn import VSRN

ALL = (SCAN, VSRN, CAMP, IMRAM, GSMN, SGAE, SHOW_ATTEND_TELL, UNSUPERVISED, ADAPTIVE, UPDOWN)
IMPORTERS: dict[str, Importer[Any]] = {importer.system: importer for importer in ALL}
