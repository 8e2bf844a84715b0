"""GSMN by kernels and compiled loops: what its own equations say, ragged, with holes in masks and items of nothing.

Without a GPU kernels run in Triton's interpreter, on the CPU.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are first imported; nothing compiles here anyway

from saccade.batch import ImageCode, TextCode  # noqa: E402
from saccade.language import Vocabulary  # noqa: E402
from saccade.models import Gsmn, GsmnConfig  # noqa: E402
from saccade.models.gsmn import block_cosines as plain_cosines  # noqa: E402
from saccade.ops import AttentionForm, backend  # noqa: E402
from saccade.ops.graph_matching import GRAPH_MATCHING, Nodes, triton_graphs  # noqa: E402
from saccade.ops.native import unavailable  # noqa: E402
from saccade.ops.native.attention import NativeAttention  # noqa: E402
from saccade.ops.triton import block_cosines  # noqa: E402

FORM = AttentionForm("clipped_l2", 20.0, 0.1)


@pytest.fixture(autouse=True)
def _interpretable(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":  # the interpreter multiplies no bfloat16
        monkeypatch.setattr(block_cosines, "PRODUCT_DTYPE", torch.float32)
        monkeypatch.setattr(block_cosines, "BIN", 16)


def problem(dim: int = 64) -> tuple[ImageCode, TextCode]:
    """Ragged on both sides, with holes, and an item of nothing on each side."""
    draw = torch.Generator().manual_seed(5)
    regions, words = torch.randn(4, 9, dim, generator=draw), torch.randn(7, 6, dim, generator=draw)
    seen = torch.arange(9) < torch.tensor([9, 4, 0, 7])[:, None]
    read = torch.arange(6) < torch.tensor([6, 1, 3, 0, 6, 2, 5])[:, None]
    seen[0, 3], read[4, 0] = False, False
    boxes = torch.rand(4, 9, 4, generator=draw) / 2
    boxes[..., 2:] += boxes[..., :2]
    links = (torch.rand(7, 6, 6, generator=draw) < 0.5) | torch.eye(6, dtype=torch.bool)
    return (
        ImageCode(F.normalize(regions, dim=-1), seen, boxes=boxes).to(DEVICE),
        TextCode(F.normalize(words, dim=-1), read, links=links & read[:, :, None]).to(DEVICE),
    )


def kernel(images: ImageCode, texts: TextCode, blocks: int) -> tuple[Tensor, Tensor]:
    pictures = block_cosines.pack_images(images.regions, images.mask, blocks)
    sentences = block_cosines.pack_texts(texts.words, texts.mask, blocks)
    return block_cosines.block_cosines(pictures, sentences, FORM)


def nodes(images: ImageCode, texts: TextCode, blocks: int, dtype: torch.dtype) -> tuple[Nodes, Nodes]:
    regions, words = images.regions.to(dtype), texts.words.to(dtype)
    return Nodes.of(regions, images.mask, blocks), Nodes.of(words, texts.mask, blocks)


def both_ways(images: Nodes, texts: Nodes) -> tuple[Tensor, Tensor]:
    """Cosines of words and of regions, [image text node block], by the model's own equations."""
    return plain_cosines(texts, images, FORM)[0], plain_cosines(images, texts, FORM)[0].transpose(0, 1)


@pytest.mark.parametrize("blocks", [4, 2, 1])
def test_cosines_are_those_of_the_plain_form(blocks: int) -> None:
    images, texts = problem()
    words, regions = kernel(images, texts, blocks)
    known = both_ways(*nodes(images, texts, blocks, torch.float64))
    near = 1e-3 if DEVICE == "cpu" else 2e-2  # float16 rounds them, bfloat16 the vectors
    torch.testing.assert_close(words.double(), known[0].transpose(0, 1), rtol=0, atol=near)
    torch.testing.assert_close(regions.double(), known[1], rtol=0, atol=near)


def test_padding_may_hold_anything() -> None:
    images, texts = problem()
    known = kernel(images, texts, 4)
    images.regions[~images.mask], texts.words[~texts.mask] = torch.nan, torch.inf
    for found, right in zip(kernel(images, texts, 4), known, strict=True):
        torch.testing.assert_close(found, right, rtol=0, atol=0)


SWITCHES = [
    {},
    {"text_graph": "dense", "graphs": "textual"},
    {"graphs": "visual"},
    {"message_passing": False},
    {"structure": False},
]


def build(switches: dict[str, object]) -> Gsmn:
    torch.manual_seed(3)
    config = replace(GsmnConfig(dim=64, blocks=4, hidden=16, kernels=4), **switches)  # type: ignore[arg-type]
    return Gsmn(config, Vocabulary(("<pad>", "<start>", "<end>", "<unk>"))).to(DEVICE).eval()


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@torch.no_grad()
def test_gsmn_through_the_kernel_is_gsmn(switches: dict[str, object]) -> None:
    (images, texts), model = problem(), build(switches)
    known = model.double().similarity(images.to(dtype=torch.float64), texts.to(dtype=torch.float64))
    asked: Any = model.float().problem(images, texts)
    whole, pieces = triton_graphs(asked), triton_graphs(asked, (3, 3))  # sentences and pictures at once
    assert whole.dtype == torch.float32
    near = 5e-4 if DEVICE == "cpu" else 2e-3
    torch.testing.assert_close(whole.double(), known, rtol=0, atol=near)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-5)


@pytest.mark.skipif(unavailable() is not None, reason="no C++ compiler")
@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@torch.no_grad()
def test_gsmn_in_compiled_loops_is_gsmn(switches: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_NATIVE", "1")
    (images, texts), model = (side.to("cpu") for side in problem()), build(switches).cpu()
    known = model.double().similarity(images.to(dtype=torch.float64), texts.to(dtype=torch.float64))
    with backend("native"):
        found = model.float().similarity(images, texts)
    torch.testing.assert_close(found.double(), known, rtol=0, atol=1e-5)


@pytest.mark.skipif(unavailable() is not None, reason="no C++ compiler")
@pytest.mark.parametrize("shared", [0, 1])
@pytest.mark.parametrize(("parts", "longest"), [(7, 9), (13, 4), (1, 1)])
def test_compiled_loops_find_the_same_cosines(
    monkeypatch: pytest.MonkeyPatch, parts: int, longest: int, shared: int
) -> None:
    """More sentences than a vector has lanes, pictures and sentences of all lengths and one with nothing in it.

    `shared`: what all vectors have in common. Where that is nothing, some attended vector nearly vanishes, and the last
    bit of a product decides its cosine, in either form: only the mean of such errors is the form's own.
    """
    monkeypatch.setenv("SACCADE_NATIVE", "1")
    draw = torch.Generator().manual_seed(1)
    region_mask = torch.arange(parts) < torch.randint(1, parts + 1, (5, 1), generator=draw)
    word_mask = torch.arange(longest) < torch.randint(1, longest + 1, (21, 1), generator=draw)
    region_mask[2], word_mask[4] = False, False
    regions, words = (
        (torch.randn(*mask.shape, 24, generator=draw, dtype=torch.float64) + shared) * mask[..., None]
        for mask in (region_mask, word_mask)
    )
    codes = ImageCode(regions, region_mask), TextCode(words, word_mask)
    known = both_ways(*nodes(*codes, 4, torch.float64))
    images, texts = nodes(*codes, 4, torch.float32)
    plain = both_ways(images, texts)
    sides = [part for side in (images, texts) for part in (side.vectors.transpose(1, 2), side.gram, side.mask)]
    found = NativeAttention.of(FORM).block_cosines(*sides)  # type: ignore[arg-type]
    for ours, rounded, exact in zip(found, plain, known, strict=True):
        error, usual = (ours - exact).abs(), (rounded - exact).abs()
        assert error.mean() <= 2 * usual.mean() + 1e-8
        assert not shared or error.max() <= 2 * usual.max() + 1e-6
        torch.testing.assert_close(ours.double(), exact, rtol=0, atol=1e-5)


def test_each_backend_says_why_it_does_not_suit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_NATIVE", "1")
    asked: Any = build({}).problem(*problem())
    triton, native, plain = GRAPH_MATCHING.backends
    assert triton.reason(asked) is not None
    assert native.reason(asked) is not None  # a gradient is wanted
    assert GRAPH_MATCHING.chosen(asked) is plain
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert native.reason(asked) is not None
