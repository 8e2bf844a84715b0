"""Figures of merit: numbers or words in, numbers out. Importing this needs no PyTorch."""

from saccade.metrics.captions.bleu import bleu
from saccade.metrics.captions.cider import CiderD, DocumentFrequencies, cider, cider_d
from saccade.metrics.captions.diversity import Diversity, diversity, mutual_bleu
from saccade.metrics.captions.meteor import MeteorConfig, meteor
from saccade.metrics.captions.meteor_tables import MeteorTables, find_meteor_tables, read_meteor_tables
from saccade.metrics.captions.report import CAPTION_METRICS, caption_report, caption_scores
from saccade.metrics.captions.rouge import rouge_l
from saccade.metrics.captions.scene_graph import scene_graph_f
from saccade.metrics.captions.score import CaptionScore
from saccade.metrics.recall import CUTOFFS, WAYS, Ranks, chance, check_folds, ranks, recall, summary
from saccade.metrics.statistics import Kendall, kendall, mean_and_spread

__all__ = [
    "CAPTION_METRICS",
    "CUTOFFS",
    "WAYS",
    "CaptionScore",
    "CiderD",
    "Diversity",
    "DocumentFrequencies",
    "Kendall",
    "MeteorConfig",
    "MeteorTables",
    "Ranks",
    "bleu",
    "caption_report",
    "caption_scores",
    "chance",
    "check_folds",
    "cider",
    "cider_d",
    "diversity",
    "find_meteor_tables",
    "kendall",
    "mean_and_spread",
    "meteor",
    "mutual_bleu",
    "ranks",
    "read_meteor_tables",
    "recall",
    "rouge_l",
    "scene_graph_f",
    "summary",
]
