"""The all-pairs kernels: what the plain form says, in every form, for ragged and empty items, forward and backward.

Without a GPU they run in Triton's interpreter, on the CPU.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are first imported; nothing compiles here anyway

import triton.language as tl  # noqa: E402

from saccade.ops import (  # noqa: E402
    AttentionForm,
    attended_similarity,
    attended_similarity_reference,
    pairwise,
)
from saccade.ops.kernels import autograd, similarity, warp_tiles  # noqa: E402
from saccade.ops.kernels.autograd import kernel_similarity  # noqa: E402
from saccade.ops.kernels.similarity import attention_tiles, pack_context, pack_queries, query_match  # noqa: E402
from saccade.ops.kernels.tuning import Tiling  # noqa: E402
from saccade.ops.pairwise import attention  # noqa: E402

FORMS = [
    *(AttentionForm(name) for name in ("clipped_l2", "l2", "clipped_l1", "l1", "softmax", "clipped", "none")),
    *(AttentionForm(pool=how) for how in ("mean", "max", "sum")),
    *(AttentionForm(choice="max", pool=how) for how in ("sum", "logsumexp")),
    AttentionForm(slope=0.0),
    AttentionForm(sharpness=50.0),  # exp would overflow without a maximum
]
pytestmark = pytest.mark.filterwarnings("ignore:divide by zero encountered in log2")  # of slots that nobody has
SMALL = Tiling(16, 16, wide=16, rows=16, loop=2, warps=4) if DEVICE == "cpu" else Tiling(64, 64, warps=4, rows=64)


@pytest.fixture(autouse=True)
def _interpretable(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":  # the interpreter multiplies no bfloat16
        monkeypatch.setattr(similarity, "INSIDE_REDUCED", tl.float32)


def problem(dtype: torch.dtype = torch.float32, unit: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ragged on both sides, in no order, with a hole in a mask; padding holds rubbish."""
    draw = torch.Generator().manual_seed(3)
    queries, context = torch.randn(7, 6, 16, generator=draw), torch.randn(5, 9, 16, generator=draw)
    query_mask = torch.arange(6) < torch.tensor([6, 1, 3, 6, 2, 4, 5])[:, None]
    context_mask = torch.arange(9) < torch.tensor([9, 4, 1, 9, 6])[:, None]
    context_mask[3, 2] = False
    if unit:
        queries, context = F.normalize(queries, dim=-1), F.normalize(context, dim=-1)
    queries[~query_mask], context[~context_mask] = torch.nan, torch.inf
    return queries.to(DEVICE, dtype), query_mask.to(DEVICE), context.to(DEVICE, dtype), context_mask.to(DEVICE)


def cleared(queries: Tensor, query_mask: Tensor, context: Tensor, context_mask: Tensor) -> tuple[Tensor, ...]:
    """For the plain form, which multiplies padding by zero."""
    clear = ~query_mask[:, :, None], ~context_mask[:, :, None]
    return queries.masked_fill(clear[0], 0.0), query_mask, context.masked_fill(clear[1], 0.0), context_mask


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.normaliser}-{f.pool}-{f.choice}-{f.slope}-{f.sharpness}")
def test_the_table_and_its_gradient_are_those_of_the_plain_form(
    form: AttentionForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autograd, "FEW", 0)  # packed without padding
    queries, query_mask, context, context_mask = problem(unit=False)
    given = torch.randn(7, 5, generator=torch.Generator().manual_seed(4)).to(DEVICE)

    q, c = queries.clone().requires_grad_(), context.clone().requires_grad_()
    found = kernel_similarity(q, query_mask, c, context_mask, form, torch.float32, SMALL)
    gradients = torch.autograd.grad((found * given).sum(), (q, c))

    plain = cleared(queries.double(), query_mask, context.double(), context_mask)
    q, c = plain[0].requires_grad_(), plain[2].requires_grad_()
    expected = attended_similarity_reference(q, query_mask, c, context_mask, form)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-5)
    for mine, right in zip(gradients, torch.autograd.grad((expected * given).sum(), (q, c)), strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize(
    "form", [AttentionForm(), AttentionForm("softmax", pool="max"), AttentionForm(choice="max")], ids=str
)
def test_packed_by_shapes_alone_nothing_changes(form: AttentionForm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches keep their padding when they learn; items of nothing are no exception."""
    queries, query_mask, context, context_mask = problem(unit=False)
    query_mask[4], context_mask[1] = False, False
    given = torch.randn(7, 5, generator=torch.Generator().manual_seed(4)).to(DEVICE)
    found = []
    for few in (0, 1 << 27):
        monkeypatch.setattr(autograd, "FEW", few)
        q, c = queries.clone().requires_grad_(), context.clone().requires_grad_()
        table = kernel_similarity(q, query_mask, c, context_mask, form, torch.float32, SMALL)
        real = table.isfinite()
        found.append((table.detach(), *torch.autograd.grad((table * given)[real].sum(), (q, c))))
    for packed, still in zip(*found, strict=True):
        torch.testing.assert_close(still, packed, rtol=1e-4, atol=5e-5)


def test_reduced_precision_stays_near() -> None:
    inputs = problem(torch.float16)
    form = AttentionForm(sharpness=4.0)
    found = kernel_similarity(*inputs, form, torch.float16, SMALL)
    assert found.dtype == torch.float32
    expected = attended_similarity_reference(*cleared(*inputs), form)
    difference = (found.double() - expected).abs().max()
    assert 1e-6 < difference < 4e-3


@pytest.mark.parametrize("how", ["logsumexp", "mean", "max", "sum"])
@pytest.mark.parametrize("choice", ["attend", "max"])
def test_items_of_nothing_are_what_the_plain_form_says(how: str, choice: str) -> None:
    queries, query_mask, context, context_mask = problem()
    query_mask[4], context_mask[1] = False, False
    form = AttentionForm(pool=how, choice=choice)  # type: ignore[arg-type]
    found = kernel_similarity(queries, query_mask, context, context_mask, form, torch.float32, SMALL)
    plain = cleared(queries, query_mask, context, context_mask)
    expected = attended_similarity(plain[0].requires_grad_(), *plain[1:], form)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    nothing = kernel_similarity(
        queries, torch.zeros_like(query_mask), context, context_mask, form, torch.float32, SMALL
    )
    assert (nothing == (-torch.inf if how in ("logsumexp", "max") else 0.0)).all()


def test_matches_and_weights_for_those_who_go_on() -> None:
    queries, query_mask, context, context_mask = problem()
    asking, asked = pack_queries(queries, query_mask, SMALL), pack_context(context, context_mask, SMALL)
    matches = query_match(asking, asked, AttentionForm(), SMALL)
    tiles = list(attention_tiles(asking, asked, AttentionForm(), replace(SMALL, rows=1 << 20)))
    assert [rows for rows, _ in tiles] == [slice(0, asking.bins.rows)]
    queries, _, context, _ = cleared(queries, query_mask, context, context_mask)
    for row, source in enumerate(asking.bins.row_source[: asking.bins.rows].tolist()):
        item, place = divmod(source, queries.shape[1])
        for other in range(len(context)):
            pair = (queries[[item]], query_mask[[item]], context[[other]], context_mask[[other]])
            weights, match, _ = attention(*pair, AttentionForm())
            torch.testing.assert_close(matches[row, other], match[0, place], rtol=0, atol=1e-5)
            here = asked.bins.segment.eq(-1).logical_not() & (asked.bins.source // context.shape[1] == other)
            bin_, places = (index.tolist() for index in here.nonzero(as_tuple=True))
            columns = [asked.bins.starts[b] + p for b, p in zip(bin_, places, strict=True)]
            parts = [int(asked.bins.source[b, p]) % context.shape[1] for b, p in zip(bin_, places, strict=True)]
            torch.testing.assert_close(tiles[0][1][row, columns], weights[0, parts, place], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("switch", "form", "needs_grad", "expected"),
    [
        (None, AttentionForm(), False, "warps"),
        (None, AttentionForm("l1", pool="mean"), False, "warps"),
        (None, AttentionForm(), True, "triton"),
        (None, AttentionForm(pool="max"), True, "triton"),
        (None, AttentionForm("softmax"), False, "triton"),
        ("0", AttentionForm(), False, None),
        (None, AttentionForm(slope=2.0), True, None),
    ],
    ids=str,
)
def test_which_kernel_is_asked(
    switch: str | None, form: AttentionForm, needs_grad: bool, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACCADE_KERNELS", raising=False)
    if switch is not None:
        monkeypatch.setenv("SACCADE_KERNELS", switch)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(warp_tiles, "have_nvrtc", lambda: True)
    monkeypatch.setattr(warp_tiles, "warp_similarity", lambda *_: "warps")
    monkeypatch.setattr("saccade.ops.kernels.autograd.kernel_similarity", lambda *_, **__: "triton")
    found = pairwise._by_kernel(*problem(torch.bfloat16), form, torch.bfloat16, 1 << 20, needs_grad)
    assert found == expected
