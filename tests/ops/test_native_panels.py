"""Matrices in panels, and products with them: those of PyTorch, in bytes as near as 8 bits allow."""

from __future__ import annotations

import pytest
import torch

from saccade.ops.native import native_library
from saccade.ops.native.panels import Layout, Panels


@pytest.fixture
def layout(monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("SACCADE_NATIVE", "1")
    library = native_library(0)
    assert library is not None, "these tests need a C++ compiler"
    return Layout.of(library)


def in_full(panels: Panels) -> torch.Tensor:
    """[…, panel, depth, column], whatever it is kept in."""
    if panels.scale is None:
        return panels.values
    values = panels.values.transpose(-1, -2).flatten(-3, -2).float()
    return (values - 128 * (panels.values.dtype == torch.uint8)) * panels.scale[..., None, :]


@pytest.mark.parametrize("in_bytes", [False, True])
def test_weights_of_two_maps_share_every_panel(layout: Layout, in_bytes: bool) -> None:
    gate, candidate = torch.randn(2, 2 * layout.panel, 32)
    found = in_full(layout.weights([gate, candidate], in_bytes))
    half = layout.panel // 2
    known = torch.cat([each.view(-1, half, 32).transpose(1, 2) for each in (gate, candidate)], dim=-1)
    torch.testing.assert_close(found, known, rtol=0, atol=known.abs().max().item() / 250 if in_bytes else 0.0)


@pytest.mark.parametrize("in_bytes", [False, True])
@pytest.mark.parametrize("parts", [1, 7, 8])
def test_offers_of_each_item(layout: Layout, in_bytes: bool, parts: int) -> None:
    rows = torch.randn(3, 2, parts, layout.panel)
    found = in_full(layout.offers(rows, in_bytes))
    assert not found[:, :, parts:].any()
    known = rows.transpose(0, 1)
    tolerance = known.abs().max().item() / 250 if in_bytes else 0.0
    torch.testing.assert_close(found[:, :, :parts], known, rtol=0, atol=tolerance)


@pytest.mark.parametrize("rows", [1, 5, 6, 13])
def test_products(layout: Layout, rows: int) -> None:
    weight, given = torch.randn(3 * layout.panel, 2 * layout.panel), torch.randn(rows, 2 * layout.panel)
    known = given @ weight.T
    for in_bytes in {False, layout.bytes}:
        found = layout.multiply(layout.in_pieces(given), layout.weights([weight], in_bytes))
        found = found.transpose(0, 1).flatten(1)[:rows]
        torch.testing.assert_close(found, known, rtol=0, atol=0.05 * known.std().item() if in_bytes else 1e-4)


def test_a_row_of_zeros_and_large_numbers(layout: Layout) -> None:
    weight = torch.zeros(layout.panel, layout.panel)
    weight[0, 0], weight[1, 1] = 1e20, 1e-20
    given = torch.zeros(3, layout.panel)
    given[1, 0], given[2, 1] = 1e10, -1.0
    found = layout.multiply(layout.in_pieces(given), layout.weights([weight], layout.bytes))[0]
    assert not found[0].any()
    assert found[1, 0].item() == pytest.approx(1e30, rel=0.02)
    assert found[2, 1].item() == pytest.approx(-1e-20, rel=0.02)


def test_matrices_end_with_whole_vectors(layout: Layout) -> None:
    given = torch.randn(2, 5, layout.panel + 3)
    found = layout.matrices(given)
    first, rest = found.split([5 * layout.panel, 5 * layout.lanes], dim=1)
    assert torch.equal(first.view(2, 5, -1), given[..., : layout.panel])
    assert torch.equal(rest.view(2, 5, -1)[..., :3], given[..., layout.panel :])
    assert not rest.view(2, 5, -1)[..., 3:].any()


@pytest.mark.parametrize("in_bytes", [False, True])
@pytest.mark.parametrize("parts", [1, 16, 70])
def test_what_rows_are_compared_with_is_in_16_bits_by_its_own_length(
    layout: Layout, in_bytes: bool, parts: int
) -> None:
    in_bytes = in_bytes and layout.bytes
    vectors = torch.randn(2, parts, 2 * layout.panel) * torch.logspace(-3, 3, parts)[:, None]
    values, scale = layout.compared(vectors, in_bytes)
    assert values.shape[1] == 2 * layout.panel * layout.whole(parts)
    for first in range(0, parts, layout.panel):
        wide = min(layout.panel, layout.whole(parts) - first)
        panel = values[:, first * 2 * layout.panel :][:, : wide * 2 * layout.panel].float()
        if in_bytes:
            assert scale is not None
            panel = panel.view(2, -1, wide, 2).transpose(2, 3).flatten(1, 2) * scale[:, None, first : first + wide]
        known = vectors[:, first : first + wide]
        found = panel.reshape(2, -1, wide).mT
        assert not found[:, known.shape[1] :].any()
        error = (found[:, : known.shape[1]] - known).abs().amax(dim=-1)
        assert (error <= (known.norm(dim=-1) / 10_000 if in_bytes else torch.zeros(()))).all()


@pytest.mark.parametrize("rows", [1, 13, 150])
def test_maps_in_16_bits(layout: Layout, rows: int) -> None:
    given = torch.randn(rows, 5 * layout.panel)[:, : 2 * layout.panel]  # rows that are not one after the other
    weights = torch.randn(2, 3 * layout.panel, 4 * layout.panel)[..., : 2 * layout.panel]
    for in_bytes in {False, layout.bytes}:
        for found, weight in zip(layout.maps(given, list(weights), in_bytes), weights, strict=True):
            known = given @ weight.T
            torch.testing.assert_close(found, known, rtol=0, atol=2e-3 * known.std().item() if in_bytes else 1e-4)


@pytest.mark.parametrize("depth", [64, 1024, 4096])
def test_the_largest_sums_fit_their_32_bits(layout: Layout, depth: int) -> None:
    same = torch.ones(2, depth) * torch.tensor([[1.0], [-3.0]])
    uneven = torch.where(torch.arange(depth) % 2 == 0, 1.0, -1.0) * torch.linspace(0.99, 1.0, depth)
    given = torch.cat([same, uneven[None]])
    weight = torch.cat([given, torch.zeros(layout.panel - 3, depth)])
    (found,) = layout.maps(given, [weight], layout.bytes)
    torch.testing.assert_close(found, given @ weight.T, rtol=0.01, atol=1e-4 * depth)
