"""The blocks the papers share: encoders, attention, captioners' LSTMs, losses."""

from saccade.nn.captioners import LstmMemory
from saccade.nn.encode import WordEncoder, full_precision, unit
from saccade.nn.losses import (
    Negatives,
    RankingLoss,
    Ways,
    binary_loss,
    contrastive_loss,
    distillation_loss,
    triplet_loss,
)
from saccade.nn.recurrent import SentenceGru

__all__ = [
    "LstmMemory",
    "Negatives",
    "RankingLoss",
    "SentenceGru",
    "Ways",
    "WordEncoder",
    "binary_loss",
    "contrastive_loss",
    "distillation_loss",
    "full_precision",
    "triplet_loss",
    "unit",
]
