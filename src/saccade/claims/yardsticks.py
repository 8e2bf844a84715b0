"""Which yardstick is for which task: a new task that claims are about is one row here."""

from __future__ import annotations

from saccade.claims.captions import CaptionScores
from saccade.claims.dense_captions import DensePrecision
from saccade.claims.recalls import Recalls
from saccade.claims.yardstick import Yardstick
from saccade.core.errors import SaccadeError
from saccade.models import entry

YARDSTICKS: dict[str, Yardstick] = {
    "matching": Recalls(),
    "captioning": (captions := CaptionScores()),
    "unpaired_captioning": captions,
    "dense_captioning": DensePrecision(),
}


def yardstick_of(system: str) -> Yardstick:
    """How runs of a system are measured."""
    task = entry(system).task
    if task not in YARDSTICKS:
        raise SaccadeError(f"{system} is for {task}, and claims know {', '.join(YARDSTICKS)}")
    return YARDSTICKS[task]
