"""Why a video and a sentence match, drawn: a film strip, and below it once more for every phrase, as bright as the
phrase attended to each of its pieces. From left to right goes time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.core.errors import SaccadeError
from saccade.explain import draw
from saccade.explain.explanation import MAX_WORDS, Explanation, is_content

WIDE, LABEL = 1440, 420  # of the strip, and of the words beside it
TALL, ROW, GAP, AXIS = 132, 84, 14, 60  # heights: of the strip, of a phrase's, between them, of the axis
MOST_SHOWN = 24  # frames on the strip
CELL = 320  # pixels of a frame among others, row by row
DARKEST = 0.14
MOST_ROWS = 16
MARKS = 6  # of the axis


@dataclass(frozen=True, eq=False)
class FrameExplanation:
    """Which pieces of a video each phrase of a sentence attended to, and what each level of matching adds."""

    frames: tuple[UInt8[Array, "height width 3"], ...]
    seconds: float
    spans: Float[Array, "piece 2"]  # begin and end of each piece as shares of the video
    words: tuple[str, ...]
    phrases: tuple[str, ...]
    weights: Float[Array, "phrase piece"]
    matches: Float[Array, " phrase"]  # how well each found its pieces
    score: float
    levels: Mapping[str, float] = field(default_factory=dict)
    probability: float | None = None  # that the sentence fits the video, if the model says so
    generated = False

    def __post_init__(self) -> None:
        if not self.frames or not len(self.spans) or not self.seconds > 0:
            raise SaccadeError("an explanation of a video needs its frames, their times and its length")
        if self.weights.shape != (len(self.phrases), len(self.spans)) or len(self.matches) != len(self.phrases):
            raise SaccadeError("an explanation of a video needs a weight for every piece and a match for every phrase")

    @property
    def score_note(self) -> str:
        """The score in words, and that of each level."""
        levels = "".join(f" · {name} {value:.3f}" for name, value in self.levels.items())
        likely = "" if self.probability is None else f"{100 * self.probability:.0f} % · "
        return f"{likely}score {self.score:.3f}{levels}"

    def save(self, path: Path | str) -> Path:
        """As .png, .jpg or .webp."""
        return draw.save_drawing(draw_frames(self), path, "an explanation of a video")

    def as_picture(self, title: str = "", unknown: frozenset[str] = frozenset()) -> Explanation:
        """The same as of a picture, whose regions are frames, row by row with their times, so that what shows pictures
        shows videos: a phrase is a word of it. Pieces beyond `MOST_SHOWN` share a frame, and the stronger one counts.

        Raises: SaccadeError if no word of the sentence shows anything.
        """
        pieces = np.array_split(np.arange(len(self.spans)), min(len(self.spans), MOST_SHOWN))
        wide = math.ceil(math.sqrt(len(pieces)))
        tall = math.ceil(len(pieces) / wide)
        high, broad = self.frames[0].shape[:2]
        size = CELL, max(1, round(CELL * high / broad))
        sheet = Image.new("RGB", (wide * size[0], tall * size[1]), draw.INK)
        pen = ImageDraw.Draw(sheet)
        boxes = []
        for number, own in enumerate(pieces):
            start, end = self.spans[own[0], 0], self.spans[own[-1], 1]
            frame = self.frames[min(int((start + end) / 2 * len(self.frames)), len(self.frames) - 1)]
            x, y = number % wide * size[0], number // wide * size[1]
            sheet.paste(Image.fromarray(frame).resize(size, Image.Resampling.LANCZOS), (x, y))
            pen.rectangle((x, y + size[1] - 34, x + 92, y + size[1]), draw.INK)
            draw.write(pen, (x + 10, y + size[1] - 9), f"{start * self.seconds:.1f} s", draw.NOTE, draw.PAPER, room=80)
            boxes.append((x, y, x + size[0], y + size[1]))
        return Explanation(
            np.asarray(sheet),
            self.phrases,
            np.stack([self.weights[:, own].max(axis=1) for own in pieces], axis=1),
            np.array(boxes) / np.tile(sheet.size, 2),
            self.score,
            self.matches,
            title,
            probability=self.probability,
            unknown=unknown,
        )

    @staticmethod
    def from_alignment(
        alignment: Any,
        words: Sequence[str],
        boxes: Float[Array, "piece 4"],
        frames: Sequence[UInt8[Array, "height width 3"]],
        seconds: float,
        levels: Sequence[str] = (),
        role_words: Float[Array, "slot word"] | None = None,
    ) -> FrameExplanation:
        """The first pair of an alignment. A word is a phrase of its own, or with `role_words` belongs to the last of
        those that have it; what only holds a sentence together is left out."""
        real = alignment.region_mask[0].cpu().numpy()
        rows = alignment.weights[0, : len(words)].detach().double().cpu().numpy()[:, real]
        fits = alignment.word_score[0].detach().double().cpu().numpy() if alignment.word_score is not None else None
        groups: dict[int, list[int]] = {}
        for place in range(1, len(words) - 1):  # without <start> and <end>
            slots = [-place] if role_words is None else np.flatnonzero(role_words[:, place])
            if len(slots):
                groups.setdefault(int(slots[-1]), []).append(place)
        shown = (group for group in groups.values() if any(is_content(words[place]) for place in group))
        kept = list(shown)[:MOST_ROWS]
        found = None if alignment.level_score is None else alignment.level_score[0].tolist()
        return FrameExplanation(
            tuple(frames),
            seconds,
            np.asarray(boxes, dtype=np.float64)[real][:, [0, 2]],
            tuple(words[1:-1]),
            tuple(" ".join(words[place] for place in group) for group in kept),
            np.array([rows[group[0]] for group in kept]).reshape(len(kept), int(real.sum())),
            np.array([0.0 if fits is None else fits[group[0]] for group in kept]),
            float(alignment.score[0]),
            dict(zip(levels, found or (), strict=False)),
        )


def draw_frames(explained: FrameExplanation) -> Image.Image:
    """Drawn at twice the size it is meant to be seen at."""
    words = list(explained.words)
    words = [*words[:MAX_WORDS], "…"] if len(words) > MAX_WORDS else words
    lines = draw.break_lines(tuple(words), draw.CAPTION, LABEL + WIDE)
    top = draw.MARGIN + len(lines) * 52 + 60
    rows = len(explained.phrases)
    tall = top + TALL + GAP + rows * (ROW + GAP) + AXIS + draw.MARGIN
    sheet = Image.new("RGB", (LABEL + WIDE + 2 * draw.MARGIN, tall), draw.PAPER)
    pen = ImageDraw.Draw(sheet)
    for number, line in enumerate(lines):
        for index, x, _ in line:
            at = draw.MARGIN + x, draw.MARGIN + 34 + number * 52
            draw.write(pen, at, words[index], draw.CAPTION, draw.INK, room=LABEL + WIDE)
    draw.write(pen, (draw.MARGIN, top - 24), explained.score_note, draw.NOTE, draw.FAINT, room=LABEL + WIDE)
    left = draw.MARGIN + LABEL
    draw.paste_rounded(sheet, _strip(explained.frames, TALL), left, top)
    low = _strip(explained.frames, ROW)
    for number, phrase in enumerate(explained.phrases):
        y = top + TALL + GAP + number * (ROW + GAP)
        ink = draw.PALETTE[number % len(draw.PALETTE)].ink
        draw.write(pen, (draw.MARGIN, y + 36), phrase, draw.NOTE + 4, ink, room=LABEL - 30)
        draw.write(pen, (draw.MARGIN, y + 72), f"{explained.matches[number]:.3f}", draw.NOTE, draw.FAINT)
        light = _light(explained, explained.weights[number])
        draw.paste_rounded(sheet, Image.fromarray((np.asarray(low) * light).astype(np.uint8)), left, y)
    _axis(pen, explained.seconds, left, tall - draw.MARGIN - AXIS)
    return sheet


def _strip(frames: Sequence[UInt8[Array, "height width 3"]], high: int) -> Image.Image:
    """As many frames as fit at their own shape, side by side."""
    tall, wide = frames[0].shape[:2]
    count = max(1, min(len(frames), MOST_SHOWN, round(WIDE / (high * wide / tall))))
    places = ((np.arange(count) + 0.5) / count * len(frames)).astype(int)
    edges = np.linspace(0, WIDE, count + 1).round().astype(int)
    strip = Image.new("RGB", (WIDE, high), draw.INK)
    for place, start, stop in zip(places, edges[:-1], edges[1:], strict=True):
        picture = Image.fromarray(frames[place])
        grow = max((stop - start) / picture.width, high / picture.height)
        size = max(int(stop - start), round(picture.width * grow)), max(high, round(picture.height * grow))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
        x, y = (picture.width - int(stop - start)) // 2, (picture.height - high) // 2
        strip.paste(picture.crop((x, y, x + int(stop - start), y + high)), (int(start), 0))
    return strip


def _light(explained: FrameExplanation, weights: Float[Array, " piece"]) -> Float[Array, "1 x 1"]:
    """How bright each column of a strip is: of the piece that attention went to most, as it is."""
    middle = (np.arange(WIDE) + 0.5) / WIDE
    piece = np.clip(np.searchsorted(explained.spans[:, 1], middle), 0, len(weights) - 1)
    share = np.clip(weights, 0, None) / max(float(np.max(weights, initial=0.0)), 1e-12)
    return np.asarray(DARKEST + (1 - DARKEST) * share[piece])[None, :, None]


def _axis(pen: ImageDraw.ImageDraw, seconds: float, left: int, top: int) -> None:
    for number in range(MARKS + 1):
        x = left + WIDE * number / MARKS
        pen.line((x, top, x, top + 10), draw.FAINT, 3)
        anchor = "ls" if number == 0 else "rs" if number == MARKS else "ms"
        draw.write(pen, (x, top + 42), f"{seconds * number / MARKS:.1f} s", draw.NOTE, draw.FAINT, anchor)
