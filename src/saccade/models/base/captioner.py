"""Captioners: a picture is seen once, then said word by word; every word can be asked where it looked.

Captioners that hear a word as one vector, whatever they have seen: of a whole caption all words are heard at once.

That is one look-up, and one gradient of the word table, instead of one for every step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import END, PAD, START, CaptionState, PictureBatch, RegionBatch, StepOutput, TeacherForced, TextBatch
from saccade.models.base.model import Model
from saccade.nn.precision import at_least_float32

NEVER_SAID = (PAD, START)


def never_said(logits: Float[Tensor, "*row word"]) -> Bool[Tensor, " word"]:
    """True at padding and <start>; made where the logits are, which waits for nobody."""
    words = torch.arange(logits.shape[-1], device=logits.device)
    return (words == PAD) | (words == START)


class Captioner(Model):
    """A model says how it starts, reads a word and speaks; teacher forcing and decoding are written once on that."""

    @abstractmethod
    def start(self, images: RegionBatch) -> CaptionState:
        """What is taken from the pictures, and the memory before the first word."""

    def start_training(self, images: RegionBatch, texts: TextBatch, owner: Int[Tensor, " text"]) -> CaptionState:
        """What training captions are told from: their pictures, unless the paper learns from sentences alone."""
        return self.start(images).select(owner)

    @property
    def settled(self) -> bool:
        """Whether all lessons from now on are alike."""
        return True

    @abstractmethod
    def step(self, words: Int[Tensor, " row"], state: CaptionState) -> StepOutput:
        """Read a word, look at the picture, and think of the next."""

    @abstractmethod
    def logits(self, hidden: Float[Tensor, "*row dim"]) -> Float[Tensor, "*row word"]:
        """A logit for every word of the vocabulary."""

    def own_losses(
        self,
        forced: TeacherForced,
        labels: Int[Tensor, "text step"],
        nll: Float[Tensor, "text step"],
        wanted: Bool[Tensor, "text step"],
    ) -> dict[str, Float[Tensor, ""]]:
        """What the paper asks beside cross-entropy, by name; `missed` is −log p of each label, where it is `wanted`."""
        return {}

    def log_probabilities(self, hidden: Float[Tensor, "*row dim"]) -> Float[Tensor, "*row word"]:
        """Of the next word; padding and <start> are never said."""
        logits = at_least_float32(self.logits(hidden))
        return logits.masked_fill(never_said(logits), float("-inf")).log_softmax(dim=-1)

    def step(self, words: Int[Tensor, " row"], state: CaptionState) -> tuple[Float[Tensor, "row word"], StepOutput]:
        """One word further: the log-probabilities of the word after `words`, and the thought behind them."""
        output = self.step(words, state)
        return self.log_probabilities(output.hidden), output

    def tell(self, state: CaptionState, words: Int[Tensor, "text step"]) -> TeacherForced:
        """Teacher forcing: what would be said after each of `words`, which begin with <start>."""
        outputs = []
        for word in words.unbind(dim=1):
            outputs.append(self.step(word, state))
            state = outputs[-1].state
        return self.told(outputs)

    def told(self, outputs: list[StepOutput]) -> TeacherForced:
        """Steps one after the other; all words are spoken in one product."""
        sentinels = [output.sentinel for output in outputs if output.sentinel is not None]
        return TeacherForced(
            self.log_probabilities(torch.stack([output.hidden for output in outputs], dim=1)),
            torch.stack([output.weights for output in outputs], dim=1),
            torch.stack(sentinels, dim=1) if sentinels else None,
            {name: torch.stack([t.extras[name] for t in outputs], dim=1) for name in outputs[0].extras},
        )

    def sentence(self, words: Iterable[int]) -> str:
        """Word ids as a sentence, up to <end>."""
        said = []
        for word in words:
            if word == END:
                break
            if word not in NEVER_SAID:
                said.append(self.vocabulary.words[word])
        return " ".join(said)

    def forward(self, images: RegionBatch | PictureBatch, texts: TextBatch) -> TeacherForced:
        """Caption t is told of picture t: log-probabilities of words 1, 2, … given those before."""
        return self.tell(self.start(self.extract(images)), texts.tokens[:, :-1])


class RecurrentCaptioner(Captioner):
    """A model says how it hears words and what it thinks after one."""

    @abstractmethod
    def hear(self, words: Int[Tensor, "*text"]) -> Float[Tensor, "*text dim"]:
        """A vector for every word."""

    @abstractmethod
    def think(self, word: Float[Tensor, "row dim"], state: CaptionState) -> StepOutput:
        """Look at the picture with this word in mind, and think of the next."""

    def step(self, words: Int[Tensor, " row"], state: CaptionState) -> StepOutput:
        return self.think(self.hear(words), state)

    def tell(self, state: CaptionState, words: Int[Tensor, "text step"]) -> TeacherForced:
        outputs = []
        for word in self.hear(words).unbind(dim=1):
            outputs.append(self.think(word, state))
            state = outputs[-1].state
        return self.told(outputs)
