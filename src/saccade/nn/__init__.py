"""The blocks the papers share: attend, encode, recur, losses."""

from saccade.nn.attend import Attend
from saccade.nn.encode import RegionEncoder, ScalarWeightNorm, WordEncoder, unit
from saccade.nn.losses import Negatives, triplet_loss
from saccade.nn.recurrent import SentenceGru

__all__ = [
    "Attend",
    "Negatives",
    "RegionEncoder",
    "ScalarWeightNorm",
    "SentenceGru",
    "WordEncoder",
    "triplet_loss",
    "unit",
]
