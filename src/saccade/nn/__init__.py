"""The blocks the papers share: attend, encode, losses."""

from saccade.nn.attend import Attend
from saccade.nn.encode import RegionEncoder, ScalarWeightNorm, WordEncoder, unit
from saccade.nn.losses import Negatives, triplet_loss

__all__ = ["Attend", "Negatives", "RegionEncoder", "ScalarWeightNorm", "WordEncoder", "triplet_loss", "unit"]
