"""Ranking in two stages: a first model scores everything, a cross-encoder puts the best few of each query in its own
order, and all others keep theirs below.

>>> stages = TwoStages.score(reader, images, texts, table, count=32)  # each pair that is needed is read once
>>> stages.text_to_image(32)  # [text image], the best 32 pictures of every text in a new order
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import ImageCode, TextCode
from saccade.core.errors import SaccadeError
from saccade.models.base.cross_encoder import CrossEncoder

Table = Float[Tensor, "query item"]


def best_of(first: Table, count: int) -> Int[Tensor, "query candidate"]:
    """The places of each query's best items, best first."""
    return first.topk(min(count, first.shape[1]), dim=1).indices


def reordered(
    first: Table, chosen: Int[Tensor, "query candidate"], scores: Float[Tensor, "query candidate"], blend: float = 0.0
) -> Table:
    """The table in which the `chosen` items of each query go by `scores`, above all others, which go as before.

    With `blend`, so many times the first score is added, both brought to mean 0 and spread 1 over a query's candidates.
    """
    table, scores = first.double(), scores.double()
    if blend:
        scores = _standard(scores) + blend * _standard(table.gather(1, chosen))
    lowest = scores.amin() if scores.numel() else 0.0
    highest = table.amax() if table.numel() else 0.0
    return table.scatter(1, chosen, highest + 1 + (scores - lowest))


def _standard(scores: Float[Tensor, "query candidate"]) -> Float[Tensor, "query candidate"]:
    centred = scores - scores.mean(dim=1, keepdim=True)
    return centred / centred.square().mean(dim=1, keepdim=True).sqrt().clamp(min=1e-12)


@dataclass(frozen=True, eq=False)
class TwoStages:
    """A first model's table, and what a cross-encoder says of the best `count` both ways."""

    first: Float[Tensor, "image text"]
    read: Float[Tensor, "image text"]  # nan where it was not asked
    pairs: int  # that it read
    count: int

    @staticmethod
    @torch.no_grad()
    def score(
        model: CrossEncoder, images: ImageCode, texts: TextCode, first: Float[Tensor, "image text"], count: int
    ) -> TwoStages:
        """Raises: SaccadeError if the table is not of these pictures and texts, or `count` is no number of items."""
        if first.shape != (len(images), len(texts)):
            raise SaccadeError(
                f"a table of {len(images)} pictures and {len(texts)} texts was expected, not {first.shape}"
            )
        if count < 1:
            raise SaccadeError(f"to re-rank the best {count} leaves nothing to do: at least 1 was expected")
        wanted = torch.zeros_like(first, dtype=torch.bool)
        wanted.scatter_(1, best_of(first, count), True)
        wanted.T.scatter_(1, best_of(first.T, count), True)
        image, text = wanted.nonzero().T
        read = torch.full_like(first, torch.nan, dtype=torch.float32)
        read[image, text] = model.score_pairs(images, texts, image, text).to(read)
        return TwoStages(first, read, len(image), count)

    def image_to_text(self, count: int, blend: float = 0.0) -> Float[Tensor, "image text"]:
        chosen = best_of(self.first, min(count, self.count))
        return reordered(self.first, chosen, self.read.gather(1, chosen), blend)

    def text_to_image(self, count: int, blend: float = 0.0) -> Float[Tensor, "text image"]:
        chosen = best_of(self.first.T, min(count, self.count))
        return reordered(self.first.T, chosen, self.read.T.gather(1, chosen), blend)
