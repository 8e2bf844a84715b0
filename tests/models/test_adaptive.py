"""Adaptive attention: its equations by hand, shares that sum to one with the sentinel's, exact masks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.batch import END, PAD, START, RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Adaptive, AdaptiveConfig
from saccade.models.base.captioner import Captioner

SMALL = AdaptiveConfig(12, 7, 10, 5, dropout=0.0)
PAPER = {"transforms": False, "word_relu": False}
FORMS: dict[str, dict[str, Any]] = {
    "code": {},
    "paper": PAPER,
    "spatial": {"sentinel": False},
    "spatial, paper": {**PAPER, "sentinel": False},
    "max-out": {"maxout": True, "region_norm": "before"},
    "two layers": {"layers": 2, "region_norm": "around"},
    "three max-out layers": {"layers": 3, "maxout": True, **PAPER},
}


def build(vocabulary: Vocabulary, **switches: Any) -> Adaptive:
    torch.manual_seed(0)
    return Adaptive(replace(SMALL, **switches), vocabulary).double()


def loss(model: Captioner, images: RegionBatch, texts: TextBatch) -> Tensor:
    labels, wanted = texts.tokens[:, 1:], texts.mask[:, 1:]
    said = model(images, texts).log_probabilities.gather(2, labels.masked_fill(~wanted, END)[:, :, None])[:, :, 0]
    return -(said * wanted).sum() / wanted.sum()


@pytest.mark.parametrize("sentinel", [True, False])
def test_the_paper_by_hand(sentinel: bool, vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    """Equations 6–16 for the second picture, which has two regions, after <start> and after one word."""
    model = build(vocabulary, **PAPER, sentinel=sentinel).eval()
    images = toy_images.to(dtype=torch.float64)
    forced = model.teacher_force(model.start(images), torch.tensor([[START, 4]] * 4))
    w = {name: value.detach() for name, value in model.named_parameters()}
    features = images.features[1, :2]
    regions = (features @ w["regions.linear.weight"].T + w["regions.linear.bias"]).relu()  # eq. 15
    whole = (w["whole.weight"] @ features.mean(dim=0) + w["whole.bias"]).relu()  # eq. 14, 16
    h = m = torch.zeros(10).double()
    for step, word in enumerate((START, 4)):
        x, before = torch.cat([w["words.weight"][word], whole]), h
        sums = w["lstms.0.weight_ih"] @ x + w["lstms.0.bias_ih"] + w["lstms.0.weight_hh"] @ h + w["lstms.0.bias_hh"]
        enter, forget, candidate, leave = sums.chunk(4)
        m = forget.sigmoid() * m + enter.sigmoid() * candidate.tanh()
        h = leave.sigmoid() * m.tanh()
        asked = w["look.state.weight"] @ h
        z = torch.tanh(regions @ w["look.region.weight"].T + w["look.region.bias"] + asked) @ w["look.weigh.weight"][0]
        context = z.softmax(dim=0) @ regions  # eq. 6–8
        share, beta = 1.0, None
        if sentinel:
            gate = (w["sentinel.gate.weight"] @ torch.cat([x, before]) + w["sentinel.gate.bias"]).sigmoid()  # eq. 9
            s = gate * m.tanh()  # eq. 10
            own = torch.tanh(w["sentinel.key.weight"] @ s + w["sentinel.key.bias"] + asked) @ w["look.weigh.weight"][0]
            beta = torch.cat([z, own[None]]).softmax(dim=0)[-1]  # eq. 12
            context, share = beta * s + (1 - beta) * context, 1 - beta  # eq. 11
        logits = w["out.weight"] @ (context + h) + w["out.bias"]  # eq. 13
        logits[[PAD, START]] = float("-inf")
        torch.testing.assert_close(forced.weights[1, step, :2], share * z.softmax(dim=0))
        torch.testing.assert_close(forced.log_probabilities[1, step], logits.log_softmax(dim=0))
        if beta is None:
            assert forced.sentinel is None
        else:
            assert forced.sentinel is not None
            torch.testing.assert_close(forced.sentinel[1, step], beta)


@pytest.mark.parametrize("form", FORMS)
def test_shares_of_regions_and_sentinel_sum_to_one(
    form: str, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    forced = build(vocabulary, **FORMS[form]).eval()(toy_images.to(dtype=torch.float64), toy_texts)
    total = forced.weights.sum(dim=2)
    if forced.sentinel is not None:
        assert (forced.sentinel > 0).all()
        total = total + forced.sentinel
    torch.testing.assert_close(total, torch.ones_like(total))
    assert not forced.weights[~toy_images.mask[:, None].expand_as(forced.weights)].any()


@pytest.mark.parametrize("form", FORMS)
def test_padding_changes_no_loss_gradient_or_statistic_in_training(
    form: str, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    images, results = toy_images.to(dtype=torch.float64), []
    for regions, words in ((0, 0), (6, 4)):
        model = build(vocabulary, **FORMS[form]).train()
        found = loss(model, images.pad(regions), toy_texts.pad(words))
        found.backward()
        results.append([found, *model.buffers(), *(p.grad for p in model.parameters())])
    for plain, padded in zip(*results, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", ["code", "three max-out layers"])
def test_all_words_at_once_are_heard_as_one_by_one(
    form: str, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model = build(vocabulary, **FORMS[form]).eval()
    state, words = model.start(toy_images.to(dtype=torch.float64)), toy_texts.tokens[:, :-1]
    at_once, one_by_one = model.teacher_force(state, words), Captioner.teacher_force(model, state, words)
    torch.testing.assert_close(at_once.log_probabilities, one_by_one.log_probabilities)
    torch.testing.assert_close(at_once.sentinel, one_by_one.sentinel)


def test_without_regions_all_attention_is_the_sentinels(vocabulary: Vocabulary, toy_texts: TextBatch) -> None:
    images = RegionBatch(torch.zeros(4, 2, 12).double(), torch.zeros(4, 2, dtype=torch.bool), torch.zeros(4, 2, 4))
    forced = build(vocabulary).eval()(images, toy_texts)
    assert forced.sentinel is not None
    torch.testing.assert_close(forced.sentinel, torch.ones_like(forced.sentinel))


def test_it_learns_which_picture_is_which(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """Four captions are known by heart in the end, each of its own picture."""
    torch.manual_seed(0)
    model = Adaptive(replace(SMALL, dim=32, word_dim=16), vocabulary)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(40):
        optimiser.zero_grad()
        loss(model, toy_images, toy_texts).backward()
        optimiser.step()
    assert loss(model, toy_images, toy_texts) < 0.1
    assert loss(model, toy_images.select([1, 2, 3, 0]), toy_texts) > 0.5


def test_no_layer_is_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(SaccadeError, match="layers must be at least 1, not 0"):
        build(vocabulary, layers=0)
