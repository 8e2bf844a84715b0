"""CAMP's official checkpoints: what their options mean, and other files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.interop import GOLDENS, IMPORTERS
from saccade.interop.words import read_vocabulary


def test_the_padding_of_the_official_mean_matters(golden: Path) -> None:
    """Its 50 places are part of the function: without them the scores are others."""
    case = next(case for case in GOLDENS["camp"].open(golden / "camp") if case.case.name == "cross_attention_new")
    masked = case.imported.variant(text_length=0)
    difference = (masked(case.images, case.texts) - case.case.tensor("sims")).abs().max()
    assert difference > 1e-3


def test_the_number_of_heads_is_read_from_the_weights_and_words_from_the_vocabulary(golden: Path) -> None:
    words = read_vocabulary(golden / "camp" / "vocab.pkl")
    model = IMPORTERS["camp"](golden / "camp" / "gate_fusion.legacy.pth.tar", words)
    assert (model.config.heads, model.config.rounds, model.config.text_length) == (4, 1, 0)
    assert model.vocabulary == words


@pytest.mark.parametrize(
    ("changes", "options", "sentence"),
    [
        ({"model": [{}, {}]}, {}, "2 parts, a CAMP checkpoint has 3"),
        ({}, {"measure": "cosine"}, "measure is 'cosine', expected one of gate_fusion_new"),
        ({}, {"self_attention": True}, "self_attention is on"),
        ({}, {"embed_size": 16}, "do not fit the options"),
        ({}, {"img_dim": None}, 'the options have no "img_dim"'),
        ({"model": [{}, {}, {}]}, {}, "no embed.weight"),
    ],
)
def test_other_checkpoints_are_refused(
    golden: Path, tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], sentence: str
) -> None:
    checkpoint = torch.load(golden / "camp" / "gate_fusion_new.plainopt.pth.tar", weights_only=True)
    checkpoint |= changes
    checkpoint["opt"] = {k: v for k, v in {**checkpoint["opt"], **options}.items() if v is not None}
    torch.save(checkpoint, tmp_path / "other.pth.tar")
    with pytest.raises(SaccadeError, match=sentence):
        IMPORTERS["camp"](tmp_path / "other.pth.tar")
