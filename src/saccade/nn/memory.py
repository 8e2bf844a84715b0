"""Memory distillation: what a query has found is written into the query, so that its next look starts from there.

    g  = σ(W_g [q ; a] + b_g)               how much of itself the query keeps
    u  = tanh(W_u [q ; a] + b_u)            what it makes of itself and its find
    q' = g q + (1 − g) u

The find a = Σ α c is a weighted sum of context vectors c, and W [q ; a] = W_q q + W_a a; so W_a a = Σ α (W_a c). The
products W_a c are taken once for each context vector, however many queries look at it, and a itself is never computed.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.nn.encode import at_least_float32, unit

MemoryForm = Literal["gate", "mlp", "add", "none"]


class MemoryDistillation(nn.Module):
    """`gate` as above, `mlp`: q' = u, `add`: q' = q + a, `none`: q' = q; `unit_length` scales q' to length one."""

    def __init__(self, dim: int, form: MemoryForm = "gate", unit_length: bool = False) -> None:
        super().__init__()
        self.dim, self.form, self.unit_length = dim, form, unit_length
        self.gate = nn.Linear(2 * dim, dim) if form == "gate" else None
        self.candidate = nn.Linear(2 * dim, dim) if form in ("gate", "mlp") else None

    def offer(self, context: Float[Tensor, "other part dim"]) -> Float[Tensor, "other part offered"]:
        """What each context vector would bring into an update: W_a c, for the gate and the candidate side by side."""
        return context if self.candidate is None else F.linear(context, self._weight()[:, self.dim :])

    def forward(
        self,
        query: Float[Tensor, "#other query dim"],
        weights: Float[Tensor, "other query part"],
        offered: Float[Tensor, "other part offered"],
    ) -> Float[Tensor, "#other query dim"]:
        """The queries after a look with these weights; in the precision of the products, which is all they are for."""
        if self.form == "none":
            return query
        if self.candidate is None:
            updated = torch.baddbmm(query, weights, offered)
        else:
            own = F.linear(query, self._weight()[:, : self.dim], self._bias())
            mixed = torch.baddbmm(own, weights, offered)
            updated = mixed[..., -self.dim :].tanh()
            if self.gate is not None:
                updated = torch.lerp(updated, query.to(mixed.dtype), mixed[..., : self.dim].sigmoid())
        return unit(at_least_float32(updated)) if self.unit_length else updated

    def _weight(self) -> Float[Tensor, "offered both"]:
        return torch.cat([layer.weight for layer in (self.gate, self.candidate) if layer is not None])

    def _bias(self) -> Float[Tensor, " offered"]:
        return torch.cat([layer.bias for layer in (self.gate, self.candidate) if layer is not None])

    def floats_per_query(self, steps: int, learning: bool) -> int:
        """Numbers held at once for a query and a context item: those of one update, and those kept for the gradient."""
        kept = (3 + self.unit_length) * (steps - 1) + 3 if learning else 0
        return self.dim * (6 + 2 * self.unit_length + kept)

    def extra_repr(self) -> str:
        return f"{self.form}{', of length one' if self.unit_length else ''}"
