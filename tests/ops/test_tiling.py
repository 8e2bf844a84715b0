"""Groups of items by length: every item is in one, little is padding, and limits hold."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.ops.tiling import cut, longest_first, neighbours

LENGTHS = st.lists(st.integers(0, 20), max_size=60)


def test_a_length_reaches_to_the_last_real_part() -> None:
    mask = torch.tensor([[1, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 0]]).bool()
    order, lengths = longest_first(mask)
    assert order.tolist() == [1, 3, 0, 2]
    assert lengths == [3, 3, 1, 0]


@given(LENGTHS, st.integers(1, 60), st.sampled_from([0.0, 0.75]), st.integers(1, 5))
def test_every_item_is_in_one_group_and_limits_hold(
    lengths: list[int], limit: int, alike: float, multiple: int
) -> None:
    lengths.sort(reverse=True)
    groups = list(cut(lengths, lambda n: limit // n, alike=alike, multiple=multiple))
    assert [place for some, _ in groups for place in range(some.start, some.stop)] == list(range(len(lengths)))
    for some, longest in groups:
        own = lengths[some]
        assert longest == max(1, own[0])
        assert len(own) == 1 or len(own) * longest <= limit
        assert all(length >= alike * longest for length in own[1:])


def test_a_group_that_is_large_enough_ends_where_shorter_items_begin() -> None:
    lengths = [5] * 4 + [4] * 3 + [1]
    assert [some.stop for some, _ in cut(lengths, lambda _: 6)] == [6, 8]
    assert [some.stop for some, _ in cut(lengths, lambda _: 6, least=lambda _: 2)] == [4, 7, 8]
    assert [some.stop for some, _ in cut(lengths, lambda _: 7, multiple=3)] == [6, 8]


@given(LENGTHS, st.integers(1, 50))
def test_neighbours_stay_together_up_to_a_limit(sizes: list[int], limit: int) -> None:
    pieces = list(neighbours(sizes, limit))
    assert [item for items, _ in pieces for item in range(items.start, items.stop)] == list(range(len(sizes)))
    for items, rows in pieces:
        own = sizes[items]
        assert rows.stop - rows.start == sum(own)
        assert rows.start == sum(sizes[: items.start])
        assert sum(own) <= limit or sum(size > 0 for size in own) == 1
