"""Captions as decoders give them: words, what they were worth, and where each word looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import END, PAD, START, Batch, TextBatch


@dataclass(frozen=True)
class DecodedCaptions(Batch):
    """`per_image` captions of each picture, one after the other; those of beam search best first.

    A picture with fewer captions than that has empty rows of score −∞ behind them.
    """

    words: Int[Tensor, "row step"]  # <end> included, then padding
    log_probabilities: Float[Tensor, "row step"]  # of these words, 0 at padding
    score: Float[Tensor, " row"]  # their sum, with any penalty for length and likeness
    weights: Float[Tensor, "row step region"]  # where the captioner looked before each word
    sentinel: Float[Tensor, "row step"] | None = None
    distributions: Float[Tensor, "row step word"] | None = None  # of all words, where they were asked for
    per_image: int = 1

    @property
    def mask(self) -> Bool[Tensor, "row step"]:
        return self.words != PAD

    @property
    def lengths(self) -> Int[Tensor, " row"]:
        """Words said, <end> included."""
        return self.mask.sum(dim=1)

    @property
    def ended(self) -> Bool[Tensor, " row"]:
        """Whether a caption came to its end, or was cut at the longest length allowed."""
        return (self.words == END).any(dim=1)

    def sentences(self) -> TextBatch:
        """What was said as sentences to learn from, <start> before them."""
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
        wide, deep = (0, steps), (0, 0, 0, steps)
        return replace(
            self,
            words=F.pad(self.words, wide, value=PAD),
            log_probabilities=F.pad(self.log_probabilities, wide),
            weights=F.pad(self.weights, deep),
            sentinel=None if self.sentinel is None else F.pad(self.sentinel, wide),
            distributions=None if self.distributions is None else F.pad(self.distributions, deep),
        )

    def trimmed(self) -> DecodedCaptions:
        """Without the columns that no caption needs."""
        steps = int(self.lengths.max()) if len(self) else 0
        return self.pad(steps - self.words.shape[1])

    @staticmethod
    def join(parts: Sequence[DecodedCaptions], side_by_side: bool = False) -> DecodedCaptions:
        """The captions of several batches; or, side by side, several sets of captions of the same pictures."""
        steps = max(part.words.shape[1] for part in parts)
        regions = max(part.weights.shape[2] for part in parts)
        parts = [part.pad(steps - part.words.shape[1]) for part in parts]
        parts = [replace(p, weights=F.pad(p.weights, (0, regions - p.weights.shape[2]))) for p in parts]

        def cat(values: Sequence[Tensor | None]) -> Tensor:
            there = [value for value in values if value is not None]
            if not side_by_side:
                return torch.cat(there)
            shaped = [v.view(-1, p.per_image, *v.shape[1:]) for v, p in zip(there, parts, strict=True)]
            return torch.cat(shaped, dim=1).flatten(0, 1)

        first = parts[0]
        return DecodedCaptions(
            cat([p.words for p in parts]),
            cat([p.log_probabilities for p in parts]),
            cat([p.score for p in parts]),
            cat([p.weights for p in parts]),
            None if first.sentinel is None else cat([p.sentinel for p in parts]),
            None if first.distributions is None else cat([p.distributions for p in parts]),
            sum(p.per_image for p in parts) if side_by_side else first.per_image,
        )
