"""The tasks by name: a model says which is its own, and a training run finds settings, data and task here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from saccade.data import DataConfig
from saccade.features.region_phrases import open_region_phrases
from saccade.tasks.captioning import CaptioningConfig, CaptioningTask
from saccade.tasks.dense_captioning import DenseCaptioningConfig, DenseCaptioningTask
from saccade.tasks.matching import MatchingConfig, MatchingTask
from saccade.tasks.unpaired_captioning import UnpairedCaptioningConfig, UnpairedCaptioningTask


@dataclass(frozen=True)
class TaskKind:
    """What a training run needs to know of a task."""

    config: type  # settings, with `min_count` for the vocabulary
    build: Callable[..., Any]  # task(train, dev, read, config, augmentation)
    open: Callable[[DataConfig, str], Any] | None = None  # a split with `texts`; None: pictures with captions


TASKS: dict[str, TaskKind] = {
    "matching": TaskKind(MatchingConfig, MatchingTask),
    "captioning": TaskKind(CaptioningConfig, CaptioningTask),
    "unpaired_captioning": TaskKind(UnpairedCaptioningConfig, UnpairedCaptioningTask),
    "dense_captioning": TaskKind(DenseCaptioningConfig, DenseCaptioningTask, open_region_phrases),
}
