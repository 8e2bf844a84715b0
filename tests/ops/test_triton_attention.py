"""The all-pairs kernels: what the plain form says, in every form, for ragged and empty items, forward and backward.

Without a GPU they run in Triton's interpreter, on the CPU.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are first imported; nothing compiles here anyway

import triton.language as tl  # noqa: E402

from saccade.ops import (  # noqa: E402
    AttentionForm,
    Context,
    Queries,
    attended_similarity,
    attended_similarity_reference,
    backend,
)
from saccade.ops.triton import attention  # noqa: E402
from saccade.ops.triton.attention import Tiling, triton_similarity  # noqa: E402

FORMS = [
    *(AttentionForm(name) for name in ("clipped_l2", "l2", "clipped_l1", "l1", "softmax", "clipped", "none")),
    *(AttentionForm(pool=how) for how in ("mean", "max", "sum")),
    *(AttentionForm(choice="max", pool=how) for how in ("sum", "logsumexp")),
    AttentionForm(slope=0.0),
    AttentionForm(sharpness=50.0),  # exp would overflow without a maximum
]
pytestmark = pytest.mark.filterwarnings("ignore:divide by zero encountered in log2")  # of slots that nobody has
SMALL = Tiling(16, wide=16, rows=16, loop=2) if DEVICE == "cpu" else Tiling(rows=64)


@pytest.fixture(autouse=True)
def _interpretable(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":  # the interpreter multiplies no bfloat16
        monkeypatch.setattr(attention, "INSIDE_REDUCED", tl.float32)


def problem(dtype: torch.dtype = torch.float32, unit: bool = True) -> tuple[Queries, Context]:
    """Ragged on both sides, in no order, with a hole in a mask; padding holds rubbish."""
    draw = torch.Generator().manual_seed(3)
    queries, context = torch.randn(7, 6, 16, generator=draw), torch.randn(5, 9, 16, generator=draw)
    query_mask = torch.arange(6) < torch.tensor([6, 1, 3, 6, 2, 4, 5])[:, None]
    context_mask = torch.arange(9) < torch.tensor([9, 4, 1, 9, 6])[:, None]
    context_mask[3, 2] = False
    if unit:
        queries, context = F.normalize(queries, dim=-1), F.normalize(context, dim=-1)
    queries[~query_mask], context[~context_mask] = torch.nan, torch.inf
    return (
        Queries(queries.to(DEVICE, dtype), query_mask.to(DEVICE)),
        Context(context.to(DEVICE, dtype), context_mask.to(DEVICE)),
    )


def learning(queries: Queries, context: Context, dtype: torch.dtype = torch.float32) -> tuple[Queries, Context]:
    """Copies that want a gradient."""
    vectors = (side.vectors.to(dtype, copy=True).requires_grad_() for side in (queries, context))
    return Queries(next(vectors), queries.mask), Context(next(vectors), context.mask)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.normaliser}-{f.pool}-{f.choice}-{f.slope}-{f.sharpness}")
def test_the_table_and_its_gradient_are_those_of_the_plain_form(
    form: AttentionForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "MAX_STATIC_SCORES", 0)  # packed without padding
    given = torch.randn(7, 5, generator=torch.Generator().manual_seed(4)).to(DEVICE)

    queries, context = learning(*problem(unit=False))
    found = triton_similarity(queries, context, form, torch.float32, tiling=SMALL)
    gradients = torch.autograd.grad((found * given).sum(), (queries.vectors, context.vectors))

    queries, context = learning(*problem(unit=False), torch.float64)
    expected = attended_similarity_reference(queries, context, form)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-5)
    right = torch.autograd.grad((expected * given).sum(), (queries.vectors, context.vectors))
    for mine, known in zip(gradients, right, strict=True):
        torch.testing.assert_close(mine.double(), known, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize(
    "form", [AttentionForm(), AttentionForm("softmax", pool="max"), AttentionForm(choice="max")], ids=str
)
def test_packed_by_shapes_alone_nothing_changes(form: AttentionForm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches keep their padding when they learn; items of nothing are no exception."""
    given = torch.randn(7, 5, generator=torch.Generator().manual_seed(4)).to(DEVICE)
    found = []
    for few in (0, 1 << 27):
        monkeypatch.setattr(attention, "MAX_STATIC_SCORES", few)
        queries, context = learning(*problem(unit=False))
        queries.mask[4], context.mask[1] = False, False
        table = triton_similarity(queries, context, form, torch.float32, tiling=SMALL)
        real = table.isfinite()
        gradients = torch.autograd.grad((table * given)[real].sum(), (queries.vectors, context.vectors))
        found.append((table.detach(), *gradients))
    for packed, static in zip(*found, strict=True):
        torch.testing.assert_close(static, packed, rtol=1e-4, atol=5e-5)


def test_reduced_precision_stays_near() -> None:
    inputs = problem(torch.float16)
    form = AttentionForm(sharpness=4.0)
    found = triton_similarity(*inputs, form, torch.float16, tiling=SMALL)
    assert found.dtype == torch.float32
    expected = attended_similarity_reference(*inputs, form)
    difference = (found.double() - expected).abs().max()
    assert 1e-6 < difference < 4e-3


@pytest.mark.parametrize("how", ["logsumexp", "mean", "max", "sum"])
@pytest.mark.parametrize("choice", ["attend", "max"])
def test_items_of_nothing_are_what_the_plain_form_says(how: str, choice: str) -> None:
    queries, context = problem()
    queries.mask[4], context.mask[1] = False, False
    form = AttentionForm(pool=how, choice=choice)  # type: ignore[arg-type]
    found = triton_similarity(queries, context, form, torch.float32, tiling=SMALL)
    with backend("torch"):
        expected = attended_similarity(queries, context, form)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    nobody = Queries(queries.vectors, torch.zeros_like(queries.mask))
    nothing = triton_similarity(nobody, context, form, torch.float32, tiling=SMALL)
    assert (nothing == (-torch.inf if how in ("logsumexp", "max") else 0.0)).all()
