"""Beam search over all pictures in one batch against one picture at a time: the same model, the same search.

The captioner has Up-Down's sizes in the paper (two LSTMs of 1,000, 36 regions, 10,000 words) and random weights; <end>
is made so unlikely that every caption has its full length. One picture at a time is the same function with batches of
one, which is kinder to it than the Python lists of the published codes. It takes the same time for every picture, so
eight of them are enough to know it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks.bench import Bench, Case
from benchmarks.rows import Row, Target
from saccade.batch import END, RegionBatch, stack
from saccade.decoding import DecodedCaptions, DecodingConfig, beam_search
from saccade.language import Vocabulary
from saccade.models import UpDown, UpDownConfig

BEAM, LONGEST, LOOP = 5, 12, 8


def cpu(bench: Bench) -> Iterator[Case]:
    yield Case("beam search, Up-Down", partial(search, bench, 64))


def gpu(bench: Bench) -> Iterator[Case]:
    yield Case("beam search, Up-Down", partial(search, bench, 512))


@torch.no_grad()
def search(bench: Bench, count: int) -> Row:
    words, dim = bench.size(10_000, 40), bench.size(1000, 16)
    torch.manual_seed(0)
    model = captioner(words, dim).to(bench.device)
    images = pictures(bench.size(count, 9)).to(bench.device)
    config = DecodingConfig(num_beams=BEAM, finished_beams="keep_slot", max_length=LONGEST)
    some = min(LOOP, len(images))

    def together() -> DecodedCaptions:
        return beam_search(model, images, config, keep=1)

    def one_by_one() -> DecodedCaptions:
        return stack([beam_search(model, images.select([i]), config, keep=1) for i in range(some)])

    spent = bench.best_of({"together": together, "one_by_one": one_by_one}, runs=3)
    differ = sum(not torch.equal(a, b) for a, b in zip(one_by_one().words, together().words[:some], strict=True))
    return Row(
        name="",
        shape=f"{len(images):,} pictures, beam {BEAM}, {LONGEST} words, LSTMs of {dim:,}, {words:,} words",
        seconds=spent["together"],
        official_seconds=spent["one_by_one"] * len(images) / some,
        figures={"answers_that_differ": float(differ)},
        targets=(Target("speedup", "≥", 5),),
        note=f"against one picture at a time, timed on {some}",
    )


def captioner(words: int, dim: int) -> UpDown:
    vocabulary = Vocabulary(("<pad>", "<start>", "<end>", "<unk>", *(f"word{i}" for i in range(words - 4))))
    model = UpDown(UpDownConfig(dim=dim, word_dim=dim), vocabulary).eval()
    with torch.no_grad():
        model.out.weight *= 60  # as sure of its words as a trained captioner: rounding then decides no caption
        model.out.bias[END] -= 1e4
    return model


def pictures(count: int, regions: int = 36, dim: int = 2048) -> RegionBatch:
    mask = torch.ones(count, regions, dtype=torch.bool)
    return RegionBatch(torch.randn(count, regions, dim).relu(), mask, torch.zeros(count, regions, 4))
