"""One table per system: what its official code computed, against what ours computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.interop.goldens import (
    analogy,
    answering,
    answers,
    captioning,
    clicks,
    grounding,
    gsmn,
    hgr,
    interbert,
    matching,
    metrics,
    moments,
    pixelbert,
    referring,
    regions,
    show_attend_tell,
    task_metrics,
    unsupervised,
    vcml,
)
from saccade.interop.harness import Case, Golden

ALL = (
    *(matching.SCAN, matching.VSRN, matching.CAMP, matching.IMRAM, gsmn.GOLDEN),
    *(captioning.UPDOWN_GOLDEN, captioning.ADAPTIVE_GOLDEN, captioning.SGAE_GOLDEN),
    *(show_attend_tell.SOFT, show_attend_tell.HARD, unsupervised.GOLDEN),
    *(answering.UPDOWN_GOLDEN, answering.DCN_GOLDEN, answering.HIERARCHICAL_GOLDEN),
    *(grounding.MULTILEVEL_GOLDEN, grounding.ALIGN2GROUND_GOLDEN),
    *(metrics.RECALL, metrics.CAPTIONS, answers.GOLDEN, regions.BOTTOMUP, regions.DENSECAP, vcml.GOLDEN),
    *(analogy.GOLDEN, task_metrics.GOLDEN, referring.GOLDEN, hgr.GOLDEN, moments.GOLDEN),
    *(interbert.GOLDEN, pixelbert.GOLDEN, clicks.GOLDEN),
)
GOLDENS: dict[str, Golden] = {golden.name: golden for golden in ALL}


def verify(name: str, folder: Path | str) -> Iterator[Case]:
    """Every case of a golden folder, compared. Raises: SaccadeError if the name or the folder is not known."""
    if name not in GOLDENS:
        raise SaccadeError(
            f'there is nothing to verify under the name "{name}"{did_you_mean(name, GOLDENS)} '
            f"(there are: {', '.join(sorted(GOLDENS))})"
        )
    return GOLDENS[name].verify(folder)
