"""Captioners that hear a word as one vector, whatever they have seen: of a whole caption all words are heard at once.

That is one look-up, and one gradient of the word table, instead of one for every step.
"""

from __future__ import annotations

from abc import abstractmethod

from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import CaptionState, Thought, Told
from saccade.models.captioner import Captioner


class Listener(Captioner):
    """A model says how it hears words and what it thinks after one."""

    @abstractmethod
    def hear(self, words: Int[Tensor, "*text"]) -> Float[Tensor, "*text dim"]:
        """A vector for every word."""

    @abstractmethod
    def think(self, word: Float[Tensor, "row dim"], state: CaptionState) -> Thought:
        """Look at the picture with this word in mind, and think of the next."""

    def advance(self, words: Int[Tensor, " row"], state: CaptionState) -> Thought:
        return self.think(self.hear(words), state)

    def tell(self, state: CaptionState, words: Int[Tensor, "text step"]) -> Told:
        thoughts = []
        for word in self.hear(words).unbind(dim=1):
            thoughts.append(self.think(word, state))
            state = thoughts[-1].state
        return self.told(thoughts)
