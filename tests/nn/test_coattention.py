"""Dense co-attention beside its equations, one pair at a time in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.nn.coattention import CoAttention, Summary


def plain(layer: CoAttention, regions: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """The equations of the module's docstring for one item without padding."""
    all_regions, all_words = torch.cat([layer.no_region, regions]), torch.cat([layer.no_word, words])
    keys, queries = all_regions @ layer.region_key.weight.T, all_words @ layer.word_key.weight.T
    width = keys.shape[1] // layer.heads
    found, told = torch.zeros_like(words @ torch.zeros(words.shape[1], regions.shape[1]).double()), None
    told = torch.zeros(len(regions), words.shape[1]).double()
    for head in range(layer.heads):
        part = slice(head * width, (head + 1) * width)
        scores = queries[:, part] @ keys[:, part].T / width**0.5
        found = found + (scores.softmax(dim=1) @ all_regions)[layer.nowhere :] / layer.heads
        told = told + (scores.T.softmax(dim=1) @ all_words)[layer.nowhere :] / layer.heads
    new_regions, new_words = regions, words
    if layer.region_fusion is not None:
        new_regions = regions + layer.region_fusion(torch.cat([regions, told], dim=1)).relu()
    if layer.word_fusion is not None:
        new_words = words + layer.word_fusion(torch.cat([words, found], dim=1)).relu()
    return new_regions, new_words


@pytest.mark.parametrize("updates", ["both", "regions", "words"])
@pytest.mark.parametrize("nowhere", [0, 3])
def test_it_computes_its_equations(updates: str, nowhere: int) -> None:
    torch.manual_seed(0)
    layer = CoAttention(8, 6, heads=2, nowhere=nowhere, updates=updates).double()  # type: ignore[arg-type]
    regions, words = torch.randn(3, 5, 8).double(), torch.randn(3, 4, 6).double()
    region_mask, word_mask = torch.ones(3, 5, dtype=torch.bool), torch.ones(3, 4, dtype=torch.bool)
    region_mask[1, 2:], word_mask[2, 1:] = False, False
    found = layer(regions, words, region_mask, word_mask)
    for item in range(3):
        wanted = plain(layer, regions[item, region_mask[item]], words[item, word_mask[item]])
        torch.testing.assert_close(found.regions[item, region_mask[item]], wanted[0])
        torch.testing.assert_close(found.words[item, word_mask[item]], wanted[1])
    torch.testing.assert_close(found.over_regions.sum(dim=3), torch.ones(3, 2, 4).double())


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(SaccadeError, match="heads"):
        CoAttention(8, 6, heads=4)


def test_a_summary_is_the_mean_of_its_maps() -> None:
    torch.manual_seed(0)
    summary, parts = Summary(6, maps=3).double(), torch.randn(2, 4, 6).double()
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    vector, weights = summary(parts, mask)
    for item in range(2):
        own = parts[item, mask[item]]
        share = summary.score(own).softmax(dim=0)  # [part map]
        torch.testing.assert_close(vector[item], (share.mean(dim=1)[:, None] * own).sum(dim=0))
        torch.testing.assert_close(weights[item][:, mask[item]], share.T)


def test_maps_of_a_summary_may_stand_side_by_side() -> None:
    torch.manual_seed(0)
    summary, parts = Summary(6, maps=3, apart=True).double(), torch.randn(2, 4, 6).double()
    vector, weights = summary(parts, torch.ones(2, 4, dtype=torch.bool))
    assert vector.shape == (2, summary.dim) == (2, 18)
    torch.testing.assert_close(vector.view(2, 3, 6), weights @ parts)
