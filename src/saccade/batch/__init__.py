"""What passes between the rooms: batches of regions and words, their codes, alignments, and captioners' states.

All are frozen dataclasses of padded tensors with masks (True where an entry is real). Padding a batch further never
changes a result: every model masks exactly.
"""

from saccade.batch.base import Batch, stack
from saccade.batch.captioning import CaptionState, StepOutput, TeacherForced
from saccade.batch.codes import Alignment, ImageCode, TextCode
from saccade.batch.regions import PictureBatch, RegionBatch, SceneGraphBatch
from saccade.batch.texts import END, PAD, START, UNKNOWN, PairBatch, TextBatch, padded_ids

__all__ = [
    "END",
    "PAD",
    "START",
    "UNKNOWN",
    "Alignment",
    "Batch",
    "CaptionState",
    "ImageCode",
    "PairBatch",
    "PictureBatch",
    "RegionBatch",
    "SceneGraphBatch",
    "StepOutput",
    "TeacherForced",
    "TextBatch",
    "TextCode",
    "padded_ids",
    "stack",
]
