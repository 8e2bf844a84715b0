"""Memory distillation: what a query has found is written into the query, so that its next look starts from there.

    g  = σ(W_g [q ; a] + b_g)               how much of itself the query keeps
    u  = tanh(W_u [q ; a] + b_u)            what it makes of itself and its find
    q' = g q + (1 − g) u

The find a = Σ α c is a weighted sum of context vectors c, and W [q ; a] = W_q q + W_a a; so W_a a = Σ α (W_a c). The
products W_a c are taken once for each context vector, however many queries look at it, and a itself is never computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.nn.encode import unit
from saccade.nn.precision import at_least_float32

MemoryForm = Literal["gate", "mlp", "add", "none"]


class MemoryDistillation(nn.Module):
    """`gate` as above, `mlp`: q' = u, `add`: q' = q + a, `none`: q' = q; `unit_length` scales q' to length one."""

    def __init__(self, dim: int, form: MemoryForm = "gate", unit_length: bool = False) -> None:
        super().__init__()
        self.dim, self.form, self.unit_length = dim, form, unit_length
        self.gate = nn.Linear(2 * dim, dim) if form == "gate" else None
        self.candidate = nn.Linear(2 * dim, dim) if form in ("gate", "mlp") else None
        self._merged: tuple[Tensor, Tensor] | None = None

    @property
    def layers(self) -> list[nn.Linear]:
        """W [q ; a] + b: of the gate and the candidate, as far as this form has them."""
        return [layer for layer in (self.gate, self.candidate) if layer is not None]

    @contextmanager
    def merged(self, dtype: torch.dtype | None = None) -> Iterator[None]:
        """While it lasts, and no gradient is wanted, the two layers are one; else they are merged for every call.

        `dtype`: the precision of their products, the weights' own unless given.
        """
        if self.candidate is not None and not torch.is_grad_enabled():
            weight, bias = self._weight(), self._bias()
            self._merged = weight.to(dtype or weight.dtype), bias.to(dtype or bias.dtype)
        try:
            yield
        finally:
            self._merged = None

    def offer(self, context: Float[Tensor, "other part dim"]) -> Float[Tensor, "other part offered"]:
        """What each context vector would bring into an update: W_a c, for the gate and the candidate side by side.

        Merged, it is W_a c + b: weights α sum to one, so b comes with what is found and is not added for every pair.
        """
        bias = None if self._merged is None else self._bias()
        return context if self.candidate is None else F.linear(context, self._weight()[:, self.dim :], bias)

    def recall(self, query: Float[Tensor, "*item query dim"]) -> Float[Tensor, "*item query offered"]:
        """What the queries themselves bring into an update: W_q q + b; merged, W_q q alone."""
        bias = None if self._merged is not None or self.candidate is None else self._bias()
        return query if self.candidate is None else F.linear(query, self._weight()[:, : self.dim], bias)

    def forward(
        self,
        query: Float[Tensor, "#other query dim"],
        weights: Float[Tensor, "other query part"],
        offered: Float[Tensor, "other part offered"],
        recalled: Float[Tensor, "#other query offered"] | None = None,
    ) -> Float[Tensor, "#other query dim"]:
        """The queries after a look with these weights; in the precision of the products, which is all they are for.

        `recalled` is what they bring into it themselves, if that is known already.
        """
        if self.form == "none":
            return query
        if self.candidate is None:
            updated = torch.baddbmm(query, weights, offered)
        else:
            mixed = self.recall(query) if recalled is None else recalled  # W_q q + b, then + Σ α (W_a c)
            weights, offered = weights.to(mixed.dtype), offered.to(mixed.dtype)
            kept = recalled is not None or len(mixed) < len(weights)  # at first all context items have the same queries
            if torch.is_grad_enabled() or kept:
                mixed = torch.baddbmm(mixed, weights, offered)
            else:
                mixed.baddbmm_(weights, offered)
            updated = mixed.tanh() if self.gate is None else _Blend.apply(mixed, query.to(mixed.dtype))  # type: ignore[no-untyped-call]
        return unit(at_least_float32(updated)) if self.unit_length else updated

    def _weight(self) -> Float[Tensor, "offered both"]:
        if self._merged is not None:
            return self._merged[0]
        return torch.cat([layer.weight for layer in self.layers])

    def _bias(self) -> Float[Tensor, " offered"]:
        if self._merged is not None:
            return self._merged[1]
        return torch.cat([layer.bias for layer in self.layers])

    def floats_per_query(self, steps: int, learning: bool) -> int:
        """Numbers held at once for a query and a context item: those of one update, and those kept for the gradient."""
        update, each = (5, 3) if self.gate is not None else (3, 2)
        kept = (each + self.unit_length) * (steps - 1) + 2 if learning else 0
        return self.dim * (update + kept)

    def extra_repr(self) -> str:
        return f"{self.form}{', of length one' if self.unit_length else ''}"


class _Blend(torch.autograd.Function):
    """q' = σ(m_g) q + (1 − σ(m_g)) tanh(m_u). These are the largest tensors there are: g and u take the place of m."""

    @staticmethod
    def forward(
        ctx: Any, mixed: Float[Tensor, "other query 2*dim"], query: Float[Tensor, "#other query dim"]
    ) -> Float[Tensor, "other query dim"]:
        gate, candidate = mixed.chunk(2, dim=-1)
        updated = torch.lerp(candidate.tanh_(), query, gate.sigmoid_())
        ctx.save_for_backward(mixed, query)
        return updated

    @staticmethod
    def backward(ctx: Any, pull: Float[Tensor, "other query dim"]) -> tuple[Tensor, Tensor]:
        mixed, query = ctx.saved_tensors
        gate, candidate = mixed.chunk(2, dim=-1)
        of_query = pull * gate
        of_candidate = pull - of_query
        of_mixed = torch.empty_like(mixed)
        into_gate, into_candidate = of_mixed.chunk(2, dim=-1)
        torch.sub(query, candidate, out=into_gate).mul_(of_candidate).mul_(gate)  # σ' = σ (1 − σ)
        torch.mul(of_candidate, candidate, out=into_candidate).mul_(candidate).neg_().add_(of_candidate)  # 1 − tanh²
        return of_mixed, of_query.sum_to_size(query.shape)
