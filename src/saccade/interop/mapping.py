"""One language for "their weight is our weight": a table of rows, read in both directions.

    "core.att_lstm.*": to("lstms.look_lstm.*")                 the same weights under another name
    "ctx2att.bias": add_to("look.region.bias")                 one of several that are added up here
    "decoder_W": to("lstm.weight_ih", transposed, columns=(None, 300))      a part of a matrix of ours, turned
    "rela_ctx2att.weight": (to("a.weight"), to("b.weight"))    used in two places here
    "alpha_net.bias": ignored("a softmax is blind to it")

`WeightMap.load` puts official weights into a model. `WeightMap.gradients` brings the gradients of our weights back as
those of the official ones: the table is a differentiable function of their weights, so this is its vector–Jacobian
product and needs no second table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saccade.core.errors import SaccadeError
from saccade.interop.words import OfficialWords

Step = Callable[[Tensor], Tensor]  # what is done to an official weight on its way in
BATCHES = "num_batches_tracked"  # which old files do not have


@dataclass(frozen=True)
class Row:
    """Where an official weight goes. In names, `*` stands for the same text on both sides."""

    ours: str
    steps: tuple[Step, ...] = ()
    columns: tuple[int | None, int | None] = (None, None)  # of our matrix, where it is a part: from, to
    words: Literal["read", "said"] | None = None  # it has a row for every word: those read, or those said
    optional: bool = False  # files have it even where the model, by its config, has no use for it
    shared: bool = False  # others are added to the same place
    reason: str = ""  # why it goes nowhere


Table = Mapping[str, Row | tuple[Row, ...]]


def to(ours: str, *steps: Step, **how: Any) -> Row:
    """A place that is this weight's alone; `how` are fields of `Row`."""
    return Row(ours, steps, **how)


def add_to(ours: str, *steps: Step, **how: Any) -> Row:
    """A place that holds a sum of several."""
    return Row(ours, steps, shared=True, **how)


def ignored(reason: str) -> Row:
    """It may be in a file or not, and goes nowhere."""
    return Row("", reason=reason)


def transposed(value: Tensor) -> Tensor:
    return value.T


def scaled(factor: float) -> Step:
    return lambda value: value * factor


def rows(start: int | None, stop: int | None) -> Step:
    """A part of an official matrix that holds several of ours."""
    return lambda value: value[start:stop]


def blocks(*order: int, axis: int = 0) -> Step:
    """Equal blocks in another order, such as the gates of an LSTM: which of theirs is our first, second, …"""
    return lambda value: torch.cat([value.chunk(len(order), dim=axis)[block] for block in order], dim=axis)


def raised(amount: float, block: int, of: int) -> Step:
    """A constant that the official code adds while running (TensorFlow's forget bias) to one of `of` blocks."""

    def step(value: Tensor) -> Tensor:
        added = torch.zeros_like(value)
        added.chunk(of)[block].fill_(amount)
        return value + added

    return step


class WeightMap:
    """A table applied to a model: for each official name, its rows with our names written out.

    Rows are written out from our side, so the map knows what a file must hold. A row whose place the model does not
    have (another config) asks for nothing. `zeros` are parameters of ours that have no counterpart and are zero.
    """

    def __init__(self, table: Table, model: nn.Module, words: OfficialWords | None, zeros: Sequence[str] = ()) -> None:
        self.model, self.words = model, words
        self.known = {key: as_rows(row) for key, row in table.items()}
        self.places = model.state_dict()
        self.rows: dict[str, list[Row]] = {}
        taken: dict[str, Row] = {}
        for key, row in ((key, row) for key, given in self.known.items() for row in given if row.ours):
            for ours in self.places:
                if (found := pattern(row.ours).fullmatch(ours)) is None:
                    continue
                other = taken.setdefault(ours, row)
                if other is not row and not (row.shared and other.shared) and row.columns == other.columns:
                    raise ValueError(f"two rows of the table write {ours}: add_to is the word where both belong")
                self.rows.setdefault(fill(key, found.groups()), []).append(replace(row, ours=ours))
        parameters = {name for name, _ in model.named_parameters()}
        if lost := sorted(parameters - taken.keys() - set(zeros)):
            raise ValueError(f"no row of the table writes {lost[0]}")
        self.zeros = [name for name in zeros if name in self.places]

    def load(self, weights: Mapping[str, Tensor], path: Path | str, title: str, strict: bool = True) -> None:
        """Put official weights into the model.

        Raises: SaccadeError if one is missing, unknown (unless not `strict`) or of another shape.
        """
        for name in self.rows:
            if name not in weights and not name.endswith(BATCHES):
                raise SaccadeError(
                    f"{path} is no {title} checkpoint: it has no {name}, so its weights do not fit the options"
                )
        for name in weights:
            if strict and name not in self.rows and not self._is_left_out(name):
                raise SaccadeError(f"{path}: the weights do not fit the options: {name} is not known")
        start = {name: torch.zeros_like(self.places[name]) for name in self.zeros}
        self.model.load_state_dict(self.places | start | self._ours(weights, path))

    def gradients(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """After backward(): the gradient of each official weight, in its own shape; zero where nothing depends on it.

        Ours hold the official gradients' sum over all places, by the chain rule.
        """
        theirs = {
            name: weights[name].detach().double().requires_grad_()
            for name in self.rows
            if name in weights and weights[name].is_floating_point()
        }
        found = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in weights.items()}
        with torch.enable_grad():
            ours = self._ours(theirs, "")
        given = {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None and name in ours}
        if given:
            back = torch.autograd.grad(
                [ours[name] for name in given],
                list(theirs.values()),
                [gradient.double() for gradient in given.values()],
                allow_unused=True,
            )
            found |= {name: value for name, value in zip(theirs, back, strict=True) if value is not None}
        return found

    def _ours(self, weights: Mapping[str, Tensor], path: Path | str) -> dict[str, Tensor]:
        """Our weights as a function of theirs."""
        ours: dict[str, Tensor] = {}
        for name, row in self._each(weights):
            place, given = self.places[row.ours], weights[name]
            given = given.to(torch.promote_types(given.dtype, place.dtype))
            into = ours.setdefault(row.ours, given.new_zeros(place.shape))
            part = into[:, slice(*row.columns)] if row.columns != (None, None) else into
            try:
                value = self._turned(given, row)
            except (RuntimeError, IndexError) as error:
                raise SaccadeError(_unfit(path, name, weights[name], place)) from error
            if _sizes(value) != _sizes(part):
                raise SaccadeError(_unfit(path, name, weights[name], place))
            part += value.reshape(part.shape)
        return ours

    def _turned(self, value: Tensor, row: Row) -> Tensor:
        for step in row.steps:
            value = step(value)
        if row.words is None:
            return value
        assert self.words is not None
        return self.words.read_rows(value) if row.words == "read" else self.words.said_rows(value)

    def _each(self, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Row]]:
        return ((name, row) for name, given in self.rows.items() if name in weights for row in given)

    def _is_left_out(self, name: str) -> bool:
        return any(
            pattern(key).fullmatch(name) and all(row.reason or row.optional for row in given)
            for key, given in self.known.items()
        )


def as_rows(row: Row | tuple[Row, ...]) -> tuple[Row, ...]:
    return row if isinstance(row, tuple) else (row,)


def pattern(name: str) -> re.Pattern[str]:
    """`*` is any text; of several, all but the last stand for one part of a dotted name."""
    parts = [re.escape(part) for part in name.split("*")]
    return re.compile("".join([*(f"{part}([^.]+)" for part in parts[:-2]), "(.+)".join(parts[-2:])]))


def fill(name: str, texts: Sequence[str]) -> str:
    """A name with its stars replaced."""
    given = iter(texts)
    return re.sub(r"\*", lambda _: next(given), name)


def _sizes(value: Float[Tensor, ...]) -> list[int]:
    """Axes of one are no difference: a convolution of width one is a linear map, and a scalar has many shapes."""
    return [size for size in value.shape if size != 1]


def _unfit(path: Path | str, name: str, value: Tensor, place: Tensor) -> str:
    return (
        f"{path}: the weights do not fit the options: {name} of shape {tuple(value.shape)} does not fit "
        f"where {tuple(place.shape)} is expected"
    )
