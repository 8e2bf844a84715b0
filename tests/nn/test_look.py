"""Additive attention: by hand, with keys taken once, and blind to padding."""

from __future__ import annotations

import torch

from saccade.nn import Look, found


def test_shares_by_hand() -> None:
    torch.manual_seed(0)
    for activation, act in (("tanh", torch.tanh), ("relu", torch.relu)):
        look = Look(6, 4, 3, activation, layers=2).double()
        regions, state = torch.randn(2, 5, 6).double(), torch.randn(2, 4).double()
        mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
        weights = look(state, look.keys(regions), mask)
        for row, count in enumerate((5, 2)):
            keys = torch.tanh(look.deeper[0](look.region(regions[row, :count])))
            shares = look.weigh(act(keys + look.state(state[row])))[:, 0].softmax(dim=0)
            torch.testing.assert_close(weights[row, :count], shares)
            torch.testing.assert_close(found(weights, regions)[row], shares @ regions[row, :count])
        assert weights[1, 2:].eq(0).all()


def test_looking_leaves_the_keys_as_they_were() -> None:
    look = Look(6, 4, 3)
    keys = look.keys(torch.randn(2, 5, 6)).detach()
    before = keys.clone()
    look.scores(torch.randn(2, 4), keys)
    assert torch.equal(keys, before)
