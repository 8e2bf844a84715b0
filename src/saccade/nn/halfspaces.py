"""Volumes of half-spaces under a normal distribution, and of what two of them share, as logarithms.

    V(x) = {z : (z − x)·x > 0},   z ~ N(0, I),   Pr(x) = Φ(−‖x‖)

The joint volume is exact. With a = ‖x‖, b = ‖y‖, s = √(1 − c²) and d the distance from the origin to the line where
both boundaries meet, it is a sum of two positive terms (no digits cancel, however small the volume), or, where one
boundary's nearest point lies in the other half-space (k < 0), that half-space without a difference of two:

    Pr(x, y) = e^{−d²/2} / 2π · [I(a, k_a) + I(b, k_b)],   k_a = (b − c a) / (a s),   d² = (a² − 2abc + b²) / s²
    I(h, k) = ∫_k^∞ e^{−h² (t² − k²) / 2} / (1 + t²) dt
    ∂ Pr / ∂a = −φ(a) Φ(−a k_a),   ∂ Pr / ∂c = e^{−d²/2} / 2πs
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

LARGEST = -math.log(1e-30)  # of a logit: 69.08, as in the official code
SMALLEST_SINE, SMALLEST_NORM = 1e-12, 1e-8
NODES, REACH, TERMS, SLOW = 24, 20.0, 8, 6.0  # of I(h, k): points, how many scales they cover, and what lies beyond
LN_2PI = math.log(2 * math.pi)


@lru_cache
def _rule(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Points r of [0, REACH], dense near 0, as powers (−r, −r²) and (1, r, r²), and their weights."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    span = math.log1p(REACH)
    y = torch.from_numpy((points + 1) / 2 * span).to(device)
    r = torch.expm1(y)
    weight = torch.from_numpy(weights / 2 * span).to(device) * torch.exp(y)
    return torch.stack([-r, -r * r]), torch.stack([torch.ones_like(r), r, r * r]), weight


def _angle_integral(h: Float[Tensor, "*pair"], k: Float[Tensor, "*pair"]) -> Float[Tensor, "*pair"]:
    """I(h, k) for h > 0, k ≥ 0, by t = k + S r with S the scale at which the integrand falls.

    Beyond the points, up to e^{−h² (T² − k²) / 2} with T their end: where the exponential is slow (h T ≤ 6, so T > 4),
    1 / (1 + t²) = Σ_m (−1)^m t^{−2m−2} term by term, whose integrals are (2m + 1) J_m = T^{−2m−1} − h² J_{m−1};
    elsewhere almost nothing is left, and Laplace's approximation has it.
    """
    decay, lorentz, weight = _rule(h.device)
    square = h * h
    scale = 1 / (square * k + h + 1 / (1 + k))
    step = k * scale
    exponent = torch.stack([square * step, square * scale * scale / 2], dim=-1) @ decay
    below = torch.stack([1 + k * k, 2 * step, scale * scale], dim=-1) @ lorentz
    inside = scale * (exponent.exp_().div_(below) @ weight)
    end = k + scale * REACH
    power = 1 / end
    reach = h * end
    term = power - torch.special.erfcx(reach / math.sqrt(2)) * h * math.sqrt(math.pi / 2)
    slow = term
    for m in range(1, TERMS):
        power = power / (end * end)
        term = (power - square * term) / (2 * m + 1)
        slow = slow + (-1) ** m * term
    over = 1 + end * end
    fast = end / (over * (reach * reach + 3 - 2 / over))
    beyond = torch.where(reach > SLOW, fast, slow)
    return inside + torch.exp(-square * (end - k) * (end + k) / 2) * beyond


def ln_normal(x: Tensor) -> Tensor:
    """ln φ(x)."""
    return -(x.square() + LN_2PI) / 2


ln_below = torch.special.log_ndtr  # ln Φ(x)


class LnVolumes(torch.autograd.Function):
    """ln Pr(x, y), ln Pr(x, not y), ln Pr(y, not x) from the lengths a, b and the gap 1 − c; exact, in float64."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, gap: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        opposite = 2 - gap < 1e-14  # c = −1, but for rounding: nothing is shared
        sine = (gap * (2 - gap)).clamp(min=0).sqrt().masked_fill(opposite, 0).clamp(min=SMALLEST_SINE)
        tangent = gap / sine  # of half the angle
        k_a, k_b = (b - a) / (a * sine) + tangent, (a - b) / (b * sine) + tangent
        ln_apex = -((a - b) / sine).square() / 2 - a * b / (2 - gap).clamp(min=SMALLEST_SINE**2) - LN_2PI
        i_a, i_b = _angle_integral(a, k_a.abs()), _angle_integral(b, k_b.abs())
        ln_a, ln_b = ln_below(-a), ln_below(-b)
        tiny = torch.finfo(a.dtype).tiny
        ln_rest_a, ln_rest_b = (ln_apex + i.clamp(min=tiny).log() for i in (i_a - i_b, i_b - i_a))
        a_inside, b_inside = k_a < 0, k_b < 0  # x's nearest point in V(y), y's in V(x): at most one of them
        both = ln_apex + (i_a + i_b).log()
        both = torch.where(a_inside, ln_a + _ln_complement(ln_rest_a - ln_a), both)
        both = torch.where(b_inside, ln_b + _ln_complement(ln_rest_b - ln_b), both)
        nested = (sine <= SMALLEST_SINE) & (gap < 1)  # c = 1: the farther half-space lies within the other
        both = torch.where(nested, torch.minimum(ln_a, ln_b), both)
        only_a = torch.where(a_inside & ~nested, ln_rest_a, ln_a + _ln_complement(both - ln_a))
        only_b = torch.where(b_inside & ~nested, ln_rest_b, ln_b + _ln_complement(both - ln_b))
        ctx.save_for_backward(a, b, k_a, k_b, sine, ln_apex, opposite, both, only_a, only_b)
        return both, only_a, only_b

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b, k_a, k_b, sine, ln_apex, opposite, *volumes = ctx.saved_tensors
        ln_in_a, ln_in_b = ln_normal(a) + ln_below(-a * k_a), ln_normal(b) + ln_below(-b * k_b)
        ln_out_a, ln_out_b = ln_normal(a) + ln_below(a * k_a), ln_normal(b) + ln_below(b * k_b)
        ln_c = ln_apex - sine.log()

        def pulled(*ln_derivatives: Tensor, signs: tuple[int, int, int]) -> Tensor:
            """Σ ± e^{ln derivative − ln volume} · gradient, over the three volumes."""
            parts = zip(ln_derivatives, volumes, grads, signs, strict=True)
            terms = [sign * (ln - volume).clamp(max=LARGEST).exp() * grad for ln, volume, grad, sign in parts]
            return torch.stack(terms).sum(dim=0).masked_fill(opposite, 0)

        grad_a = pulled(ln_in_a, ln_out_a, ln_in_a, signs=(-1, -1, 1))
        grad_b = pulled(ln_in_b, ln_in_b, ln_out_b, signs=(-1, 1, -1))
        grad_gap = pulled(ln_c, ln_c, ln_c, signs=(-1, 1, 1))
        return grad_a, grad_b, grad_gap * (sine > SMALLEST_SINE)


def _ln_complement(x: Tensor) -> Tensor:
    """ln(1 − e^x) for x ≤ 0; less than −`LARGEST` for x = 0."""
    x = x.clamp(max=-1e-32)
    return torch.where(x > -math.log(2), torch.log(-torch.expm1(x)), torch.log1p(-x.exp()))


class LnGridVolume(torch.autograd.Function):
    """The release's ln Pr(x, y): a rectangle rule on a grid over the longer vector's direction, Φ by a polynomial."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, gap: Tensor, points: int, end: float) -> Tensor:
        step = end / (points - 1)
        cosine, sine = 1 - gap, (gap * (2 - gap)).clamp(0, 1).sqrt()
        inverse = (1 / sine).clamp(max=1e30)
        longer, shorter = torch.maximum(a, b), torch.minimum(a, b)
        first = (longer / step).floor().long() + 1  # the first point strictly beyond
        count = min(points, int(GRID_SPAN / step) + 2)  # φ has nothing left after these
        total = torch.zeros_like(a)
        ln_first = ln_normal(longer) + ln_below_coarse((longer * cosine - shorter) * inverse)
        for start in range(0, count, GRID_CHUNK):
            number = first[..., None] + torch.arange(start, min(start + GRID_CHUNK, count), device=a.device)
            u = number * step
            ln = ln_normal(u) + ln_below_coarse((u * cosine[..., None] - shorter[..., None]) * inverse[..., None])
            total += ((ln - ln_first[..., None]).exp() * (number < points)).sum(dim=-1)
        ln_volume = ln_first + total.log() + math.log(step)
        ctx.save_for_backward(a, b, cosine, sine, inverse, ln_volume)
        return ln_volume

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        a, b, c, sine, inverse, ln_volume = ctx.saved_tensors
        grad_a = -(ln_below_coarse((c * a - b) * inverse) + ln_normal(a) - ln_volume).exp() * grad
        grad_b = -(ln_below_coarse((c * b - a) * inverse) + ln_normal(b) - ln_volume).exp() * grad
        ln_c = -(a * a - 2 * a * b * c + b * b) * inverse.square() / 2 + (inverse / (2 * math.pi)).log() - ln_volume
        return grad_a, grad_b, torch.where(sine > 0, -ln_c.exp() * grad, 0.0), None, None


GRID_SPAN, GRID_CHUNK = 15.0, 512
# Abramowitz & Stegun 7.1.26
ERF_SCALE, ERF = 0.3275911, (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def ln_below_coarse(x: Tensor) -> Tensor:
    """ln Φ(x) to about 1e-7 of Φ, as the release has it."""
    t = 1 / (1 + ERF_SCALE * x.abs() / math.sqrt(2))
    series = torch.zeros_like(t)
    for factor in reversed(ERF):
        series = (series + factor) * t
    tail = (-x.square() / 2 + series.log() - math.log(2)).clamp(min=-1e30)
    return torch.where(x < 0, tail, _ln_complement(tail))


class LogitOfLn(torch.autograd.Function):
    """x − ln(1 − e^x), the logit of e^x; `LARGEST` for x ≥ 0, where the release makes the gradient one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        inside = x.clamp(max=-1e-30)
        ctx.save_for_backward(x)
        return inside - _ln_complement(inside)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.where(x > -1e-30, 1.0, grad * (1 + 1 / torch.expm1(-x.clamp(max=-1e-30))))


def logit_of_ln(x: Float[Tensor, "*pair"]) -> Float[Tensor, "*pair"]:
    logits: Tensor = LogitOfLn.apply(x)  # type: ignore[no-untyped-call]
    return logits


@dataclass(frozen=True)
class Volumes:
    """Logarithms of the volumes of pairs of half-spaces."""

    x: Float[Tensor, "*pair"]  # ln Pr(x)
    y: Float[Tensor, "*pair"]
    both: Float[Tensor, "*pair"]  # ln Pr(x, y)
    y_given_x: Float[Tensor, "*pair"]  # logit Pr(y | x)
    x_given_y: Float[Tensor, "*pair"]

    @property
    def ratio(self) -> Float[Tensor, "*pair"]:
        """g₂ = ln Pr(x, y) / (Pr(x) Pr(y))."""
        return (self.both - self.x - self.y).clamp(min=-LARGEST)


def lengths_and_gap(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """‖x‖, ‖y‖ and 1 − cos(x, y), exact for parallel vectors, of pairs of broadcast vectors; float64."""
    (x, a), (y, b) = unit_and_length(x), unit_and_length(y)
    return together(a, b, (x - y).square().sum(dim=-1) / 2)


def together(a: Tensor, b: Tensor, gap: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The lengths in the shape of the gap."""
    return a.expand_as(gap), b.expand_as(gap), gap


def unit_and_length(vectors: Tensor) -> tuple[Tensor, Tensor]:
    vectors = vectors.double()
    length = vectors.norm(dim=-1).clamp(min=SMALLEST_NORM)
    return vectors / length[..., None], length


def volumes(
    a: Float[Tensor, "*pair"],
    b: Float[Tensor, "*pair"],
    gap: Float[Tensor, "*pair"],
    method: Literal["exact", "grid"] = "exact",
    grid: tuple[int, float] = (100000, 400.0),
) -> Volumes:
    """Of half-spaces at distances a and b whose directions have the cosine 1 − gap; float64, or float32 on the grid."""
    if method == "exact":
        both, only_x, only_y = LnVolumes.apply(a, b, gap)  # type: ignore[no-untyped-call]
        y_given_x, x_given_y = ((both - only).clamp(-LARGEST, LARGEST) for only in (only_x, only_y))
        return Volumes(ln_below(-a), ln_below(-b), both, y_given_x, x_given_y)

    def on_grid(*lengths: Tensor) -> Tensor:
        """In the release's float32, by whose rounding a conditional of 1 − 1e-8 is one."""
        return LnGridVolume.apply(*lengths, *grid).float()  # type: ignore[no-any-return,no-untyped-call]

    both = on_grid(a, b, gap)
    # Pr(x) by the same rule, as the volume shared with a shorter parallel vector, so that its error cancels
    alone = [on_grid(n, n / 2, torch.zeros_like(n)) for n in (a, b)]
    return Volumes(alone[0], alone[1], both, logit_of_ln(both - alone[0]), logit_of_ln(both - alone[1]))
