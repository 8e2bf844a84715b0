"""Every golden: all its stages hold; each stored output that is spoiled fails; what is unknown or missing fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.core.errors import SaccadeError
from saccade.interop import GOLDENS

STAGES = {
    "scan": 692, "vsrn": 344, "camp": 312, "imram": 195, "gsmn": 286, "recall": 13, "updown": 142, "adaptive": 150,
    "sgae": 55, "show_attend_tell_soft": 39, "show_attend_tell_hard": 109, "unsupervised": 31, "densecap": 9,
    "bottomup": 29, "caption_metrics": 40, "vqa_accuracy": 72, "updown_vqa": 81, "dcn": 66, "hierarchical": 29,
    "vcml": 160, "analogy": 151, "task_metrics": 37, "plan": 46, "multilevel": 28, "align2ground": 13,
    "hgr": 70, "drn": 52, "interbert": 619, "pixelbert": 28, "marn": 29,
}  # fmt: skip
AMONG_THEM = {
    "scan": {"grad_max__img_enc.fc.weight", "gradnorm_sum__total", "step1_max__txt_enc.rnn.weight_hh_l0"},
    "vsrn": {"gradnorm_total_max__total", "caption_logprobs", "sims_order32", "container legacy.pth.tar"},
    "camp": {"container plainopt.pth.tar", "batch_joint", "loss_official", "cap_mask"},
    "updown": {
        "attn_tf",
        "beam3_wu_scores",
        "beam3_nobad_seqs",
        "dbs_b4g2_lens",
        "grad_norms__logit.bias",
        "scst_loss",
    },
    "adaptive": {"attn_tf", "beam3_wu_scores", "beam3_nobad_seqs", "dbs_b4g2_lens", "grad_norms__logit.bias"},
    "vqa_accuracy": {"expected_accuracy 14", "expected_accuracy 64", "dcn_repo_evaluator 26"},
    "vcml": {
        "out_grad_concept_embedding",
        "meta_logits_paper",
        "joint_plackett",
        "out_eval_prog9",
        "out_train_qa_loss",
    },
    "drn": {"out_train_loss_iou", "out_eval_nms045_0", "out_eval_stage1_det_0", "full:fcos.head.bbox_pred.weight"},
    "unsupervised": {"gen_logits", "gen_baseline", "dis_feat_real", "obj_rewards", "gen_loss", "sentence_ae_loss"},
}
EXCUSED = {"updown": 2}  # cases that the reference cannot compute without masks
INDICES = r"top\d+|img\d+_keep_idx|nms_pick"  # which must stay places of something


@pytest.mark.parametrize("name", GOLDENS)
def test_every_stage_holds(name: str, golden: Path, record_property: Callable[[str, object], None]) -> None:
    stages = [stage for case in GOLDENS[name].verify(golden / name) for stage in case.stages]
    assert [stage for stage in stages if not stage.holds] == []
    assert len(stages) == STAGES[name]
    assert AMONG_THEM.get(name, set()) <= {stage.stage for stage in stages}
    assert sum(bool(stage.excuse) for stage in stages) == EXCUSED.get(name, 0)
    record_property("goldens verified", name)


def spoilt(key: str, value: np.ndarray) -> np.ndarray:
    if re.fullmatch(INDICES, key):
        return np.ascontiguousarray(value[..., ::-1])
    if value.dtype.kind == "b":
        return ~value
    if value.dtype.kind not in "fiu":
        return np.char.add(value, "?")
    changed = value + 2 + np.abs(value) if value.dtype.kind == "f" else value + 1
    return np.ascontiguousarray(changed[::-1]) if value.ndim else changed


@pytest.mark.parametrize("name", GOLDENS)
def test_whatever_is_spoilt_fails(name: str, golden: Path) -> None:
    """Outputs, that is what the table has a row for, are changed after the inputs were read."""
    table, changed = GOLDENS[name].table, set[str]()

    def spoil(folder: Path) -> Iterator[Any]:
        opened = next(iter(GOLDENS[name].open(folder)))
        for key, value in opened.case.stored.items():
            if any(re.fullmatch(pattern, key) for pattern in table) and key not in opened.case.used and value.size:
                opened.case.stored[key] = spoilt(key, value)
                changed.add(key)
        opened.case.stored["surprise"] = np.zeros(1)
        yield opened

    (case,) = replace(GOLDENS[name], open=spoil).verify(golden / name)
    failed = [stage.stage for stage in case.stages if not stage.holds]
    assert "surprise (stored, never compared)" in failed
    assert len(changed) >= 4
    assert [key for key in changed if not any(stage.startswith(key) for stage in failed)] == []


CHANGED = {  # of one case: the change is value × factor + amount
    "scan": ("unigru", 1.0, 1e-4, ["sims32__i2t__Mean__softmax"]),
    "vsrn": ("coco", 1.0, 1e-3, ["region_gcn_emb", "sims64", "caption_masks", "caption_logprobs", "loss_total"]),
    "camp": (
        "gate_fusion_new",
        1.01,
        1e-3,
        ["batch_joint", "loss_hinge_sum", "gradnorm_BCE_max__sim.module.fc_1.0.weight"],
    ),
    "imram": (
        "text",
        1.01,
        0.0,
        [
            "step_sims__i2t__2",
            "batch_scores_train",
            "cap_final_state",
            "gradnorm_max__model.gate_t2i.bias",
            "gradnorm_sum__model.gate_i2t.bias",  # stored as −1: no gradient must arrive
        ],
    ),
    "gsmn": (
        "sparse",
        1.0,
        1e-3,
        ["sims_misaligned_boxes", "adjacency__cap1", "gaussian_weights", "sims_text_graph_other_mode"],
    ),
    "sgae": (
        "modelid0001",
        1.0,
        1e-4,
        ["gcn_attr_feats", "mem_read_ssg", "mode0_logprobs", "mode1_attn_ssg", "mode2_rela1_beam3_scores"],
    ),
    "vcml": (
        "vcml",
        1.0,
        3e-3,
        ["out_objects", "out_ln_pr", "out_prog_loss", "out_exact_joint", "out_exact_obj_logit", "feat_code"],
    ),
    "unsupervised": (
        "unsupervised",
        1.01,
        1e-3,
        ["gen_logits", "dis_pred", "obj_rewards", "gen_loss", "dis_loss", "sentence_ae_loss"],
    ),
    "show_attend_tell_soft": (
        "show_attend_tell_soft",
        1.0,
        2e-3,
        [
            *("scores", "alphas", "alpha_reg", "grad_norms", "top5"),
            *(f"beam3_{key}" for key in ("alphas", "best", "complete_seqs", "complete_scores", "num_complete")),
        ],
    ),
    "show_attend_tell_hard": (
        "show_attend_tell_hard",
        1.0,
        2e-3,
        [
            *("soft_probs", "argmax_alpha_sample", "soft_alpha_reg", "hard_h0_grad_norms"),
            *(f"hard_h1_{key}" for key in ("known_grad_alphas", "grad_decoder_U_att", "baseline_after")),
        ],
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_is_changed_a_little_is_caught_and_nothing_else(name: str, golden: Path) -> None:
    wanted, factor, amount, keys = CHANGED[name]

    def change(folder: Path) -> Iterator[Any]:
        opened = next(each for each in GOLDENS[name].open(folder) if each.case.name == wanted)
        for key in keys:
            value = opened.case.stored[key]
            changed = value[..., ::-1].copy() if re.fullmatch(INDICES, key) else value * factor + amount
            opened.case.stored[key] = value + 1 if value.dtype.kind == "i" and key != "top5" else changed
        yield opened

    (case,) = replace(GOLDENS[name], open=change).verify(golden / name)
    failed = {stage.stage for stage in case.stages if not stage.holds}
    arrays = {stage if stage in case.stored else re.split("__| in the", stage)[0] for stage in failed}
    assert arrays == set(keys)


@pytest.mark.parametrize("name", GOLDENS)
def test_a_case_must_be_whole(name: str, golden: Path) -> None:
    (first, *_) = GOLDENS[name].open(golden / name)
    whole = dict(first.case.stored)
    for key in GOLDENS[name].required(first.case):
        first.case.stored = {stored: value for stored, value in whole.items() if stored != key}
        with pytest.raises(SaccadeError, match=f'has no "{key}"'):
            list(replace(GOLDENS[name], open=lambda folder: [first]).verify(golden / name))
