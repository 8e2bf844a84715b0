"""Block cosines without attended vectors, against the definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.models.gsmn import block_cosines
from saccade.ops import AttentionForm, attention_weights
from saccade.ops.graph_matching import Nodes

FORM = AttentionForm("clipped_l2", 20.0, 0.1)


def nodes(blocks: int) -> tuple[Nodes, Nodes]:
    """Regions and words."""
    torch.manual_seed(0)
    masks = (
        torch.arange(5) < torch.tensor([5, 1, 3])[:, None],
        torch.arange(6) < torch.tensor([2, 6, 4])[:, None],
    )
    return tuple(Nodes.of(torch.randn(*mask.shape, 12, dtype=torch.float64), mask, blocks) for mask in masks)  # type: ignore[return-value]


def from_definition(queries: Tensor, context: Tensor, blocks: int) -> Tensor:
    """One pair, nothing padded: [query, block]."""
    whole = torch.ones(1, dtype=torch.bool)
    scores = context @ queries.T
    weights = attention_weights(scores, whole.expand(len(queries)), whole.expand(len(context)), FORM)
    attended = weights.T @ context
    pairs = zip(queries.chunk(blocks, dim=-1), attended.chunk(blocks, dim=-1), strict=True)
    return torch.stack([torch.cosine_similarity(q, a, dim=-1, eps=1e-8) for q, a in pairs], dim=-1)


@pytest.mark.parametrize("blocks", [1, 4, 12])
def test_every_pair_is_the_cosine_of_blocks_with_what_was_found(blocks: int) -> None:
    images, texts = nodes(blocks)
    of_words, of_regions = (
        block_cosines(texts, images, FORM)[0],
        block_cosines(images, texts, FORM)[0].transpose(0, 1),
    )
    seen, read = (side.vectors.transpose(1, 2).flatten(2) for side in (images, texts))
    for i in range(3):
        for t in range(3):
            regions, words = seen[i][images.mask[i]], read[t][texts.mask[t]]
            torch.testing.assert_close(of_words[i, t, : len(words)], from_definition(words, regions, blocks))
            torch.testing.assert_close(of_regions[i, t, : len(regions)], from_definition(regions, words, blocks))


def test_pairs_are_the_diagonal_of_all_pairs() -> None:
    for queries, context in (nodes(4), nodes(4)[::-1]):
        whole, pairs = (block_cosines(queries, context, FORM, every_pair=every) for every in (True, False))
        for every, own in zip(whole, pairs, strict=True):
            torch.testing.assert_close(own[:, 0], torch.stack([every[p, p] for p in range(3)]))


def test_vectors_of_zeros_have_finite_gradients() -> None:
    regions, words = torch.zeros(1, 3, 8, requires_grad=True), torch.zeros(1, 2, 8, requires_grad=True)
    mask = torch.ones(1, 3, dtype=torch.bool)
    images, texts = Nodes.of(regions, mask, 4), Nodes.of(words, mask[:, :2], 4)
    (block_cosines(texts, images, FORM)[0].sum() + block_cosines(images, texts, FORM)[0].sum()).backward()
    for gradient in (regions.grad, words.grad):
        assert gradient is not None
        assert gradient.isfinite().all()
