"""Graphs over the parts of a picture or sentence: who is whose neighbour, how near, and what passes between them.

An edge has a weight, or one for each kernel. Weights are zero wherever a node is padding, so sums over neighbours
need no mask of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.core.errors import SaccadeError
from saccade.nn.attention import masked_softmax
from saccade.nn.precision import full_precision


def polar_coordinates(boxes: Float[Tensor, "image region 4"]) -> Float[Tensor, "image region region 2"]:
    """Distance ρ and angle θ from the centre of every box to that of every other, (0, 0) where both are one.

    The angle is measured from the vertical axis, atan2(x, y), as in the code that the graph papers share.
    """
    centres = (boxes[..., :2] + boxes[..., 2:]) / 2
    x, y = (centres[:, :, None] - centres[:, None]).unbind(dim=-1)
    apart = (x != 0) | (y != 0)
    x, y = x.where(apart, 0.0), y.where(apart, 1.0)  # atan2(0, 0) and √0 have no gradient, atan2(0, 1) has
    return torch.stack([torch.hypot(x, y).where(apart, 0.0), torch.atan2(x, y)], dim=-1)


class GaussianKernels(nn.Module):
    """K learned places (ρ_k, θ_k) around a region; an edge belongs to each as far as its Gaussian says.

        w_ijk ∝ exp(−½ (ρ_ij − ρ_k)² / σ_k²) · exp(−½ Δ(θ_ij, θ_k)² / τ_k²),   Σ_k w_ijk = 1

    Δ is the way round the circle. Being a softmax over the kernels of the exponents, the weights are defined even
    where every single Gaussian is too small for a float (Norcliffe-Brown et al., NeurIPS 2018; Monti et al., 2017).
    """

    def __init__(self, kernels: int) -> None:
        super().__init__()
        self.distance = nn.Parameter(torch.rand(kernels))  # ρ_k
        self.angle = nn.Parameter((2 * torch.rand(kernels) - 1) * math.pi)  # θ_k
        self.distance_width = nn.Parameter((1 + torch.rand(kernels)) / 2)  # σ_k; near 0 a kernel would see no edge
        self.angle_width = nn.Parameter((1 + torch.rand(kernels)) / 2)  # τ_k

    def forward(
        self, boxes: Float[Tensor, "image region 4"], mask: Bool[Tensor, "image region"]
    ) -> Float[Tensor, "image region region kernel"]:
        """How much of the edge from every region to every other each kernel takes."""
        distance, angle = polar_coordinates(boxes)[..., None].unbind(dim=-2)
        turn = (angle - self.angle).abs()
        turn = torch.minimum(turn, (2 * math.pi - turn).abs())
        far = (distance - self.distance) ** 2 / (1e-14 + self.distance_width**2)
        turned = turn**2 / (1e-14 + self.angle_width**2)
        there = mask[:, :, None] & mask[:, None]
        return (-0.5 * (far + turned)).softmax(dim=-1) * there[..., None]


def likeness_weights(
    nodes: Float[Tensor, "graph node dim"],
    mask: Bool[Tensor, "graph node"],
    sharpness: float,
    links: Bool[Tensor, "graph node node"] | None = None,
) -> Float[Tensor, "graph node node"]:
    """Edges by likeness: s_ij = softmax over j of λ n_i · n_j; where `links` says which edges there are, only those.

    Rows are of unit length, W = ‖S ∘ A‖₂.
    """
    there = mask[:, :, None] & mask[:, None]
    with full_precision(nodes):  # λ would make much of a rounded likeness
        alike = sharpness * torch.bmm(nodes, nodes.transpose(1, 2))
    weights = masked_softmax(alike, there) * (there if links is None else there & links)
    return F.normalize(weights, dim=-1, eps=1e-30)


def to_themselves(weights: Float[Tensor, "graph node node kernel"]) -> Float[Tensor, "graph node node kernel"]:
    """The same edges, each leading back to its own node: no message passes, a node only hears itself more or less."""
    return torch.diag_embed(weights.sum(dim=2).transpose(1, 2), dim1=1, dim2=2)


class GraphConvolution(nn.Module):
    """What a node hears from its neighbours, one part of the result per kernel: h_i = ‖_k Σ_j w_ijk W_k m_j + b_k."""

    def __init__(self, in_dim: int, out_dim: int, kernels: int, bias: bool = True) -> None:
        super().__init__()
        if kernels < 1 or out_dim % kernels:
            raise SaccadeError(f"{kernels} kernels cannot share {out_dim} numbers: make the second a multiple")
        self.has_bias = bias
        self.kernels = nn.ModuleList(nn.Linear(in_dim, out_dim // kernels, bias) for _ in range(kernels))

    def forward(
        self,
        nodes: Float[Tensor, "graph other node in"],
        weights: Float[Tensor, "graph node node #kernel"],
    ) -> Float[Tensor, "graph other node out"]:
        """`other` counts whatever shares a graph: the sentences that one picture is compared with."""
        said = F.linear(nodes, torch.cat(self.weights()))
        said = said.view(*said.shape[:-1], weights.shape[-1], -1)
        heard = torch.einsum("gijk,gojkc->goikc", weights, said).flatten(-2)
        return heard + self.bias() if self.has_bias else heard

    def folded(
        self, weights: Float[Tensor, "graph node node #kernel"], dtype: torch.dtype
    ) -> Float[Tensor, "graph said heard"]:
        """One matrix for each graph, w_ijk W_k, from all its nodes' numbers to all that its nodes hear.

        Many times the work in one large product, instead of many small ones and the walks through memory between them:
        quicker where the nodes of a graph are many different ones and the processor multiplies matrices of 16 bits.
        """
        maps = torch.stack(self.weights()).permute(2, 0, 1)  # [in, kernel, part]
        hears = weights.transpose(1, 2).expand(-1, -1, -1, maps.shape[1])  # [graph, who speaks, who hears, kernel]
        graphs, nodes = hears.shape[:2]
        out = hears.new_empty(graphs, nodes, len(maps), nodes, *maps.shape[1:], dtype=dtype)
        torch.mul(hears[:, :, None, :, :, None], maps[:, None], out=out)
        return out.view(graphs, nodes * len(maps), -1)

    def bias(self) -> Float[Tensor, " out"]:
        return torch.cat([kernel.bias for kernel in self._kernels()])

    def weights(self) -> list[Float[Tensor, "part in"]]:
        """W_k of every kernel."""
        return [kernel.weight for kernel in self._kernels()]

    def _kernels(self) -> Iterator[nn.Linear]:
        for kernel in self.kernels:
            assert isinstance(kernel, nn.Linear)
            yield kernel
