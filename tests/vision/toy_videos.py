"""Small videos as strangers bring them: grey frames whose brightness says which one it is."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

SIZE = (48, 64)  # rows, columns
STEP = 8  # of brightness, from one frame to the next
MILLISECONDS = Fraction(1, 1000)


def grey(number: int) -> np.ndarray:
    """A frame: number × STEP, with a white left upper corner that shows how it is turned."""
    pixels = np.full((*SIZE, 3), 16 + number % 29 * STEP, np.uint8)
    pixels[:16, :16] = 255
    return pixels


def numbers(frames: np.ndarray) -> list[int]:
    """Which frames these are, by the brightness of their middle."""
    middle = frames[:, 20:28, 28:36].astype(np.float64).mean(axis=(1, 2, 3))
    return [round((value - 16) / STEP) for value in middle]


def write(
    path: Path,
    count: int = 24,
    codec: str = "libx264",
    rate: int = 8,
    times: Sequence[int] | None = None,
    gop: int = 12,
    rotation: int = 0,
    sound: bool = False,
) -> Path:
    """`count` frames at `rate` a second, or at the milliseconds of `times`; sound is silence."""
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=rate)
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
        stream.codec_context.gop_size = gop
        if codec == "libx264":
            stream.options = {"crf": "10", "preset": "ultrafast"}
        if codec == "libvpx-vp9":
            stream.options = {"crf": "20", "b": "0", "deadline": "realtime", "cpu-used": "8"}
        if codec == "mpeg4":
            stream.bit_rate = 2_000_000
        if times is not None:
            stream.time_base = stream.codec_context.time_base = MILLISECONDS
        if rotation:
            turned(stream, rotation)
        speaker: Any = container.add_stream("aac", rate=16000, layout="mono") if sound else None
        for number in range(count):
            frame = av.VideoFrame.from_ndarray(grey(number), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[number], MILLISECONDS
            for packet in stream.encode(frame):
                container.mux(packet)
            if speaker is not None:
                silence = av.AudioFrame.from_ndarray(np.zeros((1, 2000), np.float32), "fltp", "mono")
                silence.sample_rate = 16000
                for packet in speaker.encode(silence):
                    container.mux(packet)
        for each in (stream, speaker):
            for packet in each.encode() if each is not None else ():
                container.mux(packet)
    return path


def turned(stream: Any, degrees: int) -> None:
    """Say in the file that it is to be shown turned, as telephones do."""
    stream.set_display_rotation(degrees)
