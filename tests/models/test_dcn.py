"""DCN: what the sweep over answerers does not say."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from saccade.language import Vocabulary
from saccade.models.dcn import Dcn, DcnConfig


def test_weights_begin_as_in_the_official_code() -> None:
    """With PyTorch's own start, scores of attention begin a third as large, and comparing two things is not learned."""
    torch.manual_seed(0)
    config = DcnConfig(region_dim=256, word_dim=100, dim=128, image_dim=192, lstm_dim=64, answers=("yes", "no"))
    model = Dcn(config, Vocabulary.build(["is it red"]))
    for layer in (layer for layer in model.modules() if isinstance(layer, nn.Linear) and layer.weight.numel() > 1000):
        xavier = (2 / (layer.in_features + layer.out_features)) ** 0.5
        assert float(layer.weight.detach().std()) == pytest.approx(xavier, rel=0.1)
        assert layer.bias is None or not layer.bias.any()
