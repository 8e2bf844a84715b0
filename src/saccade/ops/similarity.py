"""The operator `attended_similarity`: what is computed stands in `ops/torch.py`, here is what computes it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from saccade.ops import cuda, gpu, native, triton
from saccade.ops.dispatch import Backend, Operator, anything
from saccade.ops.form import DEFAULT_BUDGET, AttentionForm, Context, Queries, name_of, product_dtype
from saccade.ops.torch import torch_similarity


@dataclass(frozen=True)
class AttentionProblem:
    """Every query item with every context item; temporaries take at most about `budget` bytes."""

    queries: Queries
    context: Context
    form: AttentionForm
    budget: int = DEFAULT_BUDGET

    @property
    def dtype(self) -> torch.dtype:
        """Of the matrix product that gives all scores."""
        return product_dtype(self.queries.vectors)

    @property
    def needs_grad(self) -> bool:
        return torch.is_grad_enabled() and (self.queries.vectors.requires_grad or self.context.vectors.requires_grad)

    @property
    def work(self) -> float:
        """Multiplications and additions of the product, padding included."""
        return 2.0 * self.queries.mask.numel() * self.context.mask.numel() * self.queries.dim

    def describe(self) -> str:
        sizes = f"{self.queries.parts} queries × {self.context.parts} context vectors"
        return f"{name_of(self.dtype)}, {sizes}{', with gradient' if self.needs_grad else ''}"


def attended_similarity(
    queries: Queries, context: Context, form: AttentionForm, budget: int = DEFAULT_BUDGET
) -> Float[Tensor, "item other"]:
    """The similarity of every query item with every context item; temporaries take at most about `budget` bytes.

    GPU kernels compute it in float32 whatever the vectors' precision.
    """
    return ATTENDED_SIMILARITY(AttentionProblem(queries, context, form, budget))


def _suits_epilogue(problem: AttentionProblem) -> str | None:
    sizes = problem.queries.parts, problem.context.parts
    if problem.queries.dtype != problem.context.dtype:
        return "queries and context differ in precision"
    return (
        gpu.refuses(problem.queries.device)
        or ("it has no gradient" if problem.needs_grad else None)
        or cuda.epilogue_refuses(*sizes, problem.form, problem.dtype)
    )


def _run_epilogue(problem: AttentionProblem) -> Tensor:
    from saccade.ops.cuda.epilogue import epilogue_similarity

    dtype = problem.dtype  # while autocast is still on
    with torch.autocast("cuda", enabled=False), gpu.on_gpu_of(problem.queries.vectors):
        return epilogue_similarity(problem.queries, problem.context, problem.form, dtype, problem.budget)


def _suits_triton(problem: AttentionProblem) -> str | None:
    queries, context = problem.queries, problem.context
    if queries.dtype != context.dtype or queries.dtype == torch.float64:
        return "it takes vectors of one precision, float32 or less"
    if problem.needs_grad and problem.form.pool == "max" and problem.dtype != torch.float32:
        return "in 16 bits the gradient of a maximum would go to another query"
    return gpu.refuses(queries.device) or _too_large_for_triton(queries.parts, context.parts, problem.form)


def _too_large_for_triton(queries: int, parts: int, form: AttentionForm) -> str | None:
    if not 0 < max(queries, parts) <= triton.BIN:
        return f"an item has {max(queries, parts)} vectors, a tile of the kernel 1 to {triton.BIN}"
    return None if form.slope <= 1 else "the slope is larger than 1"


def _run_triton(problem: AttentionProblem) -> Tensor:
    from saccade.ops.triton.attention import triton_similarity

    dtype = problem.dtype  # while autocast is still on
    with torch.autocast("cuda", enabled=False), gpu.on_gpu_of(problem.queries.vectors):
        return triton_similarity(problem.queries, problem.context, problem.form, dtype, problem.budget)


def _suits_native(problem: AttentionProblem) -> str | None:
    if problem.needs_grad:
        return "it has no gradient"
    dtypes = {problem.dtype, problem.queries.dtype, problem.context.dtype}
    return native.refuses(problem.queries.device, dtypes, problem.form, problem.work)


def _run_native(problem: AttentionProblem) -> Tensor:
    from saccade.ops.native.attention import native_similarity

    return native_similarity(problem.queries, problem.context, problem.form, problem.budget)


def _run_torch(problem: AttentionProblem) -> Tensor:
    return torch_similarity(problem.queries, problem.context, problem.form, problem.budget)


ATTENDED_SIMILARITY: Operator[AttentionProblem, Tensor] = Operator(
    "attended_similarity",
    (
        Backend("cuda epilogue", _suits_epilogue, _run_epilogue, cuda.unavailable),
        Backend("triton", _suits_triton, _run_triton, gpu.triton_unavailable),
        Backend("native", _suits_native, _run_native, native.unavailable),
        Backend("torch", anything, _run_torch),
    ),
    torch.float16,  # of codes of unit length it keeps three bits more than bfloat16
)
