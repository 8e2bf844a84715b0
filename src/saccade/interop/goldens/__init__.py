"""One table per system: what its official code computed, against what ours computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.interop.goldens import (
    bottomup,
    camp,
    caption_metrics,
    densecap,
    gsmn,
    image_captioning,
    imram,
    recall,
    scan,
    sgae,
    show_attend_tell_hard,
    show_attend_tell_soft,
    unsupervised,
    vsrn,
)
from saccade.interop.harness import Case, Golden

MATCHING = (scan.GOLDEN, vsrn.GOLDEN, camp.GOLDEN, imram.GOLDEN, gsmn.GOLDEN, recall.GOLDEN)
CAPTIONING = (
    *image_captioning.GOLDENS,
    sgae.GOLDEN,
    show_attend_tell_soft.GOLDEN,
    show_attend_tell_hard.GOLDEN,
    unsupervised.GOLDEN,
    caption_metrics.GOLDEN,
)
REGIONS = (bottomup.GOLDEN, densecap.GOLDEN)
GOLDENS: dict[str, Golden[Any]] = {golden.name: golden for golden in (*MATCHING, *CAPTIONING, *REGIONS)}


def verify(name: str, folder: Path | str) -> Iterator[Case]:
    """Every case of a golden folder, compared. Raises: SaccadeError if the name or the folder is not known."""
    if name not in GOLDENS:
        raise SaccadeError(
            f'there is nothing to verify under the name "{name}"{did_you_mean(name, GOLDENS)} '
            f"(there are: {', '.join(sorted(GOLDENS))})"
        )
    return GOLDENS[name].verify(folder)
