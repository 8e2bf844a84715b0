"""Relation blocks: the equation, picture by picture; padding changes no output, statistic or gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from saccade.models.vsrn import RelationBlock
from saccade.nn.encode import MaskedBatchNorm


def regions(counts: tuple[int, ...] = (5, 2, 4), padding: int = 0, dim: int = 6) -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(3)
    mask = torch.arange(max(counts) + padding) < torch.tensor(counts)[:, None]
    full = torch.zeros(len(counts), max(counts) + padding, dim, dtype=torch.float64)
    full[mask] = torch.randn(sum(counts), dim, dtype=torch.float64, generator=dice)
    return full, mask


def awake(affinity: str = "mean", dim: int = 6) -> RelationBlock:
    """A block that has left its beginning as the identity."""
    torch.manual_seed(0)
    block = RelationBlock(dim, affinity).double()
    nn.init.normal_(block.norm.weight)
    nn.init.normal_(block.norm.bias)
    return block


def test_a_fresh_block_is_the_identity() -> None:
    full, mask = regions()
    assert torch.equal(RelationBlock(6).double()(full, mask)[0], full)


@pytest.mark.parametrize("affinity", ["mean", "softmax"])
def test_each_picture_follows_the_equation(affinity: str) -> None:
    full, mask = regions()
    block = awake(affinity).eval()
    found, links = block(full, mask)
    for i, count in enumerate(mask.sum(dim=1).tolist()):
        own = full[i, :count]
        scores = (own @ block.taking.weight.T + block.taking.bias) @ (own @ block.giving.weight.T + block.giving.bias).T
        share = scores / count if affinity == "mean" else scores.softmax(dim=1)
        taken = (share @ (own @ block.message.weight.T + block.message.bias)) @ block.mix.weight.T + block.mix.bias
        scale = block.norm.weight / (1 + block.norm.eps) ** 0.5  # statistics at rest: mean 0, variance 1
        torch.testing.assert_close(found[i, :count], own + taken * scale + block.norm.bias)
        torch.testing.assert_close(links[i, :count, :count], share)
    assert float(found[~mask].abs().max().detach()) == 0
    assert float(links[~mask].abs().max().detach()) == 0


@pytest.mark.parametrize("affinity", ["mean", "softmax"])
def test_padding_changes_nothing_while_training(affinity: str) -> None:
    results = []
    for padding in (0, 6):
        full, mask = regions(padding=padding)
        block = awake(affinity).train()
        out, links = block(full, mask)
        (out[:, :5] ** 3).sum().backward()
        statistics = (block.norm.running_mean, block.norm.running_var)
        results.append((out[:, :5], links[:, :5, :5], *statistics, *(p.grad for p in block.parameters())))
    for plain, padded in zip(*results, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-9, atol=1e-10)


def test_statistics_are_those_of_the_real_regions() -> None:
    full, mask = regions(padding=3)
    ours, plain = MaskedBatchNorm(6).double(), nn.BatchNorm1d(6).double()
    torch.testing.assert_close(ours(full, mask)[mask], plain(full[mask]))
    torch.testing.assert_close(ours.running_var, plain.running_var)
    torch.testing.assert_close(ours.eval()(full, mask)[mask], plain.eval()(full[mask]))


def test_one_region_alone_can_be_learned_from() -> None:
    full, mask = regions((1,), padding=2)
    norm = MaskedBatchNorm(6).double().train()
    torch.testing.assert_close(norm(full, mask), full / (1 + norm.eps) ** 0.5)
