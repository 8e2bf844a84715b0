"""The frame extractor: every piece of a video by one vector, made of what an extractor of pictures sees in its frame.

    f_t = mean_r place(r) ⊗ v_r,     with `window` frames: the mean (or maximum) of f_t over so many neighbours

v_r are the regions of the frame, place(r) the share of the region's middle in each of `places` columns of the picture
(a straight line from one column's middle to the next). With one place this is the mean of the regions; with more, who
is left and who is right can be read off the vector by a linear map.

The name says all: `frames:grid:dinov2-s@224/8`, `frames:world,places=4,rate=4`, `frames:bottomup,count=20`,
`frames:grid,rate=8,window=16,pool=max`, `frames:grid,shots=1`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError, not_among
from saccade.vision.extractors import Pixels, RegionExtractor, bfloat16_digest, load_extractor
from saccade.vision.pictures import Picture
from saccade.vision.videos.extractor import Pieces, VideoExtractor
from saccade.vision.videos.files import read_frames
from saccade.vision.videos.footage import Footage, Sampling
from saccade.vision.videos.shots import find_shots, import_network

POOLS = ("mean", "max")


@dataclass(frozen=True)
class FrameConfig:
    """Which extractor, how often it looks, and what a vector stands for."""

    extractor: str = "grid"
    rate: float = 2.0  # frames a second
    count: int = 0  # frames of a video in all; 0: by the rate
    window: int = 1  # frames that follow each other and are one clip
    pool: str = "mean"  # of a clip's frames: mean or max
    places: int = 1  # columns of the picture
    shots: int = 0  # 1: pieces are shots, each seen by the frame in its middle

    def __post_init__(self) -> None:
        if self.pool not in POOLS:
            raise SaccadeError(f"frames of a clip have no pool {not_among(self.pool, POOLS)}")
        if self.window < 1 or not 1 <= self.places <= 64:
            raise SaccadeError(f"window ({self.window}) must be at least 1, places ({self.places}) 1 to 64")

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.rate, self.count or None)

    @property
    def name(self) -> str:
        """What `load_extractor` takes."""
        said = (f"{key}={value}" if isinstance(value, str) else f"{key}={value:g}" for key, value in self.options())
        return ",".join([f"frames:{self.extractor}", *said])

    def options(self) -> Iterator[tuple[str, float | str]]:
        """What is not as usual."""
        plain = FrameConfig()
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value != getattr(plain, field.name):
                yield field.name, value


def frame_config(argument: str) -> FrameConfig:
    """Read `EXTRACTOR,rate=2,window=4`, of which every part may be left out."""
    names = [field.name for field in fields(FrameConfig)[1:]]
    found = re.fullmatch(rf"(.*?)((?:,(?:{'|'.join(names)})=[^,]*)*)", argument, re.DOTALL)
    assert found is not None, "every part may be left out, and the first takes anything"
    options = dict(part.split("=", 1) for part in found[2].split(",")[1:])
    values: dict[str, float | int | str] = {}
    for name, text in options.items():
        try:
            values[name] = text if name == "pool" else float(text) if name == "rate" else int(text)
        except ValueError as error:
            raise SaccadeError(f"frames:{argument}: {name}={text} is no number that can be used") from error
    return FrameConfig(found[1] or FrameConfig.extractor, **values)  # type: ignore[arg-type]


class FrameExtractor(VideoExtractor):
    """Videos in, a FrameBatch out; what it looks through is an extractor of pictures."""

    def __init__(self, config: FrameConfig, inner: RegionExtractor | None = None) -> None:
        self.inner = inner or load_extractor(config.extractor)
        if self.inner.videos:
            raise SaccadeError(f'"{config.extractor}" sees videos; frames need an extractor of pictures')
        if config.shots:
            import_network()
        self.config, self.name, self.sampling = config, config.name, config.sampling
        settings = json.dumps(dict(config.options()), sort_keys=True)
        self.digest = hashlib.sha256(f"{self.inner.digest} {settings}".encode()).hexdigest()
        self.dim = self.inner.dim * config.places
        self.network = self.inner.network

    def read_in_bfloat16(self) -> FrameExtractor:
        self.inner.read_in_bfloat16()
        self.precision, self.digest = "bf16", bfloat16_digest(self.digest)
        return self

    def footage(self, video: Path | str) -> Footage:
        return read_frames(video, find_shots(video), self.prepare) if self.config.shots else super().footage(video)

    def prepare(self, picture: Picture, where: str = "the picture") -> Pixels:
        """A frame, made ready."""
        return self.inner.prepare(picture, where)

    def pieces(
        self, frames: UInt8[np.ndarray, "frame row column 3"], strip: Float[np.ndarray, "frame 4"], batch_size: int
    ) -> Pieces:
        changes = [n == 0 or not np.array_equal(frames[n], frames[n - 1]) for n in range(len(frames))]
        moving = frames[changes]  # where a picture stands still, it is looked at once
        parts = [self._vectors(list(moving[i : i + batch_size])) for i in range(0, len(moving), batch_size)]
        return self._clips(torch.cat(parts)[np.cumsum(changes) - 1], strip)

    def _vectors(self, frames: list[Pixels]) -> Float[Tensor, "frame dim"]:
        parts = list(self.inner.each_batch(frames, None, len(frames)))
        return torch.cat([pooled(regions, self.config.places) for regions in parts])

    def _clips(self, vectors: Float[Tensor, "frame dim"], strip: Float[np.ndarray, "frame 4"]) -> Pieces:
        """The vectors of clips: `window` frames each, the last of as many as are left."""
        window = self.config.window
        if window == 1:
            return vectors, strip
        parts = torch.split(vectors, window)
        joined = torch.stack([part.mean(dim=0) if self.config.pool == "mean" else part.amax(dim=0) for part in parts])
        starts, ends = strip[::window], strip[[min(i + window, len(strip)) - 1 for i in range(0, len(strip), window)]]
        return joined, np.concatenate([starts[:, :2], ends[:, 2:]], axis=1)


def pooled(regions: RegionBatch, places: int = 1) -> Float[Tensor, "image vector"]:
    """The mean over a picture's regions of place ⊗ vector."""
    real = regions.mask.to(regions.features.dtype)
    if places == 1:
        shares = real[..., None]
    else:
        middle = (regions.boxes[..., 0] + regions.boxes[..., 2]) / 2 * places - 0.5  # counted in columns
        columns = torch.arange(places, device=middle.device)
        shares = (1 - (middle.clamp(0, places - 1)[..., None] - columns).abs()).clamp(min=0) * real[..., None]
    total = torch.einsum("irp,ird->ipd", shares.to(regions.features.dtype), regions.features)
    return (total / real.sum(dim=1).clamp(min=1)[:, None, None]).flatten(1)


def open_extractor(argument: str = "") -> FrameExtractor:
    return FrameExtractor(frame_config(argument))
