"""The blocks the papers share: attend, encode, recur, losses."""

from saccade.nn.all_pairs import all_pairs
from saccade.nn.attend import Attend
from saccade.nn.attention import (
    Activation,
    AdditiveAttention,
    HeadPool,
    attended,
    found_length,
    masked_softmax,
    products,
    summed,
)
from saccade.nn.block_match import BlockMatch, block_match
from saccade.nn.caption_generator import CaptionGenerator, caption_labels, caption_loss
from saccade.nn.captioners import (
    LstmMemory,
    PictureContext,
    RegionBatchNorm,
    RegionContext,
    RegionEmbedding,
    TopDown,
    TopDownMemory,
    mean_region,
    open_forget_gates,
    start_lstm,
)
from saccade.nn.encode import (
    RegionEncoder,
    ScalarWeightNorm,
    StatePool,
    WordEncoder,
    dropout_layer,
    last_state,
    mean_state,
    pooled_state,
    unit,
)
from saccade.nn.graph import GaussianKernels, GraphConvolution, likeness_weights, polar_coordinates, to_themselves
from saccade.nn.losses import Negatives, RankingLoss, binary_loss, triplet_loss
from saccade.nn.memory import MemoryDistillation, MemoryForm
from saccade.nn.precision import at_least_float32, byte_products, full_precision, in_bytes, present_precision
from saccade.nn.recurrent import SentenceGru
from saccade.nn.relation import Affinity, MaskedBatchNorm, RelationBlock
from saccade.nn.whole import Measure, nearest_regions, whole_similarity

__all__ = [
    "Activation",
    "AdditiveAttention",
    "Affinity",
    "Attend",
    "BlockMatch",
    "CaptionGenerator",
    "GaussianKernels",
    "GraphConvolution",
    "HeadPool",
    "MaskedBatchNorm",
    "LstmMemory",
    "Measure",
    "MemoryDistillation",
    "MemoryForm",
    "Negatives",
    "RankingLoss",
    "RegionBatchNorm",
    "RegionEmbedding",
    "RegionEncoder",
    "RelationBlock",
    "ScalarWeightNorm",
    "PictureContext",
    "RegionContext",
    "SentenceGru",
    "StatePool",
    "TopDown",
    "TopDownMemory",
    "WordEncoder",
    "all_pairs",
    "at_least_float32",
    "attended",
    "byte_products",
    "binary_loss",
    "block_match",
    "caption_labels",
    "caption_loss",
    "dropout_layer",
    "found_length",
    "full_precision",
    "in_bytes",
    "last_state",
    "likeness_weights",
    "masked_softmax",
    "mean_region",
    "mean_state",
    "nearest_regions",
    "open_forget_gates",
    "polar_coordinates",
    "pooled_state",
    "present_precision",
    "products",
    "start_lstm",
    "summed",
    "to_themselves",
    "triplet_loss",
    "unit",
    "whole_similarity",
]
