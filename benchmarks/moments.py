"""Moments of a ten-minute video: DRN in one pass over all frames, against windows that are looked at in a loop.

A window is compared with the sentence by a pooled matcher, the least that a window can cost: its frames are encoded,
and frames that lie in several windows are encoded as often. `batched` is the same by `tasks/moments/windows.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from benchmarks.bench import Bench, Case
from benchmarks.rows import Row, Target
from saccade.batch import FrameBatch, RankedMoments, RegionBatch, TextBatch
from saccade.language import Vocabulary
from saccade.models import Drn, DrnConfig, Matcher, Vse, VseConfig
from saccade.tasks.moments.windows import frames_inside, sliding_windows, window_scores

WORDS = Vocabulary(("<pad>", "<start>", "<end>", "<unk>", *(f"word{n}" for n in range(1000))))
SENTENCE = " ".join(f"word{n}" for n in range(8))
SECONDS, RATE = 600.0, 2.0


def window_loop(matcher: Matcher, video: FrameBatch, text: TextBatch, windows: np.ndarray) -> Tensor:
    """One window after the other."""
    sentence = matcher.encode_texts(text)
    where = torch.from_numpy(windows).to(video.boxes)
    inside = frames_inside(video.boxes[0, :, 0], video.boxes[0, :, 2], where)
    found = []
    for own in inside:
        frames = video.features[:, own]
        regions = RegionBatch(frames, torch.ones_like(frames[..., 0], dtype=torch.bool), video.boxes[:, own])
        found.append(matcher.similarity(matcher.encode_images(regions), sentence)[0])
    return torch.cat(found)


def cases(bench: Bench) -> Iterator[Case]:
    yield Case("DRN over a ten-minute video, one sentence", lambda: one_pass(bench))


@torch.no_grad()
def one_pass(bench: Bench) -> Row:
    torch.manual_seed(0)
    frames, dim = bench.size(int(SECONDS * RATE), 24), bench.size(2048, 16)
    edges = np.linspace(0, SECONDS, frames + 1)
    times = np.stack([edges[:-1], edges[1:]], axis=1)
    features = np.random.default_rng(0).normal(size=(frames, dim)).astype(np.float32)
    video = FrameBatch.of_times([features], [times], [SECONDS]).to(bench.device)
    narrow = {"lstm_dim": 8, "dim": 8, "pyramid_dim": 8, "location_dim": 4} if bench.quick else {}
    finder = Drn(DrnConfig(region_dim=dim, **narrow), WORDS).to(bench.device).eval()
    matcher = Vse(VseConfig(region_dim=dim, dim=bench.size(1024, 8)), WORDS).to(bench.device).eval()
    windows = sliding_windows()
    read, asked = finder.read([SENTENCE]).to(bench.device), matcher.read([SENTENCE]).to(bench.device)
    loop = window_loop(matcher, video, asked, windows).float().cpu().numpy()
    apart = float(np.abs(loop - window_scores(matcher, video, asked, windows)[0]).max())

    def find() -> RankedMoments:
        return finder.find(video, read)

    spent = bench.best_of(
        {
            "ours": find,
            "loop": lambda: window_loop(matcher, video, asked, windows),
            "batched": lambda: window_scores(matcher, video, asked, windows),
        },
        runs=3,
    )
    return Row(
        name="",
        shape=f"{frames:,} frames of {dim} numbers, {finder.config.segments} segments, the paper's widths",
        seconds=spent["ours"],
        official_seconds=spent["loop"],
        figures={"batched_windows_seconds": spent["batched"]},
        targets=(Target("speedup", "≥", 10),),
        note=f"against {len(windows)} windows one after the other; in batches they take {spent['batched']:.3g} s and "
        f"score alike, to {apart:.0e}",
    )
