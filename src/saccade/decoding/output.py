"""Captions as decoders give them: words, what they were worth, and where the captioner attended for each word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import END, PAD, START, Batch, TextBatch, stack


@dataclass(frozen=True)
class DecodedCaptions(Batch):
    """`per_image` captions of each picture, one after the other; those of beam search best first.

    A picture with fewer captions than that has empty rows of score −∞ behind them.
    """

    words: Int[Tensor, "row step"]  # <end> included, then padding
    log_probabilities: Float[Tensor, "row step"]  # of these words, 0 at padding
    score: Float[Tensor, " row"]  # their sum, with any penalty for length and likeness
    weights: Float[Tensor, "row step region"]  # where the captioner attended before each word
    sentinel: Float[Tensor, "row step"] | None = None
    distributions: Float[Tensor, "row step word_dim"] | None = None  # of all words, where wanted
    per_image: int = 1

    @property
    def mask(self) -> Bool[Tensor, "row step"]:
        return self.words != PAD

    @property
    def lengths(self) -> Int[Tensor, " row"]:
        """Words of each caption, <end> included."""
        return self.mask.sum(dim=1)

    @property
    def ended(self) -> Bool[Tensor, " row"]:
        """Whether a caption came to its end, or was cut at the longest length allowed."""
        return (self.words == END).any(dim=1)

    def sentences(self) -> TextBatch:
        """The captions as sentences to learn from, <start> before them."""
        words = F.pad(self.words, (1, 0), value=START)
        return TextBatch(words, words != PAD)

    def best(self) -> DecodedCaptions:
        """The first caption of each picture."""
        return replace(self.select(slice(0, None, self.per_image)), per_image=1).trimmed()

    def by_completion(self) -> DecodedCaptions:
        """Each picture's captions in the order in which the search came to their ends; the cut ones follow."""
        keys = (-self.score, self.lengths, ~self.ended, self.score.isneginf())  # the last is what counts first
        order = torch.arange(len(self), device=self.score.device).view(-1, self.per_image)
        for key in keys:
            order = order.gather(1, key[order].to(self.score.dtype).argsort(dim=1, stable=True))
        return replace(self.select(order.flatten()), per_image=self.per_image)

    def pad(self, steps: int) -> DecodedCaptions:
        """The same captions with `steps` more columns of padding."""
        return self.resize(step=self.words.shape[1] + steps)

    def trimmed(self) -> DecodedCaptions:
        """Without the columns that no caption needs."""
        return self.resize(step=int(self.lengths.max()) if len(self) else 0)

    @staticmethod
    def side_by_side(parts: Sequence[DecodedCaptions]) -> DecodedCaptions:
        """Several sets of captions of the same pictures."""
        images = len(parts[0]) // parts[0].per_image
        first = torch.tensor([0, *(len(part) for part in parts[:-1])]).cumsum(dim=0)
        rows = [
            torch.arange(len(part)).view(images, part.per_image) + start
            for part, start in zip(parts, first, strict=True)
        ]
        joined = stack(parts).select(torch.cat(rows, dim=1).flatten())
        return replace(joined, per_image=sum(part.per_image for part in parts))
