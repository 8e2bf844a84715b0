"""Block cosines without attended vectors, against the definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.batch import ImageCode, TextCode
from saccade.nn import block_match
from saccade.ops import AttentionForm, attention_weights

FORM = AttentionForm("clipped_l2", 20.0, 0.1)


@pytest.fixture
def codes() -> tuple[ImageCode, TextCode]:
    torch.manual_seed(0)
    region_mask = torch.arange(5) < torch.tensor([5, 1, 3])[:, None]
    word_mask = torch.arange(6) < torch.tensor([2, 6, 4])[:, None]
    return (
        ImageCode(torch.randn(3, 5, 12, dtype=torch.float64), region_mask),
        TextCode(torch.randn(3, 6, 12, dtype=torch.float64), word_mask),
    )


def from_definition(queries: Tensor, context: Tensor, blocks: int) -> Tensor:
    """One pair, nothing padded: [query, block]."""
    whole = torch.ones(1, dtype=torch.bool)
    scores = context @ queries.T
    weights = attention_weights(scores, whole.expand(len(queries)), whole.expand(len(context)), FORM)
    attended = weights.T @ context
    pairs = zip(queries.chunk(blocks, dim=-1), attended.chunk(blocks, dim=-1), strict=True)
    return torch.stack([torch.cosine_similarity(q, a, dim=-1, eps=1e-8) for q, a in pairs], dim=-1)


@pytest.mark.parametrize("blocks", [1, 4, 12])
def test_every_pair_is_the_cosine_of_blocks_with_what_was_found(codes: tuple[ImageCode, TextCode], blocks: int) -> None:
    images, texts = codes
    match = block_match(images, texts, blocks, FORM)
    for i in range(3):
        for t in range(3):
            regions, words = images.regions[i][images.mask[i]], texts.words[t][texts.mask[t]]
            torch.testing.assert_close(match.words[i, t, : len(words)], from_definition(words, regions, blocks))
            torch.testing.assert_close(match.regions[i, t, : len(regions)], from_definition(regions, words, blocks))


def test_pairs_are_the_diagonal_of_all_pairs(codes: tuple[ImageCode, TextCode]) -> None:
    whole, pairs = block_match(*codes, 4, FORM), block_match(*codes, 4, FORM, every_pair=False)
    for name in ("weights", "words", "regions"):
        every, own = getattr(whole, name), getattr(pairs, name)
        torch.testing.assert_close(own[:, 0], torch.stack([every[p, p] for p in range(3)]))


def test_vectors_of_zeros_have_finite_gradients() -> None:
    regions, words = torch.zeros(1, 3, 8, requires_grad=True), torch.zeros(1, 2, 8, requires_grad=True)
    mask = torch.ones(1, 3, dtype=torch.bool)
    match = block_match(ImageCode(regions, mask), TextCode(words, mask[:, :2]), 4, FORM)
    (match.words.sum() + match.regions.sum()).backward()
    for gradient in (regions.grad, words.grad):
        assert gradient is not None
        assert gradient.isfinite().all()
