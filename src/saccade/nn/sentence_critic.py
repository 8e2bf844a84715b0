"""An LSTM that reads a sentence: what it says after each word of how natural that is, and of what picture it tells."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from saccade.batch import END, Batch
from saccade.nn.captioners import start_lstm
from saccade.nn.encode import dropout_layer, last_state, unit
from saccade.nn.precision import at_least_float32


@dataclass(frozen=True)
class Judgement(Batch):
    """What a critic makes of sentences."""

    logits: Float[Tensor, "text step"]  # after each word: above zero, a person wrote it
    mask: Bool[Tensor, "text step"]
    recalled: Float[Tensor, "text dim"]  # the picture's vector, guessed from the whole sentence; of length one


class SentenceReader(nn.Module):
    """h_t = LSTM(w_t, h_{t−1}), with dropout on what goes in and what comes out but not on what is remembered."""

    def __init__(self, vocabulary: int, dim: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.dropout = dropout_layer(dropout)
        start_lstm(self.lstm)
        nn.init.uniform_(self.embed.weight, -0.08, 0.08)

    def forward(
        self, words: Int[Tensor, "text step"], mask: Bool[Tensor, "text step"]
    ) -> Float[Tensor, "text step dim"]:
        """The states; zero where there is no word."""
        states = self.dropout(self.lstm(self.dropout(self.embed(words)))[0])
        return at_least_float32(states) * mask[:, :, None]

    def whole(self, words: Int[Tensor, "text step"], mask: Bool[Tensor, "text step"]) -> Float[Tensor, "text dim"]:
        """The last state, of length one."""
        return unit(last_state(self(words, mask), mask.sum(dim=1)))


class SentenceCritic(SentenceReader):
    """A reader that says after each word whether a person wrote it, and at the end what picture it was about."""

    def __init__(self, vocabulary: int, dim: int, dropout: float = 0.2) -> None:
        super().__init__(vocabulary, dim, dropout)
        self.natural = nn.Linear(dim, 1)
        self.recall = nn.Linear(dim, dim)

    def judge(self, words: Int[Tensor, "text step"], mask: Bool[Tensor, "text step"]) -> Judgement:
        states = self(words, mask)
        recalled = unit(at_least_float32(self.recall(last_state(states, mask.sum(dim=1)))))
        return Judgement(at_least_float32(self.natural(states))[:, :, 0], mask, recalled)


def up_to_end(words: Int[Tensor, "text step"]) -> Bool[Tensor, "text step"]:
    """Which words count of sentences without <start>: up to the first <end>, or all where there is none."""
    ends = (words == END).int()
    return (torch.cumsum(ends, dim=1) - ends) == 0
