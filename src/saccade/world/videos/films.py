"""The world's videos: splits of clips, each a story with its captions, made from a seed when asked for, with frames.

Splits: train (a share of it in pairs of twins), dev, test, and hard: pairs of twins alone, with captions that are true
of one of the two. Nothing is kept on disk: a story takes milliseconds, and frames are drawn when they are looked at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import UInt8

from saccade.core.config import to_dict
from saccade.core.errors import SaccadeError, not_among
from saccade.world.dice import Dice
from saccade.world.render import empty_place, render
from saccade.world.scene import Scene
from saccade.world.videos.captions import VideoCaption, caption_story, is_true, said_first
from saccade.world.videos.sample import sample_story, sample_twins
from saccade.world.videos.story import Story

GENERATOR = 1  # raised whenever the same settings would give another frame or sentence
SPLITS = ("train", "dev", "test", "hard")


@dataclass(frozen=True)
class FilmConfig:
    """2,000 clips of some seven seconds."""

    videos: int = 2000  # train, dev and test together: 80, 10 and 10 per cent
    seed: int = 0
    size: int = 128  # of a frame's side, in pixels
    rate: float = 4.0  # frames a second
    captions: int = 5  # a clip, at most
    twins: float = 0.3  # share of the train clips that come in pairs
    hard_groups: int = 100  # pairs in `hard`

    def counts(self) -> dict[str, int]:
        """Clips per split."""
        tenth = self.videos // 10
        return {"train": self.videos - 2 * tenth, "dev": tenth, "test": tenth, "hard": 2 * self.hard_groups}

    def digest(self) -> str:
        text = json.dumps({"generator": GENERATOR, **to_dict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Clip:
    """A story and what is said of it; twins have the same group."""

    story: Story
    captions: tuple[VideoCaption, ...]  # all; those of matching come first
    group: int
    matching: int  # how many captions are for matching

    @property
    def described(self) -> tuple[VideoCaption, ...]:
        return self.captions[: self.matching]


@lru_cache(maxsize=8)
def make_clips(config: FilmConfig, split: str) -> tuple[Clip, ...]:
    """The clips of a split. Raises: SaccadeError if there is no such split."""
    if split not in SPLITS:
        raise SaccadeError(f"the world's videos have no split {not_among(split, SPLITS)}")
    count = config.counts()[split]
    pairs = config.hard_groups if split == "hard" else round(count * config.twins / 2) if split == "train" else 0
    clips: list[Clip] = []
    for group in range(count - pairs):
        dice = Dice(config.seed, "videos", split, group)
        if group < pairs:
            clips += _twins(dice, split, group, config.captions)
        else:
            story = sample_story(dice, f"{split}-{group + pairs:05d}")
            clips.append(_clip(caption_story(story, dice), story, group, config.captions))
    return tuple(clips)


def _clip(captions: Sequence[VideoCaption], story: Story, group: int, count: int) -> Clip:
    first = said_first(captions, count)
    return Clip(story, (*first, *(caption for caption in captions if caption not in first)), group, len(first))


def _twins(dice: Dice, split: str, group: int, count: int) -> list[Clip]:
    """Both of a pair; for matching they have the captions that are not true of the other."""
    pair = sample_twins(dice, (f"{split}-{2 * group:05d}", f"{split}-{2 * group + 1:05d}"))
    seed = dice.below(1 << 30)
    found = []
    for own, other in (pair, pair[::-1]):
        captions = caption_story(own, Dice("captions", seed))
        telling = [caption for caption in captions if not is_true(caption, own, other)]
        rest = [caption for caption in captions if caption not in telling]
        found.append(Clip(own, (*telling, *rest), group, min(len(telling), count)))
    return found


def frame_times(seconds: float, rate: float) -> np.ndarray:
    """The moments that frames show, in seconds: the middles of pieces of equal length."""
    return (np.arange(max(round(seconds * rate), 1)) + 0.5) / rate


def draw_frames(story: Story, size: int = 128, rate: float = 4.0) -> UInt8[np.ndarray, "frame row column 3"]:
    """`rate` frames a second, each of the moment in the middle of its piece."""
    ground = empty_place(story.scene, size)
    frames: list[np.ndarray] = []
    before: Scene | None = None
    for time in frame_times(story.seconds, rate):
        scene = story.at(float(time))
        still = before is not None and scene.things == before.things
        frames.append(frames[-1] if still else render(scene, size, ground).image)
        before = scene
    return np.stack(frames)
