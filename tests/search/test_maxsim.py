"""MaxSim equals its definition in tiles, in the kernel and in bytes, whose bounds hold."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.ops import AttentionForm, Context, Queries, attended_similarity, backend
from saccade.search import QueryWords, RegionCodes, maxsim, maxsim_codes, maxsim_reference
from saccade.search.maxsim import MAX_FLOAT32_DIM
from saccade.search.triton.launch import Shape, launch, launch_chosen

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

KINDS = [torch.float16, torch.float32, torch.float64]
ONE_TILE, MANY_TILES = 1 << 28, 3000


def problem(ragged: bool, dim: int = 16, pictures: int = 70) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """5 queries of 1 to 7 words; pictures of 5 regions, or of 0 to 5. All are numbers of half precision."""
    draw = torch.Generator().manual_seed(dim)
    words = F.normalize(torch.randn(5, 7, dim, generator=draw), dim=-1).half().float()
    regions = F.normalize(torch.randn(pictures, 5, dim, generator=draw), dim=-1).half().float()
    word_mask = torch.arange(7) < torch.tensor([7, 1, 3, 5, 2])[:, None]
    counts = torch.randint(0, 6, (pictures, 1), generator=draw) if ragged else torch.tensor([[5]])
    return words, word_mask, regions, torch.arange(5) < counts.expand(pictures, 1)


def on_device(queries: QueryWords, codes: RegionCodes) -> tuple[QueryWords, RegionCodes]:
    return queries.to(DEVICE), codes.to(DEVICE)


def codes_of(regions: Tensor, mask: Tensor, kind: torch.dtype = torch.float16) -> RegionCodes:
    return RegionCodes.of(regions.to(kind), None if bool(mask.all()) else mask)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("budget", [ONE_TILE, MANY_TILES])
def test_tiles_equal_the_definition(ragged: bool, kind: torch.dtype, budget: int) -> None:
    words, word_mask, regions, mask = problem(ragged)
    found = maxsim(words, word_mask, regions.to(kind), mask, budget)
    expected = maxsim_reference(words, word_mask, regions, mask)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-12 if kind == torch.float64 else 2e-6)


def test_is_the_sum_max_form_of_attended_similarity() -> None:
    words, word_mask, regions, mask = problem(ragged=False)
    form = AttentionForm(choice="max", pool="sum")
    known = attended_similarity(Queries(words, word_mask), Context(regions, mask), form)
    torch.testing.assert_close(maxsim(words, word_mask, regions, mask), known)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("dim", [16, 24])
@pytest.mark.parametrize("shape", [Shape(16, bulk=True), Shape(32, bulk=False)], ids=str)
def test_the_kernel_equals_the_definition(ragged: bool, dim: int, shape: Shape) -> None:
    words, word_mask, regions, mask = problem(ragged, dim)
    queries, codes = on_device(QueryWords.of(words, word_mask), codes_of(regions, mask))
    scores, peaks = (found.cpu() for found in launch(queries, codes, shape=shape)[:2])
    expected = maxsim_reference(words, word_mask, regions, mask)
    torch.testing.assert_close(scores.double(), expected, rtol=0, atol=2e-6)
    padded = F.pad(scores, (0, peaks.shape[1] * shape.pictures - scores.shape[1]), value=-torch.inf)
    assert torch.equal(peaks, padded.view(*peaks.shape, shape.pictures).amax(dim=2))


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("dim", [320, 290])
def test_wide_codes_go_through_the_kernel_in_chunks(ragged: bool, dim: int) -> None:
    words, word_mask, regions, mask = problem(ragged, dim, pictures=20)
    queries, codes = on_device(QueryWords.of(words, word_mask), codes_of(regions, mask))
    expected = maxsim_reference(words, word_mask, regions, mask)
    scores, _, _ = launch(queries, codes, shape=Shape(16))
    torch.testing.assert_close(scores.cpu().double(), expected, rtol=0, atol=5e-6)
    most, _, _ = launch(queries, codes.to_bytes(), bound=True, shape=Shape(16))
    assert ((most.cpu() - expected)[expected.isfinite()] >= 0).all()
    chosen = torch.tensor([[3, 1, 7, 19]] * 5)
    again = launch_chosen(queries, codes, chosen.to(DEVICE)).cpu().double()
    torch.testing.assert_close(again, expected.gather(1, chosen), rtol=0, atol=5e-6)


def test_more_words_than_one_launch_holds() -> None:
    """300 words of 3 queries go in two launches; a query without words scores 0."""
    draw = torch.Generator().manual_seed(1)
    queries = QueryWords(torch.randn(300, 16, generator=draw).half().float(), (120, 0, 130, 50))
    codes = RegionCodes.rows(torch.randn(60, 16, generator=draw).half(), torch.tensor([6] * 10))
    found = launch(*on_device(queries, codes))[0].cpu()
    assert (found[1] == 0).all()
    with backend("torch"):
        torch.testing.assert_close(found, maxsim_codes(queries, codes), rtol=3e-6, atol=0)


@pytest.mark.parametrize("ragged", [False, True])
def test_the_kernel_for_chosen_pictures(ragged: bool) -> None:
    words, word_mask, regions, mask = problem(ragged)
    chosen = torch.randint(0, len(regions), (5, 21), generator=torch.Generator().manual_seed(2))
    chosen[1, 3] = -1
    queries, codes = on_device(QueryWords.of(words, word_mask), codes_of(regions, mask))
    found = launch_chosen(queries, codes, chosen.to(DEVICE)).cpu()
    expected = maxsim_reference(words, word_mask, regions, mask).gather(1, chosen.clamp(min=0))
    expected[1, 3] = -torch.inf
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("kernel", [False, True], ids=["tiles", "kernel"])
def test_bytes_stay_near_and_their_bounds_hold(use_kernels: Callable[[], None], ragged: bool, kernel: bool) -> None:
    words, word_mask, regions, mask = problem(ragged)
    queries, codes = QueryWords.of(words, word_mask), codes_of(regions, mask).to_bytes()
    if kernel:
        use_kernels()
        queries, codes = on_device(queries, codes)
    exact = maxsim_reference(words, word_mask, regions, mask)
    there = exact.isfinite()
    near, most = (maxsim_codes(queries, codes, bound=bound).cpu().double() for bound in (False, True))
    assert ((near - exact)[there].abs() < 0.03).all()
    assert ((most - exact)[there] >= 0).all()
    assert ((most - exact)[there] < 0.25).all()
    assert torch.equal(near.isfinite(), there)


def test_bytes_say_how_far_they_are_off() -> None:
    _, _, regions, mask = problem(ragged=True)
    exact, rough = codes_of(regions, mask), codes_of(regions, mask).to_bytes()
    for picture in range(len(exact)):
        true, kept = exact.part(picture, picture + 1), rough.part(picture, picture + 1)
        assert kept.bounds is not None
        scale, _, error = kept.bounds
        off = (true.vectors.float() - kept.vectors.float() * scale).norm(dim=1)
        assert (off <= error).all()
        assert (error <= 0.05).all()
    assert rough.vectors.nbytes * 2 == exact.vectors.nbytes


def test_pictures_picked_and_cut_keep_their_scores() -> None:
    words, word_mask, regions, mask = problem(ragged=True)
    queries, codes = QueryWords.of(words, word_mask), codes_of(regions, mask)
    whole = maxsim_codes(queries, codes)
    order = torch.randperm(len(codes), generator=torch.Generator().manual_seed(3))[:30]
    for kept in (codes, codes.to_bytes()):
        table = maxsim_codes(queries, kept)
        torch.testing.assert_close(maxsim_codes(queries, kept.pick(order)), table[:, order])
        joined = RegionCodes.join([kept.part(0, 20), kept.part(20, 21), kept.part(21, len(kept))])
        torch.testing.assert_close(maxsim_codes(queries, joined), table)
    assert whole.shape == (5, 70)


@pytest.mark.parametrize("exactly", [True, False])
@pytest.mark.parametrize("dim", [64, MAX_FLOAT32_DIM + 64])
def test_bytes_are_multiplied_without_loss_on_any_cpu(dim: int, exactly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bytes would overflow, products are of float32, or of float64 if float32 would round."""
    if not exactly:
        monkeypatch.setattr(sys.modules["saccade.search.maxsim"], "bytes_multiply_exactly", lambda: False)
    draw = torch.Generator().manual_seed(dim)
    words, regions = (torch.randint(64, 128, (n, 4, dim), generator=draw).float() for n in (3, 9))
    words[..., 0] = regions[..., 0] = 127  # so that bytes are these very numbers
    queries, codes = QueryWords.of(words), RegionCodes.of(regions, None).to_bytes()
    assert torch.equal(codes.vectors.float(), regions.flatten(0, 1))
    with backend("torch"):
        found = maxsim_codes(queries, codes)
    every = torch.ones(3, 4, dtype=torch.bool), torch.ones(9, 4, dtype=torch.bool)
    wanted = maxsim_reference(words, every[0], regions, every[1])
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=0.0)
