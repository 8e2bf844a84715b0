"""One table per system: what its official code computed, against what ours computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.interop.goldens import (
    analogy,
    clicks,
    interbert,
    metrics,
    moments,
    pixelbert,
    regions,
    task_metrics,
    vcml,
)
from saccade.interop.goldens.answering import accuracy, answerers
from saccade.interop.goldens.captioning import captioners, show_attend_tell, unsupervised
from saccade.interop.goldens.grounding import grounders, referring
from saccade.interop.goldens.matching import gsmn, hgr, matchers
from saccade.interop.harness import Case, Golden

ALL = (
    *(matchers.SCAN, matchers.VSRN, matchers.CAMP, matchers.IMRAM, gsmn.GOLDEN),
    *(captioners.UPDOWN_GOLDEN, captioners.ADAPTIVE_GOLDEN, captioners.SGAE_GOLDEN),
    *(show_attend_tell.SOFT, show_attend_tell.HARD, unsupervised.GOLDEN),
    *(answerers.UPDOWN_GOLDEN, answerers.DCN_GOLDEN, answerers.HIERARCHICAL_GOLDEN),
    *(grounders.MULTILEVEL_GOLDEN, grounders.ALIGN2GROUND_GOLDEN),
    *(metrics.RECALL, metrics.CAPTIONS, accuracy.GOLDEN, regions.BOTTOMUP, regions.DENSECAP, vcml.GOLDEN),
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
