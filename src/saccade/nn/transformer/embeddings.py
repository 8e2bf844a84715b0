"""What a vision–language transformer begins with: a vector for every piece of a text and for every region."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from saccade.core.errors import SaccadeError
from saccade.nn.encode import dropout_layer
from saccade.nn.transformer.blocks import EPS
from saccade.vision.boxes import area

Positions = Literal["linear", "mlp"]
LOCATION_DIM = 5  # x1, y1, x2, y2 and the share of the picture


def locations(boxes: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 5"]:
    return torch.cat([boxes, area(boxes)[..., None]], dim=-1)


class WordEmbeddings(nn.Module):
    """norm(word + position + segment), BERT's; without `segments`, norm(word + position)."""

    def __init__(self, words: int, dim: int, max_words: int, segments: int, dropout: float) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, dim), nn.Embedding(max_words, dim)
        self.segments = nn.Embedding(segments, dim) if segments else None
        self.norm, self.dropout = nn.LayerNorm(dim, EPS), dropout_layer(dropout)

    def forward(
        self, tokens: Int[Tensor, "text word"], segments: Int[Tensor, "text word"] | None = None
    ) -> Float[Tensor, "text word dim"]:
        """Raises: SaccadeError if a text is longer than the table of positions."""
        self.check_length(tokens)
        states = self.words(tokens) + self.positions.weight[: tokens.shape[1]]
        if self.segments is not None:
            states = states + (self.segments.weight[0] if segments is None else self.segments(segments))
        found: Tensor = self.dropout(self.norm(states))
        return found

    def check_length(self, tokens: Int[Tensor, "text word"]) -> None:
        """Raises: SaccadeError if a text is longer than the table of positions."""
        count, most = tokens.shape[1], self.positions.num_embeddings
        if count > most:
            raise SaccadeError(f"a sentence of {count} word pieces is too long: the model reads at most {most}")


class RegionEmbeddings(nn.Module):
    """norm(W_f f + W_p p), p the location of a region; or with `apart` (norm(W_f f) + norm(W_p p)) / 2, LXMERT's.

    `positions=mlp` puts a hidden layer with GELU between p and W_p.
    """

    def __init__(self, region_dim: int, dim: int, positions: Positions, apart: bool, dropout: float) -> None:
        super().__init__()
        self.features = nn.Linear(region_dim, dim)
        self.positions: nn.Module = nn.Linear(LOCATION_DIM, dim)
        if positions == "mlp":
            self.positions = nn.Sequential(nn.Linear(LOCATION_DIM, dim), nn.GELU(), nn.Linear(dim, dim))
        self.norm, self.dropout = nn.LayerNorm(dim, EPS), dropout_layer(dropout)
        self.position_norm = nn.LayerNorm(dim, EPS) if apart else None

    def forward(
        self, features: Float[Tensor, "image region in"], where: Float[Tensor, "image region 5"]
    ) -> Float[Tensor, "image region dim"]:
        seen, placed = self.features(features), self.positions(where)
        if self.position_norm is None:
            joined = self.norm(seen + placed)
        else:
            joined = (self.norm(seen) + self.position_norm(placed)) / 2
        found: Tensor = self.dropout(joined)
        return found


def whole_location(like: Tensor) -> Float[Tensor, " 5"]:
    """Where the picture as a whole lies."""
    return torch.cat([like.new_zeros(2), like.new_ones(3)])  # made on its device
