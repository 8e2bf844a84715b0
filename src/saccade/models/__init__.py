"""One file per paper, read beside the paper; the registry knows them all.

A file is imported when its model, or a name of it, is asked for: a command needs one of them, not forty.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from saccade.models.base.answerer import Answerer, AnswererConfig
from saccade.models.base.captioner import Captioner
from saccade.models.base.click_predictor import ClickPredictor, ClickPredictorConfig
from saccade.models.base.concepts import ConceptLearner
from saccade.models.base.cross_encoder import CrossEncoder
from saccade.models.base.fusion import Fusion
from saccade.models.base.grounder import Grounder
from saccade.models.base.matcher import Matcher
from saccade.models.base.model import Entry, Model, entries, entry, find_model, load_model, register, shipped_models
from saccade.models.base.moment_finder import MomentFinder, MomentFinderConfig
from saccade.models.base.referrer import Referrer, ReferrerConfig
from saccade.models.base.relater import Relater

if TYPE_CHECKING:
    from saccade.models.adaptive import Adaptive, AdaptiveConfig
    from saccade.models.align2ground import Align2Ground, Align2GroundConfig
    from saccade.models.analogy import Analogy, AnalogyConfig
    from saccade.models.camp import Camp, CampConfig
    from saccade.models.dcn import Dcn, DcnConfig
    from saccade.models.densecap import DenseCap, DenseCapConfig
    from saccade.models.detectors import BottomUp, Detector, WorldDetector
    from saccade.models.drn import Drn, DrnConfig
    from saccade.models.gsmn import Gsmn, GsmnConfig
    from saccade.models.hgr import Hgr, HgrConfig
    from saccade.models.hierarchical import Hierarchical, HierarchicalConfig
    from saccade.models.imram import Imram, ImramConfig
    from saccade.models.interbert import (
        InterBert,
        InterBertAnswering,
        InterBertAnsweringConfig,
        InterBertConfig,
        InterBertEntailment,
        InterBertEntailmentConfig,
        InterBertMatching,
        InterBertMatchingConfig,
        InterBertReferring,
        InterBertReferringConfig,
    )
    from saccade.models.marn import Marn, MarnConfig
    from saccade.models.multilevel import Multilevel, MultilevelConfig
    from saccade.models.nscl import Nscl, NsclConfig
    from saccade.models.pixelbert import (
        PixelBert,
        PixelBertAnswering,
        PixelBertAnsweringConfig,
        PixelBertConfig,
        PixelBertEntailment,
        PixelBertEntailmentConfig,
        PixelBertMatching,
        PixelBertMatchingConfig,
    )
    from saccade.models.plan import Plan, PlanConfig
    from saccade.models.program_parser import ProgramParser, ProgramParserConfig
    from saccade.models.scan import Scan, ScanConfig
    from saccade.models.sgae import Sgae, SgaeConfig
    from saccade.models.show_attend_tell import ShowAttendTell, ShowAttendTellConfig
    from saccade.models.unsupervised import Unsupervised, UnsupervisedConfig
    from saccade.models.updown import UpDown, UpDownConfig
    from saccade.models.updown_vqa import UpDownVqa, UpDownVqaConfig
    from saccade.models.vcml import Vcml, VcmlConfig
    from saccade.models.vse import Vse, VseConfig
    from saccade.models.vsrn import Vsrn, VsrnConfig

FILES = {  # and what each holds
    "adaptive": "Adaptive AdaptiveConfig",
    "align2ground": "Align2Ground Align2GroundConfig",
    "analogy": "Analogy AnalogyConfig",
    "camp": "Camp CampConfig",
    "dcn": "Dcn DcnConfig",
    "densecap": "DenseCap DenseCapConfig",
    "detectors": "BottomUp Detector WorldDetector",
    "drn": "Drn DrnConfig",
    "gsmn": "Gsmn GsmnConfig",
    "hgr": "Hgr HgrConfig",
    "hierarchical": "Hierarchical HierarchicalConfig",
    "imram": "Imram ImramConfig",
    "interbert": """InterBert InterBertConfig InterBertAnswering InterBertAnsweringConfig InterBertEntailment
        InterBertEntailmentConfig InterBertMatching InterBertMatchingConfig InterBertReferring
        InterBertReferringConfig""",
    "marn": "Marn MarnConfig",
    "multilevel": "Multilevel MultilevelConfig",
    "nscl": "Nscl NsclConfig",
    "pixelbert": """PixelBert PixelBertConfig PixelBertAnswering PixelBertAnsweringConfig PixelBertEntailment
        PixelBertEntailmentConfig PixelBertMatching PixelBertMatchingConfig""",
    "plan": "Plan PlanConfig",
    "program_parser": "ProgramParser ProgramParserConfig",
    "scan": "Scan ScanConfig",
    "sgae": "Sgae SgaeConfig",
    "show_attend_tell": "ShowAttendTell ShowAttendTellConfig",
    "unsupervised": "Unsupervised UnsupervisedConfig",
    "updown": "UpDown UpDownConfig",
    "updown_vqa": "UpDownVqa UpDownVqaConfig",
    "vcml": "Vcml VcmlConfig",
    "vse": "Vse VseConfig",
    "vsrn": "Vsrn VsrnConfig",
}
_FILE_OF = {name: file for file, names in FILES.items() for name in names.split()}

__all__ = [
    "Adaptive",
    "AdaptiveConfig",
    "Align2Ground",
    "Align2GroundConfig",
    "Analogy",
    "AnalogyConfig",
    "Answerer",
    "AnswererConfig",
    "BottomUp",
    "Camp",
    "CampConfig",
    "Captioner",
    "ClickPredictor",
    "ClickPredictorConfig",
    "ConceptLearner",
    "CrossEncoder",
    "Dcn",
    "DcnConfig",
    "DenseCap",
    "DenseCapConfig",
    "Detector",
    "Drn",
    "DrnConfig",
    "Entry",
    "Fusion",
    "Grounder",
    "Gsmn",
    "GsmnConfig",
    "Hgr",
    "HgrConfig",
    "Hierarchical",
    "HierarchicalConfig",
    "Imram",
    "ImramConfig",
    "InterBert",
    "InterBertAnswering",
    "InterBertAnsweringConfig",
    "InterBertConfig",
    "InterBertEntailment",
    "InterBertEntailmentConfig",
    "InterBertMatching",
    "InterBertMatchingConfig",
    "InterBertReferring",
    "InterBertReferringConfig",
    "Marn",
    "MarnConfig",
    "Matcher",
    "Model",
    "MomentFinder",
    "MomentFinderConfig",
    "Multilevel",
    "MultilevelConfig",
    "Nscl",
    "NsclConfig",
    "PixelBert",
    "PixelBertAnswering",
    "PixelBertAnsweringConfig",
    "PixelBertConfig",
    "PixelBertEntailment",
    "PixelBertEntailmentConfig",
    "PixelBertMatching",
    "PixelBertMatchingConfig",
    "Plan",
    "PlanConfig",
    "ProgramParser",
    "ProgramParserConfig",
    "Referrer",
    "ReferrerConfig",
    "Relater",
    "Scan",
    "ScanConfig",
    "Sgae",
    "SgaeConfig",
    "ShowAttendTell",
    "ShowAttendTellConfig",
    "UpDown",
    "UpDownConfig",
    "UpDownVqa",
    "UpDownVqaConfig",
    "Unsupervised",
    "UnsupervisedConfig",
    "Vcml",
    "VcmlConfig",
    "Vse",
    "VseConfig",
    "Vsrn",
    "VsrnConfig",
    "WorldDetector",
    "entries",
    "entry",
    "find_model",
    "load_model",
    "register",
    "shipped_models",
]


def __getattr__(name: str) -> object:
    if name in _FILE_OF:
        return getattr(import_module(f"saccade.models.{_FILE_OF[name]}"), name)
    raise AttributeError(f"module 'saccade.models' has no attribute {name!r}")
