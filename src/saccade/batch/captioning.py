"""A captioner between two words: what it remembers and attends to, what one step gives, and captions teacher-forced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import TypeVar

from saccade.batch.base import Batch

Memory = TypeVar("Memory", bound=Batch, default=Any)  # what changes with every word; the model's own dataclass
Context = TypeVar("Context", bound=Batch, default=Any)  # what is the same at every step: regions, their keys, masks …


@dataclass(frozen=True)
class CaptionState(Batch, Generic[Memory, Context]):
    """A captioner in mid-sentence, one row a sentence."""

    memory: Memory
    context: Context

    def repeat(self, count: int) -> CaptionState[Memory, Context]:
        """Every row `count` times, one after the other: the beams or samples of a picture."""
        return self.select(torch.arange(len(self)).repeat_interleave(count)) if count > 1 else self

    def reorder(self, rows: Int[Tensor, " row"]) -> CaptionState[Memory, Context]:
        """Row i goes on from the memory of row `rows[i]`, whose context is the same."""
        return replace(self, memory=self.memory.select(rows))


@dataclass(frozen=True)
class StepOutput(Batch, Generic[Memory, Context]):
    """One step of a captioner: what the next word's logits are made of, and where it attended."""

    hidden: Float[Tensor, "row dim"]
    state: CaptionState[Memory, Context]
    weights: Float[Tensor, "row region"]
    sentinel: Float[Tensor, " row"] | None = None  # the share of attention that went to no region
    extras: Mapping[str, Tensor] = field(default_factory=dict)  # what a paper's own loss needs, [row …] each


@dataclass(frozen=True)
class TeacherForced(Batch):
    """Captions under teacher forcing: the next word's log-probabilities after each word, and where it attended."""

    log_probabilities: Float[Tensor, "text step word"]
    weights: Float[Tensor, "text step region"]
    sentinel: Float[Tensor, "text step"] | None = None
    extras: Mapping[str, Tensor] = field(default_factory=dict)

    def nll(self, labels: Int[Tensor, "text step"], wanted: Bool[Tensor, "text step"]) -> Float[Tensor, "text step"]:
        """−log p of each label; 0 where none is wanted."""
        said = self.log_probabilities.gather(2, labels[:, :, None])[:, :, 0]
        return -said.masked_fill(~wanted, 0)
