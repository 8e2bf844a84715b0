"""Encoders the matching papers share: regions by a linear map, words by an embedding and a GRU.

Mixed precision ends where they do: lengths, softmaxes, gates and scores in bfloat16 would be off by a percent.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.nn.recurrent import SentenceGru, SentenceLstm

StatePool = Literal["last", "mean"]


def at_least_float32(vectors: Float[Tensor, "*items dim"]) -> Float[Tensor, "*items dim"]:
    return vectors.float() if vectors.dtype in (torch.bfloat16, torch.float16) else vectors


def full_precision(like: Tensor) -> torch.autocast:
    """A block out of mixed precision, on the device of `like`."""
    return torch.autocast(like.device.type, enabled=False)


class FullPrecision(nn.Sequential):
    """Layers that mixed precision leaves alone."""

    def forward(self, inputs: Tensor) -> Tensor:
        with full_precision(inputs):
            result: Tensor = super().forward(at_least_float32(inputs))  # type: ignore[no-untyped-call]
            return result


def unit(vectors: Float[Tensor, "*items dim"]) -> Float[Tensor, "*items dim"]:
    """Vectors of length one, in float32 at least; zero vectors (padding) stay zero."""
    vectors = at_least_float32(vectors)
    length: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / (length + 1e-8)


def last_state(states: Float[Tensor, "item place dim"], lengths: Int[Tensor, " item"]) -> Float[Tensor, "item dim"]:
    """The state of a recurrent network at the last real place, in float32 at least."""
    last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, states.shape[2])
    return at_least_float32(states.gather(1, last)[:, 0])


def mean_state(states: Float[Tensor, "item place dim"], lengths: Int[Tensor, " item"]) -> Float[Tensor, "item dim"]:
    """The mean over the real places; padding must be zero."""
    return states.sum(dim=1) / lengths[:, None].clamp(min=1)


def pooled_state(
    states: Float[Tensor, "item place dim"], lengths: Int[Tensor, " item"], pool: StatePool
) -> Float[Tensor, "item dim"]:
    """One vector for all places: the last, or their mean."""
    return last_state(states, lengths) if pool == "last" else mean_state(states, lengths)


def dropout_layer(rate: float) -> nn.Dropout:
    if not 0 <= rate < 1:
        raise SaccadeError(f"dropout must be at least 0 and less than 1, not {rate}")
    return nn.Dropout(rate)


class ScalarWeightNorm(nn.Module):
    """A linear map W = g · U / ‖U‖_F with one scalar g for the whole matrix."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        start = nn.Linear(in_dim, out_dim)
        self.weight_v = nn.Parameter(start.weight.detach().clone())
        self.weight_g = nn.Parameter(start.weight.detach().norm())
        self.bias = nn.Parameter(start.bias.detach().clone())

    def forward(self, inputs: Float[Tensor, "*items in"]) -> Float[Tensor, "*items out"]:
        return F.linear(inputs, self.weight_g * self.weight_v / self.weight_v.norm(), self.bias)


class RowBatchNorm(nn.BatchNorm1d):
    """`nn.BatchNorm1d` of vectors; one alone has no variance, and is normalised by the running statistics."""

    def forward(self, vectors: Float[Tensor, "vector dim"]) -> Float[Tensor, "vector dim"]:
        if self.training and len(vectors) > 1:
            return super().forward(vectors)
        return F.batch_norm(vectors, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class MaskedBatchNorm(RowBatchNorm):
    """Batch normalisation over the real entries alone: padding changes no statistic and stays zero.

    How many are real is never asked of a GPU: that would be to wait for it, which a captured step cannot.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(  # type: ignore[override]
        self, inputs: Float[Tensor, "item place dim"], mask: Bool[Tensor, "item place"]
    ) -> Float[Tensor, "item place dim"]:
        inputs, real = at_least_float32(inputs), mask[:, :, None]
        mean, variance = self.running_mean, self.running_var
        if self.training:
            count = real.sum().to(inputs)
            several, least = count > 1, count.clamp(min=1)
            own = (inputs * real).sum(dim=(0, 1)) / least
            spread = ((inputs - own).square() * real).sum(dim=(0, 1)) / least
            mean, variance = torch.where(several, own, mean), torch.where(several, spread, variance)
            with torch.no_grad():
                share = several * (self.momentum or 0.0)
                unbiased = spread * count / (count - 1).clamp(min=1)
                self.running_mean.lerp_(own.to(self.running_mean), share.to(self.running_mean))
                self.running_var.lerp_(unbiased.to(self.running_var), share.to(self.running_var))
                self.num_batches_tracked += several
        return ((inputs - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias) * real


class Standardise(nn.Module):
    """Every channel to mean 0 and spread 1 over the real regions of a batch; afterwards by the running figures.

    A backbone whose features share a large mean makes all regions alike at first, and the hardest negatives stall.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, dim: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("variance", torch.ones(dim))

    def forward(
        self, features: Float[Tensor, "image region dim"], mask: Bool[Tensor, "image region"]
    ) -> Float[Tensor, "image region dim"]:
        features, real = at_least_float32(features), mask[:, :, None]
        mean, variance = self.mean, self.variance
        if self.training:
            count = real.sum().clamp(min=1)
            mean = (features * real).sum(dim=(0, 1)) / count
            variance = ((features - mean).square() * real).sum(dim=(0, 1)) / count
            with torch.no_grad():
                self.mean.lerp_(mean.to(self.mean), self.momentum)
                self.variance.lerp_(variance.to(self.variance), self.momentum)
        return (features - mean) * (variance + 1e-5).rsqrt() * real


class RegionEncoder(nn.Module):
    """v = W x + b for every region, of unit length unless `normalise` is off; x standardised if wanted."""

    def __init__(
        self,
        region_dim: int,
        dim: int,
        weight_norm: bool = False,
        normalise: bool = True,
        dropout: float = 0.0,
        standardise: bool = False,
    ) -> None:
        super().__init__()
        self.normalise = normalise
        self.standardise = Standardise(region_dim) if standardise else None
        self.dropout = dropout_layer(dropout)
        self.fc: nn.Module
        if weight_norm:
            self.fc = ScalarWeightNorm(region_dim, dim)
        else:
            self.fc = nn.Linear(region_dim, dim)
            nn.init.xavier_uniform_(self.fc.weight)
            nn.init.zeros_(self.fc.bias)

    def forward(self, images: RegionBatch) -> Float[Tensor, "image region dim"]:
        features = images.features if self.standardise is None else self.standardise(images.features, images.mask)
        vectors: Tensor = at_least_float32(self.fc(self.dropout(features)))
        return (unit(vectors) if self.normalise else vectors) * images.mask[:, :, None]


class WordEncoder(nn.Module):
    """Embedding, then a GRU (or LSTM) whose directions are averaged: e_t = (→h_t + ←h_t) / 2, of unit length by
    default."""

    def __init__(
        self,
        vocabulary: int,
        word_dim: int,
        dim: int,
        layers: int = 1,
        bidirectional: bool = True,
        normalise: bool = True,
        dropout: float = 0.0,
        cell: Literal["gru", "lstm"] = "gru",
    ) -> None:
        super().__init__()
        self.normalise = normalise
        self.dropout = dropout_layer(dropout)
        self.embed = nn.Embedding(vocabulary, word_dim)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        self.rnn: SentenceGru | SentenceLstm
        if cell == "gru":
            self.rnn = SentenceGru(word_dim, dim, layers, bidirectional)
        else:
            self.rnn = SentenceLstm(word_dim, dim, layers, bidirectional, learned_start=False)

    def forward(self, texts: TextBatch) -> Float[Tensor, "text word dim"]:
        read = self.rnn(self.dropout(self.embed(texts.tokens)), texts.lengths)
        states: Tensor = at_least_float32(read[0] if isinstance(self.rnn, SentenceLstm) else read)
        if self.rnn.bidirectional:
            forward, backward = states.chunk(2, dim=-1)
            states = (forward + backward) / 2
        return unit(states) if self.normalise else states
