"""Every golden: all its stages hold; each stored output that is spoiled fails; what is unknown or missing fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    "bottomup": 29, "caption_metrics": 40,
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
    "unsupervised": {"gen_logits", "gen_baseline", "dis_feat_real", "obj_rewards", "gen_loss", "sentence_ae_loss"},
}
EXCUSED = {"updown": 2}  # cases that the reference cannot compute without masks
INDICES = r"top\d+|img\d+_keep_idx|nms_pick"  # which must stay places of something


@pytest.mark.parametrize("name", GOLDENS)
def test_every_stage_holds(name: str, golden: Path) -> None:
    stages = [stage for case in GOLDENS[name].verify(golden / name) for stage in case.stages]
    assert [stage for stage in stages if not stage.holds] == []
    assert len(stages) == STAGES[name]
    assert AMONG_THEM.get(name, set()) <= {stage.stage for stage in stages}
    assert sum(bool(stage.excuse) for stage in stages) == EXCUSED.get(name, 0)


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


@pytest.mark.parametrize("name", GOLDENS)
def test_a_case_must_be_whole(name: str, golden: Path) -> None:
    (first, *_) = GOLDENS[name].open(golden / name)
    whole = dict(first.case.stored)
    for key in GOLDENS[name].required(first.case):
        first.case.stored = {stored: value for stored, value in whole.items() if stored != key}
        with pytest.raises(SaccadeError, match=f'has no "{key}"'):
            list(replace(GOLDENS[name], open=lambda folder: [first]).verify(golden / name))
