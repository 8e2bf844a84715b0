"""Videos: files decoded and seen, against a plain loop over all their frames; and the world's videos, drawn and seen.

The plain loop decodes every frame of a file, and sends each that is wanted through the network by itself. Ours
winds from key frame to key frame where that saves decoding, decodes in several processes, and sees frames together.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.bench import Bench, Case
from benchmarks.rows import Row, Target
from saccade.features import extract
from saccade.vision import load_extractor
from saccade.vision.videos import Footage, write_video
from saccade.vision.videos.extractor import VideoExtractor
from saccade.vision.videos.files import every_frame
from saccade.vision.videos.frames import FrameConfig, FrameExtractor
from saccade.world.videos.films import FilmConfig, draw_frames, make_clips

WIDE, HIGH, FPS = 640, 360, 25
RATE = 1.0  # frames a second that are looked at
WORLD = "frames:world,rate=4,places=4"


def cases(bench: Bench) -> Iterator[Case]:
    yield Case("videos, files to store", partial(files, bench, bench.size(4, 2), bench.size(16, 2)))
    yield Case("the world's videos, drawn and seen", partial(world, bench, bench.size(120, 3)))


def files(bench: Bench, count: int, seconds: int) -> Row:
    extractor = FrameExtractor(FrameConfig("grid", rate=RATE), load_extractor("grid"))
    with tempfile.TemporaryDirectory() as folder:
        listed = [(path.name, path) for path in film(Path(folder), count, seconds)]
        spent = bench.best_of({"ours": extracting(listed, extractor), "loop": one_by_one(listed, extractor)}, runs=2)
        first = extractor.extract([listed[0][1]]).features
        difference = float((first - plainly(listed[0][1], extractor)).abs().max())
    frames = count * max(round(seconds * RATE), 1)
    return Row(
        name="",
        shape=f"{count} files of {seconds} s, {WIDE} × {HIGH}, {FPS} frames a second of which {RATE:g} is seen",
        seconds=spent["ours"],
        official_seconds=spent["loop"],
        difference=difference,
        figures={"frames_a_second": frames / spent["ours"]},
        targets=() if bench.quick else (Target("speedup", "≥", 1.5), Target("difference", "≤", 1e-3)),
        note="against a loop over all frames, one at a time through the network (EfficientNet-Lite0)",
    )


def world(bench: Bench, count: int) -> Row:
    extractor = load_extractor(WORLD)
    clips = make_clips(FilmConfig(videos=max(2 * count, 20)), "train")[-count:]
    listed = [(clip.story.id, partial(draw_frames, clip.story)) for clip in clips]
    seconds = {clip.story.id: clip.story.seconds for clip in clips}

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            extract(listed, extractor, Path(folder) / "store", seconds=seconds)

    spent = bench.best_of({"ours": run}, runs=2)["ours"]
    return Row(
        name="",
        shape=f"{count} clips of {np.mean(list(seconds.values())):.1f} s, 4 frames a second",
        seconds=spent,
        figures={"clips_a_minute": 60 * count / spent},
        targets=() if bench.quick else (Target("clips_a_minute", "≥", 200),),
        note="frames drawn and their features written to a store",
    )


def film(folder: Path, count: int, seconds: int) -> list[Path]:
    """Clips of the world at the size and rate of ordinary videos, as long as wanted."""
    paths = []
    for n, clip in enumerate(make_clips(FilmConfig(videos=20), "train")[:count]):
        drawn = [np.asarray(Image.fromarray(f).resize((WIDE, HIGH))) for f in draw_frames(clip.story, 128, 5)]
        frames = (drawn[i // (FPS // 5) % len(drawn)] for i in range(seconds * FPS))
        paths.append(folder / f"{n}.mp4")
        write_video(paths[-1], frames, FPS)
    return paths


def extracting(listed: Sequence[tuple[str, Path]], extractor: VideoExtractor) -> Callable[[], None]:
    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            extract(listed, extractor, Path(folder) / "store")

    return run


def one_by_one(listed: Sequence[tuple[str, Path]], extractor: VideoExtractor) -> Callable[[], None]:
    def run() -> None:
        for _, path in listed:
            plainly(path, extractor)

    return run


def plainly(path: Path, extractor: VideoExtractor) -> Tensor:
    """Every frame decoded; the first at or after each wanted time through the network, alone."""
    vectors, wanted, last = [], 0.5 / RATE, None
    shown = list[tuple[float, np.ndarray]]()
    for time, pixels in every_frame(path, lambda frame, _: frame):
        if last is not None and time > wanted:
            shown.append((wanted, last))
            wanted += 1 / RATE
        last = pixels
    for _, pixels in shown if len(shown) or last is None else [(0.0, last)]:
        ready = extractor.prepare(pixels, str(path))
        vectors.append(extractor.extract([Footage.evenly(ready[None], 1.0)]).features[0])
    return torch.cat(vectors)[None]
