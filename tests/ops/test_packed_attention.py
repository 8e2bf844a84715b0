"""Attention within the items of a packed batch is that of padded items, whatever computes it.

Without a GPU the kernel runs in Triton's interpreter, on the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are first imported

from saccade.core.errors import SaccadeError
from saccade.nn.transformer import Layer, attend_over, blocks, pack, places_of, run_layers
from saccade.ops import backend
from saccade.ops.packed_attention import PACKED_ATTENTION, PackedAttention, flash, in_tiles, through_padding

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Attend = Callable[[PackedAttention], Tensor]


def packed(width: int, lengths: list[int], dropout: float = 0.0, dtype: torch.dtype = torch.float32) -> PackedAttention:
    """Items of these lengths, of three heads; the padded batch has a place more, and holes."""
    mask = torch.arange(max(lengths) + 1) < torch.tensor(lengths)[:, None]
    mask = mask.flip(1)  # padding comes first
    given = torch.randn(*mask.shape, 9 * width, generator=torch.Generator().manual_seed(3))
    places = places_of(mask.to(DEVICE))
    joined = pack(given.to(DEVICE, dtype), places).view(-1, 3, 3, width)
    return PackedAttention(joined, places.at, places.starts, attend_over(mask).to(DEVICE), dropout)


def with_gradient(attend: Attend, problem: PackedAttention) -> tuple[Tensor, Tensor]:
    joined = problem.joined.detach().requires_grad_()
    found = attend(PackedAttention(joined, problem.at, problem.starts, problem.mask, problem.dropout))
    (found.float() * torch.arange(found.numel(), device=DEVICE).view(found.shape).sin()).sum().backward()  # type: ignore[no-untyped-call]
    assert joined.grad is not None
    return found.detach(), joined.grad


@pytest.mark.parametrize(("width", "lengths"), [(16, [5, 1, 0, 7]), (12, [3, 2]), (8, [40, 33])], ids=str)
def test_a_tile_finds_what_padded_items_find(width: int, lengths: list[int]) -> None:
    problem = packed(width, lengths)
    for found, expected in zip(with_gradient(in_tiles, problem), with_gradient(through_padding, problem), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)


def test_in_sixteen_bits_a_tile_is_as_near_as_these() -> None:
    near, exact = packed(16, [5, 9], dtype=torch.float16), packed(16, [5, 9])
    for found, expected in zip(with_gradient(in_tiles, near), with_gradient(through_padding, exact), strict=True):
        torch.testing.assert_close(found.float(), expected, rtol=0, atol=2e-2)


def test_dropout_leaves_the_same_weights_out_on_the_way_back() -> None:
    """Values that are the rows of a unit matrix show the weights themselves."""
    problem = packed(32, [32, 32], dropout=0.25)
    problem.joined[:, 2] = torch.eye(32, device=DEVICE).repeat(2, 1)[:, None]
    torch.manual_seed(7)
    weights, gradient = with_gradient(in_tiles, problem)
    full = through_padding(PackedAttention(problem.joined, problem.at, problem.starts, problem.mask, 0.0))
    kept = weights != 0
    torch.testing.assert_close(weights[kept], full[kept] / 0.75, rtol=1e-5, atol=1e-7)
    assert 0.2 < 1 - kept.float().mean() < 0.3
    assert not torch.equal(kept[:, 0], kept[:, 1])  # every head draws for itself
    signs = torch.arange(weights.numel(), device=DEVICE).view(weights.shape).sin()
    by_value = torch.einsum("iqhk,iqhd->ikhd", weights.unflatten(0, (2, 32)), signs.unflatten(0, (2, 32)))
    torch.testing.assert_close(gradient[:, 2], by_value.flatten(0, 1), rtol=1e-4, atol=1e-5)
    torch.manual_seed(7)
    assert torch.equal(with_gradient(in_tiles, problem)[0], weights)


def test_the_kernel_of_pytorch_is_given_items_and_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def item_by_item(*given: Any) -> tuple[Tensor]:
        *parts, starts, others, longest, most, rate, _, _ = given
        lengths = starts.diff().tolist()
        assert torch.equal(starts, others)
        assert max(lengths) <= longest == most
        assert rate == 0
        items = zip(*(part.transpose(0, 1).split(lengths, dim=1) for part in parts), strict=True)
        return (torch.cat([scaled_dot_product_attention(*item) for item in items], dim=1).transpose(0, 1),)

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", item_by_item)
    problem = packed(8, [5, 2, 3])
    torch.testing.assert_close(flash(problem), through_padding(problem))


def test_what_no_kernel_takes_goes_through_padding() -> None:
    problem = packed(8, [3, 1])
    if DEVICE == "cpu":
        assert PACKED_ATTENTION.chosen(problem).name == "torch"
        with backend("triton"), pytest.raises(SaccadeError, match="not on a GPU"):
            PACKED_ATTENTION(problem)
    reasons = [row.suits(packed(130, [3])) for row in PACKED_ATTENTION.backends]
    assert reasons[0] == "a head is 130 wide, it takes multiples of 8 up to 128"
    assert reasons[1] == "a head is 130 wide, it takes multiples of 8 up to 256"
    assert PACKED_ATTENTION.backends[0].suits(packed(8, [128])) == "an item has 129 places, a tile holds 128"
    assert reasons[2] is None


@pytest.mark.parametrize("attend", [in_tiles, through_padding])
def test_a_layer_is_compiled_as_one_graph(monkeypatch: pytest.MonkeyPatch, attend: Attend) -> None:
    monkeypatch.setattr(blocks, "with_attention", lambda places, *_: places._replace(attend=attend))
    torch.manual_seed(1)
    layer = Layer(24, 3, 20).to(DEVICE)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2]).to(DEVICE)
    states = torch.randn(2, 5, 24, device=DEVICE)
    padded, places = run_layers([layer], states, mask), places_of(mask)
    torch.testing.assert_close(run_layers([layer], states, mask, places)[mask], padded[mask])
    compiled = nn.ModuleList([layer])
    layer.compile(backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(run_layers(compiled, states, mask, places)[mask], padded[mask])
