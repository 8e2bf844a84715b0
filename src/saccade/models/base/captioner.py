"""Captioners: a picture is encoded once, then described word by word; every word comes with its attention."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Generic

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from saccade.batch import END, PAD, START, CaptionState, PictureBatch, RegionBatch, StepOutput, TeacherForced, TextBatch
from saccade.batch.outputs import Context, Memory
from saccade.language import words_only
from saccade.models.base.model import Model
from saccade.nn.captioners import mean_region
from saccade.nn.encode import at_least_float32

NEVER_SAID = (PAD, START)


def never_said(logits: Float[Tensor, "*row word"]) -> Bool[Tensor, " word"]:
    """True at padding and <start>; made on the device of the logits, without a synchronisation."""
    words = torch.arange(logits.shape[-1], device=logits.device)
    return (words == PAD) | (words == START)


class Captioner(Model, Generic[Memory, Context]):
    """A model defines how it starts, steps and scores words; teacher forcing and decoding are written once on that.

    `Memory` changes with every word, `Context` is computed once from the picture: the model's own dataclasses.
    """

    intended_use = "To say in a sentence what is in a photo, and to show where it looked for each word."
    out: nn.Linear
    _is_static = False

    @abstractmethod
    def start(self, images: RegionBatch) -> CaptionState[Memory, Context]:
        """The context of the pictures, and the memory before the first word."""

    def start_training(
        self, images: RegionBatch, texts: TextBatch, owner: Int[Tensor, " text"]
    ) -> CaptionState[Memory, Context]:
        """What training captions start from: their pictures, unless the paper learns from sentences alone."""
        return self.start(images).select(owner)

    def read(self, texts: Sequence[str]) -> TextBatch:
        return super().read([words_only(text) for text in texts])

    @property
    def reads_graphs(self) -> bool:
        """Whether pictures should come with a scene graph of what their extractor names."""
        return False

    def in_last_stage(self) -> bool:
        """Whether every training step from now on computes the same way, where a paper trains in stages."""
        return True

    @property
    def is_static(self) -> bool:
        """Whether training steps can be captured as a CUDA graph; kept once true, as to ask may wait for the GPU."""
        self._is_static = self._is_static or self.in_last_stage()
        return self._is_static

    @abstractmethod
    def step(self, words: Int[Tensor, " row"], state: CaptionState[Memory, Context]) -> StepOutput[Memory, Context]:
        """Read a word and attend to the picture; the output's `hidden` gives the next word's logits."""

    def logits(self, hidden: Float[Tensor, "*row dim"]) -> Float[Tensor, "*row word"]:
        """A score for every word of the vocabulary; W_p h + b_p unless the paper has it otherwise."""
        scores: Tensor = self.out(hidden)
        return scores

    def own_losses(
        self,
        forced: TeacherForced,
        labels: Int[Tensor, "text step"],
        nll: Float[Tensor, "text step"],
        wanted: Bool[Tensor, "text step"],
    ) -> dict[str, Float[Tensor, ""]]:
        """The paper's losses beside cross-entropy, by name; `nll` is −log p of each label, where it is `wanted`."""
        return {}

    def log_probabilities(self, hidden: Float[Tensor, "*row dim"]) -> Float[Tensor, "*row word"]:
        """Of the next word; padding and <start> have none."""
        logits = at_least_float32(self.logits(hidden))
        return logits.masked_fill(never_said(logits), float("-inf")).log_softmax(dim=-1)

    def predict_next(
        self, words: Int[Tensor, " row"], state: CaptionState[Memory, Context]
    ) -> tuple[Float[Tensor, "row word"], StepOutput[Memory, Context]]:
        """One word further: the log-probabilities of the word after `words`, and the step behind them."""
        output = self.step(words, state)
        return self.log_probabilities(output.hidden), output

    def teacher_force(self, state: CaptionState[Memory, Context], words: Int[Tensor, "text step"]) -> TeacherForced:
        """The log-probabilities of the word after each of `words`, which begin with <start>."""
        outputs = []
        for word in words.unbind(dim=1):
            outputs.append(self.step(word, state))
            state = outputs[-1].state
        return self.stack_steps(outputs)

    def stack_steps(self, outputs: list[StepOutput[Memory, Context]]) -> TeacherForced:
        """Steps one after the other; the logits of all are one product."""
        sentinels = [output.sentinel for output in outputs if output.sentinel is not None]
        return TeacherForced(
            self.log_probabilities(torch.stack([output.hidden for output in outputs], dim=1)),
            torch.stack([output.weights for output in outputs], dim=1),
            torch.stack(sentinels, dim=1) if sentinels else None,
            {name: torch.stack([o.extras[name] for o in outputs], dim=1) for name in outputs[0].extras},
        )

    def sentence(self, words: Iterable[int]) -> str:
        """Word ids as a sentence, up to <end>."""
        before_end = takewhile(lambda word: word != END, words)
        return " ".join(self.vocabulary.words[word] for word in before_end if word not in NEVER_SAID)

    def forward(self, images: RegionBatch | PictureBatch, texts: TextBatch) -> TeacherForced:
        """Caption t is that of picture t: log-probabilities of words 1, 2, … given those before."""
        return self.teacher_force(self.start(self.extract(images)), texts.tokens[:, :-1])


class RecurrentCaptioner(Captioner[Memory, Context]):
    """A captioner whose word vectors do not depend on the words before, and that has a vector of the whole picture.

    The words of a caption are embedded together: one look-up, and one gradient of the table, instead of one a step.
    """

    words: nn.Embedding
    dropout: nn.Module
    word_relu = True  # w = ReLU(W_e Π); without: w = W_e Π

    def start(self, images: RegionBatch) -> CaptionState[Memory, Context]:
        return self.start_from(images, mean_region(images.features, images.mask))

    @abstractmethod
    def start_from(self, images: RegionBatch, whole: Float[Tensor, "row region_dim"]) -> CaptionState[Memory, Context]:
        """Start with a vector for the whole picture that need not be the mean of its regions."""

    def embed(self, words: Int[Tensor, "*text"]) -> Float[Tensor, "*text word_dim"]:
        """A vector for every word."""
        vectors = self.words(words)
        embedded: Tensor = self.dropout(vectors.relu() if self.word_relu else vectors)
        return embedded

    @abstractmethod
    def decode_step(
        self, word: Float[Tensor, "row word_dim"], state: CaptionState[Memory, Context]
    ) -> StepOutput[Memory, Context]:
        """`step` of a word already embedded."""

    def step(self, words: Int[Tensor, " row"], state: CaptionState[Memory, Context]) -> StepOutput[Memory, Context]:
        return self.decode_step(self.embed(words), state)

    def teacher_force(self, state: CaptionState[Memory, Context], words: Int[Tensor, "text step"]) -> TeacherForced:
        outputs = []
        for word in self.embed(words).unbind(dim=1):
            outputs.append(self.decode_step(word, state))
            state = outputs[-1].state
        return self.stack_steps(outputs)
