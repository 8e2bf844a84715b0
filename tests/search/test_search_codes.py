"""Search by tiles finds what sorting every score would find: from memory, from disk, from bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.core.errors import SaccadeError
from saccade.search import QueryWords, RegionCodes, maxsim_codes, search_codes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BUDGETS = [1 << 28, 2000]  # one tile; many


def collection(pictures: int = 300, ragged: bool = True) -> tuple[QueryWords, Tensor, Tensor]:
    """Four queries near some pictures; every tenth picture is there twice, so that scores tie.

    All numbers are 64ths: a float holds the sums of their products exactly, in whatever order a processor adds them.
    """
    draw = torch.Generator().manual_seed(pictures)
    topics = torch.randn(20, 1, 16, generator=draw)[torch.randint(20, (pictures,), generator=draw)]
    regions = in_64ths(F.normalize(torch.randn(pictures, 6, 16, generator=draw) + topics, dim=-1)).half()
    regions[5::10] = regions[4::10]
    mask = torch.arange(6) < torch.randint(1 if ragged else 6, 7, (pictures, 1), generator=draw)
    mask[5::10] = mask[4::10]
    words = in_64ths(F.normalize(regions[torch.tensor([3, 44, 90, 7]), :5].float() + 0.2, dim=-1))
    return QueryWords.of(words, torch.arange(5) < torch.tensor([5, 3, 1, 4])[:, None]), regions, mask


def in_64ths(numbers: Tensor) -> Tensor:
    return (64 * numbers).round() / 64


def expected_of(queries: QueryWords, codes: RegionCodes, k: int) -> Tensor:
    table = maxsim_codes(queries.to(torch.float16).to(torch.float32), codes)
    return table.sort(dim=1, descending=True, stable=True).indices[:, :k]


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kernel", [False, True], ids=["tiles", "kernel"])
def test_finds_what_sorting_finds(use_kernels: Callable[[], None], ragged: bool, budget: int, kernel: bool) -> None:
    queries, regions, mask = collection(ragged=ragged)
    codes = RegionCodes.of(regions, mask if ragged else None)
    expected = expected_of(queries, codes, 20)
    if kernel:
        use_kernels()
        codes = codes.to(DEVICE)
    assert torch.equal(search_codes(queries, codes, 20, budget=budget).indices.cpu(), expected)


@pytest.mark.parametrize("k", [1, 20, 1000])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kernel", [False, True], ids=["tiles", "kernel"])
def test_bytes_with_the_exact_codes_behind_them_rank_exactly(
    use_kernels: Callable[[], None], k: int, budget: int, kernel: bool
) -> None:
    queries, regions, mask = collection()
    codes = RegionCodes.of(regions, mask)
    expected = expected_of(queries, codes, k)
    if kernel:
        use_kernels()
        codes = codes.to(DEVICE)
    found = search_codes(queries, codes.to_bytes(), k, exact=codes, budget=budget)
    assert torch.equal(found.indices.cpu(), expected)
    assert found.scores.isfinite().all()


def test_bytes_alone_find_nearly_all() -> None:
    queries, regions, mask = collection(2000)
    codes = RegionCodes.of(regions, mask)
    rough = search_codes(queries, codes.to_bytes(), 50).indices
    exact = search_codes(queries, codes, 50).indices
    recall = torch.stack([torch.isin(e, r).float().mean() for e, r in zip(exact, rough, strict=True)])
    assert (recall >= 0.9).all()


def test_most_pictures_are_never_scored_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is of use: bytes leave out most of a collection."""
    queries, regions, mask = collection(2000)
    codes, asked = RegionCodes.of(regions, mask), []
    picked = RegionCodes.pick

    def spy(self: RegionCodes, pictures: Tensor) -> RegionCodes:
        asked.append(len(pictures))
        return picked(self, pictures)

    monkeypatch.setattr(RegionCodes, "pick", spy)
    search_codes(queries, codes.to_bytes(), 5, exact=codes)
    assert 5 <= max(asked) < 1000


class Elsewhere:
    """Codes that are read a part at a time."""

    def __init__(self, codes: RegionCodes) -> None:
        self.codes, self.dim = codes, codes.dim

    def __len__(self) -> int:
        return len(self.codes)

    def part(self, first: int, stop: int) -> RegionCodes:
        return self.codes.part(first, stop).copied()

    def pick(self, pictures: torch.Tensor) -> RegionCodes:
        return self.codes.pick(pictures)


def test_codes_that_are_read_in_parts_give_the_same() -> None:
    queries, regions, mask = collection()
    codes = RegionCodes.of(regions, mask)
    exact, rough = Elsewhere(codes), Elsewhere(codes.to_bytes())
    for budget in BUDGETS:
        expected = expected_of(queries, codes, 20)
        assert torch.equal(search_codes(queries, exact, 20, budget=budget).indices, expected)
        assert torch.equal(search_codes(queries, rough, 20, exact=exact, budget=budget).indices, expected)


def test_codes_elsewhere_are_sent_where_the_search_is() -> None:
    """On a GPU from memory that it does not own; without one this is the same search again."""
    queries, regions, mask = collection()
    codes = RegionCodes.of(regions, mask)
    for budget in BUDGETS:
        found = search_codes(queries, codes, 20, device=DEVICE, budget=budget)
        assert torch.equal(found.indices.cpu(), expected_of(queries, codes, 20))
        found = search_codes(queries, codes.to_bytes(), 20, exact=codes, device=DEVICE, budget=budget)
        assert torch.equal(found.indices.cpu(), expected_of(queries, codes, 20))


def test_an_empty_collection_finds_nothing() -> None:
    queries, regions, mask = collection()
    nothing = RegionCodes.of(regions, mask).part(0, 0)
    assert search_codes(queries, Elsewhere(nothing), 5).indices.shape == (4, 0)


def test_what_does_not_fit_is_refused() -> None:
    queries, regions, mask = collection()
    codes = RegionCodes.of(regions, mask)
    with pytest.raises(SaccadeError, match="k is 0"):
        search_codes(queries, codes, 0)
    with pytest.raises(SaccadeError, match="the words have 8 dimensions, the codes 16"):
        search_codes(QueryWords(queries.words[:, :8], queries.lengths), codes)
    with pytest.raises(SaccadeError, match="were not made from the exact ones"):
        search_codes(queries, codes.to_bytes(), exact=codes.part(0, 10))
