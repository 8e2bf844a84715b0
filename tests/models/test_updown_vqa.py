"""Up-Down VQA: what its sweep does not say."""

from __future__ import annotations

import torch

from saccade.models.updown_vqa import GatedTanh, UpDownVqaConfig


def test_gated_layers_let_the_spread_of_their_inputs_through() -> None:
    """Two layers and a product, as from a region to the answer's layer: with less, learning begins late."""
    torch.manual_seed(0)
    question, picture, joint = (GatedTanh(128, 128, UpDownVqaConfig().gain) for _ in range(3))
    with torch.no_grad():
        found = joint(question(torch.randn(300, 128)) * picture(torch.randn(300, 128)))
    assert float(found.std()) > 0.1  # 0.02 as PyTorch begins
