"""Under autocast the kernels take the reduced precision, although they switch autocast off for themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from saccade.ops import AttentionForm, Context, Queries, similarity
from saccade.ops.similarity import AttentionProblem


@pytest.mark.parametrize(
    ("run", "kernel"),
    [("_run_triton", "triton.attention.triton_similarity"), ("_run_epilogue", "cuda.epilogue.epilogue_similarity")],
)
def test_kernels_are_told_the_precision_of_the_caller(run: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[torch.dtype] = []

    def record(queries: Queries, context: Context, form: AttentionForm, dtype: torch.dtype, *_: Any) -> torch.Tensor:
        assert not torch.is_autocast_enabled("cuda")
        told.append(dtype)
        return torch.zeros(2, 3)

    def product_dtype(_: torch.Tensor) -> torch.dtype:
        return torch.bfloat16 if torch.is_autocast_enabled("cuda") else torch.float32

    monkeypatch.setattr(f"saccade.ops.{kernel}", record)
    monkeypatch.setattr(similarity, "product_dtype", product_dtype)
    vectors, mask = torch.zeros(2, 4, 8), torch.ones(2, 4, dtype=torch.bool)
    problem = AttentionProblem(Queries(vectors, mask), Context(vectors, mask), AttentionForm())
    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        getattr(similarity, run)(problem)
    finally:
        torch.set_autocast_enabled("cuda", before)
    assert told == [torch.bfloat16]
