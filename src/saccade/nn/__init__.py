"""The blocks the papers share: attend, encode, recur, losses."""

from saccade.nn.all_pairs import all_pairs
from saccade.nn.attend import Attend
from saccade.nn.encode import RegionEncoder, ScalarWeightNorm, WordEncoder, at_least_float32, unit
from saccade.nn.losses import Negatives, RankingLoss, binary_loss, triplet_loss
from saccade.nn.memory import MemoryDistillation, MemoryForm
from saccade.nn.recurrent import SentenceGru

__all__ = [
    "Attend",
    "MemoryDistillation",
    "MemoryForm",
    "Negatives",
    "RankingLoss",
    "RegionEncoder",
    "ScalarWeightNorm",
    "SentenceGru",
    "WordEncoder",
    "all_pairs",
    "at_least_float32",
    "binary_loss",
    "triplet_loss",
    "unit",
]
