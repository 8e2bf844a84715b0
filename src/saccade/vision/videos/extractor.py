"""What users of every extractor of videos may count on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from saccade.batch import FrameBatch, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.vision.extractors import RegionExtractor
from saccade.vision.pictures import Picture
from saccade.vision.videos.files import read_frames
from saccade.vision.videos.footage import Footage, Sampling

Pieces = tuple[Float[Tensor, "piece dim"], Float[np.ndarray, "piece 4"]]


class VideoExtractor(RegionExtractor):
    """Videos in, a FrameBatch out. A subclass implements `prepare` for a frame, and `pieces`."""

    videos = True
    sampling: Sampling

    def footage(self, video: Path | str) -> Footage:
        """The frames of a file that are looked at, made ready."""
        return read_frames(Path(video), self.sampling, self.prepare)

    @torch.inference_mode()
    def each_batch(
        self, images: Sequence[Picture | Footage], boxes: Sequence[np.ndarray] | None, batch_size: int
    ) -> Iterator[RegionBatch]:
        """One video at a time: files, or footage made ready."""
        if boxes is not None:
            raise SaccadeError(f'the extractor "{self.name}" sees whole frames: boxes are for pictures')
        for image in images:
            if not isinstance(image, str | Path | Footage):
                raise SaccadeError(f'the extractor "{self.name}" sees videos, and this is a picture')
            found = image if isinstance(image, Footage) else self.footage(image)
            vectors, strip = self.pieces(found.frames, found.strip, batch_size)
            regions = RegionBatch.of([vectors.float().cpu()], [strip], dim=self.dim)
            yield FrameBatch.of_strips(regions, [found.seconds])

    @abstractmethod
    def pieces(
        self, frames: UInt8[np.ndarray, "frame row column 3"], strip: Float[np.ndarray, "frame 4"], batch_size: int
    ) -> Pieces:
        """The vectors of the pieces of a video, `batch_size` frames at once, and where each lies on its film strip."""
