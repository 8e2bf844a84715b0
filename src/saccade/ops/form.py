"""What the operators compute, and on what: the vocabulary that every backend shares. Knows no backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.batch import ImageCode, TextCode

Normaliser = Literal["clipped_l2", "l2", "clipped_l1", "l1", "softmax", "clipped", "none"]
Pool = Literal["logsumexp", "mean", "max", "sum"]
Choice = Literal["attend", "max"]

EPSILON = 1e-8  # added to a norm, or the least that one counts as
MAX_UNSHIFTED_SHARPNESS = 30.0  # λ up to which exp(±λ) needs no maximum subtracted: squares of its sums are float32
REDUCED = (torch.bfloat16, torch.float16)  # precisions of matrix products
DEFAULT_BUDGET = 256 << 20  # bytes of temporaries


@dataclass(frozen=True)
class AttentionForm:
    """How queries attend to a context, and how the cosines with what they attended to are pooled."""

    normaliser: Normaliser = "clipped_l2"
    sharpness: float = 9.0  # λ₁
    slope: float = 0.1  # of negative scores under a clipped normaliser; 0 is the paper's [s]₊, 0.1 the official code
    choice: Choice = "attend"  # max: a query takes its best context vector alone (the Sum-Max baselines)
    pool: Pool = "logsumexp"
    pool_sharpness: float = 6.0  # λ₂

    @property
    def bounded(self) -> bool:
        """Whether sharpened scores of a norm-like normaliser lie within ±λ₁, and λ₁ is small enough for a bare exp."""
        return self.normaliser.endswith(("l1", "l2")) and abs(self.sharpness) <= MAX_UNSHIFTED_SHARPNESS

    @property
    def norm_power(self) -> int:
        """Of a norm-like normaliser: 1 or 2."""
        return 2 if self.normaliser.endswith("l2") else 1


@dataclass(frozen=True)
class _Padded:
    """Items of unequal length, padded; a mask says which vectors are real."""

    vectors: Float[Tensor, "item part dim"]
    mask: Bool[Tensor, "item part"]

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def device(self) -> torch.device:
        return self.vectors.device

    @property
    def dtype(self) -> torch.dtype:
        return self.vectors.dtype

    @property
    def parts(self) -> int:
        """Places of an item, padding included."""
        return self.vectors.shape[1]

    @property
    def dim(self) -> int:
        return self.vectors.shape[-1]


@dataclass(frozen=True)
class Queries(_Padded):
    """What attends: the words of sentences, or the regions of pictures."""


@dataclass(frozen=True)
class Context(_Padded):
    """What is attended to: the other side."""


def roles(images: ImageCode, texts: TextCode, words_attend: bool) -> tuple[Queries, Context]:
    """Words attend to regions, or regions to words."""
    regions, words = (images.regions, images.mask), (texts.words, texts.mask)
    return (Queries(*words), Context(*regions)) if words_attend else (Queries(*regions), Context(*words))


def product_dtype(like: Tensor) -> torch.dtype:
    """Under autocast the large matrix products run in the reduced precision; all else stays in the inputs' own."""
    device = like.device.type
    reduced: torch.dtype = torch.get_autocast_dtype(device)
    return reduced if torch.is_autocast_enabled(device) else like.dtype


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
