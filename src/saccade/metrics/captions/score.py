"""What a metric says of captions: one figure for all of them, and one for each.

Every caption metric has the same shape: `metric(candidates, references) -> CaptionScore`, where `candidates` holds one
list of tokens a picture and `references` one list of such lists a picture, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from saccade.core.errors import SaccadeError

Tokens: TypeAlias = Sequence[str]
Candidates: TypeAlias = Sequence[Tokens]  # one sentence a picture
References: TypeAlias = Sequence[Sequence[Tokens]]  # one or more sentences a picture


@dataclass(frozen=True, eq=False)
class CaptionScore:
    """One metric on a set of captions."""

    corpus: float  # the figure that papers print, in 0…1 (CIDEr: 0…10)
    each: Float[np.ndarray, " picture"]  # the same metric on each picture alone

    @classmethod
    def mean(cls, each: Sequence[float] | Float[np.ndarray, " picture"]) -> CaptionScore:
        """Of a metric whose corpus figure is the mean over the pictures."""
        values = np.asarray(each, dtype=np.float64)
        return cls(float(values.mean()) if len(values) else 0.0, values)


def check_captions(candidates: Candidates, references: References) -> None:
    """Raises: SaccadeError if there are no captions, or not one list of references for each."""
    if not len(candidates):
        raise SaccadeError("there are no captions to score")
    if len(candidates) != len(references):
        raise SaccadeError(
            f"{len(candidates)} captions cannot be scored against the references of {len(references)} pictures: "
            "give one caption a picture"
        )
    for number, given in enumerate(references):
        if isinstance(given, str) or not len(given):
            raise SaccadeError(f"picture {number} has no list of reference captions")
