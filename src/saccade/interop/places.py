"""Official weights in their places: which of our parameters each is, or is a part of, and how it is turned to fit.

The same table serves both ways: weights go in, and gradients come back in the official names, shapes and scales.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary


@dataclass(frozen=True)
class OfficialIds:
    """Our ids of the official words: where they are read, and where they are said."""

    vocabulary: Vocabulary
    read: Int[Tensor, " official"]
    said: Int[Tensor, " official"]

    def __len__(self) -> int:
        return len(self.read)

    def back(self, words: Int[Tensor, "*rows"]) -> Int[Tensor, "*rows"]:
        """Our ids as theirs; −1 where they have none."""
        theirs = torch.full((len(self.vocabulary),), -1)
        theirs[self.read] = theirs[self.said] = torch.arange(len(self))
        return theirs[words]


@dataclass(frozen=True)
class Place:
    """Where an official weight belongs. Several may share a place: they are added up."""

    ours: str | None  # None: nowhere, since a softmax is blind to it
    transposed: bool = False
    columns: tuple[int | None, int | None] = (None, None)  # of our matrix, where it is a part: from, to
    scale: float = 1.0
    gates: tuple[int, ...] = ()  # which official gate of an LSTM is our first, second, …
    words: Literal["read", "said"] | None = None  # has a row for every word

    def inward(self, value: Tensor, into: Tensor, ids: OfficialIds) -> None:
        """Add a weight to our parameter."""
        value = self._rows(value.T if self.transposed else value, self.gates) * self.scale
        part = into[:, slice(*self.columns)] if into.dim() == 2 else into
        if self.words is None:
            part += value.reshape(part.shape)
            return
        for rows in {"read": (ids.read, ids.said), "said": (ids.said,)}[self.words]:
            part[rows] = value.to(part)

    def outward(self, gradient: Tensor, ids: OfficialIds) -> Tensor:
        """The gradient of the official weight from that of our parameter."""
        part = gradient[:, slice(*self.columns)] if gradient.dim() == 2 else gradient
        if self.words is not None:
            part = part[ids.read if self.words == "read" else ids.said]
        back = tuple(sorted(range(len(self.gates)), key=self.gates.__getitem__))
        part = self._rows(part, back) * self.scale
        return part.T if self.transposed else part

    @staticmethod
    def _rows(value: Tensor, order: tuple[int, ...]) -> Tensor:
        """Blocks of rows in another order."""
        return torch.cat([value.chunk(len(order))[block] for block in order]) if order else value


def fill(
    model: nn.Module, weights: Mapping[str, Tensor], places: Mapping[str, Place], ids: OfficialIds, path: Path | str
) -> None:
    """All weights into the model; a sentence if one is missing, unknown, or of another shape."""
    for name in places.keys() ^ weights.keys():
        fault = "is missing" if name in places else "is not known"
        raise SaccadeError(f"{path}: {name} {fault}: this is no checkpoint of the kind expected")
    state = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    for name, place in places.items():
        if place.ours is None:
            continue
        try:
            place.inward(weights[name].to(state[place.ours]), state[place.ours], ids)
        except (RuntimeError, IndexError) as error:
            raise SaccadeError(
                f"{path}: {name} of shape {tuple(weights[name].shape)} does not fit the other weights"
            ) from error
    model.load_state_dict(state)


def official_gradients(
    model: nn.Module, places: Mapping[str, Place], ids: OfficialIds
) -> Iterator[tuple[str, Tensor | None]]:
    """After backward(): the gradient of each official weight; None where it has no place here."""
    parameters = dict(model.named_parameters())
    for name, place in places.items():
        if place.ours is None:
            yield name, None
            continue
        gradient = parameters[place.ours].grad
        yield name, place.outward(torch.zeros_like(parameters[place.ours]) if gradient is None else gradient, ids)


def need_matrix(weights: Mapping[str, Tensor], name: str, path: Path | str) -> Tensor:
    if name not in weights or weights[name].dim() != 2:
        raise SaccadeError(f"{path} is no checkpoint of Show, Attend and Tell: it has no matrix {name}")
    return weights[name]
