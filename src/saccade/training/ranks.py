"""Keeping several processes in step: what one finds out, all must know, or the others wait for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def on_rank_zero(fabric: Fabric, action: Callable[[], object]) -> None:
    """Do something once, by rank zero; if it fails, every rank learns why."""
    if fabric.world_size == 1:
        action()
        return
    failure: str | None = None
    if fabric.is_global_zero:
        try:
            action()
        except SaccadeError as error:
            failure = str(error)
    failure = fabric.broadcast(failure)
    if failure is not None:
        raise SaccadeError(failure)


def mean_over_ranks(fabric: Fabric, figures: Mapping[str, float]) -> dict[str, float]:
    """Each figure averaged over the ranks, which must all name the same figures."""
    if fabric.world_size == 1:
        return dict(figures)
    names = sorted(figures)
    values = torch.tensor([figures[name] for name in names], dtype=torch.float32, device=fabric.device)
    means = fabric.all_reduce(values, reduce_op="mean")
    assert isinstance(means, torch.Tensor)
    return dict(zip(names, means.tolist(), strict=True))


def from_every_rank(fabric: Fabric, value: Any) -> list[Any]:
    """One plain value of each rank, in order of rank."""
    if fabric.world_size == 1:
        return [value]
    values: list[Any] = [None] * fabric.world_size
    torch.distributed.all_gather_object(values, value)
    return values
