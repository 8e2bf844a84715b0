"""What passes between the rooms: batches of regions and words, codes, alignments, captioners' states, programs.

All are frozen dataclasses of padded tensors with masks (True where an entry is real). Padding a batch further never
changes a result: every model masks exactly.
"""

from saccade.batch.base import Batch, stack
from saccade.batch.clicks import ClickBatch, ItemBatch
from saccade.batch.inputs import (
    END,
    PAD,
    START,
    UNKNOWN,
    CandidateBatch,
    FrameBatch,
    PairBatch,
    PictureBatch,
    RegionBatch,
    SceneGraphBatch,
    Spans,
    StepBatch,
    TextBatch,
    padded_ids,
    phrase_words,
)
from saccade.batch.outputs import (
    Alignment,
    Answered,
    CaptionState,
    ImageCode,
    RankedMoments,
    Referred,
    StepOutput,
    TeacherForced,
    TextCode,
)
from saccade.batch.programs import Program, Step

__all__ = [
    "END",
    "PAD",
    "START",
    "UNKNOWN",
    "Alignment",
    "Answered",
    "Batch",
    "CandidateBatch",
    "CaptionState",
    "ClickBatch",
    "FrameBatch",
    "ImageCode",
    "ItemBatch",
    "RankedMoments",
    "PairBatch",
    "PictureBatch",
    "Program",
    "Referred",
    "RegionBatch",
    "SceneGraphBatch",
    "Spans",
    "Step",
    "StepBatch",
    "StepOutput",
    "TeacherForced",
    "TextBatch",
    "TextCode",
    "padded_ids",
    "phrase_words",
    "stack",
]
