"""Items of several lengths: their real vectors, in blocks of whole items, and padded again."""

from __future__ import annotations

import torch

from saccade.nn.ragged import Ragged, pieces

MASK = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 1], [0, 1, 0]]).bool()
VECTORS = torch.arange(12.0).view(4, 3, 1)


def test_real_vectors_come_in_order() -> None:
    assert Ragged(MASK).real(VECTORS).flatten().tolist() == [0, 1, 6, 8, 10]


def test_blocks_hold_whole_items() -> None:
    found = [(b.items, b.rows, b.start.tolist()) for b in Ragged(MASK).blocks(slice(1, 4), 2)]
    assert found == [(slice(1, 3), slice(2, 4), [0, 0, 2]), (slice(3, 4), slice(4, 5), [0, 1])]


def test_items_alike_come_longest_first() -> None:
    assert [some.tolist() for some in Ragged(MASK).alike(slice(1, 4), 2)] == [[2, 3], [1]]


def test_padded_items_have_their_real_vectors_first() -> None:
    where = Ragged(MASK)
    rows = where.real(VECTORS)
    assert where.padded(rows, torch.tensor([2, 3, 1]))[..., 0].tolist() == [[6, 8], [10, 0], [0, 0]]
    assert where.padded(rows, torch.tensor([1])).tolist() == [[[0]]]
    assert Ragged(MASK[1:2]).padded(rows[:0], torch.tensor([0])).tolist() == [[[0]]]


def test_items_are_cut_into_pieces() -> None:
    found = [(p.start, p.stop, r.start, r.stop) for p, r in pieces([3, 0, 4, 9, 2], 7)]
    assert found == [(0, 3, 0, 7), (3, 4, 7, 16), (4, 5, 16, 18)]
    assert list(pieces([0, 0], 7)) == [(slice(0, 2), slice(0, 0))]
    assert not list(pieces([], 7))
