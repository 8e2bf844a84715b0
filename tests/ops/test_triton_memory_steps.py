"""The kernels of IMRAM's steps and memory say what the plain forms say: ragged, empty items, in and out of place.

Without a GPU they run in Triton's interpreter, on the CPU.
"""

from __future__ import annotations

import os
from typing import get_args

import pytest
import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are first imported; nothing compiles here anyway

from saccade.ops import AttentionForm, Normaliser, attention_weights, pool  # noqa: E402
from saccade.ops.triton.memory_steps import (  # noqa: E402
    StepContext,
    StepQueries,
    attend_step,
    blend,
    power_of_two_from_16,
    update_queries,
)

OTHERS, ROWS, PARTS, DIM = 3, 133, 16, 64  # the last rows do not fill a program


def blended(mixed: Tensor, query: Tensor) -> Tensor:
    gate, candidate = mixed.chunk(2, dim=-1)
    return gate.sigmoid() * query + (1 - gate.sigmoid()) * candidate.tanh()


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shared", [True, False], ids=["first update", "later update"])
@pytest.mark.parametrize("dim", [10, 1100], ids=["narrow", "wider than a program"])
def test_the_blend_is_the_plain_one(dim: int, shared: bool, dtype: torch.dtype) -> None:
    mixed = drawn(OTHERS, 5, 2 * dim, seed=0, dtype=dtype).mul_(3)
    query = drawn(1 if shared else OTHERS, 5, dim, seed=1, dtype=dtype)
    expected, before = blended(mixed.float(), query.float()), query.clone()
    found = blend(mixed, query, shared)
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=2e-6 if dtype == torch.float32 else 2e-2)
    assert torch.equal(query, before) if shared else found is query


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "the last"])
@pytest.mark.parametrize("shared", [True, False], ids=["first update", "later update"])
def test_an_update_takes_what_was_attended_to_in_and_compares_the_new_query(shared: bool, keep: bool) -> None:
    mixed = drawn(1 if shared else OTHERS, ROWS, 2 * DIM, seed=0)
    query = drawn(1 if shared else OTHERS, ROWS, DIM, seed=1)
    weights = drawn(OTHERS, ROWS, PARTS, seed=2).softmax(dim=-1)
    offered, context = drawn(OTHERS, PARTS, 2 * DIM, seed=3), drawn(OTHERS, PARTS, DIM, seed=4)
    expected = blended(mixed + weights @ offered, query)
    seen = StepContext(context, context @ context.mT, torch.full((OTHERS,), PARTS, dtype=torch.int32, device=DEVICE))
    before = query.clone()
    found, scores = update_queries(mixed, query, weights, offered, seen, shared, keep)
    torch.testing.assert_close(scores, expected @ context.mT, rtol=1e-5, atol=5e-5)
    if found is None:
        assert not keep
    else:
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(query, before) if shared or not keep else found is query


def test_one_context_item_shares_its_queries_too() -> None:
    """They are the caller's, and are asked again by the next tile."""
    mixed, query, context = drawn(1, 4, 2 * DIM, seed=0), drawn(1, 4, DIM, seed=1), drawn(1, PARTS, DIM, seed=2)
    seen = StepContext(context, context @ context.mT, torch.full((1,), PARTS, dtype=torch.int32, device=DEVICE))
    before = query.clone()
    update_queries(
        mixed, query, drawn(1, 4, PARTS, seed=3), drawn(1, PARTS, 2 * DIM, seed=4), seen, shared=True, keep=True
    )
    blend(mixed, query, shared=True)
    assert torch.equal(query, before)


@pytest.mark.parametrize("how", ["mean", "sum"])
@pytest.mark.parametrize("normaliser", get_args(Normaliser))
def test_a_step_is_the_plain_one(normaliser: Normaliser, how: str) -> None:
    """Items of 3, 0 and 17 queries, context items of 16, 5 and no vectors; the first scores differ from these."""
    form = AttentionForm(normaliser, pool=how)  # type: ignore[arg-type]
    sizes, counts = [3, 0, 17], [16, 5, 0]
    there = (torch.arange(PARTS) < torch.tensor(counts)[:, None]).to(DEVICE)
    context = drawn(3, PARTS, 8, seed=0) * there[..., None]
    query, first_query = drawn(3, 20, 8, seed=1), drawn(20, 8, seed=2)
    scores, first = query @ context.mT, first_query @ context.mT
    start = torch.tensor([0, 3, 3, 20], dtype=torch.int32, device=DEVICE)
    queries = StepQueries(first_query, first_query.norm(dim=-1), start, longest=17)
    seen = StepContext(context, context @ context.mT, torch.tensor(counts, dtype=torch.int32, device=DEVICE))
    weights = torch.empty_like(scores)
    found = attend_step(queries, seen, scores, first, form, weights)

    begin = 0
    for item, size in enumerate(sizes):
        rows = slice(begin, begin + size)
        everyone = torch.ones(3, size, dtype=torch.bool, device=DEVICE)
        expected = attention_weights(scores[:, rows].mT, everyone, there, form).mT
        torch.testing.assert_close(weights[:2, rows], expected[:2], rtol=1e-4, atol=1e-6)
        attended = expected @ context
        cosine = torch.cosine_similarity(attended, first_query[rows].expand_as(attended), dim=-1)
        match = pool(cosine, everyone, form.pool)
        torch.testing.assert_close(found[:2, item], match[:2], rtol=1e-4, atol=1e-5)
        begin += size
    assert not found[2].any()  # nothing to find
    assert not weights[2].any()


def test_a_power_of_two_holds_every_size() -> None:
    assert [power_of_two_from_16(size) for size in (0, 1, 16, 17, 36, 64)] == [16, 16, 16, 32, 64, 64]
