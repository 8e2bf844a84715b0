"""Dense symmetric co-attention: every word attends to every region, every region to every word, in one step.

Ĩ = [n_1 … n_K ; I],  S̃ = [m_1 … m_K ; S]                              K learned entries stand for "nowhere"
A_h = (S̃ L_S)_h (Ĩ L_I)_hᵀ / √(d/H)                                     one table for both directions, of H heads
Î = mean_h softmax over regions of A_h · Ĩ,   Ŝ = mean_h softmax over words of A_hᵀ · S̃
I ← I + ReLU(W_I [I ; Ŝ] + b_I),              S ← S + ReLU(W_S [S ; Î] + b_S)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from saccade.batch import Batch
from saccade.core.errors import SaccadeError
from saccade.nn.attention import masked_softmax, products, summed
from saccade.nn.encode import dropout_layer

Updates = Literal["both", "regions", "words"]


@dataclass(frozen=True)
class CoAttended(Batch):
    """Both sides after a layer, and the weights of its heads, those of nowhere first."""

    regions: Float[Tensor, "item region region_dim"]
    words: Float[Tensor, "item word word_dim"]
    over_regions: Float[Tensor, "item head word nowhere_region"]
    over_words: Float[Tensor, "item head region nowhere_word"]


class CoAttention(nn.Module):
    """One layer; `updates` says which side takes in what it attended to."""

    def __init__(
        self,
        region_dim: int,
        word_dim: int,
        heads: int = 4,
        nowhere: int = 3,
        dropout: float = 0.0,
        updates: Updates = "both",
    ) -> None:
        super().__init__()
        dim = min(region_dim, word_dim)
        if heads < 1 or dim % heads:
            raise SaccadeError(f"co-attention of width {dim} cannot be cut into {heads} heads of one width")
        self.heads, self.nowhere, self.updates = heads, nowhere, updates
        self.region_key = nn.Linear(region_dim, dim, bias=False)  # L_I
        self.word_key = nn.Linear(word_dim, dim, bias=False)  # L_S
        self.no_region = nn.Parameter(torch.empty(nowhere, region_dim))  # n
        self.no_word = nn.Parameter(torch.empty(nowhere, word_dim))  # m
        if nowhere:
            nn.init.xavier_uniform_(self.no_region)
            nn.init.xavier_uniform_(self.no_word)
        self.region_fusion = nn.Linear(region_dim + word_dim, region_dim) if updates != "words" else None
        self.word_fusion = nn.Linear(region_dim + word_dim, word_dim) if updates != "regions" else None
        self.dropout = dropout_layer(dropout)

    def forward(
        self,
        regions: Float[Tensor, "item region region_dim"],
        words: Float[Tensor, "item word word_dim"],
        region_mask: Bool[Tensor, "item region"],
        word_mask: Bool[Tensor, "item word"],
    ) -> CoAttended:
        all_regions, region_mask = self._with_nowhere(self.no_region, regions, region_mask)  # Ĩ
        all_words, word_mask = self._with_nowhere(self.no_word, words, word_mask)  # S̃
        keys, queries = self._split(self.region_key(all_regions)), self._split(self.word_key(all_words))
        scores = products(queries, keys) / queries.shape[-1] ** 0.5  # [item head word region]
        over_regions = masked_softmax(scores, region_mask[:, None, None])[:, :, self.nowhere :]
        over_words = masked_softmax(scores.mT, word_mask[:, None, None])[:, :, self.nowhere :]
        if self.word_fusion is not None:
            found = summed(over_regions.mean(dim=1), all_regions)  # Î
            words = words + self.dropout(self.word_fusion(torch.cat([words, found], dim=2)).relu())
        if self.region_fusion is not None:
            found = summed(over_words.mean(dim=1), all_words)  # Ŝ
            regions = regions + self.dropout(self.region_fusion(torch.cat([regions, found], dim=2)).relu())
        return CoAttended(regions, words, over_regions, over_words)

    def _with_nowhere(
        self, nowhere: Float[Tensor, "k dim"], given: Float[Tensor, "item part dim"], mask: Bool[Tensor, "item part"]
    ) -> tuple[Float[Tensor, "item k+part dim"], Bool[Tensor, "item k+part"]]:
        real = mask.new_ones(len(mask), len(nowhere))
        return torch.cat([nowhere.expand(len(given), -1, -1), given], dim=1), torch.cat([real, mask], dim=1)

    def _split(self, keys: Float[Tensor, "item part dim"]) -> Float[Tensor, "item head part part_dim"]:
        return keys.view(*keys.shape[:2], self.heads, -1).transpose(1, 2)


def coattend(layers: Iterable[nn.Module], *sides: Tensor) -> list[CoAttended]:
    """Both sides after each layer: regions, words and their masks through a stack."""
    regions, words, *masks = sides
    found: list[CoAttended] = []
    for layer in layers:
        found.append(layer(regions, words, *masks))
        regions, words = found[-1].regions, found[-1].words
    return found


class Summary(nn.Module):
    """One vector for all parts: c_t = MLP(x_t) has a score for each of several maps, α = mean over maps of their
    softmax, v = Σ α_t x_t. With `apart`, which is ours, every map has a v of its own, side by side."""

    def __init__(self, dim: int, maps: int = 4, apart: bool = False) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, maps))
        self.apart, self.dim = apart, maps * dim if apart else dim  # of v

    def forward(
        self, parts: Float[Tensor, "item part dim"], mask: Bool[Tensor, "item part"]
    ) -> tuple[Float[Tensor, "item dim"], Float[Tensor, "item map part"]]:
        """v, and the weights of every map."""
        weights = masked_softmax(self.score(parts).mT, mask[:, None])
        joined = weights if self.apart else weights.mean(dim=1, keepdim=True)
        return summed(joined, parts).flatten(1), weights
