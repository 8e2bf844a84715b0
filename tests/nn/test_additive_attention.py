"""Additive attention: by hand, with keys taken once, and blind to padding."""

from __future__ import annotations

import torch

from saccade.nn.attention import AdditiveAttention, attended


def test_shares_by_hand() -> None:
    torch.manual_seed(0)
    for activation, act in (("tanh", torch.tanh), ("relu", torch.relu)):
        attention = AdditiveAttention(6, 4, 3, activation, layers=2).double()
        regions, state = torch.randn(2, 5, 6).double(), torch.randn(2, 4).double()
        mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
        weights = attention(state, attention.keys(regions), mask)
        for row, count in enumerate((5, 2)):
            keys = torch.tanh(attention.deeper[0](attention.region(regions[row, :count])))
            shares = attention.weigh(act(keys + attention.state(state[row])))[:, 0].softmax(dim=0)
            torch.testing.assert_close(weights[row, :count], shares)
            torch.testing.assert_close(attended(weights, regions)[row], shares @ regions[row, :count])
        assert weights[1, 2:].eq(0).all()


def test_attending_leaves_the_keys_as_they_were() -> None:
    attention = AdditiveAttention(6, 4, 3)
    keys = attention.keys(torch.randn(2, 5, 6)).detach()
    before = keys.clone()
    attention.scores(torch.randn(2, 4), keys)
    assert torch.equal(keys, before)
