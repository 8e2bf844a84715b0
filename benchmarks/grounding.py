"""Local matching of every phrase of every caption in every picture, all at once, against a loop over them.

The loop takes one picture with one caption at a time, phrase by phrase or word by word, as the papers' equations are
written; there is no official code to hold Align2Ground against, and the multi-level release is TensorFlow 1's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.bench import Bench, Case
from benchmarks.problems import largest_difference
from benchmarks.rows import Row, Target
from saccade.batch import ImageCode, TextCode
from saccade.language import Vocabulary
from saccade.models import Align2Ground, Align2GroundConfig, Matcher, Multilevel, MultilevelConfig

WORDS = Vocabulary(("<pad>", "<start>", "<end>", "<unk>"))
CELLS, LENGTH, PHRASES, DIM, LEVELS = 49, 12, 4, 256, 4
LOOP = 6  # pictures and captions that the loop is timed on


def align2ground_loop(model: Align2Ground, images: ImageCode, texts: TextCode) -> Tensor:
    assert texts.phrases is not None
    assert texts.pooled is not None
    rows = []
    for regions in images.regions:
        scores = []
        for words, phrases, caption in zip(texts.words, texts.phrases, texts.pooled, strict=True):
            encoded = []
            for phrase in phrases:
                vector = words[phrase > 0].mean(dim=0)
                local = F.cosine_similarity(model.local(regions), vector[None])
                grounded = (model.config.sharpness * local).softmax(dim=0) @ regions
                encoded.append(model.outer(model.inner(grounded).relu()))
            scores.append(F.cosine_similarity(torch.stack(encoded).mean(dim=0), model.caption(caption), dim=0))
        rows.append(torch.stack(scores))
    return torch.stack(rows)


def multilevel_loop(model: Multilevel, images: ImageCode, texts: TextCode) -> Tensor:
    rows = []
    for cells in images.regions.unflatten(2, (LEVELS, -1)):
        scores = []
        for words in texts.words:
            fits = []
            for word in words:
                heat = (cells @ word).clamp(min=0)  # [cell level]
                attended = torch.einsum("nl,nld->ld", heat, cells)
                fits.append((F.normalize(attended, dim=1) @ word).max())
            sharp = model.config.pool_sharpness
            scores.append((sharp * torch.stack(fits)).logsumexp(dim=0) / sharp)
        rows.append(torch.stack(scores))
    return torch.stack(rows)


def align2ground() -> Align2Ground:
    config = Align2GroundConfig(region_dim=384, word_dim=DIM, state_dim=DIM, hidden_dim=DIM, dim=DIM, sharpness=10.0)
    return Align2Ground(config, WORDS)


def multilevel() -> Multilevel:
    config = MultilevelConfig(region_dim=384, levels=(96,) * LEVELS, hidden=(), dim=DIM, word_dim=DIM, tables="words")
    return Multilevel(config, WORDS)


CONTENDERS: dict[str, tuple[Callable[[], Matcher], Callable[[Any, ImageCode, TextCode], Tensor]]] = {
    "Align2Ground": (align2ground, align2ground_loop),
    "multi-level": (multilevel, multilevel_loop),
}


def cases(bench: Bench) -> Iterator[Case]:
    for name in CONTENDERS:
        for training in (False, True):
            step = "training step" if training else "scores"
            yield Case(f"local matching, {name}, {step}", partial(table, bench, name, training))


def codes(model: Matcher, images: int, texts: int, device: str) -> tuple[ImageCode, TextCode]:
    draw = torch.Generator().manual_seed(0)
    wide = 384 if isinstance(model, Align2Ground) else LEVELS * DIM
    regions = torch.randn(images, CELLS, wide, generator=draw)
    words = F.normalize(torch.randn(texts, LENGTH, DIM, generator=draw), dim=2)
    if isinstance(model, Multilevel):
        regions = F.normalize(regions.unflatten(2, (LEVELS, DIM)), dim=3).flatten(2)
    spans = torch.eye(PHRASES).repeat_interleave(LENGTH // PHRASES, dim=1).expand(texts, -1, -1)
    pooled = torch.randn(texts, DIM, generator=draw) if isinstance(model, Align2Ground) else None
    return (
        ImageCode(regions, torch.ones(images, CELLS, dtype=torch.bool)).to(device),
        TextCode(words, torch.ones(texts, LENGTH, dtype=torch.bool), pooled, phrases=spans.contiguous()).to(device),
    )


def table(bench: Bench, name: str, training: bool) -> Row:
    """Every picture with every caption; of the loop, a few of both."""
    make, loop = CONTENDERS[name]
    torch.manual_seed(0)
    model = make().to(bench.device).train(training)
    images, texts = bench.size(64, 4), bench.size(64, 4)
    some = min(LOOP, images)
    pictures, captions = codes(model, images, texts, bench.device)
    for vectors in (pictures.regions, captions.words):
        vectors.requires_grad_(training)  # as they come from the encoders
    few = pictures.select(slice(some)), captions.select(slice(some))

    def learn(found: Tensor) -> Tensor:
        if training:
            model.zero_grad()
            found.sum().backward()  # type: ignore[no-untyped-call]
        return found

    @torch.set_grad_enabled(training)
    def together() -> Tensor:
        return learn(model.similarity(pictures, captions))

    @torch.set_grad_enabled(training)
    def one_by_one() -> Tensor:
        return learn(loop(model, *few))

    apart = largest_difference(together()[:some, :some].detach(), one_by_one().detach().double())
    spent = bench.best_of({"together": together, "one_by_one": one_by_one}, runs=3)
    return Row(
        name="",
        shape=f"{images} pictures × {texts} captions, {CELLS} regions",
        seconds=spent["together"],
        official_seconds=spent["one_by_one"] * images * texts / some**2,
        difference=apart,
        targets=(Target("speedup", "≥", 5), Target("difference", "≤", 1e-4)),
        note=f"against one picture, caption and phrase at a time, timed on {some} × {some}",
    )
