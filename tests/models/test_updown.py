"""Up-Down: its equations by hand, exact masks in training too, one hearing for all words, bad settings told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.batch import END, PAD, START, RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import UpDown, UpDownConfig
from saccade.models.base.captioner import Captioner

SMALL = UpDownConfig(12, 7, 10, 5)
REFERENCE = {"embed_regions": True, "word_relu": True, "attention_bias": True}
FORMS: dict[str, dict[str, Any]] = {
    "paper": {},
    "reference": REFERENCE,
    "norm before": {**REFERENCE, "region_norm": "before"},
    "norm around": {**REFERENCE, "region_norm": "around"},
}


def build(vocabulary: Vocabulary, **switches: Any) -> UpDown:
    torch.manual_seed(0)
    return UpDown(replace(SMALL, **switches), vocabulary).double()


def loss(model: Captioner, images: RegionBatch, texts: TextBatch) -> Tensor:
    labels, wanted = texts.tokens[:, 1:], texts.mask[:, 1:]
    said = model(images, texts).log_probabilities.gather(2, labels.masked_fill(~wanted, END)[:, :, None])[:, :, 0]
    return -(said * wanted).sum() / wanted.sum()


def test_the_paper_by_hand(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    """Equations 1–7 for the second picture, which has two regions, after <start> and after one word."""
    model = build(vocabulary).eval()
    images = toy_images.to(dtype=torch.float64)
    forced = model.teacher_force(model.start(images), torch.tensor([[START, 4]] * 4))
    regions = images.features[1, :2]
    weights = {name: value.detach() for name, value in model.named_parameters()}
    h1 = c1 = h2 = c2 = torch.zeros(10).double()

    def lstm(name: str, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        sums = weights[f"lstms.{name}.weight_ih"] @ x + weights[f"lstms.{name}.bias_ih"]
        sums = sums + weights[f"lstms.{name}.weight_hh"] @ h + weights[f"lstms.{name}.bias_hh"]
        enter, forget, candidate, leave = sums.chunk(4)
        c = forget.sigmoid() * c + enter.sigmoid() * candidate.tanh()
        return leave.sigmoid() * c.tanh(), c

    for step, word in enumerate((START, 4)):
        x1 = torch.cat([h2, regions.mean(dim=0), weights["words.weight"][word]])
        h1, c1 = lstm("look_lstm", x1, h1, c1)
        scores = [
            weights["look.weigh.weight"][0]
            @ torch.tanh(weights["look.region.weight"] @ v + weights["look.state.weight"] @ h1)
            for v in regions
        ]
        alpha = torch.stack(scores).softmax(dim=0)
        h2, c2 = lstm("say_lstm", torch.cat([alpha @ regions, h1]), h2, c2)
        logits = weights["out.weight"] @ h2 + weights["out.bias"]
        logits[[PAD, START]] = float("-inf")
        torch.testing.assert_close(forced.weights[1, step], torch.cat([alpha, torch.zeros(3).double()]))
        torch.testing.assert_close(forced.log_probabilities[1, step], logits.log_softmax(dim=0))


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


@pytest.mark.parametrize("form", FORMS)
def test_all_words_at_once_are_heard_as_one_by_one(
    form: str, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model = build(vocabulary, **FORMS[form]).eval()
    state, words = model.start(toy_images.to(dtype=torch.float64)), toy_texts.tokens[:, :-1]
    at_once, one_by_one = model.teacher_force(state, words), Captioner.teacher_force(model, state, words)
    torch.testing.assert_close(at_once.log_probabilities, one_by_one.log_probabilities)
    torch.testing.assert_close(at_once.weights, one_by_one.weights)


def test_a_picture_without_regions_gives_numbers(vocabulary: Vocabulary, toy_texts: TextBatch) -> None:
    images = RegionBatch(torch.zeros(4, 2, 12).double(), torch.zeros(4, 2, dtype=torch.bool), torch.zeros(4, 2, 4))
    for form in FORMS.values():
        assert loss(build(vocabulary, **form).eval(), images, toy_texts).isfinite()


def test_lstms_start_by_remembering(vocabulary: Vocabulary) -> None:
    remembering, forgetting = (build(vocabulary, forget_bias=bias) for bias in (1.0, 0.0))
    for name in ("look_lstm", "say_lstm"):
        gap = getattr(remembering.lstms, name).bias_ih - getattr(forgetting.lstms, name).bias_ih
        torch.testing.assert_close(gap, torch.tensor([0.0, 1.0, 0.0, 0.0]).double().repeat_interleave(10))


def test_a_norm_without_its_layer_is_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(SaccadeError, match="region_norm=before goes with embed_regions=true"):
        build(vocabulary, region_norm="before")


def test_it_learns_which_picture_is_which(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """Four captions are known by heart in the end, each of its own picture."""
    torch.manual_seed(0)
    model = UpDown(replace(SMALL, dim=32, word_dim=16), vocabulary)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(40):
        optimiser.zero_grad()
        loss(model, toy_images, toy_texts).backward()
        optimiser.step()
    assert loss(model, toy_images, toy_texts) < 0.1
    assert loss(model, toy_images.select([1, 2, 3, 0]), toy_texts) > 0.5


def test_a_gain_multiplies_what_the_language_lstm_hears_of_the_attention_lstm(vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    published = UpDown(SMALL, vocabulary)
    assert float(published.lstms.say_lstm.weight_ih.detach().abs().max()) <= SMALL.dim**-0.5  # PyTorch's own range
    torch.manual_seed(0)
    louder = UpDown(replace(SMALL, attention_gain=8.0), vocabulary)
    wanted = published.state_dict()
    wanted["lstms.say_lstm.weight_ih"][:, SMALL.region_dim :] *= 8
    assert wanted.keys() == louder.state_dict().keys()
    assert all(torch.equal(weight, wanted[name]) for name, weight in louder.state_dict().items())
