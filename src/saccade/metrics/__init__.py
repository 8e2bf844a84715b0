"""Figures of merit, with no dependency beyond NumPy."""

from saccade.metrics.caption import CAPTION_METRICS, caption_report, caption_scores
from saccade.metrics.caption_bleu import bleu
from saccade.metrics.caption_cider import CiderD, cider, cider_d
from saccade.metrics.caption_diversity import Diversity, diversity, mutual_bleu
from saccade.metrics.caption_frequencies import DocumentFrequencies
from saccade.metrics.caption_meteor import MeteorConfig, meteor
from saccade.metrics.caption_meteor_tables import MeteorTables, find_meteor_tables, read_meteor_tables
from saccade.metrics.caption_reward import SelfCriticalReward
from saccade.metrics.caption_rouge import rouge_l
from saccade.metrics.caption_scene_graph import scene_graph_f
from saccade.metrics.caption_score import CaptionScore
from saccade.metrics.correlation import Kendall, kendall
from saccade.metrics.recall import CUTOFFS, WAYS, Ranks, chance, check_folds, ranks, recall, summary
from saccade.metrics.spread import mean_and_spread

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
    "SelfCriticalReward",
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
