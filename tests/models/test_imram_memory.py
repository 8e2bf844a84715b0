"""Memory distillation without attended vectors is the memory distillation of attended vectors."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor

from saccade.models.imram import MemoryDistillation, MemoryForm

FORMS = get_args(MemoryForm)


def problem(shared: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (the same for all context items, or each item's own), scores of five parts, and the context."""
    draw = torch.Generator().manual_seed(0)
    query = torch.randn(1 if shared else 3, 4, 6, generator=draw, dtype=torch.float64)
    scores = torch.rand(3, 4, 5, generator=draw, dtype=torch.float64)
    return query, scores, torch.randn(3, 5, 6, generator=draw, dtype=torch.float64)


def plain(memory: MemoryDistillation, query: Tensor, found: Tensor) -> Tensor:
    both = torch.cat([query.expand_as(found), found], dim=-1)
    updated = {"none": query, "add": query + found}.get(memory.form)
    if updated is None:
        assert memory.candidate is not None
        updated = torch.tanh(memory.candidate(both))
        if memory.gate is not None:
            gate = torch.sigmoid(memory.gate(both))
            updated = gate * query + (1 - gate) * updated
    return updated / updated.norm(dim=-1, keepdim=True) if memory.unit_length else updated


@pytest.mark.parametrize("unit_length", [False, True], ids=["any-length", "unit"])
@pytest.mark.parametrize("shared", [True, False], ids=["first update", "later update"])
@pytest.mark.parametrize("form", [form for form in FORMS if form != "none"])
def test_equals_its_definition_with_and_without_gradients(form: MemoryForm, shared: bool, unit_length: bool) -> None:
    torch.manual_seed(1)
    memory = MemoryDistillation(6, form, unit_length).double()
    query, scores, context = problem(shared)
    weights = scores.softmax(dim=-1)
    expected = plain(memory, query, weights @ context)
    with torch.no_grad():
        torch.testing.assert_close(memory(query, weights, memory.offer(context)), expected)
        known = memory.recall(query)
        torch.testing.assert_close(memory(query, weights, memory.offer(context), known), expected)
        torch.testing.assert_close(known, memory.recall(query))  # it was not written into
    leaves = [tensor.requires_grad_() for tensor in (query, scores, context)]
    weights = scores.softmax(dim=-1)  # they sum to one, whatever the scores
    found = memory(query, weights, memory.offer(context))
    torch.testing.assert_close(found, expected)
    pull = torch.randn(found.shape, dtype=torch.float64)
    wanted = [*leaves, *memory.parameters()]
    given = torch.autograd.grad(found, wanted, pull, retain_graph=True)
    for one, other in zip(
        given, torch.autograd.grad(plain(memory, query, weights @ context), wanted, pull), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_without_memory_a_query_stays_what_it_was() -> None:
    memory = MemoryDistillation(6, "none")
    query, scores, context = problem(shared=True)
    weights = scores.softmax(dim=-1)
    assert memory(query, weights, memory.offer(context)) is query
    assert not list(memory.parameters())


def test_the_callers_queries_are_not_written_into() -> None:
    memory = MemoryDistillation(6, "gate").double()
    query, scores, context = problem(shared=False)
    weights = scores.softmax(dim=-1)
    before = query.clone()
    with torch.no_grad():
        memory(query, weights, memory.offer(context))
    assert torch.equal(query, before)
