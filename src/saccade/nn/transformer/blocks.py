"""BERT's layer (Devlin, Chang, Lee, Toutanova; NAACL 2019) on PyTorch's own scaled dot-product attention.

    h = norm(x + project(softmax(q kᵀ / √d) v)),   x′ = norm(h + W₂ gelu(W₁ h))

Keys and values come from the sequence itself, or from another one (`cross`). Padding is masked; where a batch is packed
(`pack`), everything but the attention itself is computed for real tokens alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from saccade.core.errors import SaccadeError
from saccade.nn.encode import at_least_float32, dropout_layer

EPS = 1e-12  # of BERT's layer normalisation
States = Float[Tensor, "*tokens dim"]  # [item token dim], or [token dim] of a packed batch
Places = Int[Tensor, " token"]  # where in a padded batch, flattened, each token of a packed one belongs


def pack(states: Float[Tensor, "item place dim"], mask: Bool[Tensor, "item place"]) -> tuple[Tensor, Places]:
    """The real tokens of a batch one after the other, and their places. Counting them synchronises a GPU."""
    places = mask.flatten().nonzero()[:, 0]
    return states.flatten(0, 1)[places], places


def unpack(tokens: Float[Tensor, "token dim"], places: Places, shape: Sequence[int]) -> Float[Tensor, "item place dim"]:
    """The padded batch [item, place] of packed tokens, zero where there is none."""
    padded = tokens.new_zeros(shape[0] * shape[1], tokens.shape[1]).index_copy(0, places, tokens)
    return padded.view(shape[0], shape[1], -1)


def attend_over(mask: Bool[Tensor, "item key"]) -> Bool[Tensor, "item 1 1 key"]:
    """The mask as attention takes it; an item without a single key attends to its first place, not to nothing."""
    first = torch.arange(mask.shape[1], device=mask.device) == 0
    return (mask | (first & ~mask.any(dim=1, keepdim=True)))[:, None, None]


class Layer(nn.Module):
    """Attention within a sequence, or with `cross` to another, then two layers for each token, `hidden` wide.

    Sums are normalised after they are added, as BERT does it.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        hidden: int | None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        cross: bool = False,
    ) -> None:
        super().__init__()
        if dim % heads:
            raise SaccadeError(f"a layer {dim} wide cannot be shared out among {heads} heads: dim must be a multiple")
        self.heads, self.cross, self.attention_dropout = heads, cross, attention_dropout
        if cross:
            self.query, self.context = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        else:
            self.qkv = nn.Linear(dim, 3 * dim)
        self.project, self.norm1 = nn.Linear(dim, dim), nn.LayerNorm(dim, EPS)
        self.fc1 = self.fc2 = self.norm2 = None
        if hidden is not None:
            self.fc1, self.fc2, self.norm2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim), nn.LayerNorm(dim, EPS)
        self.dropout = dropout_layer(dropout)

    def forward(
        self,
        states: States,
        mask: Bool[Tensor, "item 1 1 key"],
        context: Float[Tensor, "item key dim"] | None = None,
        places: Places | None = None,
    ) -> States:
        """`mask` is that of the keys; with `places`, `states` are packed."""
        queries, keys, values = self.parts(states, context, (len(mask), mask.shape[3]), places)
        rate = self.attention_dropout if self.training else 0.0
        attended = functional.scaled_dot_product_attention(queries, keys, values, mask, rate).transpose(1, 2).flatten(2)
        if places is not None:
            attended = attended.flatten(0, 1)[places]
        states = self.norm1(states + self.dropout(self.project(attended)))
        if self.fc1 is None or self.fc2 is None or self.norm2 is None:
            return states
        found: Tensor = self.norm2(states + self.dropout(self.fc2(functional.gelu(self.fc1(states)))))
        return found

    def parts(
        self, states: States, context: Tensor | None, shape: tuple[int, int], places: Places | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [item head token width]."""
        if self.cross:
            assert context is not None
            asked: Tensor = self.query(states)
            queries = asked.view(*asked.shape[:-1], self.heads, -1).transpose(1, 2)
            both: Tensor = self.context(context)
            keys, values = both.view(*both.shape[:-1], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
            return queries, keys, values
        joined: Tensor = self.qkv(states)
        if places is not None:
            joined = unpack(joined, places, shape)
        queries, keys, values = joined.view(*joined.shape[:-1], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return queries, keys, values

    def weights(
        self, states: Float[Tensor, "item query dim"], mask: Bool[Tensor, "item 1 1 key"], context: Tensor | None = None
    ) -> Float[Tensor, "item head query key"]:
        """What each token attends to; the layer itself never builds this table."""
        queries, keys, _ = self.parts(states, context, (len(mask), mask.shape[3]))
        scores = at_least_float32(queries) @ at_least_float32(keys).mT / queries.shape[-1] ** 0.5
        shares: Tensor = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
        return shares


def run_layers(
    layers: Iterable[nn.Module],
    states: Float[Tensor, "item token dim"],
    mask: Bool[Tensor, "item token"],
    packed: bool = False,
    recompute: bool = False,
) -> Float[Tensor, "item token dim"]:
    """Layers one after the other. `packed`: without padding, which comes back as zeros; `recompute`: nothing inside a
    layer is kept for the backward pass, it is computed again (activation checkpointing)."""
    keys, places, shape = attend_over(mask), None, mask.shape
    if packed:
        states, places = pack(states, mask)
    for layer in layers:
        if recompute and torch.is_grad_enabled():
            states = checkpoint(layer, states, keys, None, places, use_reentrant=False)
        else:
            states = layer(states, keys, None, places)
    return states if places is None else unpack(states, places, shape)
