"""One table per system: official files → our models."""

from __future__ import annotations

from typing import Any

from saccade.interop.importer import Importer
from saccade.interop.importers.answering import DCN, UPDOWN_VQA
from saccade.interop.importers.captioning import ADAPTIVE, SGAE, UPDOWN
from saccade.interop.importers.concepts import NSCL, VCML
from saccade.interop.importers.hgr import HGR
from saccade.interop.importers.interbert import INTERBERT
from saccade.interop.importers.matching import CAMP, GSMN, IMRAM, SCAN, VSRN
from saccade.interop.importers.moments import DRN
from saccade.interop.importers.pixelbert import PIXELBERT, PIXELBERT_ANSWERING
from saccade.interop.importers.referring import PLAN
from saccade.interop.importers.relations import ANALOGY
from saccade.interop.importers.show_attend_tell import SHOW_ATTEND_TELL
from saccade.interop.importers.unsupervised import UNSUPERVISED

ALL = (
    SCAN,
    VSRN,
    CAMP,
    IMRAM,
    GSMN,
    SGAE,
    SHOW_ATTEND_TELL,
    UNSUPERVISED,
    ADAPTIVE,
    UPDOWN,
    UPDOWN_VQA,
    DCN,
    VCML,
    NSCL,
    ANALOGY,
    PLAN,
    HGR,
    DRN,
    INTERBERT,
    PIXELBERT,
    PIXELBERT_ANSWERING,
)
IMPORTERS: dict[str, Importer[Any]] = {importer.system: importer for importer in ALL}
