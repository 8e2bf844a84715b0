"""Up-Down VQA: what its sweep does not say."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from saccade.batch import RegionBatch
from saccade.language import Vocabulary
from saccade.models.updown_vqa import GatedTanh, UpDownVqa, UpDownVqaConfig


def test_gated_layers_let_the_spread_of_their_inputs_through() -> None:
    """Two layers and a product, as from a region to the answer's layer: with less, learning begins late."""
    torch.manual_seed(0)
    question, picture, joint = (GatedTanh(128, 128, UpDownVqaConfig().gain) for _ in range(3))
    with torch.no_grad():
        found = joint(question(torch.randn(300, 128)) * picture(torch.randn(300, 128)))
    assert float(found.std()) > 0.1  # 0.02 as PyTorch begins


@pytest.mark.parametrize("fusion", ["product", "sum"])
def test_only_a_sum_hears_the_question_where_the_picture_says_nothing(fusion: Literal["product", "sum"]) -> None:
    torch.manual_seed(0)
    config = UpDownVqaConfig(region_dim=6, word_dim=5, dim=8, answers=("yes", "no", "red"), fusion=fusion)
    model = UpDownVqa(config, Vocabulary.build(["is it red", "what colour"])).eval()
    with torch.no_grad():
        for weight in model.picture.parameters():
            weight.zero_()  # f_v = tanh(0) = 0
        images = RegionBatch(
            torch.randn(1, 2, 6).expand(2, 2, 6), torch.ones(2, 2, dtype=torch.bool), torch.rand(2, 2, 4)
        )
        one, other = model.answer(images, model.read(["is it red", "what colour"])).logits
    assert torch.allclose(one, other) == (fusion == "product")
