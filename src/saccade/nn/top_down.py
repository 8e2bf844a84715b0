"""Two LSTMs on top of each other: the first decides where to look, the second what to say (Anderson et al., CVPR 2018).

h¹ = LSTM₁([h²; v̄; x], h¹),   v̂ = what h¹ finds in the picture,   h² = LSTM₂([v̂; h¹], h²)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saccade.batch import Batch


@dataclass(frozen=True)
class TopDownMemory(Batch):
    """What both LSTMs remember between two words."""

    looking: Float[Tensor, "row dim"]  # h¹
    looking_cell: Float[Tensor, "row dim"]
    saying: Float[Tensor, "row dim"]  # h², from which a word is said
    saying_cell: Float[Tensor, "row dim"]


class TopDown(nn.Module):
    """The two LSTMs; how to look between them is the model's own affair."""

    def __init__(self, word_dim: int, whole_dim: int, found_dim: int, dim: int) -> None:
        super().__init__()
        self.look_lstm = nn.LSTMCell(dim + whole_dim + word_dim, dim)
        self.say_lstm = nn.LSTMCell(found_dim + dim, dim)
        with torch.no_grad():  # h¹ comes through half-shut gates, an eighth as large as words: else it is long unheard
            self.say_lstm.weight_ih[:, found_dim:] *= 8

    def blank(self, seen: Float[Tensor, row * rest]) -> TopDownMemory:
        """Before the first word: zeros, a row for each of what is `seen`."""
        zeros = seen.new_zeros(len(seen), self.look_lstm.hidden_size)
        return TopDownMemory(zeros, zeros, zeros, zeros)

    def look(
        self, word: Float[Tensor, "row word_dim"], whole: Float[Tensor, "row whole_dim"], memory: TopDownMemory
    ) -> tuple[Float[Tensor, "row dim"], Float[Tensor, "row dim"]]:
        """h¹ and its cell: the word is read with the whole picture and what was said last in mind."""
        state: tuple[Tensor, Tensor] = self.look_lstm(
            torch.cat([memory.saying, whole, word], dim=1), (memory.looking, memory.looking_cell)
        )
        return state

    def say(
        self,
        found: Float[Tensor, "row found_dim"],
        looking: tuple[Float[Tensor, "row dim"], Float[Tensor, "row dim"]],
        memory: TopDownMemory,
    ) -> TopDownMemory:
        """The memory after this word, given what h¹ found; its `saying` is h²."""
        saying, cell = self.say_lstm(torch.cat([found, looking[0]], dim=1), (memory.saying, memory.saying_cell))
        return TopDownMemory(*looking, saying, cell)
