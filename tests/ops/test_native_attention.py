"""Compiled loops: equal to the definition, never in the way, made again when broken; all holds without a compiler."""

from __future__ import annotations

import ctypes
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.ops import AttentionForm, attended_similarity, attended_similarity_reference, native, pairwise_native
from saccade.ops.native import WORTH, native_library
from saccade.ops.native.attention import NativeAttention, native_attention
from saccade.ops.pairwise import Normaliser, Pool

NORMALISERS: tuple[Normaliser, ...] = ("clipped_l2", "l2", "clipped_l1", "l1")
POOLS: tuple[Pool, ...] = ("logsumexp", "mean", "max", "sum")
FORMS = [AttentionForm(n, 9.0, pool=p, pool_sharpness=6.0) for n, p in itertools.product(NORMALISERS, POOLS)]
FORMS += [AttentionForm(slope=0.0), AttentionForm(sharpness=-4.0), AttentionForm(slope=2.0, sharpness=20.0)]
BUDGET = 1 << 26


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_NATIVE", "1")


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing is compiled yet; the folder where it will be."""
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path))
    monkeypatch.setattr(native, "_loaded", {})
    return tmp_path / "native"


def has_compiler() -> bool:
    return native._compiler(os.environ.get("CXX", ""), os.environ.get("PATH")) is not None


def problem(items: int = 37, others: int = 11) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """More items than a vector has lanes, of all lengths and with a hole; rubbish for padding."""
    draw = torch.Generator().manual_seed(3)
    queries, context = (torch.randn(*shape, 32, generator=draw) for shape in ((items, 9), (others, 14)))
    query_mask = torch.arange(9) < torch.randint(1, 10, (items, 1), generator=draw)
    context_mask = torch.arange(14) < torch.randint(1, 15, (others, 1), generator=draw)
    context_mask[3] = torch.arange(14) % 3 == 1
    queries, context = F.normalize(queries, dim=-1), F.normalize(context, dim=-1)
    return queries.masked_fill(~query_mask[..., None], torch.nan), query_mask, context, context_mask


def reference(queries: Tensor, query_mask: Tensor, *rest: Tensor, form: AttentionForm) -> Tensor:
    return attended_similarity_reference(queries.nan_to_num(), query_mask, *rest, form)


def test_loops_are_there_where_a_compiler_is() -> None:
    assert (native_library(0) is not None) == has_compiler()


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.normaliser}-{f.pool}-{f.sharpness}-{f.slope}")
def test_equals_the_definition_whatever_the_tiles(form: AttentionForm) -> None:
    expected = reference(*problem(), form=form)
    for budget in (BUDGET, 5000):
        found = attended_similarity(*problem(), form, budget)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("wanted", ["0", "1"])
@pytest.mark.parametrize("form", FORMS[:4], ids=lambda f: f.pool)
def test_an_item_with_nothing_in_it_gets_what_the_plain_form_gives(
    monkeypatch: pytest.MonkeyPatch, form: AttentionForm, wanted: str, dtype: torch.dtype
) -> None:
    monkeypatch.setenv("SACCADE_NATIVE", wanted)
    queries, query_mask, context, context_mask = problem()
    query_mask[5], context_mask[2] = False, False
    queries, context = queries.masked_fill(~query_mask[..., None], 0.0).to(dtype), context.to(dtype)
    plain = attended_similarity(queries.requires_grad_(), query_mask, context, context_mask, form, 1 << 30).detach()
    assert plain[:, 2].isfinite().sum() >= len(plain) - 1
    with torch.no_grad():
        found = attended_similarity(queries, query_mask, context, context_mask, form)
    torch.testing.assert_close(found, plain, rtol=1e-6, atol=1e-6)


def test_a_broken_query_spoils_no_other() -> None:
    queries, query_mask, context, context_mask = problem()
    whole = attended_similarity(queries, query_mask, context, context_mask, FORMS[0])
    queries[4, 0] = torch.nan
    found = attended_similarity(queries, query_mask, context, context_mask, FORMS[0])
    others = torch.arange(len(queries)) != 4
    assert not found[4].isfinite().any()
    assert torch.equal(found[others], whole[others])


def test_cores_share_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairwise_native, "_QUERIES", 40)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        found = attended_similarity(*problem(), FORMS[0])
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(found.double(), reference(*problem(), form=FORMS[0]), rtol=0, atol=1e-6)


def test_columns_and_matches_stay_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_compiler():
        assert native_library(0) is None
        return
    largest, match = 0, NativeAttention.match

    def spy(self: NativeAttention, asked: Any, begin: int, queries: Any, found: Any) -> None:
        nonlocal largest
        size = queries.values.numel() + queries.length.numel() + sum(each.numel() for each in found)
        largest = max(largest, 4 * size)
        match(self, asked, begin, queries, found)

    monkeypatch.setattr(NativeAttention, "match", spy)
    budget = 60_000
    attended_similarity(*problem(100, 60), FORMS[0], budget)
    assert 0 < largest <= budget // torch.get_num_threads()


def test_the_exponential_is_exact_to_two_units_in_the_last_place() -> None:
    library = native_library(0)
    if library is None:
        assert not has_compiler()
        return
    values = torch.linspace(-30, 30, 1 << 20)
    found = torch.empty_like(values)
    library.saccade_exponential(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in (values, found)), values.numel())
    exact = values.double().exp()
    assert ((found.double() - exact) / exact).abs().max() < 2 * 2**-24


@pytest.mark.parametrize("how", ["none", "broken", "forbidden"])
def test_without_a_working_compiler_pytorch_does_it(
    monkeypatch: pytest.MonkeyPatch, fresh: Path, tmp_path: Path, how: str
) -> None:
    broken = tmp_path / "compiler"
    broken.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", {"none": "no-such-compiler", "broken": str(broken), "forbidden": ""}[how])
    if how == "forbidden":
        monkeypatch.setenv("SACCADE_NATIVE", "0")
    assert native_library(WORTH) is None
    found = attended_similarity(*problem(), FORMS[0])
    torch.testing.assert_close(found.double(), reference(*problem(), form=FORMS[0]), rtol=0, atol=1e-6)
    assert not list(fresh.glob("*.so"))


def test_small_work_waits_for_no_compiler_and_a_broken_file_is_made_again(
    monkeypatch: pytest.MonkeyPatch, fresh: Path
) -> None:
    monkeypatch.delenv("SACCADE_NATIVE")
    assert native_library(WORTH / 2) is None
    assert not fresh.exists()
    if not has_compiler():
        return
    assert native_library(WORTH) is not None
    (made,) = fresh.iterdir()
    monkeypatch.setattr(native, "_loaded", {})
    assert native_library(0) is not None  # what is there serves small work too
    made.unlink()  # not cut in place: this process runs it
    made.write_bytes(b"\x7fELF no more")
    monkeypatch.setattr(native, "_loaded", {})
    assert native_library(0) is None
    assert native_library(WORTH) is not None
    assert [path.name for path in fresh.iterdir()] == [made.name]


@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        (AttentionForm("softmax"), torch.float32),
        (AttentionForm("none"), torch.float32),
        (AttentionForm(sharpness=31.0), torch.float32),
        (AttentionForm(choice="max"), torch.float32),
        (AttentionForm(), torch.float64),
    ],
)
def test_other_forms_stay_with_pytorch(form: AttentionForm, dtype: torch.dtype) -> None:
    assert native_attention(form, dtype, WORTH) is None
    assert isinstance(native_attention(AttentionForm(), torch.float32, 0), NativeAttention) == has_compiler()
