"""IMRAM: equal to its equations one pair at a time, whatever the tiles; one step is SCAN's; memory stays in budget."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are first imported; nothing compiles here anyway

from saccade.batch import ImageCode, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Imram, ImramConfig, Scan, ScanConfig
from saccade.models.imram import MemoryDistillation
from saccade.ops.recurrent_attention import triton_steps

SMALL = ImramConfig(region_dim=12, word_dim=7, dim=10)
SWITCHES: list[dict[str, Any]] = [
    {},
    {"queries": "words", "steps": 2},
    {"queries": "regions", "unit_memory": True, "normaliser": "softmax", "sharpness": 4.0},
    {"memory": "mlp", "normaliser": "l2", "pool": "sum"},
    {"memory": "add", "normaliser": "clipped", "slope": 0.0},
    {"memory": "none"},
]
IDS = ["-".join(map(str, switches.values())) or "paper" for switches in SWITCHES]


def build(vocabulary: Vocabulary, **switches: Any) -> Imram:
    torch.manual_seed(4)
    return Imram(replace(SMALL, **switches), vocabulary).double().eval()


def codes(images: int = 5, texts: int = 7, dim: int = 10) -> tuple[ImageCode, TextCode]:
    """Pictures of 1 to 6 regions and sentences of 1 to 8 words; padding holds rubbish on purpose."""
    draw = torch.Generator().manual_seed(5)
    regions, words = (
        F.normalize(torch.randn(n, size, dim, generator=draw, dtype=torch.float64), dim=-1)
        for n, size in ((images, 6), (texts, 8))
    )
    there = torch.arange(6) < torch.randint(1, 7, (images, 1), generator=draw)
    real = torch.arange(8) < torch.randint(1, 9, (texts, 1), generator=draw)
    return ImageCode(regions.requires_grad_(), there), TextCode(words.requires_grad_(), real)


def normalised(scores: Tensor, config: ImramConfig) -> Tensor:
    """Over the queries (columns), for each context vector (row)."""
    if config.normaliser == "softmax":
        return scores.softmax(dim=1)
    if config.normaliser.startswith("clipped"):
        scores = torch.where(scores > 0, scores, config.slope * scores)
    if config.normaliser.endswith("l2"):
        scores = scores / (scores.norm(dim=1, keepdim=True) + 1e-8)
    return scores


def one_pair(queries: Tensor, context: Tensor, config: ImramConfig, memory: MemoryDistillation) -> Tensor:
    """Σ_k F_k as the paper writes it, without padding, with attended vectors."""
    query, total = queries, queries.new_zeros(())
    for _ in range(config.steps):
        weights = (config.sharpness * normalised(context @ query.T, config)).softmax(dim=0)
        found = weights.T @ context
        cosine = F.cosine_similarity(queries, found, dim=1)
        total = total + (cosine.sum() if config.pool == "sum" else cosine.mean())
        both = torch.cat([query, found], dim=1)
        if config.memory == "gate":
            assert memory.gate is not None
            assert memory.candidate is not None
            gate, candidate = memory.gate(both).sigmoid(), memory.candidate(both).tanh()
            query = gate * query + (1 - gate) * candidate
        elif config.memory == "mlp":
            assert memory.candidate is not None
            query = memory.candidate(both).tanh()
        elif config.memory == "add":
            query = query + found
        if config.unit_memory:
            query = query / (query.norm(dim=1, keepdim=True) + 1e-8)
    return total


def pair_by_pair(model: Imram, images: ImageCode, texts: TextCode) -> Tensor:
    rows = []
    for region, there in zip(images.regions, images.mask, strict=True):
        for word, real in zip(texts.words, texts.mask, strict=True):
            total = word.new_zeros(())
            if model.words_ask is not None:
                total = total + one_pair(word[real], region[there], model.config, model.words_ask.memory)
            if model.regions_ask is not None:
                total = total + one_pair(region[there], word[real], model.config, model.regions_ask.memory)
            rows.append(total)
    return torch.stack(rows).view(len(images), len(texts))


@pytest.mark.parametrize("budget_mb", [0, 256], ids=["pair by pair", "in one piece"])
@pytest.mark.parametrize("switches", SWITCHES, ids=IDS)
def test_equals_the_equations_and_so_do_its_gradients(
    switches: dict[str, Any], budget_mb: int, vocabulary: Vocabulary
) -> None:
    model = build(vocabulary, budget_mb=budget_mb, **switches)
    images, texts = codes()
    found, expected = model.similarity(images, texts), pair_by_pair(model, images, texts)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    pull = torch.randn(found.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    sides = [side for side in (model.words_ask, model.regions_ask) if side is not None]
    leaves = [images.regions, texts.words, *(p for side in sides for p in side.parameters())]
    for one, other in zip(
        torch.autograd.grad(found, leaves, pull), torch.autograd.grad(expected, leaves, pull), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-8)


@pytest.mark.parametrize("queries", ["words", "regions"])
@pytest.mark.parametrize("normaliser", ["clipped_l2", "softmax", "none"])
def test_one_step_is_scan_with_the_mean(queries: Any, normaliser: Any, vocabulary: Vocabulary) -> None:
    images, texts = codes()
    imram = build(vocabulary, queries=queries, normaliser=normaliser, steps=1)
    same = {k: getattr(SMALL, k) for k in ("region_dim", "word_dim", "dim")}
    scan = Scan(ScanConfig(**same, queries=queries, normaliser=normaliser, pool="mean"), vocabulary)
    expected = scan.similarity(images, texts)
    torch.testing.assert_close(imram.similarity(images, texts), expected)
    assert {k for k, _ in imram.named_parameters()} == {k for k, _ in scan.named_parameters()}
    forgetful = build(vocabulary, queries=queries, normaliser=normaliser, memory="none")
    torch.testing.assert_close(forgetful.similarity(images, texts), 3 * expected)


@pytest.mark.parametrize("queries", ["words", "regions", "both"])
def test_alignment_shows_every_step(queries: Any, vocabulary: Vocabulary) -> None:
    """Steps with memory differ from each other; their cosines make up the score."""
    model = build(vocabulary, queries=queries)
    images, texts = codes(5, 5)
    shown = model.align(images, texts)
    assert shown.steps is not None
    assert shown.steps.shape == (5, 3, 8, 6)
    assert torch.equal(shown.weights, shown.steps[:, -1])
    asked, real = (3, texts.mask) if queries != "regions" else (2, images.mask)
    total = shown.steps.sum(dim=asked)
    torch.testing.assert_close(total, real[:, None].to(total).expand_as(total))
    assert (shown.steps[:, 0] - shown.steps[:, 1]).abs().max() > 1e-3
    score = torch.zeros(5, dtype=torch.float64)
    for match, mask in ((shown.word_score, texts.mask), (shown.region_score, images.mask)):
        if match is not None:
            score = score + 3 * (match * mask).sum(dim=1) / mask.sum(dim=1)
    torch.testing.assert_close(shown.score, score)
    torch.testing.assert_close(shown.score, model.similarity(images, texts).diagonal())


def peak_bytes(run: Any) -> int:
    """The most that PyTorch's CPU allocator had given out during a run."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore[union-attr]
    now = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


@pytest.mark.parametrize("queries", ["words", "regions"])
def test_all_pairs_stay_within_the_budget(queries: Any, vocabulary: Vocabulary) -> None:
    """36 regions; the updated queries of all pairs at once would take more than ten times as much."""
    draw = torch.Generator().manual_seed(7)
    images = ImageCode(torch.randn(24, 36, 128, generator=draw), torch.ones(24, 36, dtype=torch.bool))
    texts = TextCode(torch.randn(120, 14, 128, generator=draw), torch.arange(14) < torch.randint(7, 15, (120, 1)))
    model = Imram(replace(SMALL, dim=128, queries=queries, budget_mb=4), vocabulary).eval()
    everything = len(images) * len(texts) * (14 if queries == "words" else 36) * 128 * 4
    # codes with what they bring into an update, three times their width; and the sentences in order of length
    copies = 3 * 4 * (images.regions.numel() + 2 * texts.words.numel())
    with torch.no_grad():
        most = peak_bytes(lambda: model.similarity(images, texts))
    assert most - copies <= 4 << 20 < everything / 4


@pytest.mark.parametrize("queries", ["words", "both"])
def test_all_pairs_by_kernels_are_the_same(queries: Any, vocabulary: Vocabulary) -> None:
    """Where no GPU compiles them, Triton's interpreter runs them."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build(vocabulary, queries=queries).float().to(device)
    images, texts = codes(3, 4)
    images, texts = images.to(device, torch.float32), texts.to(device, torch.float32)
    with torch.no_grad():
        expected = model.similarity(images, texts)
        found = triton_steps(model.problem(images, texts))  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert not torch.equal(found, expected)  # it went another way


def test_mixed_precision_keeps_scores_in_float32(vocabulary: Vocabulary) -> None:
    model = build(vocabulary).float()
    images, texts = (code.to(dtype=torch.float32) for code in codes())
    expected = model.similarity(images, texts)
    with torch.autocast("cpu", torch.bfloat16):
        found, shown = model.similarity(images, texts), model.align(images, texts.select(range(5)))
    assert found.dtype == shown.weights.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05)
    assert not torch.equal(found, expected)


def test_a_picture_without_regions_scores_without_nan(vocabulary: Vocabulary) -> None:
    images, texts = codes()
    empty = replace(images, mask=images.mask & (torch.arange(5) != 2)[:, None])
    for memory in ("gate", "add", "none"):
        found = build(vocabulary, memory=memory).similarity(empty, texts)
        assert found.isfinite().all()


def test_no_step_at_all_is_refused() -> None:
    with pytest.raises(SaccadeError, match=r"model\.steps must be at least 1, not 0"):
        ImramConfig(steps=0)
