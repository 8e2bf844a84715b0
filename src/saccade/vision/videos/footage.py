"""Frames of a video, and which of them are looked at: so many a second, or so many in all.

A video is cut into pieces of equal length, and a piece is seen by the frame that stands on the screen in its middle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, UInt8

from saccade.core.errors import SaccadeError

MAX_FRAMES = 4096  # of a video: a longer one is looked at less often


@dataclass(frozen=True)
class Footage:
    """Frames as pixels, the pieces of the video that they stand for, and what the video is like."""

    frames: UInt8[np.ndarray, "frame row column 3"]
    times: Float[np.ndarray, "frame 2"]  # seconds: when each piece begins and ends
    seconds: float  # of the whole video
    width: int  # of the original, upright
    height: int
    note: str = ""  # what is wrong with the file, where something could be read all the same

    @property
    def strip(self) -> Float32[np.ndarray, "frame 4"]:
        """The pieces as boxes on a film strip: time goes from left to right, 0 to 1."""
        return strip_of(self.times, self.seconds)

    @staticmethod
    def evenly(frames: UInt8[np.ndarray, "frame row column 3"], seconds: float) -> Footage:
        """Frames that were taken at equal distances."""
        return Footage(frames, pieces(seconds, len(frames)), seconds, frames.shape[2], frames.shape[1])


@dataclass(frozen=True)
class Sampling:
    """How often a video is looked at: `rate` times a second, or `count` times in all."""

    rate: float = 2.0
    count: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1000:
            raise SaccadeError(f"a rate of {self.rate:g} frames a second: it must be above 0, and at most 1000")
        if self.count is not None and not 1 <= self.count <= MAX_FRAMES:
            raise SaccadeError(f"{self.count} frames of a video: 1 to {MAX_FRAMES} can be taken")

    def pieces(self, seconds: float) -> Float[np.ndarray, "piece 2"]:
        """When the pieces of a video of this length begin and end; the last of a rate's may be shorter or longer."""
        count = self.count or max(round(seconds * self.rate), 1)
        if self.count is not None or count > MAX_FRAMES:
            return pieces(seconds, min(count, MAX_FRAMES))
        edges = np.arange(count + 1) / self.rate
        edges[-1] = seconds
        return np.stack([edges[:-1], edges[1:]], axis=1)


def pieces(seconds: float, count: int) -> Float[np.ndarray, "piece 2"]:
    """`count` pieces of equal length."""
    edges = np.linspace(0, seconds, count + 1)
    return np.stack([edges[:-1], edges[1:]], axis=1)


def strip_of(times: Float[np.ndarray, "piece 2"], seconds: float) -> Float32[np.ndarray, "piece 4"]:
    shares = np.clip(times / seconds, 0, 1)
    flat = np.zeros(len(times))
    return np.stack([shares[:, 0], flat, shares[:, 1], flat + 1], axis=1).astype(np.float32)
