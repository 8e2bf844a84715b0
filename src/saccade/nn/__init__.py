"""The blocks the papers share: attend, encode, recur, losses."""

from saccade.nn.all_pairs import all_pairs
from saccade.nn.attend import Attend
from saccade.nn.encode import RegionEncoder, ScalarWeightNorm, WordEncoder, unit
from saccade.nn.losses import Negatives, RankingLoss, binary_loss, triplet_loss
from saccade.nn.recurrent import SentenceGru

__all__ = [
    "Attend",
    "Negatives",
    "RankingLoss",
    "RegionEncoder",
    "ScalarWeightNorm",
    "SentenceGru",
    "WordEncoder",
    "all_pairs",
    "binary_loss",
    "triplet_loss",
    "unit",
]
