"""Whole vectors: the order measure is its definition however it is cut, and nothing in it becomes NaN."""

from __future__ import annotations

import pytest
import torch

from saccade.batch import ImageCode, TextCode
from saccade.nn.encode import last_state, mean_state
from saccade.nn.whole import nearest_regions, whole_similarity


def codes(images: int, texts: int, dim: int = 6) -> tuple[ImageCode, TextCode]:
    dice = torch.Generator().manual_seed(0)
    regions, words = (torch.randn(n, 3, dim, generator=dice, dtype=torch.float64) for n in (images, texts))
    pooled = (torch.randn(n, dim, generator=dice, dtype=torch.float64).requires_grad_() for n in (images, texts))
    masks = (torch.tensor([True, True, False]).expand(n, 3) for n in (images, texts))
    return ImageCode(regions, next(masks), next(pooled)), TextCode(words, next(masks), next(pooled))


@pytest.mark.parametrize("budget", [1, 1000, 1 << 30])
def test_order_is_its_definition_in_tiles_of_any_size(budget: int) -> None:
    images, texts = codes(5, 7)
    assert images.pooled is not None
    assert texts.pooled is not None
    table = whole_similarity(images, texts, "order", budget)
    for i, image in enumerate(images.pooled.tolist()):
        for t, text in enumerate(texts.pooled.tolist()):
            excess = sum(max(b - a, 0.0) ** 2 for a, b in zip(image, text, strict=True))
            assert table[i, t].item() == pytest.approx(-(excess**0.5))
    table.sum().backward()
    cut, images.pooled.grad = images.pooled.grad, None
    whole_similarity(images, texts, "order").sum().backward()
    torch.testing.assert_close(images.pooled.grad, cut)


def test_a_sentence_that_says_nothing_more_has_a_gradient_of_zero() -> None:
    images, texts = codes(2, 2)
    assert images.pooled is not None
    below = TextCode(texts.words, texts.mask, images.pooled - 1)
    table = whole_similarity(images, below, "order")
    assert float(table.diagonal().abs().max().detach()) == 0
    table.diagonal().sum().backward()
    assert images.pooled.grad is not None
    assert float(images.pooled.grad.abs().max()) == 0


def test_the_comparison_is_float32_under_autocast() -> None:
    images, texts = codes(4, 4)
    exact = whole_similarity(images.to(dtype=torch.float32), texts.to(dtype=torch.float32))
    with torch.autocast("cpu", torch.bfloat16):
        mixed = whole_similarity(images.to(dtype=torch.float32), texts.to(dtype=torch.float32))
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed, exact)


def test_the_score_of_an_alignment_is_that_of_its_measure() -> None:
    images, texts = codes(3, 3)
    for measure in ("cosine", "order"):
        found = nearest_regions(images, texts, 9.0, measure)
        table = whole_similarity(images, texts, measure)
        torch.testing.assert_close(found.score, table.diagonal())
        assert float(found.weights[:, :, 2].abs().max()) == 0  # padding


def test_last_and_mean_of_real_places() -> None:
    states = torch.tensor([[[1.0], [2.0], [4.0]], [[8.0], [0.0], [0.0]], [[0.0], [0.0], [0.0]]])
    lengths = torch.tensor([3, 1, 0])
    assert last_state(states, lengths).flatten().tolist() == [4, 8, 0]
    assert mean_state(states, lengths).flatten().tolist() == pytest.approx([7 / 3, 8, 0])
