"""What all batches share: changing and moving their tensors, selecting items, and joining ragged parts.

A batch is a frozen dataclass of padded tensors with masks (True where an entry is real). The first axis is the items'.
Which others are ragged stands in the field's annotation: an axis is of fixed size if its name is a number, `dim`,
`..._dim` or `*rest`, and padded to the longest otherwise (`region`, `word`, `step` …).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
import torch
from torch import Tensor

Self = TypeVar("Self", bound="Batch")

# The first square root that MKL takes in a process may be off by 1e-4 (seen in 4 of 24 processes, PyTorch 2.13), which
# would make a resumed run differ from an unbroken one. It is taken here, where everything that computes comes by, and
# thrown away, like those of related functions.
for _first in (torch.sqrt, torch.exp, torch.log, torch.tanh):
    _first(torch.ones(16))


class Batch:
    """What the batches share: changing their tensors, moving between devices, selecting items along the first axis."""

    def map(
        self: Self,
        change: Callable[[Tensor], Tensor],
        change_tuple: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda value: value,
    ) -> Self:
        """The same batch of changed tensors, those in its batches and mappings too, in the order of the fields."""

        def changed(value: Any) -> Any:
            if isinstance(value, Batch):
                return value.map(change, change_tuple)
            if isinstance(value, Mapping):
                return {name: changed(part) for name, part in value.items()}
            if isinstance(value, tuple) and value:
                return change_tuple(value)
            return change(value) if isinstance(value, Tensor) else value

        return self._replaced(lambda _, value: changed(value))

    def _replaced(self: Self, change: Callable[[str, Any], Any]) -> Self:
        """The same batch with `change(name, value)` for each field."""
        return replace(self, **{f.name: change(f.name, getattr(self, f.name)) for f in fields(self)})  # type: ignore[arg-type,type-var]

    def to(self: Self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Move to a device; `dtype` applies to the floating-point tensors only."""
        return self.map(lambda value: value.to(device=device, dtype=dtype if value.is_floating_point() else None))

    def select(self: Self, index: Sequence[int] | Sequence[bool] | np.ndarray | Tensor | slice) -> Self:
        """The items at `index`, in that order; or, for a mask of booleans, the items where it is True.

        What a slice selects is not copied.
        """
        if isinstance(index, slice) and (index.step or 1) < 0:  # which tensors do not know
            index = range(*index.indices(len(self)))
        if isinstance(index, slice):
            part = index
            return self.map(lambda value: value[part], lambda value: value[part])
        found = torch.as_tensor(index)
        chosen = found.nonzero().flatten() if found.dtype == torch.bool else found.long()
        return self.map(  # only of tuples the positions are read from a GPU, which synchronises
            lambda value: value[chosen.to(value.device)], lambda value: tuple(value[i] for i in chosen.tolist())
        )

    def resize(self: Self, **counts: int) -> Self:
        """Axes by name padded with zeros to so many entries, or cut to them: `resize(word=20)`."""

        def resized(name: str, value: Any) -> Any:
            if isinstance(value, Tensor):
                for axis, dimension in enumerate(axes(type(self)).get(name, ())):  # type: ignore[arg-type]
                    if axis and dimension in counts:
                        value = _resize(value, counts[dimension], axis)
            return value

        return self._replaced(resized)

    def __len__(self) -> int:
        first = getattr(self, fields(self)[0].name)  # type: ignore[arg-type]
        return len(first)


@cache
def axes(kind: Any) -> dict[str, tuple[str, ...]]:
    """The names of each tensor field's axes, as the annotations of this class have them."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        shapes = [part.dim_str for part in (hint, *get_args(hint)) if hasattr(part, "dim_str")]
        if shapes:
            found[name] = tuple(shapes[0].split())
    return found


def is_ragged(dimension: str) -> bool:
    """Whether an axis of this name may differ in size between batches that are joined."""
    return not (dimension.isdigit() or dimension.startswith("*") or dimension.endswith("dim"))


def stack(parts: Sequence[Self]) -> Self:
    """Join batches along the first axis, padding their ragged axes to the longest."""
    if len(parts) == 1:
        return parts[0]
    dimensions = axes(type(parts[0]))  # type: ignore[arg-type]

    def join(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        if values[0] is None or isinstance(values[0], int):
            return values[0]
        if isinstance(values[0], Batch):
            return stack(values)
        if not isinstance(values[0], Tensor):
            return tuple(v for value in values for v in value)
        for axis, dimension in enumerate(dimensions[name]):
            if axis and is_ragged(dimension):
                size = max(value.shape[axis] for value in values)
                values = [_resize(value, size, axis) for value in values]
        return torch.cat(values)

    return type(parts[0])(**{f.name: join(f.name) for f in fields(parts[0])})  # type: ignore[arg-type]


def _resize(value: Tensor, size: int, axis: int) -> Tensor:
    more = size - value.shape[axis]
    if more <= 0:
        return value if not more else value.narrow(axis, 0, size)
    return torch.cat([value, value.new_zeros(*value.shape[:axis], more, *value.shape[axis + 1 :])], dim=axis)
