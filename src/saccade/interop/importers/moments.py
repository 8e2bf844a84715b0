"""Checkpoints of DRN: {epoch, state_dict, loss, top1, top5}.

Widths are read from the weights. Options that no weight tells lie in `config.json` beside the checkpoint, the released
configuration; without that file they are the released defaults. Word 0 is padding.
"""

from __future__ import annotations

import re
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.checkpoint import Options, need, read_checkpoint, state_dict
from saccade.interop.importer import Importer, Source, Table, Term, const, ignored, optional, to
from saccade.interop.importers.answering import required, width_of, words_of
from saccade.language import Vocabulary
from saccade.models import Drn, DrnConfig

OPTIONS = "config.json"
WORDS = "query_encoder.embedding.weight"
STRIDES = [1, 2, 4]  # of the released convolutions


def read_drn(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    """Raises: SaccadeError if the vocabulary has another number of words."""
    checkpoint, beside = read_checkpoint(path), path.with_name(OPTIONS)
    weights = state_dict(need(checkpoint, "state_dict", dict, path), path, "state_dict")
    values = read_json(beside) if beside.is_file() else {}
    if not isinstance(values, dict):
        raise SaccadeError(f"{beside} is no mapping of options")
    words = words_of(len(required(weights, WORDS, path, title)), 0, vocabulary, path)
    return Source(path, title, Options(values, beside, title), weights, words.vocabulary, words)


def count_of(name: str, axes: int) -> Term:
    """How many weights of this name and so many axes a file has."""

    def count(source: Source) -> int:
        found = [w for key, w in source.weights.items() if re.fullmatch(name, key) and w.dim() == axes]
        return max(len(found), 1)

    return count


def check(source: Source) -> None:
    if source.options.get("fpn_stride", STRIDES) != STRIDES:
        raise SaccadeError(f"{source.options.path}: fpn_stride is {source.options('fpn_stride')}, expected {STRIDES}")
    if source.options.get("fcos_num_class", 2) != 2:
        raise SaccadeError(f"{source.options.path}: fcos_num_class is {source.options('fcos_num_class')}, expected 2")


WEIGHTS: Table = {
    WORDS: to("words.weight", words="input"),
    "query_encoder.biLSTM.*": to("lstm.lstm.*"),
    "query_encoder.textualAttention.*": ignored("the released code never uses it"),
    "query_encoder.qInput.*": to("summary.*"),
    "query_encoder.cmd_inter2logits.*": to("weigh.*"),
    **{f"query_encoder.qInput{level}.*": to(f"commands.{level}.*") for level in range(3)},
    **{f"qInput{level}.*": to(f"queries.{level}.*") for level in range(3)},
    "prop_fc.*": to("segment_map.*"),
    "position_transform.*": to("location_map.*"),
    **{f"backbone_net.forward_conv{level}.*": to(f"levels.{level}.*") for level in range(3)},
    **{f"fpn.fpn_inner{level + 1}.*": to(f"laterals.{level}.*") for level in range(3)},
    **{f"fpn.fpn_layer{level + 1}.*": to(f"outputs.{level}.*") for level in range(3)},
    "fcos.head.cls_tower.*": to("heads.match_tower.*"),
    "fcos.head.bbox_tower.*": to("heads.location_tower.*"),
    "fcos.head.cls_logits.*": to("heads.match.*"),
    "fcos.head.bbox_pred.*": to("heads.location.*"),
    "fcos.head.centerness.*": ignored("the released code never uses it"),
    "fcos.head.mix_fc.*": to("heads.mix.*"),
    "fcos.head.iou_scores.*": to("heads.quality.*"),
    **{f"fcos.head.scales.{level}.scale": to(f"heads.scales.{level}") for level in range(3)},
}

DRN: Importer[Drn] = Importer(
    system="drn",
    title="DRN",
    model=Drn,
    reads=read_drn,
    check=check,
    config={
        "region_dim": width_of("prop_fc.weight", 1),
        "word_dim": width_of(WORDS, 1),
        "lstm_dim": width_of("query_encoder.biLSTM.weight_hh_l0", 1),
        "lstm_layers": count_of(r"query_encoder\.biLSTM\.weight_ih_l\d+", 2),
        "dim": width_of("backbone_net.forward_conv0.0.weight", 0),
        "pyramid_dim": width_of("fpn.fpn_inner1.0.weight", 0),
        "location_dim": width_of("position_transform.weight", 0),
        "tower_layers": count_of(r"fcos\.head\.cls_tower\.\d+\.weight", 3),
        "location": const("first"),
        "focal_alpha": optional("fcos_loss_alpha", DrnConfig.focal_alpha),
        "focal_gamma": optional("fcos_loss_gamma", DrnConfig.focal_gamma),
        "prior": optional("fcos_prior_prob", DrnConfig.prior),
        "threshold": optional("fcos_inference_thr", DrnConfig.threshold),
        "per_level": optional("fcos_pre_nms_top_n", DrnConfig.per_level),
        "match_divisor": const("positives_and_texts"),
        "iou_least": const(0.9),
        "detach_iou": const(False),
        "clamp": const("first"),
        "fallback": const("whole"),
    },
    weights=WEIGHTS,
)
