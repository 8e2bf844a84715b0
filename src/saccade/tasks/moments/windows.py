"""Windows that slide over videos: by them every matcher finds moments, with no training for it.

Two ways to score a window: its frames, as the regions of one picture, compared with the sentence (`similarity`); or
every frame by itself, and how much better those inside fit than those outside (`contrast`). A window that lies inside
the true moment fits as well as the moment does, so the first often chooses too short a one; the second does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saccade.batch import FrameBatch, RegionBatch, TextBatch
from saccade.models import Matcher

WindowScore = Literal["similarity", "contrast"]
SHORTEST, GROWTH = 0.05, 1.4  # lengths of windows, as shares of a video
STEP = 0.25  # of a window's own length
AT_ONCE = 2048  # frames of windows that are held at once


def sliding_windows() -> Float[np.ndarray, "window 2"]:
    """Begin and end of windows of all lengths, as shares of a video; the longest first, which win ties."""
    found, length = [], SHORTEST
    while length < 1:
        starts = np.arange(0, 1 - length, STEP * length)
        found.append([(start, start + length) for start in (*starts, 1 - length)])
        length *= GROWTH
    return np.array([(0.0, 1.0), *(window for own in reversed(found) for window in own)])


def frames_inside(
    begin: Float[Tensor, " frame"], end: Float[Tensor, " frame"], windows: Float[Tensor, "window 2"]
) -> Tensor:
    """Which frames lie in which window by their middle; of a window between two middles, the nearest frame does."""
    middle = (begin + end) / 2
    inside = (middle >= windows[:, :1]) & (middle < windows[:, 1:])
    nearest = (middle - windows.mean(dim=1, keepdim=True)).abs().argmin(dim=1)
    return inside | (torch.nn.functional.one_hot(nearest, len(middle)).bool() & ~inside.any(dim=1, keepdim=True))


@torch.no_grad()
def window_scores(
    matcher: Matcher, video: RegionBatch, texts: TextBatch, windows: Float[np.ndarray, "window 2"]
) -> Float[np.ndarray, "text window"]:
    """The similarity of every window of one video, frames as regions, with every text."""
    where = torch.from_numpy(windows).to(video.boxes)
    real = video.mask[0]
    features, boxes = video.features[0][real], video.boxes[0][real]
    inside = frames_inside(boxes[:, 0], boxes[:, 2], where)
    counts, first = inside.sum(dim=1), inside.to(torch.uint8).argmax(dim=1)  # frames are in the order of time
    encoded, scores = matcher.encode_texts(texts), torch.zeros(len(texts), len(windows))
    for part in _batches(counts.tolist()):
        longest = int(counts[part].max())
        there = torch.arange(longest, device=features.device) < counts[part, None]
        place = (first[part, None] + torch.arange(longest, device=features.device)).clamp(max=len(features) - 1)
        own, window = boxes[place] * there[..., None], where[part]
        length = (window[:, 1:] - window[:, :1])[..., None]
        own[..., [0, 2]] = ((own[..., [0, 2]] - window[:, :1, None]) / length).clamp(0, 1) * there[..., None]
        regions = RegionBatch(features[place] * there[..., None], there, own)
        if isinstance(video, FrameBatch) and video.seconds is not None:
            regions = FrameBatch(**vars(regions), seconds=length[:, 0, 0] * video.seconds[0])
        scores[:, part] = matcher.similarity(matcher.encode_images(regions), encoded).T.float().cpu()
    return scores.numpy()


def _batches(counts: list[int]) -> Iterator[list[int]]:
    """Windows of like lengths together, each part of some thousand frames with its padding."""
    part: list[int] = []
    for n in sorted(range(len(counts)), key=counts.__getitem__):
        if part and counts[n] * (len(part) + 1) > AT_ONCE:
            yield part
            part = []
        part.append(n)
    yield part


def frame_scores(matcher: Matcher, video: RegionBatch, texts: TextBatch) -> Float[np.ndarray, "text frame"]:
    """The similarity of every frame by itself with every text."""
    pieces = video.boxes[0][video.mask[0]][:, [0, 2]].double().cpu().numpy()
    return window_scores(matcher, video, texts, pieces)


def scored_windows(
    matcher: Matcher, video: RegionBatch, texts: TextBatch, windows: Float[np.ndarray, "window 2"], by: WindowScore
) -> Float[np.ndarray, "text window"]:
    if by == "similarity":
        return window_scores(matcher, video, texts, windows)
    pieces = video.boxes[0][video.mask[0]].double().cpu().numpy()
    return contrast(frame_scores(matcher, video, texts), pieces[:, 0], pieces[:, 2], windows)


def contrast(
    scores: Float[np.ndarray, "text frame"],
    begin: Float[np.ndarray, " frame"],
    end: Float[np.ndarray, " frame"],
    windows: Float[np.ndarray, "window 2"],
) -> Float[np.ndarray, "text window"]:
    """How much better the frames of a window fit than the others: Student's t of the two means.

    The mean inside alone would be largest for the one best frame.
    """
    inside = frames_inside(*(torch.from_numpy(np.asarray(x, np.float64)) for x in (begin, end, windows))).numpy()
    count, all_of = inside.sum(axis=1), scores.shape[1]
    outside = np.maximum(all_of - count, 1)
    within = scores @ inside.T / count
    apart = within - scores @ (~inside).T / outside
    spread = scores.std(axis=1, keepdims=True) + 1e-9
    found = apart / spread * np.sqrt(count * (all_of - count) / all_of)
    return np.asarray(found)


def best_first(
    windows: Float[np.ndarray, "window 2"], scores: Float[np.ndarray, " window"]
) -> tuple[Float[np.ndarray, "window 2"], Float[np.ndarray, " window"]]:
    order = np.argsort(-scores, kind="stable")
    return windows[order], scores[order]
