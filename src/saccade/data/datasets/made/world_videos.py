"""The built-in world's videos as a data set: `data=world_videos`, stories of some seven seconds, four frames a second.

Splits: train, dev, test, and hard (pairs of clips that differ in the order of two events, or in who does what to whom).
For matching a clip has up to five captions; for finding moments every sentence on it has the spans in which it happens.
`data=world_moments` are the same sentences, each with the frames of its moment alone: for a matcher that is to find
moments through sliding windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedDrawings, Moments, Span
from saccade.world.videos.captions import VideoCaption
from saccade.world.videos.films import Clip, FilmConfig, draw_frames, make_clips


def open_world_videos(split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000) -> CaptionedDrawings:
    """Clips with the captions of matching, of a world of `pictures` clips; nothing is kept at a `root`."""
    config, clips = _clips(split, seed, pictures)
    return _drawings(split, config, clips, [clip.described for clip in clips])


def open_world_moments(
    split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000
) -> Moments[CaptionedDrawings]:
    """Clips with every sentence on them and when it happens; kinds: event, then, before, after, while."""
    config, clips = _clips(split, seed, pictures)
    captions = [clip.captions for clip in clips]
    flat = [caption for own in captions for caption in own]
    return Moments(
        _drawings(split, config, clips, captions),
        tuple(caption.spans for caption in flat),
        tuple(caption.kind for caption in flat),
    )


def open_world_moment_clips(
    split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000
) -> CaptionedDrawings:
    """Every moment of the clips as a clip of its own, with the sentences that happen in it."""
    config, clips = _clips(split, seed, pictures)
    texts: dict[tuple[int, Span], list[str]] = {}
    for place, clip in enumerate(clips):
        for caption in clip.captions:
            for span in caption.spans:
                texts.setdefault((place, span), []).append(caption.text)
    return CaptionedDrawings(
        name="world_moments",
        split=split,
        ids=tuple(f"{clips[place].story.id}@{start:g}-{end:g}" for place, (start, end) in texts),
        pictures=tuple(partial(_cut_frames, clips[place], config, span) for place, span in texts),
        texts=tuple(text for own in texts.values() for text in own),
        image_of_text=np.repeat(np.arange(len(texts), dtype=np.int64), [len(own) for own in texts.values()]),
        digest=f"{config.digest()}-moments",
        seconds=tuple(_cut(config, span)[1] for _, span in texts),
    )


def _cut(config: FilmConfig, span: Span) -> tuple[slice, float]:
    """Which frames lie in a span, at least one, and for how long they last."""
    first = int(span[0] * config.rate)
    after = max(math.ceil(span[1] * config.rate), first + 1)
    return slice(first, after), (after - first) / config.rate


def _cut_frames(clip: Clip, config: FilmConfig, span: Span) -> UInt8[np.ndarray, "frame row column 3"]:
    frames = draw_frames(clip.story, config.size, config.rate)
    return frames[_cut(config, span)[0]]


def _clips(split: str, seed: int, pictures: int) -> tuple[FilmConfig, tuple[Clip, ...]]:
    config = FilmConfig(videos=pictures, seed=seed, hard_groups=max(min(pictures // 20, 100), 1))
    clips = make_clips(config, split)
    if not clips:
        raise SaccadeError(f'a world of {pictures} videos has none for the split "{split}": give pictures=2000 or so')
    return config, clips


def _drawings(
    split: str, config: FilmConfig, clips: Sequence[Clip], captions: Sequence[Sequence[VideoCaption]]
) -> CaptionedDrawings:
    return CaptionedDrawings(
        name="world_videos",
        split=split,
        ids=tuple(clip.story.id for clip in clips),
        pictures=tuple(partial(draw_frames, clip.story, config.size, config.rate) for clip in clips),
        texts=tuple(caption.text for own in captions for caption in own),
        image_of_text=np.repeat(np.arange(len(clips), dtype=np.int64), [len(own) for own in captions]),
        digest=config.digest(),
        seconds=tuple(clip.story.seconds for clip in clips),
    )
