"""A caption generator with attention, after S2VT: one GRU reads the regions, another writes and looks back at them.

Used where describing a picture is a second lesson beside matching it (VSRN); teacher forcing only.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import END, TextBatch
from saccade.nn.attention import attended, masked_softmax
from saccade.nn.encode import dropout_layer, last_state
from saccade.nn.precision import at_least_float32
from saccade.nn.recurrent import SentenceGru


class AdditiveAttention(nn.Module):
    """e_r = w · tanh(W [o_r ; h] + b); the context is Σ_r softmax(e)_r o_r, over what is there.

    What `Look` computes, with one matrix W as the official weights and their gradient norms have it.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.match = nn.Linear(2 * dim, dim)
        self.weigh = nn.Linear(dim, 1, bias=False)

    def keys(self, values: Float[Tensor, "text region dim"]) -> Float[Tensor, "text region dim"]:
        """The part of W [o_r ; h] + b that is the same at every step."""
        return F.linear(values, self.match.weight[:, : values.shape[2]], self.match.bias)

    def forward(
        self,
        state: Float[Tensor, "text dim"],
        values: Float[Tensor, "text region dim"],
        keys: Float[Tensor, "text region dim"],
        mask: Bool[Tensor, "text region"],
    ) -> Float[Tensor, "text dim"]:
        asked = F.linear(state, self.match.weight[:, values.shape[2] :])
        scores: Tensor = self.weigh(torch.tanh(keys + asked[:, None]))[:, :, 0]
        weights = masked_softmax(scores, mask)
        return attended(weights, values)


class CaptionGenerator(nn.Module):
    """p(y_{s+1} | y_0 … y_s, regions)."""

    def __init__(
        self,
        vocabulary: int,
        region_dim: int,
        dim: int = 512,
        word_dim: int = 300,
        dropout: float = 0.2,
        bidirectional: bool = False,  # of the reading GRU
    ) -> None:
        super().__init__()
        wide = 2 * dim if bidirectional else dim
        self.dropout = dropout_layer(dropout)
        self.project = nn.Linear(region_dim, dim)
        self.reader = SentenceGru(dim, dim, bidirectional=bidirectional)
        self.embed = nn.Embedding(vocabulary, word_dim)
        self.attention = AdditiveAttention(wide)
        self.writer = nn.GRUCell(word_dim + wide, wide)
        self.out = nn.Linear(wide, vocabulary)
        nn.init.xavier_normal_(self.project.weight)
        nn.init.xavier_normal_(self.out.weight)

    def read(
        self, regions: Float[Tensor, "image region in"], mask: Bool[Tensor, "image region"]
    ) -> tuple[Float[Tensor, "image region dim"], Float[Tensor, "image dim"]]:
        """The reader's states over the regions, and its last one, from which writing starts."""
        counts = mask.sum(dim=1)
        states = at_least_float32(self.reader(self.dropout(self.project(regions)), counts))
        if not self.reader.bidirectional:
            return states, last_state(states, counts)
        onward, back = states.chunk(2, dim=-1)
        return states, torch.cat([last_state(onward, counts), back[:, 0]], dim=-1)

    def forward(
        self,
        values: Float[Tensor, "text region dim"],
        state: Float[Tensor, "text dim"],
        mask: Bool[Tensor, "text region"],
        words: Int[Tensor, "text step"],
    ) -> Float[Tensor, "text step vocabulary"]:
        """The log-probabilities of the word after each of `words`; `values` and `state` are what `read` gave."""
        keys, written, states = self.attention.keys(values), self.embed(words), []
        for step in range(words.shape[1]):
            context = self.attention(state, values, keys, mask)
            state = self.writer(self.dropout(torch.cat([written[:, step], context], dim=-1)), state)
            states.append(state)
        return at_least_float32(self.out(torch.stack(states, dim=1))).log_softmax(dim=-1)

    def loss(
        self,
        regions: Float[Tensor, "image region in"],
        mask: Bool[Tensor, "image region"],
        owner: Int[Tensor, " text"],
        texts: TextBatch,
        longest: int,
    ) -> Float[Tensor, ""]:
        """−log p of every caption of its own picture `owner[t]`, summed over its words, averaged over the captions."""
        labels, wanted = caption_labels(texts, longest)
        steps = min(int(texts.lengths.max()), longest - 1)  # no caption asks for more
        values, state = self.read(regions, mask)
        spoken = self(values[owner], state[owner], mask[owner], labels[:, :steps])
        return caption_loss(spoken, labels, wanted)


def caption_labels(texts: TextBatch, longest: int) -> tuple[Int[Tensor, "text label"], Bool[Tensor, "text label"]]:
    """The words to say, <start> to <end>, in `longest` + 1 places, and which of them count.

    Captions of more than `longest` words are cut, their last word made <end>. One <pad> after <end> counts too, as in
    the official code.
    """
    count, given = texts.tokens.shape
    lengths = texts.lengths.clamp(max=longest)
    kept = min(given, longest)
    labels = texts.tokens.new_zeros(count, longest + 1)
    labels[:, :kept] = texts.tokens[:, :kept].masked_fill(~texts.mask[:, :kept], 0)
    cut = texts.lengths > longest
    labels[cut, longest - 1] = END
    return labels, torch.arange(longest + 1, device=labels.device) <= lengths[:, None]


def caption_loss(
    spoken: Float[Tensor, "text step vocabulary"], labels: Int[Tensor, "text label"], wanted: Bool[Tensor, "text label"]
) -> Float[Tensor, ""]:
    """Step s is to say label s + 1, where that is wanted."""
    following = slice(1, spoken.shape[1] + 1)
    missed = -spoken.gather(2, labels[:, following, None])[:, :, 0]
    return (missed * wanted[:, following]).sum() / len(labels)
