"""A captioner of a few numbers, whose best sentence can be found by trying all; and plain searches to compare with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from saccade.batch import END, START, UNKNOWN, Batch, CaptionState, RegionBatch, StepOutput
from saccade.language import Vocabulary
from saccade.models.base.captioner import Captioner
from saccade.nn.attention import masked_softmax


@dataclass(frozen=True)
class Memory(Batch):
    hidden: Tensor


@dataclass(frozen=True)
class Seen(Batch):
    regions: Tensor
    mask: Tensor


class Toy(Captioner[Memory, Seen]):
    """One recurrent layer that attends to the regions; `sharpness` makes its choices clear."""

    name, task = "toy", "captioning"

    def __init__(self, words: int = 4, dim: int = 5, seed: int = 0, sharpness: float = 3.0, end: float = 0.0) -> None:
        super().__init__(None, Vocabulary(("<pad>", "<start>", "<end>", "<unk>", *"abcdefghijklmnop"[:words])))
        generator = torch.Generator().manual_seed(seed)

        def table(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator, dtype=torch.float64))

        self.embedding, self.recur, self.look = table(4 + words, dim), table(dim, dim), table(dim, dim)
        self.out, self.sharpness, self.end = table(dim, 4 + words), sharpness, end

    def start(self, images: RegionBatch) -> CaptionState[Memory, Seen]:
        regions = images.features.double()
        return CaptionState(Memory(regions.sum(dim=1).tanh()), Seen(regions, images.mask))

    def step(self, words: Tensor, state: CaptionState[Memory, Seen]) -> StepOutput[Memory, Seen]:
        hidden, seen = state.memory.hidden, state.context
        weights = masked_softmax((seen.regions @ self.look @ hidden[..., None])[..., 0], seen.mask)
        found = (weights[..., None] * seen.regions).sum(dim=1)
        hidden = (hidden @ self.recur + self.embedding[words] + found).tanh()
        return StepOutput(hidden, CaptionState(Memory(hidden), seen), weights, hidden[:, 0].sigmoid())

    def logits(self, hidden: Tensor) -> Tensor:
        logits = self.sharpness * hidden @ self.out
        return logits + self.end * torch.nn.functional.one_hot(torch.tensor(END), logits.shape[-1])


def toy_pictures(count: int, regions: int = 3, dim: int = 5, seed: int = 1) -> RegionBatch:
    """Pictures of 1 to `regions` regions."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [1 + i % regions for i in range(count)]
    features = [torch.randn(size, dim, generator=generator) for size in sizes]
    return RegionBatch.of(features, [torch.zeros(size, 4) for size in sizes])


def following(model: Captioner, image: RegionBatch) -> Callable[[tuple[int, ...]], Tensor]:
    """The log-probabilities of the word after a sentence, each found once; <unk> is never said."""

    @cache
    def predict(said: tuple[int, ...]) -> tuple[Tensor, StepOutput]:
        state = predict(said[:-1])[1].state if said else model.start(image)
        with torch.no_grad():
            return model.predict_next(torch.tensor([said[-1] if said else START]), state)

    def after(said: tuple[int, ...]) -> Tensor:
        return predict(said)[0][0].index_fill(0, torch.tensor(UNKNOWN), float("-inf"))

    return after


def all_sentences(model: Captioner, image: RegionBatch, longest: int) -> dict[tuple[int, ...], float]:
    """Every sentence that ends within `longest` words or is cut there, <unk> left out, with its log-probability."""
    vocabulary = range(4, len(model.vocabulary))
    bodies = [body for n in range(longest + 1) for body in itertools.product(vocabulary, repeat=n)]
    sentences = [b if len(b) == longest else (*b, END) for b in bodies]
    padded = torch.tensor([[START, *s, *[END] * (longest - len(s))] for s in sentences])
    with torch.no_grad():
        state = model.start(image).repeat(len(sentences))
        said = model.teacher_force(state, padded[:, :-1]).log_probabilities.gather(2, padded[:, 1:, None])[..., 0]
    return {s: float(said[i, : len(s)].sum()) for i, s in enumerate(sentences)}
