"""BERT's layer (Devlin, Chang, Lee, Toutanova; NAACL 2019) on PyTorch's own scaled dot-product attention.

    h = norm(x + project(softmax(q kᵀ / √d) v)),   x′ = norm(h + W₂ gelu(W₁ h))

Keys and values come from the sequence itself, or from another one (`cross`). Padding is masked; where a batch is packed
(`places_of`), everything is computed for real tokens alone (`ops/packed_attention.py` says how the attention is).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from saccade.core.errors import SaccadeError
from saccade.nn.encode import at_least_float32, dropout_layer
from saccade.ops.packed_attention import PACKED_ATTENTION, PackedAttention, through_padding, unpack

EPS = 1e-12  # of BERT's layer normalisation
States = Float[Tensor, "*tokens dim"]  # [item token dim], or [token dim] of a packed batch


class Places(NamedTuple):
    """Where the tokens of a packed batch belong."""

    at: Int[Tensor, " token"]  # in the padded batch, flattened
    starts: Int[Tensor, " bound"]  # each item's first token, and the end of the last item
    attend: Callable[[PackedAttention], Tensor] = through_padding


def leaves_out_padding(packed: bool | None, device: torch.device) -> bool:
    """Whether batches are packed there; if it is not said, on CPUs, which lose nothing by counting tokens."""
    return device.type == "cpu" if packed is None else packed


def places_of(mask: Bool[Tensor, "item place"]) -> Places:
    """Where the real tokens of a batch are. To count them waits for a GPU: best done before it has much to do."""
    at = mask.flatten().nonzero()[:, 0]
    return Places(at, functional.pad(mask.sum(dim=1).cumsum(dim=0), (1, 0)).int())


def pack(states: Float[Tensor, "item place dim"], places: Places) -> Float[Tensor, "token dim"]:
    """The real tokens of a batch one after the other."""
    return states.flatten(0, 1).index_select(0, places.at)


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
        rate = self.attention_dropout if self.training else 0.0
        if places is None:
            attended = self.sums(self.parts(states, context), mask, rate)
        else:
            attended = self.within(states, mask, places, rate)
        states = self.norm1(states + self.dropout(self.project(attended))).to(states.dtype)
        if self.fc1 is None or self.fc2 is None or self.norm2 is None:
            return states
        fed = self.fc2(functional.gelu(self.fc1(states)))
        found: Tensor = self.norm2(states + self.dropout(fed)).to(states.dtype)
        return found

    def within(
        self, states: Float[Tensor, "token dim"], mask: Bool[Tensor, "item 1 1 key"], places: Places, rate: float
    ) -> Float[Tensor, "token dim"]:
        """What packed tokens find in their own items."""
        joined: Tensor = self.qkv(states).view(len(states), 3, self.heads, -1)
        return places.attend(PackedAttention(joined, places.at, places.starts, mask, rate)).flatten(1)

    def sums(
        self, parts: Sequence[Tensor], mask: Bool[Tensor, "item 1 1 key"], rate: float
    ) -> Float[Tensor, "item token dim"]:
        """What tokens attend to, of queries, keys and values."""
        queries, keys, values = parts
        found = functional.scaled_dot_product_attention(queries, keys, values, mask, rate)
        return found.transpose(1, 2).flatten(2)

    def parts(self, states: States, context: Tensor | None) -> tuple[Tensor, ...]:
        """Queries, keys and values [item head token width]."""
        if self.cross:
            assert context is not None
            return *self.shared_out(self.query(states), 1), *self.shared_out(self.context(context), 2)
        return self.shared_out(self.qkv(states), 3)

    def shared_out(self, joined: Float[Tensor, "item token parts"], parts: int) -> tuple[Tensor, ...]:
        """Each part among the heads [item head token width]."""
        return joined.view(*joined.shape[:-1], parts, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()

    def weights(
        self, states: Float[Tensor, "item query dim"], mask: Bool[Tensor, "item 1 1 key"], context: Tensor | None = None
    ) -> Float[Tensor, "item head query key"]:
        """What each token attends to; the layer itself never builds this table."""
        queries, keys, _ = self.parts(states, context)
        scores = at_least_float32(queries) @ at_least_float32(keys).mT / queries.shape[-1] ** 0.5
        shares: Tensor = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
        return shares


def with_attention(places: Places, layer: nn.Module, states: States, keys: Bool[Tensor, "item 1 1 key"]) -> Places:
    """With what attends in such layers, chosen out here: inside, they could not be compiled."""
    assert isinstance(layer, Layer)
    like = states.new_empty(0, 3, layer.heads, states.shape[1] // layer.heads)
    chosen = PACKED_ATTENTION.chosen(PackedAttention(like, places.at, places.starts, keys, 0.0))
    return places._replace(attend=chosen.run)


def run_layers(
    layers: Iterable[nn.Module],
    states: Float[Tensor, "item token dim"],
    mask: Bool[Tensor, "item token"],
    places: Places | None = None,
    recompute: bool = False,
) -> Float[Tensor, "item token dim"]:
    """Layers of one shape one after the other. With `places`, without padding, which comes back as zeros; `recompute`:
    nothing inside a layer is kept for the backward pass, it is computed again (activation checkpointing). Under
    autocast, what goes from layer to layer is of its precision; the norms inside are of float32."""
    layers, keys, shape, given = list(layers), attend_over(mask), mask.shape, states.dtype
    if torch.is_autocast_enabled(states.device.type):
        states = states.to(torch.get_autocast_dtype(states.device.type))
    if places is not None:
        states = pack(states, places)
    if places is not None and layers:
        places = with_attention(places, layers[0], states, keys)
    for layer in layers:
        if recompute and torch.is_grad_enabled():
            states = checkpoint(layer, states, keys, None, places, use_reentrant=False)
        else:
            states = layer(states, keys, None, places)
    return (states if places is None else unpack(states, places.at, shape)).to(given)
