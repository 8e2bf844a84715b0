"""The kernel of HGR's phrases says what its equations say: ragged videos and sentences, both fusions, every precision.

Without a GPU it runs in Triton's interpreter, on the CPU.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are first imported; nothing compiles here anyway

from saccade.batch import ImageCode, TextCode  # noqa: E402
from saccade.language import Vocabulary  # noqa: E402
from saccade.models import Hgr, HgrConfig  # noqa: E402
from saccade.ops.all_pairs import PairsProblem  # noqa: E402
from saccade.ops.phrase_matching import PHRASE_MATCHING, triton_phrases  # noqa: E402

DIM, FRAMES = 80, 18  # a vector is not a whole number of reads


def problem(dtype: torch.dtype = torch.float32, budget: int = 1 << 20, **settings: object) -> PairsProblem:
    """Three videos, one of them with a single frame, and fifty sentences, some without an action or any phrase."""
    torch.manual_seed(0)
    config = replace(HgrConfig(dim=DIM, region_dim=4, word_dim=4, actions=2, entities=3), **settings)  # type: ignore[arg-type]
    model = Hgr(config, Vocabulary(("<pad>", "<start>", "<end>", "<unk>"))).to(DEVICE).eval()
    mask = torch.arange(FRAMES) < torch.tensor([FRAMES, 1, 7])[:, None]
    regions = torch.randn(3, FRAMES, len(config.levels) * DIM) * mask[..., None]
    there = torch.cat(
        [torch.arange(2) < torch.arange(50)[:, None] % 3, torch.arange(3) < torch.arange(50)[:, None] % 4], 1
    )
    there[1::2] = torch.cat([torch.arange(2) < 2, torch.arange(3) < 1])
    spans = there[..., None] * torch.ones(6)
    texts = TextCode(torch.zeros(50, 6, DIM), torch.ones(50, 6, dtype=torch.bool), torch.randn(50, DIM), phrases=spans)
    texts = replace(texts, nodes=torch.randn(50, 5, DIM))
    return PairsProblem(model, ImageCode(regions, mask).to(DEVICE), texts.to(DEVICE), budget)


@pytest.mark.parametrize(
    "settings",
    [{}, {"fusion": "scores", "phrase_pool": "sum"}, {"levels": ("entity",), "sharpness": 40.0}],
    ids=["vectors", "scores", "one level"],
)
@torch.no_grad()
def test_the_kernel_is_the_plain_form(settings: dict[str, object]) -> None:
    given = problem(**settings)
    plain = given.model.pair(*given.sides)
    torch.testing.assert_close(triton_phrases(given), plain, rtol=0, atol=2e-6)
    few = problem(budget=600, **settings)  # one video at a time
    torch.testing.assert_close(triton_phrases(few), plain, rtol=0, atol=2e-6)


@torch.no_grad()
def test_in_sixteen_bits_it_is_near() -> None:
    given = problem()
    with torch.autocast(DEVICE, torch.bfloat16):
        found = triton_phrases(given)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, given.model.pair(*given.sides), rtol=0, atol=5e-3)


def test_what_it_cannot_do_is_said() -> None:
    if DEVICE == "cpu":
        assert PHRASE_MATCHING.backends[0].reason(problem()) == "the vectors are not on a GPU"
    assert PHRASE_MATCHING.chosen(problem()).name in ("torch", "triton")
