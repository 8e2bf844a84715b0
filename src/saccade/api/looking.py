"""What all trained models share once they are given pictures: the extractor they learned with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.models import Model
from saccade.vision.pictures import Picture

if TYPE_CHECKING:
    from saccade.vision import RegionExtractor

M = TypeVar("M", bound=Model)


class PictureModel(Generic[M]):
    """A trained model with the extractor it was trained with."""

    def __init__(self, model: M, extractor: RegionExtractor | None = None) -> None:
        self.model = model
        self._extractor = extractor

    @cached_property
    def extractor(self) -> RegionExtractor:
        from saccade.vision import load_extractor

        if self._extractor is not None:
            return self._extractor
        if self.model.backbone is not None:
            return self.model.backbone.as_extractor()
        if self.model.extractor is None:
            raise SaccadeError(
                "this model was trained on features whose maker is not known, so it cannot look at pictures: "
                "give it regions (a RegionBatch) instead"
            )
        return load_extractor(self.model.extractor, device=self.device)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def extract(self, images: Picture | Sequence[Picture] | RegionBatch) -> RegionBatch:
        """Regions of pictures (paths, Pillow images or arrays); a RegionBatch is taken as it is."""
        if isinstance(images, RegionBatch):
            return images.to(self.device)
        return self.extractor.extract(listed(images)).to(self.device)


def listed(images: Any) -> list[Any]:
    """One picture or several."""
    single = (
        isinstance(images, str | Path)
        or hasattr(images, "mode")
        or (isinstance(images, np.ndarray) and images.ndim == 3)
    )
    return [images] if single else list(images)
