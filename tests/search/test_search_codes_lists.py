"""Search by lists on a GPU finds what sorting every score finds; a list that overflowed does not decide."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from saccade.ops import backend
from saccade.search import QueryWords, Ranking, RegionCodes, maxsim_codes, search_codes
from saccade.search.triton import lists

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PICTURES, K = 700, 4  # blocks enough for lists


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch, use_kernels: Callable[[], None]) -> list[Ranking | None]:
    """What the lists answered: None where they overflowed. Everything goes through kernels."""
    use_kernels()
    kept: list[Ranking | None] = []
    for name in ("best_listed", "certain_listed"):
        whole = getattr(lists, name)

        def spy(*given: object, whole: object = whole) -> Ranking | None:
            kept.append(whole(*given))  # type: ignore[operator]
            return kept[-1]

        monkeypatch.setattr(lists, name, spy)
    return kept


def in_64ths(*shape: int, draw: torch.Generator) -> Tensor:
    """A float holds the sums of their products exactly, in whatever order a processor adds them: what ties, ties."""
    return torch.randn(*shape, 16, generator=draw).mul_(16).round_().clamp_(-64, 64) / 64


def codes_of(ragged: bool = False, pictures: int = PICTURES) -> RegionCodes:
    """Pictures of 3 regions, or of 0 to 3; every tenth is there twice, so that scores tie."""
    draw = torch.Generator().manual_seed(1)
    regions = in_64ths(pictures, 3, draw=draw).half()
    regions[5::10] = regions[4::10]
    counts = torch.randint(0, 4, (pictures, 1), generator=draw)
    counts[5::10] = counts[4::10]
    return RegionCodes.of(regions.to(DEVICE), (torch.arange(3) < counts).to(DEVICE) if ragged else None)


def queries_of(*lengths: int) -> QueryWords:
    draw = torch.Generator().manual_seed(2)
    words = in_64ths(sum(lengths), draw=draw)
    return QueryWords(words.to(DEVICE), lengths)


def expected_of(queries: QueryWords, codes: RegionCodes, k: int) -> Tensor:
    with backend("torch"):
        return maxsim_codes(queries, codes).sort(dim=1, descending=True, stable=True).indices[:, :k]


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("lengths", [(5, 3, 1, 4), (2,), (3, 0, 2)], ids=str)
@pytest.mark.parametrize("in_bytes", [False, True])
def test_lists_find_what_sorting_finds(
    answers: list[Ranking | None], ragged: bool, lengths: tuple[int, ...], in_bytes: bool
) -> None:
    """Ties, pictures without regions, one query, a query without words (with which all others tie)."""
    codes, queries = codes_of(ragged), queries_of(*lengths)
    found = search_codes(queries, codes.to_bytes(), K, codes) if in_bytes else search_codes(queries, codes, K)
    assert torch.equal(found.indices, expected_of(queries, codes, K))
    assert len(answers) == 1


def test_nothing_but_the_lists_is_needed(answers: list[Ranking | None]) -> None:
    codes, queries = codes_of(), queries_of(5, 3, 1, 4)
    search_codes(queries, codes, K)
    search_codes(queries, codes.to_bytes(), K, exact=codes)
    assert [answer is not None for answer in answers] == [True, True]


@pytest.mark.parametrize("ragged", [False, True])
def test_a_list_that_overflows_does_not_decide(
    monkeypatch: pytest.MonkeyPatch, answers: list[Ranking | None], ragged: bool
) -> None:
    monkeypatch.setattr(lists, "_CAPACITY", 5)
    codes, queries = codes_of(ragged), queries_of(5, 3, 1, 4)
    found = search_codes(queries, codes.to_bytes(), K, exact=codes)
    assert torch.equal(found.indices, expected_of(queries, codes, K))
    assert answers == [None]


def test_among_equal_pictures_the_first_are_the_best(answers: list[Ranking | None]) -> None:
    """All of them reach what is good enough: too many for the list of float16 codes."""
    one, queries = codes_of(pictures=1), queries_of(2, 1)
    codes = RegionCodes.of(one.vectors.expand(PICTURES, 3, 16).contiguous(), None)
    for found in (search_codes(queries, codes, K), search_codes(queries, codes.to_bytes(), K, exact=codes)):
        assert found.indices.tolist() == [list(range(K))] * 2
    assert answers[0] is None


@pytest.mark.parametrize("k", [1, 40, 300, 2000])
@pytest.mark.parametrize("ragged", [False, True])
def test_any_number_may_be_asked_for(k: int, ragged: bool) -> None:
    """More than there are blocks, than there are pictures, than lists are made for."""
    codes, queries = codes_of(ragged, pictures=260), queries_of(5, 1)
    expected = expected_of(queries, codes, k)
    assert torch.equal(search_codes(queries, codes, k).indices, expected)
    assert torch.equal(search_codes(queries, codes.to_bytes(), k, exact=codes).indices, expected)


@pytest.mark.parametrize("in_bytes", [False, True])
def test_tile_after_tile(answers: list[Ranking | None], in_bytes: bool) -> None:
    """What earlier tiles found says for later ones what is good enough."""
    codes, queries = codes_of(), queries_of(5, 3)
    budget = 8 * 600
    found = search_codes(
        queries, codes.to_bytes() if in_bytes else codes, K, codes if in_bytes else None, budget=budget
    )
    assert torch.equal(found.indices, expected_of(queries, codes, K))
    assert len(answers) == 2


def test_long_lists_are_cut_before_they_are_sorted() -> None:
    keys = torch.randint(-(2**60), 2**60, (3, 3 * 4096), generator=torch.Generator().manual_seed(0))
    assert torch.equal(lists.best_keys(keys, 7), keys.sort(dim=1, descending=True).values[:, :7])
