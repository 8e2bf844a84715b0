"""Compiled loops: equal to the definition, never in the way, made again when broken; all holds without a compiler."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path
from typing import Any

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
    backend,
    native,
)
from saccade.ops.native import MIN_WORK, library, refuses
from saccade.ops.native import attention as implementation
from saccade.ops.native.attention import NativeAttention

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
    return native.find_compiler() is not None


def problem(items: int = 37, others: int = 11) -> tuple[Queries, Context]:
    """More items than a vector has lanes, of all lengths and with a hole; rubbish for padding."""
    draw = torch.Generator().manual_seed(3)
    queries, context = (torch.randn(*shape, 32, generator=draw) for shape in ((items, 9), (others, 14)))
    query_mask = torch.arange(9) < torch.randint(1, 10, (items, 1), generator=draw)
    context_mask = torch.arange(14) < torch.randint(1, 15, (others, 1), generator=draw)
    context_mask[3] = torch.arange(14) % 3 == 1
    queries, context = F.normalize(queries, dim=-1), F.normalize(context, dim=-1)
    queries = queries.masked_fill(~query_mask[..., None], torch.nan)
    return Queries(queries, query_mask), Context(context, context_mask)


def reference(queries: Queries, context: Context, form: AttentionForm) -> Tensor:
    return attended_similarity_reference(Queries(queries.vectors.nan_to_num(), queries.mask), context, form)


def test_loops_are_there_where_a_compiler_is() -> None:
    assert (library() is not None) == has_compiler()


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
    queries, context = problem()
    queries.mask[5], context.mask[2] = False, False
    queries, context = (
        Queries(queries.vectors.to(dtype), queries.mask),
        Context(context.vectors.to(dtype), context.mask),
    )
    with backend("torch"):
        plain = attended_similarity(queries, context, form, 1 << 30)
    assert plain[:, 2].isfinite().sum() >= len(plain) - 1
    found = attended_similarity(queries, context, form)
    # A sum carries the last bits of each of its cosines, and those of opposite signs leave little of it: what holds on
    # every processor is 1e-6 a query that the item really has.
    terms = queries.mask.sum(dim=1, keepdim=True).clamp(min=1) if form.pool == "sum" else 1
    torch.testing.assert_close(found / terms, plain / terms, rtol=1e-6, atol=1e-6)


def test_a_broken_query_spoils_no_other() -> None:
    queries, context = problem()
    whole = attended_similarity(queries, context, FORMS[0])
    queries.vectors[4, 0] = torch.nan
    found = attended_similarity(queries, context, FORMS[0])
    others = torch.arange(len(queries)) != 4
    assert not found[4].isfinite().any()
    assert torch.equal(found[others], whole[others])


def test_cores_share_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "CORE_QUERIES", 40)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        found = attended_similarity(*problem(), FORMS[0])
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(found.double(), reference(*problem(), form=FORMS[0]), rtol=0, atol=1e-6)


def test_columns_and_matches_stay_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_compiler():
        assert library() is None
        return
    largest, match = 0, NativeAttention.match

    def spy(self: NativeAttention, context: Any, begin: int, queries: Any, found: Any) -> None:
        nonlocal largest
        size = queries.values.numel() + queries.length.numel() + sum(each.numel() for each in found)
        largest = max(largest, 4 * size)
        match(self, context, begin, queries, found)

    monkeypatch.setattr(NativeAttention, "match", spy)
    budget = 60_000
    attended_similarity(*problem(100, 60), FORMS[0], budget)
    assert 0 < largest <= budget // torch.get_num_threads()


def test_the_exponential_is_exact_to_two_units_in_the_last_place() -> None:
    loops = library()
    if loops is None:
        assert not has_compiler()
        return
    values = torch.linspace(-30, 30, 1 << 20)
    found = torch.empty_like(values)
    loops.saccade_exponential(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in (values, found)), values.numel())
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
    assert library() is None
    found = attended_similarity(*problem(), FORMS[0])
    torch.testing.assert_close(found.double(), reference(*problem(), form=FORMS[0]), rtol=0, atol=1e-6)
    assert not list(fresh.glob("*.so"))


def test_small_work_is_pytorchs_whatever_the_cache_holds(monkeypatch: pytest.MonkeyPatch, fresh: Path) -> None:
    monkeypatch.delenv("SACCADE_NATIVE")
    cpu, floats = torch.device("cpu"), {torch.float32}
    assert "too few" in str(refuses(cpu, floats, FORMS[0], MIN_WORK / 2))
    assert not fresh.exists()
    assert (refuses(cpu, floats, FORMS[0], MIN_WORK) is None) == has_compiler()
    assert fresh.exists() == has_compiler()
    assert "too few" in str(refuses(cpu, floats, FORMS[0], MIN_WORK / 2))  # and now that it is there


def test_a_broken_file_is_made_again(monkeypatch: pytest.MonkeyPatch, fresh: Path) -> None:
    if not has_compiler():
        assert library() is None
        return
    assert library() is not None
    (made,) = fresh.iterdir()
    content = made.read_bytes()
    made.write_bytes(b"\x7fELF no more")
    monkeypatch.setattr(native, "_loaded", {})
    assert library() is not None
    assert [path.name for path in fresh.iterdir()] == [made.name]
    assert len(made.read_bytes()) == len(content)


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
    cpu = torch.device("cpu")
    assert refuses(cpu, {dtype}, form, MIN_WORK) is not None
    assert (refuses(cpu, {torch.float32}, AttentionForm(), MIN_WORK) is None) == has_compiler()
