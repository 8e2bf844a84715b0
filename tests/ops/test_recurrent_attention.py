"""All steps in large tiles, without padding, are the steps of the model; whatever the tiles, and in 16 bits nearly."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are first imported

from saccade.batch import ImageCode, TextCode
from saccade.language import Vocabulary
from saccade.models import Imram, ImramConfig
from saccade.ops.all_pairs import PairsProblem
from saccade.ops.recurrent_attention import RECURRENT_ATTENTION, runs, triton_steps

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDE = 64


def codes(dim: int, extra: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sentences of 0 to 9 words, pictures of 0 to 20 regions, holes in the masks, rubbish in the padding."""
    draw = torch.Generator().manual_seed(5)
    words, regions = (F.normalize(torch.randn(n, s, dim, generator=draw), dim=-1) for n, s in ((4, 9), (4, 20)))
    real = torch.arange(9) < torch.tensor([4, 9, 0, 7])[:, None]
    there = torch.arange(20) < torch.tensor([20, 3, 17, 0])[:, None]
    real[1, 2] = there[0, 5] = False
    words[~real], regions[~there] = 1e3, -1e3
    words, regions = F.pad(words, (0, 0, 0, extra), value=7.0), F.pad(regions, (0, 0, 0, 2 * extra), value=7.0)
    real, there = F.pad(real, (0, extra)), F.pad(there, (0, 2 * extra))
    return words.to(DEVICE), real.to(DEVICE), regions.to(DEVICE), there.to(DEVICE)


def imram(dim: int = WIDE, **switches: Any) -> Imram:
    torch.manual_seed(4)
    config = ImramConfig(region_dim=4, word_dim=4, dim=dim, queries="words", **switches)
    return Imram(config, Vocabulary(("<pad>", "<start>", "<end>", "<unk>"))).to(DEVICE).eval()


def plain(model: Imram, words: Tensor, real: Tensor, regions: Tensor, there: Tensor) -> Tensor:
    return model.pair(*model.prepare(ImageCode(regions, there), TextCode(words, real)))


def asked(model: Imram, given: tuple[Tensor, ...], budget: int = 1 << 20) -> PairsProblem:
    words, real, regions, there = given
    return PairsProblem(model, ImageCode(regions, there), TextCode(words, real), budget)


def stepped(model: Imram, given: tuple[Tensor, ...], budget: int, fused: bool | None = None) -> Tensor:
    return triton_steps(asked(model, given, budget), fused)


@pytest.mark.parametrize(
    ("fused", "budget"),
    [(True, 0), (False, 0), (True, 40 << 10), (False, 1 << 30)],
    ids=["one kernel-item by item", "product-item by item", "one kernel-some tiles", "product-in one piece"],
)
@torch.no_grad()
def test_the_steps_of_all_pairs_are_the_models(fused: bool, budget: int) -> None:
    model, given = imram(), codes(WIDE)
    torch.testing.assert_close(stepped(model, given, budget, fused), plain(model, *given), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "switches",
    [{"steps": 2, "pool": "sum"}, {"steps": 5, "normaliser": "softmax"}, {"dim": 10}],
    ids=lambda s: "-".join(map(str, s.values())),
)
@torch.no_grad()
def test_other_numbers_of_steps_and_other_forms(switches: dict[str, Any]) -> None:
    model = imram(**switches)
    given = codes(model.config.dim)
    before = [tensor.clone() for tensor in given]
    torch.testing.assert_close(stepped(model, given, 1 << 20, fused=True), plain(model, *given), rtol=0, atol=2e-5)
    assert all(map(torch.equal, given, before))


@torch.no_grad()
def test_padding_never_changes_a_score() -> None:
    model = imram(steps=2)
    assert torch.equal(stepped(model, codes(WIDE), 1 << 20, True), stepped(model, codes(WIDE, extra=11), 1 << 20, True))


@torch.no_grad()
def test_mixed_precision_is_near_and_ends_with_float32() -> None:
    model, given = imram(steps=2), codes(WIDE)
    with torch.autocast(DEVICE, torch.bfloat16):
        found = stepped(model, given, 1 << 20, fused=None if DEVICE == "cuda" else False)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, plain(model, *given), rtol=0, atol=0.03)


def test_kernels_are_for_gpus_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_KERNELS", "1")
    given = codes(WIDE)
    kernel = RECURRENT_ATTENTION.backends[0]

    def suits(model: Imram, given: tuple[Tensor, ...] = given) -> bool:
        return kernel.reason(asked(model, given)) is None

    assert not suits(imram())  # a gradient is wanted
    with torch.no_grad():
        assert suits(imram()) == (DEVICE == "cuda")
        assert not suits(imram(memory="mlp"))
        assert not suits(imram(unit_memory=True))
        assert not suits(imram(), (given[0].double(), *given[1:]))
        monkeypatch.setenv("SACCADE_KERNELS", "0")
        assert not suits(imram())


def test_items_of_one_length_makeruns() -> None:
    assert runs([64, 64, 16]) == [(0, 2, 64), (2, 3, 16)]
    assert not runs([])
