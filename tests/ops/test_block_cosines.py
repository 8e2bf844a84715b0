"""The kernel of GSMN's node level: what `nn.block_match` says, ragged, with holes in masks and items of nothing.

Without a GPU it runs in Triton's interpreter, on the CPU.
"""

from __future__ import annotations

import os
from dataclasses import replace

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
from saccade.models import gsmn as gsmn_module  # noqa: E402
from saccade.nn import block_match  # noqa: E402
from saccade.ops import AttentionForm, block_cosines  # noqa: E402

FORM = AttentionForm("clipped_l2", 20.0, 0.1)


@pytest.fixture(autouse=True)
def _interpretable(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":  # the interpreter multiplies no bfloat16
        monkeypatch.setattr(block_cosines, "INSIDE", torch.float32)
        monkeypatch.setattr(block_cosines, "PLACES", 16)


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
    pictures = block_cosines.pack_pictures(images.regions, images.mask, blocks)
    sentences = block_cosines.pack_sentences(texts.words, texts.mask, blocks)
    return block_cosines.block_cosines(pictures, sentences, FORM)


@pytest.mark.parametrize("blocks", [4, 2, 1])
def test_cosines_are_those_of_the_plain_form(blocks: int) -> None:
    images, texts = problem()
    words, regions = kernel(images, texts, blocks)
    known = block_match(images.to(dtype=torch.float64), texts.to(dtype=torch.float64), blocks, FORM)
    near = 1e-3 if DEVICE == "cpu" else 2e-2  # float16 rounds them, bfloat16 the vectors
    torch.testing.assert_close(words.double(), known.words.transpose(0, 1), rtol=0, atol=near)
    torch.testing.assert_close(regions.double(), known.regions, rtol=0, atol=near)


def test_padding_may_hold_anything() -> None:
    images, texts = problem()
    known = kernel(images, texts, 4)
    images.regions[~images.mask], texts.words[~texts.mask] = torch.nan, torch.inf
    for found, right in zip(kernel(images, texts, 4), known, strict=True):
        torch.testing.assert_close(found, right, rtol=0, atol=0)


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"text_graph": "dense", "graphs": "textual"},
        {"graphs": "visual"},
        {"message_passing": False},
        {"structure": False},
    ],
    ids=str,
)
def test_gsmn_through_the_kernel_is_gsmn(switches: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts = problem()
    torch.manual_seed(3)
    config = replace(GsmnConfig(dim=64, blocks=4, hidden=16, kernels=4), **switches)  # type: ignore[arg-type]
    model = Gsmn(config, Vocabulary(("<pad>", "<start>", "<end>", "<unk>"))).to(DEVICE).eval()
    with torch.no_grad():
        double = images.to(dtype=torch.float64), texts.to(dtype=torch.float64)
        known = model.double().similarity(*double)
        model = model.float()
        monkeypatch.setattr(gsmn_module, "suits_block_cosines", lambda *_: True)
        whole = model.similarity(images, texts)
        monkeypatch.setattr(gsmn_module, "tiles_of", lambda *_: (3, 3))  # sentences and pictures at once
        pieces = model.similarity(images, texts)
    assert whole.dtype == torch.float32
    near = 5e-4 if DEVICE == "cpu" else 2e-3
    torch.testing.assert_close(whole.double(), known, rtol=0, atol=near)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-5)
