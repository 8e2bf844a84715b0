"""What happens to one tile of scores: rows are queries, columns are context vectors, several items on either side.

Sums within an item are products with a matrix of zeros and ones (`members`), so that items of any length share a tile
and the tensor cores do the adding. Three shortcuts, all exact:
- the softmax over the context needs no normaliser: it cancels in the cosine R = Σ e s / (|q| √(eᵀGe));
- under a normaliser, |logits| ≤ sharpness, so exp needs no maximum unless the sharpness is large;
- exp and log are taken to base 2, with the factor folded into what is multiplied anyway.

These functions are inlined into the kernels of `attention_kernels.py`; the names of forms are those of `AttentionForm`.
Products inside a tile are of INSIDE: float32 (three TF32 products each), or bfloat16, whose range holds exp of any
logit.
"""

# mypy: ignore-errors
# ruff: noqa: SIM300, RET505
from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
TINY = tl.constexpr(1e-30)
EPSILON = tl.constexpr(1e-8)
LEAST = tl.constexpr(-1.0e30)


@triton.jit
def product(a, b, INSIDE: tl.constexpr):
    """a @ b, summed in float32."""
    return tl.dot(a.to(INSIDE), b.to(INSIDE), input_precision="tf32x3")


@triton.jit
def sums_of_queries(q_across, x, INSIDE: tl.constexpr):
    """[slot, column]: sums of x [query, column] within each query item, nearly as exact as float32 in either case."""
    upper = x.to(INSIDE)
    found = tl.dot(q_across, upper, input_precision="tf32x3")
    if INSIDE != tl.float32:
        found = tl.dot(q_across, (x - upper.to(tl.float32)).to(INSIDE), found)
    return found


@triton.jit
def power(x, NATIVE: tl.constexpr):
    """2ˣ; compiled, in one instruction, where what is smaller than 2⁻¹²⁶ is 0."""
    if NATIVE:
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=r,r", [x], tl.float32, is_pure=True, pack=1)
    else:
        return tl.exp2(x)


@triton.jit
def members(segment, SLOTS: tl.constexpr, INSIDE: tl.constexpr):
    """[place, slot]: 1 where the place belongs to the slot's item."""
    found = segment[:, None] == tl.arange(0, SLOTS)[None, :]
    return found.to(INSIDE)


@triton.jit
def members_across(segment, SLOTS: tl.constexpr, INSIDE: tl.constexpr):
    """[slot, place]: the same, made in the other layout rather than turned."""
    found = tl.arange(0, SLOTS)[:, None] == segment[None, :]
    return found.to(INSIDE)


@triton.jit
def largest_of_queries(x, segment, USED: tl.constexpr):
    """For every score the largest of its query item, in its column."""
    found = x  # of nobody: itself
    for slot in range(USED):
        own = (segment == slot)[:, None]
        found = tl.where(own, tl.max(tl.where(own, x, LEAST), axis=0)[None, :], found)
    return found


@triton.jit
def largest_of_context(x, segment, USED: tl.constexpr):
    """For every score the largest of its context item, in its row."""
    found = x  # of nobody: itself
    for slot in range(USED):
        own = (segment == slot)[None, :]
        found = tl.where(own, tl.max(tl.where(own, x, LEAST), axis=1)[:, None], found)
    return found


@triton.jit
def best_of_context(x, segment, USED: tl.constexpr, SLOTS: tl.constexpr):
    """[query, slot]: the largest score of each context item."""
    slots = tl.arange(0, SLOTS)[None, :]
    found = tl.zeros((x.shape[0], SLOTS), tl.float32)
    for slot in range(USED):
        best = tl.max(tl.where((segment == slot)[None, :], x, LEAST), axis=1)
        found = tl.where(slots == slot, best[:, None], found)
    return found


@triton.jit
def clip(s, slope, NORMALISER: tl.constexpr):
    if NORMALISER == "clipped_l2" or NORMALISER == "clipped_l1" or NORMALISER == "clipped":
        found = tl.maximum(s, s * slope)  # slope ≤ 1
    else:
        found = s
    return found


@triton.jit
def scale_of(total, sharpness, NORMALISER: tl.constexpr, INSIDE: tl.constexpr):
    """sharpness / (norm + ε), from the sum that the norm is made of."""
    if NORMALISER == "clipped_l2" or NORMALISER == "l2":
        if INSIDE == tl.float32:
            found = sharpness / (tl.sqrt(total) + EPSILON)
        else:
            found = sharpness * tl.rsqrt(total + EPSILON * EPSILON)
    else:
        found = sharpness / (total + EPSILON)
    return found


@triton.jit
def logits(
    s,
    q_across,
    q_members,
    q_segment,
    sharpness,
    slope,
    NORMALISER: tl.constexpr,
    Q_USED: tl.constexpr,
    INSIDE: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """λ₁ s' (eq. 1–3 of SCAN), in units of log₂: normalised over the queries of an item."""
    sharp = sharpness * LOG2E
    if NORMALISER == "clipped" or NORMALISER == "none":
        found = clip(s, slope, NORMALISER) * sharp
    elif NORMALISER == "softmax":
        raised = power((s - largest_of_queries(s, q_segment, Q_USED)) * LOG2E, NATIVE)
        share = sharp / tl.maximum(product(q_across, raised, INSIDE), TINY)
        found = raised * product(q_members, share, INSIDE)
    else:
        clipped = clip(s, slope, NORMALISER)
        if NORMALISER == "clipped_l2" or NORMALISER == "l2":
            total = product(q_across, clipped * clipped, INSIDE)
        else:
            total = product(q_across, tl.abs(clipped), INSIDE)
        found = clipped * product(q_members, scale_of(total, sharp, NORMALISER, INSIDE), INSIDE)
    return found


@triton.jit
def weigh(x, c_segment, C_USED: tl.constexpr, BOUNDED: tl.constexpr, NATIVE: tl.constexpr):
    """α before it is divided by its sum."""
    if not BOUNDED:
        x = x - largest_of_context(x, c_segment, C_USED)
    return power(x, NATIVE)


@triton.jit
def best_of_queries(match, segment, USED: tl.constexpr, SLOTS: tl.constexpr):
    """[slot of the query item, column]: the largest of each query item."""
    slots = tl.arange(0, SLOTS)[:, None]
    found = tl.zeros((SLOTS, match.shape[1]), tl.float32)
    for slot in range(USED):
        best = tl.max(tl.where((segment == slot)[:, None], match, LEAST), axis=0)
        found = tl.where(slots == slot, best[None, :], found)
    return found


@triton.jit
def pool_tile(
    match,
    q_across,
    q_segment,
    sharpness,
    POOL: tl.constexpr,
    SHIFT: tl.constexpr,
    USED: tl.constexpr,
    SLOTS: tl.constexpr,
    INSIDE: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """[slot of the query item, slot of the context item], from R [query, slot of the context item].

    R is a cosine or, where a query takes its best score alone, of any size: then (SHIFT) sums begin at the largest.
    """
    if POOL == "max":
        found = best_of_queries(match, q_segment, USED, SLOTS)
    elif POOL == "logsumexp":
        sharp = sharpness * LOG2E
        raised = match
        if SHIFT:
            raised = raised - largest_of_queries(match, q_segment, USED)
        raised = power(raised * sharp, NATIVE)
        found = tl.log2(sums_of_queries(q_across, raised, INSIDE)) / sharp
        if SHIFT:
            found = found + best_of_queries(match, q_segment, USED, SLOTS)
    else:
        found = sums_of_queries(q_across, match, INSIDE)
        if POOL == "mean":
            found = found / tl.maximum(tl.sum(q_across.to(tl.float32), axis=1), 1.0)[:, None]
    return found
