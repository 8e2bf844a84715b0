"""Graphs over regions and words: geometry, edges, and what passes along them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.models.gsmn import (
    GaussianKernels,
    GraphConvolution,
    likeness_weights,
    polar_coordinates,
    self_loops_only,
)


def boxes_around(*centres: tuple[float, float], size: float = 0.1) -> Tensor:
    return torch.tensor([[[x - size, y - size, x + size, y + size] for x, y in centres]], dtype=torch.float64)


def test_distance_and_angle_are_those_of_the_centres() -> None:
    coordinates = polar_coordinates(boxes_around((0.5, 0.5), (0.2, 0.5), (0.5, 0.1)))[0]
    distance, angle = coordinates.unbind(dim=-1)
    torch.testing.assert_close(distance[0], torch.tensor([0.0, 0.3, 0.4], dtype=torch.float64))
    torch.testing.assert_close(distance, distance.T)
    wanted = torch.tensor([0.0, math.pi / 2, 0.0], dtype=torch.float64)  # measured from the vertical axis
    torch.testing.assert_close(angle[0], wanted)
    torch.testing.assert_close(angle[2, 0], torch.tensor(math.pi, dtype=torch.float64))


def test_boxes_without_size_or_apart_have_finite_gradients() -> None:
    boxes = torch.zeros(1, 3, 4, requires_grad=True)
    kernels = GaussianKernels(4)
    weights = kernels(boxes, torch.ones(1, 3, dtype=torch.bool))
    (weights * torch.randn_like(weights)).sum().backward()
    assert boxes.grad is not None
    for gradient in (boxes.grad, *(p.grad for p in kernels.parameters())):
        assert gradient is not None
        assert gradient.isfinite().all()


class TestGaussianKernels:
    def test_weights_are_the_normalised_product_of_two_gaussians(self) -> None:
        torch.manual_seed(0)
        boxes = torch.rand(2, 4, 4, dtype=torch.float64)
        kernels = GaussianKernels(5).double()
        coordinates = polar_coordinates(boxes)
        found = kernels(boxes, torch.ones(2, 4, dtype=torch.bool))
        for k, (i, j) in ((0, (0, 1)), (3, (2, 2)), (4, (3, 0))):
            rho, theta = coordinates[1, i, j]
            each = []
            for n in range(5):
                turn = abs(theta - kernels.angle[n])
                turn = min(turn, abs(2 * math.pi - turn))
                far = (rho - kernels.distance[n]) / kernels.distance_width[n]
                each.append(torch.exp(-0.5 * far**2) * torch.exp(-0.5 * (turn / kernels.angle_width[n]) ** 2))
            torch.testing.assert_close(found[1, i, j, k], each[k] / sum(each))

    def test_edges_too_far_for_every_kernel_still_have_weights(self) -> None:
        """Each Gaussian alone is 0 in float32, and 0/0 no number."""
        kernels = GaussianKernels(3)
        with torch.no_grad():
            kernels.distance_width.fill_(1e-3)
            kernels.angle_width.fill_(1e-3)
        weights = kernels(torch.rand(1, 4, 4), torch.ones(1, 4, dtype=torch.bool))
        assert weights.isfinite().all()
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, 4, 4))

    def test_padding_has_no_edges(self) -> None:
        mask = torch.tensor([[True, True, False]])
        weights = GaussianKernels(2)(torch.rand(1, 3, 4), mask)
        assert weights[:, 2].abs().sum() == 0
        assert weights[:, :, 2].abs().sum() == 0


class TestLikenessWeights:
    def test_rows_are_the_softmax_scaled_to_length_one(self) -> None:
        nodes = torch.nn.functional.normalize(torch.randn(2, 4, 6, dtype=torch.float64), dim=-1)
        weights = likeness_weights(nodes, torch.ones(2, 4, dtype=torch.bool), 5.0)
        soft = (5 * nodes[1] @ nodes[1].T).softmax(dim=-1)
        torch.testing.assert_close(weights[1, 2], soft[2] / soft[2].norm())

    def test_only_links_that_are_there_carry_weight(self) -> None:
        links = torch.eye(3, dtype=torch.bool)
        links[0, 1] = links[1, 0] = True
        weights = likeness_weights(torch.randn(1, 3, 4), torch.ones(1, 3, dtype=torch.bool), 1.0, links[None])
        assert torch.equal(weights[0] > 0, links)
        torch.testing.assert_close(weights[0].norm(dim=-1), torch.ones(3))

    def test_padding_takes_part_in_nothing(self) -> None:
        nodes, mask = torch.randn(1, 5, 4), torch.tensor([[True, True, True, False, False]])
        weights = likeness_weights(nodes, mask, 3.0)
        assert weights[:, 3:].abs().sum() == 0
        assert weights[:, :, 3:].abs().sum() == 0
        torch.testing.assert_close(weights[:, :3, :3], likeness_weights(nodes[:, :3], mask[:, :3], 3.0))


class TestGraphConvolution:
    @pytest.mark.parametrize("shared", [True, False])
    def test_it_is_the_sum_over_neighbours_for_every_kernel(self, shared: bool) -> None:
        torch.manual_seed(0)
        layer = GraphConvolution(4, 6, 3).double()
        nodes, weights = torch.randn(2, 3, 5, 4).double(), torch.rand(2, 5, 5, 1 if shared else 3).double()
        heard = layer(nodes, weights)
        parts = []
        for k, kernel in enumerate(layer.kernels):
            edges = weights[1, 2, :, 0 if shared else k]
            parts.append(sum(edges[j] * nodes[1, 0, j] @ kernel.weight.T for j in range(5)) + kernel.bias)
        torch.testing.assert_close(heard[1, 0, 2], torch.cat(parts))

    def test_edges_that_lead_back_pass_nothing_on(self) -> None:
        layer, weights = GraphConvolution(4, 6, 3, bias=False), torch.rand(1, 5, 5, 3)
        nodes = torch.randn(1, 1, 5, 4)
        changed = nodes.clone()
        changed[0, 0, 3] += 1
        alone = (
            (layer(changed, self_loops_only(weights)) - layer(nodes, self_loops_only(weights)))[0, 0].abs().sum(dim=-1)
        )
        assert torch.equal(alone > 0, torch.tensor([False, False, False, True, False]))
        assert ((layer(changed, weights) - layer(nodes, weights))[0, 0].abs().sum(dim=-1) > 0).all()
        torch.testing.assert_close(self_loops_only(weights).sum(dim=2), weights.sum(dim=2))

    def test_kernels_that_cannot_share_are_refused(self) -> None:
        with pytest.raises(SaccadeError, match="8 kernels cannot share 30 numbers"):
            GraphConvolution(4, 30, 8)
