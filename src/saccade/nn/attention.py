"""The pieces of attention that papers write out: weights over what is there, what they find, and how long that is."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, einsum, nn
from torch.nn import functional as F

from saccade.nn.precision import at_least_float32
from saccade.ops import EPSILON


def masked_softmax(
    scores: Float[Tensor, "*items part"], mask: Bool[Tensor, "*#items part"]
) -> Float[Tensor, "*items part"]:
    """Over the last axis, where the mask is True; where it is nowhere, all are alike."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)


def products(one: Float[Tensor, "*#pair query dim"], other: Float[Tensor, "*#pair part dim"]) -> Tensor:
    """Q Kᵀ; an axis of pairs that only one of the two has is never copied."""
    return einsum("...qd,...pd->...qp", one, other)


def summed(weights: Float[Tensor, "*#pair query part"], vectors: Float[Tensor, "*#pair part dim"]) -> Tensor:
    """What the queries find: A = α C."""
    return einsum("...qp,...pd->...qd", weights, vectors)


def found_length(weights: Float[Tensor, "*pair query part"], gram: Float[Tensor, "*#pair part part"]) -> Tensor:
    """|a| of a = Σ α c without a: √(α G αᵀ), where G = C Cᵀ is the Gram matrix of the context."""
    return (summed(weights, gram) * weights).sum(dim=-1).clamp(min=EPSILON**2).sqrt()


class HeadPool(nn.Module):
    """The share of each part in a sum of all: softmax(L₂ ReLU(L₁ x)) over the parts, the mean of several heads.

    Where x is a sum, L₁ of a part that all pairs have in common may be given. L₂ has no bias: a softmax is blind to it.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, dim)
        self.heads = nn.Linear(dim, heads, bias=False)

    def forward(
        self,
        vectors: Float[Tensor, "*pair part dim"],
        mask: Bool[Tensor, "*#pair part"],
        known: Float[Tensor, "*#pair part dim"] | None = None,
    ) -> Float[Tensor, "*pair 1 part"]:
        if known is None or torch.is_grad_enabled():
            hidden = self.hidden(vectors)
            hidden = hidden.relu() if known is None else (hidden + known.to(hidden.dtype)).relu_()
        else:  # in place, the bias with what is known: it is the smaller of the two
            hidden = F.linear(vectors, self.hidden.weight)
            hidden = hidden.add_((known + self.hidden.bias).to(hidden.dtype)).relu_()
        scores = at_least_float32(self.heads(hidden)).transpose(-1, -2)
        return masked_softmax(scores, mask[..., None, :]).mean(dim=-2, keepdim=True)
