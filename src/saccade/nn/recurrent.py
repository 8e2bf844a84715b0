"""Recurrent networks over sentences of different lengths: a GRU that is quick on CPUs too, and an LSTM.

On GPUs PyTorch's own GRU is one fused kernel for padded sentences; packed ones are copied at every position, and their
lengths need a host synchronisation. So there each direction reads the padded batch from its own end. On CPUs its
backward pass reads and writes a matrix as large as its weights for every position. Here both directions advance
together over the real words, and the weights' gradient is one matrix product at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class SentenceGru(nn.GRU):
    """`nn.GRU` (batch first; the same parameters, names and numbers), called with lengths instead of packed input."""

    def __init__(self, input_dim: int, dim: int, layers: int = 1, bidirectional: bool = False) -> None:
        super().__init__(input_dim, dim, layers, batch_first=True, bidirectional=bidirectional)

    def forward(  # type: ignore[override]
        self, inputs: Float[Tensor, "text word input"], lengths: Int[Tensor, " text"]
    ) -> Float[Tensor, "text word state"]:
        """The states of all words, both directions side by side; zero where a sentence has ended."""
        if inputs.device.type != "cpu":
            return self._padded(inputs, lengths)
        texts, words = inputs.shape[:2]
        layout = _Layout(lengths.cpu(), words)
        data = inputs.flatten(0, 1).index_select(0, layout.token)
        if torch.is_autocast_enabled("cpu"):
            data = super().forward(PackedSequence(data, torch.tensor(layout.counts)))[0].data
        else:
            for layer in range(self.num_layers):
                data = self._layer(data, layer, layout)
        states = data.new_zeros(texts * words, data.shape[1]).index_copy(0, layout.token, data)
        return states.view(texts, words, data.shape[1])

    def _padded(
        self, inputs: Float[Tensor, "text word input"], lengths: Int[Tensor, " text"]
    ) -> Float[Tensor, "text word state"]:
        """Places after a sentence's end are computed too, and thrown away: they change nothing before it."""
        padding, turned = _ends(inputs, lengths)
        data = inputs.masked_fill(padding, 0.0)
        start = inputs.new_zeros(1, len(inputs), self.hidden_size)

        def read(data: Float[Tensor, "text word input"], end: str) -> Float[Tensor, "text word dim"]:
            states: Tensor = torch.gru(
                data, start, _weights(self, end, data), True, 1, 0.0, self.training, False, True
            )[0]
            return states

        for layer in range(self.num_layers):
            found = [read(data, f"_l{layer}")]
            if self.bidirectional:
                found.append(turned(read(turned(data), f"_l{layer}_reverse")))
            data = torch.cat(found, dim=-1) if len(found) > 1 else found[0]
        return data.masked_fill(padding, 0.0)

    def _layer(self, data: Float[Tensor, "token input"], layer: int, layout: _Layout) -> Float[Tensor, "token state"]:
        inputs = {f"_l{layer}": data}
        if self.bidirectional:  # the second direction reads every sentence from its end
            inputs[f"_l{layer}_reverse"] = data.index_select(0, layout.mirror)
        parts = [
            nn.functional.linear(words, getattr(self, f"weight_ih{end}"), getattr(self, f"bias_ih{end}"))
            for end, words in inputs.items()
        ]
        weight, bias = (torch.stack([getattr(self, name + end) for end in inputs]) for name in ("weight_hh", "bias_hh"))
        gates = torch.stack(parts)  # [direction, token, 3 · dim]
        states: Tensor = _Recurrence.apply(gates, weight, bias, layout)  # type: ignore[no-untyped-call]
        if not self.bidirectional:
            return states[0]
        return torch.cat([states[0], states[1].index_select(0, layout.mirror)], dim=-1)


class SentenceLstm(nn.Module):
    """An LSTM, of two directions and with learned first states if not told otherwise; places after a sentence's end
    hold zeros. `dropout` is between its layers."""

    zeros: Tensor

    def __init__(
        self,
        word_dim: int,
        dim: int,
        layers: int,
        bidirectional: bool = True,
        learned_start: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.bidirectional = bidirectional
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(word_dim, dim, layers, batch_first=True, dropout=between, bidirectional=bidirectional)
        states = (4 if bidirectional else 2) * layers  # h of all layers and directions, then c
        self.initial = nn.Parameter(torch.empty(states, dim)) if learned_start else None
        if self.initial is None:
            self.register_buffer("zeros", torch.zeros(states, dim), persistent=False)
        else:
            nn.init.xavier_uniform_(self.initial)
        for name, weight in self.lstm.named_parameters():
            if name.startswith("bias"):
                with torch.no_grad():
                    weight.zero_()
                    weight[dim : 2 * dim] = 1.0  # the forget gate, in both biases
            else:
                nn.init.xavier_normal_(weight)

    def forward(
        self, vectors: Float[Tensor, "text word word_dim"], lengths: Int[Tensor, " text"]
    ) -> tuple[Float[Tensor, "text word state_dim"], Float[Tensor, "text final_dim"]]:
        """The states of all words, and the last of every layer and direction."""
        count = len(vectors)
        initial = self.zeros if self.initial is None else self.initial
        start = initial[:, None].expand(-1, count, -1).contiguous().chunk(2)
        if vectors.device.type != "cpu":
            return self._padded(vectors, lengths, start)
        packed = pack_padded_sequence(vectors, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, (final, _) = self.lstm(packed, start)
        padded, _ = pad_packed_sequence(states, batch_first=True, total_length=vectors.shape[1])
        return padded, final.transpose(0, 1).flatten(1)

    def _padded(
        self,
        vectors: Float[Tensor, "text word word_dim"],
        lengths: Int[Tensor, " text"],
        start: Sequence[Float[Tensor, "layer text dim"]],
    ) -> tuple[Float[Tensor, "text word state_dim"], Float[Tensor, "text final_dim"]]:
        """As the GRU's: each direction reads the padded batch from its own end."""
        padding, turned = _ends(vectors, lengths)
        data, last, final = vectors.masked_fill(padding, 0.0), (lengths - 1).clamp(min=0), []
        own = torch.arange(len(vectors), device=vectors.device)

        def read(data: Float[Tensor, "text word input"], place: int, end: str) -> Float[Tensor, "text word dim"]:
            first = [state[place : place + 1].type_as(data) for state in start]
            weights = _weights(self.lstm, end, data)
            states: Tensor = torch.lstm(data, first, weights, True, 1, 0.0, self.training, False, True)[0]
            final.append(states[own, last])
            return states

        for layer in range(self.lstm.num_layers):
            if layer:
                data = functional.dropout(data, self.lstm.dropout, self.training)
            if not self.bidirectional:
                data = read(data, layer, f"_l{layer}")
                continue
            onward = read(data, 2 * layer, f"_l{layer}")
            back = turned(read(turned(data), 2 * layer + 1, f"_l{layer}_reverse"))
            data = torch.cat([onward, back], dim=-1)
        return data.masked_fill(padding, 0.0), torch.cat(final, dim=-1)


def _ends(
    inputs: Float[Tensor, "text word input"], lengths: Int[Tensor, " text"]
) -> tuple[Bool[Tensor, "text word 1"], Callable[[Tensor], Tensor]]:
    """Where sentences have ended, and what turns every sentence: from its end to its beginning, and back again."""
    texts, words = inputs.shape[:2]
    place = torch.arange(words, device=inputs.device)
    real = place < lengths[:, None]
    own = torch.arange(texts, device=inputs.device)[:, None] * words
    mirror = (own + torch.where(real, lengths[:, None] - 1 - place, place)).flatten()  # its own inverse
    return ~real[:, :, None], lambda states: states.flatten(0, 1).index_select(0, mirror).view_as(states)


def _weights(layer: nn.RNNBase, end: str, data: Tensor) -> list[Tensor]:
    """Of one direction of a layer, in the one line that the fused kernel reads."""
    weights = [getattr(layer, f"{name}{end}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    if torch.is_autocast_enabled(data.device.type):  # which lines them up itself, in its own precision
        return weights
    line = torch.cat([weight.flatten() for weight in weights])
    parts = torch.split(line, [weight.numel() for weight in weights])
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]


class _Layout:
    """How ragged sentences are packed: all first words, then all second words, …, the longest sentence first."""

    def __init__(self, lengths: Int[Tensor, " text"], words: int) -> None:
        lengths, order = lengths.sort(descending=True, stable=True)
        there = torch.arange(int(lengths[0]))[:, None] < lengths  # [position, sentence]
        counts = there.sum(dim=1)
        position, sentence = there.nonzero(as_tuple=True)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        self.counts: list[int] = counts.tolist()  # how many sentences have a word at this position
        self.starts: list[int] = starts.tolist()
        self.token = order[sentence] * words + position  # where each packed word lies in the padded batch
        self.mirror = starts[lengths[sentence] - 1 - position] + sentence  # the word as far from the other end
        self.before = (starts[position - 1] + sentence)[self.counts[0] :]  # the word before, from the second on


class _Recurrence(torch.autograd.Function):
    """r, z = σ(x + W h + b); n = tanh(xₙ + r (Wₙ h + bₙ)); h' = (1 − z) n + z h, for all directions at once."""

    @staticmethod
    def forward(
        ctx: Any,
        gates: Float[Tensor, "direction token 3*dim"],
        weight: Float[Tensor, "direction 3*dim dim"],
        bias: Float[Tensor, "direction 3*dim"],
        layout: _Layout,
    ) -> Float[Tensor, "direction token dim"]:
        dim = weight.shape[2]
        switches = torch.empty_like(gates[..., : 2 * dim])  # r and z
        candidate, inner, states = (torch.empty_like(gates[..., :dim]) for _ in range(3))  # n, Wₙ h + bₙ, h
        across, shift = weight.transpose(1, 2), bias[:, None]
        state = gates.new_zeros(len(gates), layout.counts[0], dim)
        for count, start in zip(layout.counts, layout.starts, strict=False):
            here = slice(start, start + count)
            state = state[:, :count]
            turned = torch.baddbmm(shift, state, across)
            switch = torch.add(gates[:, here, : 2 * dim], turned[..., : 2 * dim]).sigmoid_()
            new = torch.addcmul(gates[:, here, 2 * dim :], switch[..., :dim], turned[..., 2 * dim :]).tanh_()
            state = torch.lerp(new, state, switch[..., dim:])
            switches[:, here], candidate[:, here] = switch, new
            inner[:, here], states[:, here] = turned[..., 2 * dim :], state
        ctx.save_for_backward(weight, switches, candidate, inner, states)
        ctx.layout = layout
        return states

    @staticmethod
    def backward(ctx: Any, given: Float[Tensor, "direction token dim"]) -> tuple[Tensor, Tensor, Tensor, None]:
        weight, switches, candidate, inner, states = ctx.saved_tensors
        layout: _Layout = ctx.layout
        dim, first = weight.shape[2], layout.counts[0]
        reset, update = switches[..., :dim], switches[..., dim:]
        before = torch.zeros_like(states)
        before[:, first:] = states[:, layout.before]
        # How much a change of h' moves each pre-activation: everything that needs no recursion, all words at once.
        of_update = (before - candidate) * update * (1 - update)
        of_candidate = (1 - update) * (1 - candidate * candidate)
        of_reset = of_candidate * inner * reset * (1 - reset)
        through_reset = of_candidate * reset
        pull = torch.empty_like(given)  # the gradient of each h'
        turned = given.new_empty(*given.shape[:2], 3 * dim)  # … of each W h + b
        carried = given.new_zeros(len(given), first, dim)
        for count, start in zip(reversed(layout.counts), reversed(layout.starts[:-1]), strict=True):
            here = slice(start, start + count)
            now = torch.add(given[:, here], carried[:, :count])
            pull[:, here] = now
            row = turned[:, here]
            torch.mul(now, of_reset[:, here], out=row[..., :dim])
            torch.mul(now, of_update[:, here], out=row[..., dim : 2 * dim])
            torch.mul(now, through_reset[:, here], out=row[..., 2 * dim :])
            carried[:, :count] = torch.baddbmm(now * update[:, here], row, weight)
        gates = turned.clone()
        gates[..., 2 * dim :] = pull * of_candidate
        of_weight = torch.bmm(turned[:, first:].transpose(1, 2), before[:, first:])
        return gates, of_weight, turned.sum(dim=1), None
