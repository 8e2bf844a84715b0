"""The clip extractor: every piece of a video by one vector of a network that sees several frames at once.

`clips:hf:HUB/NAME` (or a folder) is a video model of transformers, such as VideoMAE and TimeSformer: as many frames go
through it together as it was trained on, and a clip's vector is the mean of its last hidden states. Clips follow each
other without gaps; the last is filled up with its last frame.

    clips:hf:MCG-NJU/videomae-base,rate=8      clips:hf:facebook/timesformer-base-finetuned-k400,rate=4
"""

from __future__ import annotations

import json
import re

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from saccade.core.errors import SaccadeError
from saccade.core.hub import model_folder
from saccade.vision.backbones import hf
from saccade.vision.backbones.base import IMAGENET_MEAN, IMAGENET_STD, normalise_by
from saccade.vision.extractors import Pixels, network_digest
from saccade.vision.pictures import Picture, as_array
from saccade.vision.videos.extractor import Pieces, VideoExtractor
from saccade.vision.videos.footage import Sampling

RATE = 8.0  # frames a second


class ClipExtractor(VideoExtractor):
    """Videos in, a FrameBatch of their clips out."""

    def __init__(self, name: str, network: nn.Module, processor: dict[str, object], sampling: Sampling) -> None:
        config = network.config
        self.name, self.sampling = name, sampling
        self.length = int(config.num_frames)  # type: ignore[union-attr,arg-type]
        self.dim = int(config.hidden_size)  # type: ignore[union-attr,arg-type]
        size = config.image_size  # type: ignore[union-attr]
        self.picture_size = int(size if isinstance(size, int) else size[0])  # type: ignore[index]
        mean, std = processor.get("image_mean", IMAGENET_MEAN), processor.get("image_std", IMAGENET_STD)
        self.mean, self.std = torch.tensor(mean), torch.tensor(std)
        settings = json.dumps([self.length, self.picture_size, sampling.rate, sampling.count, mean, std])
        self.digest = network_digest(network, settings)
        self.network = network.eval().requires_grad_(False)

    def prepare(self, picture: Picture, where: str = "the picture") -> Pixels:
        return as_array(picture, where, self.picture_size)

    def pieces(
        self, frames: UInt8[np.ndarray, "frame row column 3"], strip: Float[np.ndarray, "frame 4"], batch_size: int
    ) -> Pieces:
        starts = range(0, len(frames), self.length)
        ends = [min(start + self.length, len(frames)) - 1 for start in starts]
        places = [[min(start + n, end) for n in range(self.length)] for start, end in zip(starts, ends, strict=True)]
        at_once = max(batch_size // self.length, 1)
        parts = [self._vectors(frames[places[i : i + at_once]]) for i in range(0, len(places), at_once)]
        return torch.cat(parts), np.concatenate([strip[:: self.length, :2], strip[ends][:, 2:]], axis=1)

    def _vectors(self, clips: UInt8[np.ndarray, "clip frame row column 3"]) -> Float[Tensor, "clip dim"]:
        pixels = torch.from_numpy(clips).to(self.device)
        normal = normalise_by(pixels.flatten(0, 1), self.mean.to(self.device), self.std.to(self.device))
        states = self.network(normal.view(*pixels.shape[:2], *normal.shape[1:])).last_hidden_state
        return states.mean(dim=1)  # type: ignore[no-any-return]


def open_extractor(argument: str = "") -> ClipExtractor:
    """`hf:HUB/NAME,rate=8` or `,count=64`. Raises: SaccadeError if it cannot be had or sees no videos."""
    found = re.fullmatch(r"hf:([^,]+)(?:,rate=([0-9.]+))?(?:,count=([0-9]+))?", argument)
    if found is None:
        raise SaccadeError(f'"clips:{argument}" names no network: clips:hf:HUB/NAME,rate=8 was expected')
    source, rate, count = found.groups()
    sampling = Sampling(float(rate or RATE), int(count) if count else None)
    transformers = hf.import_transformers(f'the network "hf:{source}"')
    place = model_folder(source)
    with hf.readable_errors(source), hf.quietly(transformers):
        config = transformers.AutoConfig.from_pretrained(place, trust_remote_code=False)
        if not hasattr(config, "num_frames"):
            raise SaccadeError(f'"hf:{source}" is a model of type {config.model_type}, which sees no clips')
        network = hf.load_whole(transformers.AutoModel.from_pretrained, place, hf.UNUSED, config=config)
        file = hf.processor_file(place)
        processor = {} if file is None else hf.read_processor(file)
    return ClipExtractor(f"clips:{argument}", network, processor, sampling)
