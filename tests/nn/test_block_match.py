"""Block cosines without attended vectors, against the definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.batch import ImageCode, TextCode
from saccade.nn import block_match
from saccade.nn.block_match import block_cosines, with_grams
from saccade.ops import AttentionForm, attention_weights
from saccade.ops.native.attention import native_attention

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


@pytest.mark.parametrize(("parts", "longest"), [(7, 9), (13, 4), (1, 1)])
def test_compiled_loops_find_the_same_cosines(monkeypatch: pytest.MonkeyPatch, parts: int, longest: int) -> None:
    """More sentences than a vector has lanes, pictures and sentences of all lengths and one with nothing in it."""
    monkeypatch.setenv("SACCADE_NATIVE", "1")
    draw = torch.Generator().manual_seed(1)
    region_mask = torch.arange(parts) < torch.randint(1, parts + 1, (5, 1), generator=draw)
    word_mask = torch.arange(longest) < torch.randint(1, longest + 1, (21, 1), generator=draw)
    region_mask[2], word_mask[4] = False, False
    regions = torch.randn(5, parts, 24, generator=draw, dtype=torch.float64)
    words = torch.randn(21, longest, 24, generator=draw, dtype=torch.float64)
    images, texts = ImageCode(regions, region_mask), TextCode(words, word_mask)
    known = block_match(images, texts, 4, FORM)
    native = native_attention(FORM, torch.float32, 0)
    if native is None:  # no compiler
        return
    images, texts = images.to(dtype=torch.float32), texts.to(dtype=torch.float32)
    with_products = (
        ImageCode(with_grams(images.regions, region_mask, 4), region_mask),
        TextCode(with_grams(texts.words, word_mask, 4), word_mask),
    )
    plain = block_match(images, texts, 4, FORM)
    for codes in ((images, texts), with_products):
        found = block_cosines(*codes, 4, 24, native)
        for ours, rounded, exact in zip(found, (plain.words, plain.regions), (known.words, known.regions), strict=True):
            # On average, for the largest error is that of one block whose attended vector nearly vanishes: there the
            # last bit of a product decides, and which form has it is the processor's choice.
            assert (ours - exact).abs().mean() <= 2 * (rounded - exact).abs().mean() + 1e-8
            torch.testing.assert_close(ours.double(), exact, rtol=0, atol=5e-5)
