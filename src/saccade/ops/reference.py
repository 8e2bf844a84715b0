"""The same similarity from its definition: one pair at a time, attended vectors and all, in float64."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from saccade.ops.form import EPSILON, AttentionForm, Context, Queries


def attended_similarity_reference(
    queries: Queries, context: Context, form: AttentionForm
) -> Float[Tensor, "item other"]:
    """Slow and plain: what `ops.attended_similarity` must equal."""
    rows = []
    for item, real_queries in zip(queries.vectors.double(), queries.mask, strict=True):
        row = [
            _one_pair(item[real_queries], other[real_parts], form)
            for other, real_parts in zip(context.vectors.double(), context.mask, strict=True)
        ]
        rows.append(torch.stack(row))
    return torch.stack(rows)


def _one_pair(queries: Float[Tensor, "query dim"], context: Float[Tensor, "part dim"], form: AttentionForm) -> Tensor:
    scores = context @ queries.T  # s_ij [part, query]
    if form.choice == "max":
        match = scores.amax(dim=0)
    else:
        weights = torch.softmax(form.sharpness * _normalised(scores, form), dim=0)
        attended = weights.T @ context  # a_j [query, dim]
        size = queries.norm(dim=1) * attended.norm(dim=1)
        match = (queries * attended).sum(dim=1) / size.clamp(min=EPSILON)
    if form.pool == "logsumexp":
        return (form.pool_sharpness * match).exp().sum().log() / form.pool_sharpness
    if form.pool == "max":
        return match.max()
    return match.sum() if form.pool == "sum" else match.mean()


def _normalised(scores: Float[Tensor, "part query"], form: AttentionForm) -> Float[Tensor, "part query"]:
    name = form.normaliser
    if name == "softmax":
        return torch.softmax(scores, dim=1)
    if name.startswith("clipped"):
        scores = torch.where(scores > 0, scores, form.slope * scores)
    if not name.endswith(("l1", "l2")):
        return scores
    size: Tensor = torch.linalg.vector_norm(scores, form.norm_power, dim=1, keepdim=True)
    return scores / (size + EPSILON)
