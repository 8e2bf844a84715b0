"""The best k do not depend on how items were cut into tiles, and ties go to the first."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saccade.ops import AttentionForm, Context, Queries, attended_similarity
from saccade.search import streamed_top_k, top_k


def by_sorting(scores: Tensor, k: int) -> Tensor:
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :k]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 700), st.integers(1, 12), st.integers(1, 300), st.integers(0, 2**30))
def test_same_as_sorting_everything_whatever_the_tiles(items: int, k: int, step: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randint(-9, 9, (3, items), generator=draw).float()  # many ties, both signs, zeros
    scores[scores == 0] *= -1  # −0 is 0
    scores[:, ::7] = -torch.inf
    expected = by_sorting(scores, k)
    found = streamed_top_k(((first, scores[:, first : first + step]) for first in range(0, items, step)), k)
    assert found is not None
    assert torch.equal(found.indices, expected)
    assert torch.equal(found.scores, scores.gather(1, expected))
    assert torch.equal(top_k(scores, k).indices, expected)


def test_items_are_numbered_from_the_first_of_the_tile() -> None:
    scores = torch.tensor([[1.0, 3.0, 2.0]])
    assert top_k(scores, 2, first=5_000_000).indices.tolist() == [[5_000_001, 5_000_002]]


def test_no_tile_no_ranking() -> None:
    assert streamed_top_k([], 3) is None


@pytest.mark.parametrize("step", [1, 7, 50])
def test_serves_any_similarity(step: int) -> None:
    """A matcher's own similarity, computed for some pictures at a time."""
    draw = torch.Generator().manual_seed(0)
    words, regions = torch.randn(2, 4, 8, generator=draw), torch.randn(50, 6, 8, generator=draw)
    queries, there = Queries(words, torch.ones(2, 4, dtype=torch.bool)), torch.ones(50, 6, dtype=torch.bool)

    def similarity(some: slice) -> Tensor:
        return attended_similarity(queries, Context(regions[some], there[some]), AttentionForm())

    whole = similarity(slice(None))
    assert whole.sort(dim=1).values.diff(dim=1).min() > 1e-5  # far more than another order of adding changes
    tiles = ((first, similarity(slice(first, first + step))) for first in range(0, 50, step))
    found = streamed_top_k(tiles, 10)
    assert found is not None
    assert torch.equal(found.indices, by_sorting(whole, 10))
