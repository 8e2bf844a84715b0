"""A trained detector as users ask it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from saccade.batch import RegionBatch
from saccade.models.detectors import Detector
from saccade.tasks.predict import Predictor, listed
from saccade.vision import RegionDescription, RegionExtractor
from saccade.vision.pictures import Picture


class PictureDetector(Predictor[Detector]):
    """Finds the regions of pictures and names them.

    >>> saccade.load("runs/bottomup").detect("photo.jpg")[0][0].text
    """

    @cached_property
    def extractor(self) -> RegionExtractor:
        return self.model.as_extractor()

    def detect(
        self, images: Picture | Sequence[Picture], boxes: Sequence[np.ndarray] | None = None
    ) -> list[list[RegionDescription]]:
        """The regions of each picture with their names; of `boxes` (one array in 0..1 a picture) instead, if given."""
        return self.extractor.describe(listed(images), boxes)

    def extract(self, images: Picture | Sequence[Picture], boxes: Sequence[np.ndarray] | None = None) -> RegionBatch:
        """The regions' vectors, as `saccade extract` keeps them."""
        return self.extractor.extract(listed(images), boxes)
