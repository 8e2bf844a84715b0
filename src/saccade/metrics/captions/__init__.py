"""How good captions are: n-grams, METEOR, scene graphs and diversity (`reward` is training's, and needs PyTorch)."""

from saccade.metrics.captions.bleu import bleu
from saccade.metrics.captions.cider import CiderD, cider, cider_d
from saccade.metrics.captions.diversity import Diversity, diversity, mutual_bleu
from saccade.metrics.captions.frequencies import DocumentFrequencies
from saccade.metrics.captions.meteor import MeteorConfig, meteor
from saccade.metrics.captions.meteor_tables import MeteorTables, find_meteor_tables, read_meteor_tables
from saccade.metrics.captions.report import CAPTION_METRICS, caption_report, caption_scores
from saccade.metrics.captions.rouge import rouge_l
from saccade.metrics.captions.scene_graph import scene_graph_f
from saccade.metrics.captions.score import CaptionScore

__all__ = [
    "CAPTION_METRICS",
    "CaptionScore",
    "CiderD",
    "Diversity",
    "DocumentFrequencies",
    "MeteorConfig",
    "MeteorTables",
    "bleu",
    "caption_report",
    "caption_scores",
    "cider",
    "cider_d",
    "diversity",
    "find_meteor_tables",
    "meteor",
    "mutual_bleu",
    "read_meteor_tables",
    "rouge_l",
    "scene_graph_f",
]
