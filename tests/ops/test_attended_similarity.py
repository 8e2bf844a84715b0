"""All-pairs attended similarity: equal to its definition, exactly masked, bounded in memory, right in its gradient."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.ops import (
    AttentionForm,
    Context,
    Normaliser,
    Pool,
    Queries,
    attended_similarity,
    attended_similarity_reference,
    attention,
)
from saccade.ops import torch as implementation

NORMALISERS: tuple[Normaliser, ...] = ("clipped_l2", "l2", "clipped_l1", "l1", "softmax", "clipped", "none")
POOLS: tuple[Pool, ...] = ("logsumexp", "mean", "max", "sum")
FORMS = [AttentionForm(n, 9.0, pool=p, pool_sharpness=6.0) for n, p in itertools.product(NORMALISERS, POOLS)]
FORMS += [AttentionForm(choice="max", pool="sum"), AttentionForm(slope=0.0)]
HARD = [
    AttentionForm(n, 60.0, pool_sharpness=80.0) for n in (NORMALISERS[0], NORMALISERS[-1])
]  # exp(60)² is no float32
ONE_TILE, MANY_TILES = 1 << 30, 2000


def problem(dtype: torch.dtype = torch.float64, unit: bool = True) -> tuple[Queries, Context]:
    """7 query items of 1 to 6 vectors, 5 context items of 1 to 9; padding holds rubbish on purpose."""
    draw = torch.Generator().manual_seed(3)
    queries = torch.randn(7, 6, 16, generator=draw, dtype=dtype)
    context = torch.randn(5, 9, 16, generator=draw, dtype=dtype)
    query_mask = torch.arange(6) < torch.tensor([6, 1, 3, 6, 2, 4, 5])[:, None]
    context_mask = torch.arange(9) < torch.tensor([9, 4, 1, 9, 6])[:, None]
    context_mask[3, 2] = False  # a hole: masks need not be prefixes
    if unit:
        queries, context = F.normalize(queries, dim=-1), F.normalize(context, dim=-1)
    return Queries(queries, query_mask), Context(context, context_mask)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.normaliser}-{f.pool}-{f.choice}-{f.slope}")
@pytest.mark.parametrize("unit", [True, False], ids=["unit", "any-length"])
def test_equals_the_definition_whatever_the_tiles(form: AttentionForm, unit: bool) -> None:
    inputs = problem(unit=unit)
    expected = attended_similarity_reference(*inputs, form)
    for budget in (ONE_TILE, MANY_TILES):
        torch.testing.assert_close(attended_similarity(*inputs, form, budget), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("form", FORMS[:4] + FORMS[-2:] + HARD, ids=lambda f: f"{f.normaliser}-{f.pool}-{f.sharpness}")
def test_float32_is_within_rounding_of_the_reference(form: AttentionForm) -> None:
    inputs = problem(torch.float32)
    found = attended_similarity(*inputs, form)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), attended_similarity_reference(*inputs, form), rtol=0, atol=2e-5)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.normaliser}-{f.pool}-{f.choice}-{f.slope}")
def test_gradients_equal_those_of_the_definition(form: AttentionForm) -> None:
    queries, context = problem()
    weights = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4))

    def gradients(score: object, *rest: object) -> tuple[Tensor, ...]:
        q, c = queries.vectors.clone().requires_grad_(), context.vectors.clone().requires_grad_()
        similarity = score(Queries(q, queries.mask), Context(c, context.mask), form, *rest)  # type: ignore[operator]
        return torch.autograd.grad((similarity * weights).sum(), (q, c))

    expected = gradients(attended_similarity_reference)
    for budget in (ONE_TILE, MANY_TILES):
        for found, right in zip(gradients(attended_similarity, budget), expected, strict=True):
            torch.testing.assert_close(found, right, rtol=0, atol=1e-8)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.normaliser}-{f.pool}-{f.choice}-{f.slope}")
def test_padding_never_changes_a_similarity(form: AttentionForm) -> None:
    queries, context = problem()
    longer_queries = Queries(F.pad(queries.vectors, (0, 0, 0, 3), value=7.0), F.pad(queries.mask, (0, 3)))
    longer_context = Context(F.pad(context.vectors, (0, 0, 0, 4), value=-5.0), F.pad(context.mask, (0, 4)))
    found = attended_similarity(longer_queries, longer_context, form)
    expected = attended_similarity(queries, context, form)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("learning", [True, False])
def test_tiles_stay_within_the_budget(monkeypatch: pytest.MonkeyPatch, learning: bool) -> None:
    """The largest score tensor of any tile times the stated number of temporaries is at most the budget."""
    monkeypatch.setenv("SACCADE_NATIVE", "0")  # for those see test_native_attention.py
    largest = 0

    original = implementation._match

    def spy(scores: Tensor, *rest: object) -> object:
        nonlocal largest
        largest = max(largest, scores.numel() * scores.element_size())
        return original(scores, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(implementation, "_match", spy)
    queries, context = torch.randn(40, 12, 8, requires_grad=learning), torch.randn(50, 10, 8)
    masks = torch.ones(40, 12, dtype=torch.bool), torch.ones(50, 10, dtype=torch.bool)
    budget = 200_000
    found = attended_similarity(Queries(queries, masks[0]), Context(context, masks[1]), AttentionForm(), budget)
    if learning:
        largest = 0
        found.sum().backward()  # type: ignore[no-untyped-call]
    assert 0 < largest * implementation.TEMPORARIES <= budget


def test_a_picture_without_regions_scores_without_nan() -> None:
    queries, context = problem()
    context.mask[1] = False
    for form in (AttentionForm(), AttentionForm(choice="max", pool="sum")):
        found = attended_similarity(queries, context, form)
        assert found.isfinite().all()


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.normaliser}-{f.pool}-{f.choice}-{f.slope}")
def test_attention_of_a_pair_agrees_with_the_table(form: AttentionForm) -> None:
    queries, context = problem()
    table = attended_similarity(queries, context, form)
    pairs = torch.tensor([0, 3, 4])
    queries = Queries(queries.vectors[pairs], queries.mask[pairs])
    context = Context(context.vectors[pairs], context.mask[pairs])
    weights, match, score = attention(queries, context, form)
    torch.testing.assert_close(score, table[pairs, pairs])
    torch.testing.assert_close(weights.sum(dim=1), queries.mask.double())
    assert (weights.transpose(1, 2)[~context.mask[:, None].expand(-1, 6, -1)] == 0).all()
    assert (match[~queries.mask] == 0).all()


def test_bf16_autocast_stays_near_float32() -> None:
    inputs = problem(torch.float32)
    exact = attended_similarity(*inputs, AttentionForm())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = attended_similarity(*inputs, AttentionForm())
    assert rough.dtype == torch.float32
    difference = (rough - exact).abs().max()
    assert 0 < difference < 0.05


def test_sharper_attention_looks_at_less() -> None:
    queries, context = problem()
    queries = Queries(queries.vectors[:5], queries.mask[:5])
    soft, hard = (attention(queries, context, replace(AttentionForm(), sharpness=s))[0] for s in (1.0, 100.0))
    assert (hard.amax(dim=1)[queries.mask] >= soft.amax(dim=1)[queries.mask]).all()
