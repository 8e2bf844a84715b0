"""VSRN: padding leaves no trace in training, nothing becomes NaN, both lessons are learned, bad settings are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from saccade.batch import RegionBatch, TextBatch
from saccade.core.config import override
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Vsrn, VsrnConfig
from saccade.nn import triplet_loss

SMALL = VsrnConfig(12, 7, 10, caption_dim=8, caption_word_dim=6, caption_dropout=0.0)
FORMS: dict[str, dict[str, Any]] = {
    "coco": {},
    "f30k": {"norm_before": "none", "final_norm": True},
    "softmax": {"affinity": "softmax", "norm_before": "regions", "norm_after": "regions"},
    "mean of the regions": {"global_reasoning": False, "final_norm": True},
}


def awake(vocabulary: Vocabulary, **switches: Any) -> Vsrn:
    """A model whose blocks have left their beginning as the identity."""
    torch.manual_seed(0)
    model = Vsrn(replace(SMALL, **switches), vocabulary)
    for block in model.blocks:
        torch.nn.init.normal_(block.norm.weight, std=0.3)
    return model


def lesson(model: Vsrn, images: RegionBatch, texts: TextBatch) -> tuple[torch.Tensor, torch.Tensor]:
    code = model.encode_images(images)
    ranking = triplet_loss(model.similarity(code, model.encode_texts(texts)), negatives="all")
    return ranking, model.own_losses(code, texts, torch.arange(len(texts)))["caption_loss"]


@pytest.mark.parametrize("form", FORMS)
def test_padding_changes_no_loss_gradient_or_statistic_in_training(
    form: str, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    images, results = toy_images.to(dtype=torch.float64), []
    for regions, words in ((0, 0), (6, 4)):
        model = awake(vocabulary, **FORMS[form]).double().train()
        losses = lesson(model, images.pad(regions), toy_texts.pad(words))
        sum(losses).backward()
        results.append([*losses, *model.buffers(), *(p.grad for p in model.parameters())])
    for plain, padded in zip(*results, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_empty_regions_and_pictures_give_numbers(
    form: str, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """A picture of zeros, and one without a region, neither of which the official norms survive."""
    features, mask = toy_images.features.clone(), toy_images.mask.clone()
    features[1], mask[2] = 0, False
    images = replace(toy_images, features=features * mask[:, :, None], mask=mask)
    model = awake(vocabulary, **FORMS[form]).train()
    ranking, caption = lesson(model, images, toy_texts)
    (ranking + caption).backward()
    assert ranking.isfinite()
    assert caption.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_reasoning_begins_as_the_identity(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    torch.manual_seed(0)
    fresh = Vsrn(replace(SMALL, norm_before="none", norm_after="none"), vocabulary)
    assert torch.equal(fresh.encode_images(toy_images).regions, fresh.regions(toy_images))


def test_the_official_norm_runs_over_the_regions(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    regions = awake(vocabulary).eval().encode_images(toy_images).regions
    torch.testing.assert_close(regions.norm(dim=1), torch.ones(4, 10))
    regions = awake(vocabulary, norm_after="regions").eval().encode_images(toy_images).regions
    torch.testing.assert_close(regions.norm(dim=2)[toy_images.mask], torch.ones(12))


def test_the_order_of_regions_matters_to_the_memory_alone(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    picture = toy_images.select([0])
    turned = replace(picture, features=picture.features.flip(1))
    for read, same in ((True, False), (False, True)):
        model = awake(vocabulary, global_reasoning=read).eval()
        one, other = model.encode_images(picture), model.encode_images(turned)
        torch.testing.assert_close(one.regions, other.regions.flip(1))
        assert one.pooled is not None
        assert other.pooled is not None
        assert torch.allclose(one.pooled, other.pooled, atol=1e-5) == same


def test_an_alignment_shows_who_took_from_whom(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model = awake(vocabulary).eval()
    images = model.encode_images(toy_images)
    found = model.align(images, model.encode_texts(toy_texts))
    assert found.region_links is not None
    assert found.region_score is not None
    assert found.region_links.shape == (4, 5, 5)
    both = toy_images.mask[:, :, None] & toy_images.mask[:, None]
    assert bool((found.region_links[both] != 0).all())
    assert bool((found.region_links[~both] == 0).all())
    assert bool((found.region_score[~toy_images.mask] == 0).all())
    assert awake(vocabulary, blocks=0).encode_images(toy_images).links is None


def test_no_weight_no_generator(vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch) -> None:
    model = awake(vocabulary, caption_weight=0.0)
    assert model.caption is None
    assert model.own_losses(model.encode_images(toy_images), toy_texts, torch.arange(4)) == {}
    whole, half = (
        lesson(awake(vocabulary, caption_weight=w).eval(), toy_images, toy_texts)[1].detach() for w in (1.0, 0.5)
    )
    torch.testing.assert_close(half, whole / 2)


@pytest.mark.parametrize("form", ["coco", "f30k"])
def test_both_lessons_are_learned(
    form: str, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    torch.manual_seed(0)
    model = Vsrn(replace(SMALL, **FORMS[form]), vocabulary).train()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    history = []
    for _ in range(60):
        losses = lesson(model, toy_images, toy_texts)
        optimiser.zero_grad()
        sum(losses).backward()
        optimiser.step()
        history.append([loss.item() for loss in losses])
    (ranking, caption), (ranking_after, caption_after) = np.mean(history[:5], axis=0), np.mean(history[-5:], axis=0)
    assert ranking_after < 0.3 * ranking
    assert caption_after < 0.5 * caption
    assert all(block.norm.weight.abs().max().item() > 0 for block in model.blocks)


def test_mixed_precision_is_near(vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch) -> None:
    model = awake(vocabulary, norm_after="regions").train()
    exact = torch.stack(lesson(model, toy_images, toy_texts))
    with torch.autocast("cpu", torch.bfloat16):
        mixed = torch.stack(lesson(model, toy_images, toy_texts))
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, exact, rtol=0.1, atol=0.1)
    mixed.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("blocks=-1", "blocks must be at least 0, not -1"),
        ("caption_length=2", "caption_length must be at least 3"),
        ("caption_weight=-0.5", "caption_weight must be at least 0"),
        ("measure=cosin", "measure"),
    ],
)
def test_bad_settings(word: str, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        override(VsrnConfig(), [word])


def test_a_memory_with_a_span_still_knows_the_first_region(vocabulary: Vocabulary) -> None:
    """How much the picture's vector owes to its first region, of 40, beside the last."""

    def share(span: int) -> float:
        torch.manual_seed(0)
        model = Vsrn(
            replace(SMALL, dim=32, memory_span=span, blocks=0, norm_before="none", norm_after="none"), vocabulary
        )
        regions = torch.randn(1, 40, 32, requires_grad=True)
        model._whole_image(regions, torch.ones(1, 40, dtype=torch.bool)).square().cumsum(dim=1).sum().backward()
        reached = regions.grad.norm(dim=2)[0]
        return float(reached[0] / reached[-1])

    assert share(0) < 1e-6
    assert share(40) > 1e-2


def test_standardised_features_have_no_common_mean(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    """A large mean that all regions share changes nothing."""
    model = awake(vocabulary, standardise=True).train()
    shifted = replace(toy_images, features=(toy_images.features + 100) * toy_images.mask[:, :, None])
    found = [model.encode_images(images).pooled for images in (toy_images, shifted)]
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


def test_a_residual_begins_as_the_mean_and_learns(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    plain = awake(vocabulary, global_reasoning=False, norm_after="none").eval()
    model = awake(vocabulary, mean_residual=True, norm_after="none").eval()
    regions = torch.randn(len(toy_images), *toy_images.mask.shape[1:], 10) * toy_images.mask[:, :, None]
    found = model._whole_image(regions, toy_images.mask)
    torch.testing.assert_close(found, plain._whole_image(regions, toy_images.mask))
    found.cumsum(dim=1).sum().backward()
    assert model.memory_share.grad.abs().min() > 0
