"""HGR's three levels for every video with every sentence, against the released evaluation.

That takes 300 videos with 300 sentences at a time, all phrases of all sentences padded to the most there may be, and
computes the frames that every phrase of every pair attends to. It also encodes all sentences anew for every 300 videos,
which is not counted here: both take the same codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.bench import Bench, Case
from benchmarks.problems import largest_difference
from benchmarks.rows import Row, Target
from saccade.batch import ImageCode, TextCode
from saccade.language import Vocabulary
from saccade.models import Hgr, HgrConfig

WORDS = Vocabulary(("<pad>", "<start>", "<end>", "<unk>"))
TOGETHER = 300  # videos, and sentences, that the released code scores at once
MEAN_ACTIONS, MEAN_ENTITIES = 1.5, 3.0  # of a sentence; the rest of its slots are empty
LENGTH = 10


def hgr_loop(model: Hgr, images: ImageCode, texts: TextCode) -> Tensor:
    """As the released code has it, from frames and phrases that are encoded."""
    rows = []
    for videos in batches(images):
        event, *local = videos.regions.split(model.config.dim, dim=2)
        weights = model.focus(event)[..., 0].masked_fill(~videos.mask, -torch.inf).softmax(dim=1)
        events = torch.einsum("vf,vfd->vd", weights, event)
        found = []
        for sentences in batches(texts):
            assert sentences.pooled is not None
            assert sentences.nodes is not None
            assert sentences.phrases is not None
            counts = [model.config.actions, model.config.entities]
            scores = [F.normalize(events, dim=1) @ F.normalize(sentences.pooled, dim=1).T]
            there = sentences.phrases.any(dim=2).split(counts, dim=1)
            for frames, nodes, real in zip(local, sentences.nodes.split(counts, dim=1), there, strict=True):
                scores.append(phrase_scores(frames, videos.mask, nodes, real, model.config.sharpness))
            found.append(torch.stack(scores).mean(dim=0))
        rows.append(torch.cat(found, dim=1))
    return torch.cat(rows)


def phrase_scores(frames: Tensor, mask: Tensor, phrases: Tensor, real: Tensor, sharpness: float) -> Tensor:
    cosine = F.normalize(frames.flatten(0, 1), dim=1) @ F.normalize(phrases.flatten(0, 1), dim=1).T
    cosine = cosine.view(*frames.shape[:2], *phrases.shape[:2]).transpose(1, 2)  # [video, text, frame, phrase]
    padding = ~mask[:, None, :, None]
    weights = F.normalize(cosine.masked_fill(padding, 0.0).clamp(min=0), dim=2)
    weights = (sharpness * weights.masked_fill(padding, -1e18)).softmax(dim=2)
    attended = torch.einsum("vtfp,vfd->vtpd", weights, frames)
    match = torch.einsum("vtpd,tpd->vtp", F.normalize(attended, dim=3), F.normalize(phrases, dim=2))
    return (match * real).sum(dim=2) / real.sum(dim=1).clamp(min=1)


def batches(codes: ImageCode | TextCode) -> Iterator[ImageCode | TextCode]:
    return (codes.select(slice(start, start + TOGETHER)) for start in range(0, len(codes), TOGETHER))


def cases(bench: Bench) -> Iterator[Case]:
    for reduced in (False, True) if bench.device == "cuda" or bench.quick else (False,):
        yield Case(f"HGR, {'16' if reduced else '32'} bits", partial(table, bench, reduced))


def codes(model: Hgr, images: int, texts: int, device: str) -> tuple[ImageCode, TextCode]:
    config, draw = model.config, torch.Generator().manual_seed(0)
    regions = torch.randn(images, config.max_frames, 3 * config.dim, generator=draw)
    counts = (config.actions, MEAN_ACTIONS), (config.entities, MEAN_ENTITIES)
    filled = [torch.poisson(torch.full((texts,), mean - 1.0), generator=draw) + 1 for _, mean in counts]
    there = [torch.arange(most) < some[:, None] for (most, _), some in zip(counts, filled, strict=True)]
    real = torch.cat(there, dim=1)
    nodes = torch.randn(texts, real.shape[1], config.dim, generator=draw)
    spans = real[..., None] * torch.eye(LENGTH)[torch.arange(real.shape[1]) % LENGTH]
    words = torch.zeros(texts, LENGTH, config.dim)
    mask = torch.ones(texts, LENGTH, dtype=torch.bool)
    pooled = torch.randn(texts, config.dim, generator=draw)
    return (
        ImageCode(regions, torch.ones(images, config.max_frames, dtype=torch.bool)).to(device),
        TextCode(words, mask, pooled, phrases=spans, nodes=nodes).to(device),
    )


@torch.no_grad()
def table(bench: Bench, reduced: bool) -> Row:
    """Every video with every sentence; the released code in float32."""
    torch.manual_seed(0)
    dim = bench.size(1024 if bench.device == "cuda" else 256, 16)
    model = Hgr(HgrConfig(region_dim=8, word_dim=8, dim=dim), WORDS).to(bench.device).eval()
    images, texts = (bench.size(full, 5) for full in ((1000, 5000) if bench.device == "cuda" else (100, 300)))
    videos, sentences = codes(model, images, texts, bench.device)
    some = min(images, TOGETHER), min(texts, TOGETHER)
    few = videos.select(slice(some[0])), sentences.select(slice(some[1]))
    exact = hgr_loop(model.double(), *(code.to(dtype=torch.float64) for code in few))
    model.float()

    def ours() -> Tensor:
        with torch.autocast(bench.device, torch.bfloat16, enabled=reduced):
            return model.similarity(videos, sentences)

    apart = largest_difference(ours()[: some[0], : some[1]], exact)
    spent = bench.best_of({"ours": ours, "loop": lambda: hgr_loop(model, *few)}, runs=3)
    blocks = images * texts / (some[0] * some[1])
    return Row(
        name="",
        shape=f"{images:,} videos × {texts:,} sentences, {model.config.max_frames} frames, {dim}-d",
        seconds=spent["ours"],
        official_seconds=spent["loop"] * blocks,
        difference=apart,
        targets=(
            Target("speedup", "≥", 20 if bench.device == "cuda" else 5),
            Target("difference", "≤", 5e-3 if reduced else 1e-5),
        ),
        note=f"the released evaluation is timed on {some[0]} × {some[1]}",
    )
