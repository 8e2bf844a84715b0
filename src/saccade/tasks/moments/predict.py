"""`saccade.load` of a moment finder, and any matcher in its place: videos and sentences instead of tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image

from saccade.batch import FrameBatch
from saccade.core.errors import SaccadeError
from saccade.core.progress import note_once
from saccade.explain.panels.film import FilmStrip
from saccade.models import Matcher, Model, MomentFinder, find_model, load_model
from saccade.tasks.moments.windows import best_first, contrast, frame_scores, sliding_windows
from saccade.tasks.predict import RegionPredictor
from saccade.tasks.uses import Line, Outcome, Use
from saccade.vision.pictures import Picture, as_array
from saccade.vision.videos import Footage, Sampling, read_frames
from saccade.vision.videos.extractor import VideoExtractor

Video: TypeAlias = "Path | str | Footage | FrameBatch"
OVERLAP = 0.5  # of the shorter of two moments: the worse of them says nothing new
SHOWN = 48  # frames that a film strip is drawn from …
SHOWN_HEIGHT = 320  # … at most so many pixels high
RATE, MOST_FRAMES = 2.0, 120  # how often a matcher of photos looks at a video: so many times a second, and in all


@dataclass(frozen=True)
class Moment:
    """When, in seconds from the beginning, and how well it fits."""

    start: float
    end: float
    score: float


@dataclass(frozen=True, eq=False)
class Found:
    """What was found in one video, as shares of it."""

    seconds: float
    spans: Float[np.ndarray, "moment 2"]  # best first
    scores: Float[np.ndarray, " moment"]
    curve: Float[np.ndarray, " piece"]  # how well each piece of the video fits
    words: tuple[str, ...] = ()
    weights: Float[np.ndarray, "level word"] | None = None  # what each level of a model read

    def moments(self, top: int = 5) -> list[Moment]:
        """The best; of two that share half of the shorter, the better. top=0 is all."""
        kept: list[int] = []
        for n, (start, end) in enumerate(self.spans):
            better = self.spans[kept]
            shared = np.minimum(better[:, 1], end) - np.maximum(better[:, 0], start)
            shorter = np.minimum(better[:, 1] - better[:, 0], end - start)
            if not (shared > OVERLAP * shorter).any():
                kept.append(n)
            if len(kept) == top:
                break
        times = self.spans * self.seconds
        return [Moment(float(times[n, 0]), float(times[n, 1]), float(self.scores[n])) for n in kept]

    def strip(self, video: Path | str | Footage, top: int = 5, title: str = "", read: bool = False) -> FilmStrip:
        """`.save("when.png")` draws it; with `read`, also what each level read."""
        moments = self.moments(top)
        spans = np.array([(one.start, one.end) for one in moments]).reshape(-1, 2)
        scores = np.array([one.score for one in moments])
        known = (self.words, self.weights) if read and self.weights is not None else ((), None)
        return FilmStrip(shown_frames(video), self.seconds, spans, scores, self.curve, title, *known)


class Searcher(ABC):
    """Finds when in a video happens what a sentence says, by whatever model."""

    @abstractmethod
    def search(self, video: Video, text: str) -> Found: ...

    def find(self, video: Video, text: str, top: int = 5) -> list[Moment]:
        """The best moments, in seconds: `saccade.load("runs/drn").find("a.mp4", "a person opens the door")`."""
        return self.search(video, text).moments(top)

    def show(self, video: Path | str | Footage, text: str, top: int = 5) -> FilmStrip:
        """A film strip with the moments."""
        return self.search(video, text).strip(video, top, text)


def shown_frames(video: Path | str | Footage) -> tuple[UInt8[np.ndarray, "row column 3"], ...]:
    if isinstance(video, Footage):
        return tuple(video.frames)
    return tuple(read_frames(video, Sampling(count=SHOWN), _small).frames)


def _small(picture: Picture, where: str = "") -> UInt8[np.ndarray, "row column 3"]:
    pixels = as_array(picture)
    high, wide = pixels.shape[:2]
    if high <= SHOWN_HEIGHT:
        return pixels
    size = max(1, round(wide * SHOWN_HEIGHT / high)), SHOWN_HEIGHT
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))


def _found(searcher: VideoSearcher | WindowSearcher, video: Any, text: str, top: int) -> Outcome:
    found = searcher.search(video, text)
    lines = (Line(text, score=one.score, span=(one.start, one.end)) for one in found.moments(top))
    return Outcome(tuple(lines), seconds=found.seconds, curve=tuple(found.curve.tolist()))


_USES = (Use("moment", "Find when in a video something happens", "video", _found, "sentence", "two dogs run"),)


class VideoSearcher(Searcher, RegionPredictor[MomentFinder]):
    """Finds when in a video happens what a sentence says, by a model that was trained for it."""

    uses = _USES

    @classmethod
    def adopt(cls, model: Model) -> VideoSearcher | WindowSearcher | None:
        """A matcher looks through windows."""
        if isinstance(model, MomentFinder):
            return cls(model)
        return WindowSearcher(model) if isinstance(model, Matcher) and model.matches else None

    def frames(self, video: Video) -> FrameBatch:
        """Frames as the model's extractor sees them. Raises: SaccadeError if it sees no videos."""
        return frames_of(self, video)

    @torch.no_grad()
    def search(self, video: Video, text: str) -> Found:
        self.model.vocabulary.check(text)
        frames = self.frames(video)
        assert frames.seconds is not None
        found = self.model.propose(frames, self.model.read([text]).to(self.device))
        real = found.mask[0].cpu().numpy()
        spans, scores = (values[0].double().cpu().numpy()[real] for values in (found.spans, found.scores))
        curve = scores if found.curve is None else found.curve[0].double().cpu().numpy()
        words = tuple(self.model.read([text]).words[0])
        weights = None if found.weights is None else found.weights[0].double().cpu().numpy()[:, : len(words)]
        return Found(float(frames.seconds[0]), spans, scores, curve, words, weights)

    def explain(self, image: Any, text: str | None = None, *, title: str = "") -> Any:
        """The moments of a video on its film strip, and which words each level of the model read."""
        if text is None:
            raise SaccadeError("a moment finder shows when a sentence happens: give one after the video")
        if not isinstance(image, str | Path | Footage):
            raise SaccadeError("a moment finder shows when a sentence happens in a video: give a video file")
        return self.search(image, text).strip(image, 3, title or text, read=True)


class WindowSearcher(Searcher, RegionPredictor[Matcher]):
    """The same by a matcher, in windows that slide over the video.

    Every frame is compared with the sentence; the best window is the one whose frames fit most unlike the others.
    """

    uses = _USES
    rate: float | None = None

    @torch.no_grad()
    def search(self, video: Video, text: str) -> Found:
        self.model.vocabulary.check(text)
        windows = sliding_windows()
        texts = self.model.read([text]).to(self.device)
        if isinstance(video, FrameBatch) or self.extractor.videos:
            frames = frames_of(self, video)
            assert frames.seconds is not None
            curve, strip = frame_scores(self.model, frames, texts)[0], frames.boxes[0].cpu().numpy()
            return self._windows(float(frames.seconds[0]), curve.astype(np.float64), strip, windows)
        footage = video if isinstance(video, Footage) else self._footage(video)
        codes, each = self.model.encode_texts(texts), []
        for first in range(0, len(footage.frames), 8):
            regions = self.extract(list(footage.frames[first : first + 8]))
            each.append(self.model.similarity(self.model.encode_images(regions), codes)[:, 0].float().cpu().numpy())
        curve, strip = np.concatenate(each).astype(np.float64), footage.strip
        return self._windows(footage.seconds, curve, strip, windows)

    @staticmethod
    def _windows(
        seconds: float,
        curve: Float[np.ndarray, " frame"],
        strip: Float[np.ndarray, "frame 4"],
        windows: Float[np.ndarray, "window 2"],
    ) -> Found:
        if len(curve) == 1:
            return Found(seconds, np.array([[0.0, 1.0]]), curve, curve)
        scores = contrast(curve[None], strip[:, 0], strip[:, 2], windows)[0]
        return Found(seconds, *best_first(windows, scores), curve)

    def _footage(self, video: Path | str) -> Footage:
        """As often as was asked for; otherwise twice a second, but of a long video not too often."""
        prepare = self.extractor.prepare
        if self.rate is not None:
            found = read_frames(video, Sampling(self.rate), prepare)
        else:
            seconds = read_frames(video, Sampling(count=1), _small).seconds
            count = int(min(max(round(seconds * RATE), 1), MOST_FRAMES))
            found = read_frames(video, Sampling(count=count), prepare)
        if found.note:
            note_once(found.note)
        return found


def frames_of(searcher: RegionPredictor[MomentFinder] | RegionPredictor[Matcher], video: Video) -> FrameBatch:
    """Raises: SaccadeError if the model's extractor sees no videos, or the length of the video is not known."""
    if not isinstance(video, FrameBatch):
        extractor = searcher.extractor
        if not isinstance(extractor, VideoExtractor):
            raise SaccadeError(f'the model learned from what "{extractor.name}" sees, which reads no video files')
        if not isinstance(video, Footage):
            video = extractor.footage(video)
        if video.note:
            note_once(video.note)
        (found,) = extractor.each_batch([video], None, 32)
        video = cast(FrameBatch, found)
    if video.seconds is None or len(video) != 1:
        raise SaccadeError("one video was expected, of a length that is known")
    return video.to(searcher.device)


def moment_searcher(folder: str, device: str = "cpu", rate: float | None = None) -> VideoSearcher | WindowSearcher:
    """A trained moment finder, or a matcher that looks through windows.

    Raises: SaccadeError if there is no such model, or it is for something else.
    """
    kind: type[Model] = find_model(folder)[1]
    if issubclass(kind, MomentFinder):
        return VideoSearcher(load_model(folder, MomentFinder).to(device).eval())
    if not issubclass(kind, Matcher):
        raise SaccadeError(f"{folder} holds a model of {kind.name}: moments are found by a moment finder or a matcher")
    found = WindowSearcher(load_model(folder, Matcher).to(device).eval())
    found.rate = rate
    return found
