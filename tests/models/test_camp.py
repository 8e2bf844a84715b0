"""CAMP from its equations: one pair at a time, with every message written out, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from saccade.batch import RegionBatch, TextBatch
from saccade.core.config import from_dict
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Camp, CampConfig

VARIANTS: dict[str, dict[str, Any]] = {
    "gate_fusion_new": {},
    "cross_attention_new": {"fusion": False, "heads": 0, "text_length": 50},
    "gate_fusion": {"rounds": 1},
    "cross_attention": {"rounds": 1, "fusion": False},
    "no gate": {"gate": False},
    "cosine": {"score": "cosine"},
    "old, cosine": {"rounds": 1, "score": "cosine"},
    "mean of words": {"fusion": False, "heads": 0},
    "old, mean, no gate": {"rounds": 1, "heads": 0, "gate": False},
}


def camp(vocabulary: Vocabulary, **settings: Any) -> Camp:
    torch.manual_seed(3)
    model = Camp(CampConfig(region_dim=12, word_dim=7, dim=10, **settings), vocabulary).double().eval()
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn_like(weight)  # attention that chooses, gates that differ
    return model


def attend(queries: Tensor, keys: Tensor, values: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(Q Kᵀ / √D) X, the keys that are not real left out."""
    scores = queries @ keys.T / keys.shape[1] ** 0.5
    weights = scores.masked_fill(~real, -1e9).softmax(dim=1)
    return weights @ values, weights


def pooled(model: Camp, side: str, vectors: Tensor, real: Tensor) -> Tensor:
    if not model.config.heads:
        return vectors[real].mean(dim=0)
    pool = model.pool[side]
    weights = (pool.heads(pool.hidden(vectors).relu())).masked_fill(~real[:, None], -1e9).softmax(dim=0)  # [part, head]
    return (weights.T @ vectors).mean(dim=0)


def one_side(model: Camp, side: str, own: Tensor, other: Tensor, own_real: Tensor, real: Tensor) -> dict[str, Tensor]:
    """The messages to one side, the gates, what it becomes."""
    config, theirs = model.config, "words" if side == "regions" else "regions"
    look = {name.removeprefix(f"{side}_"): layer for name, layer in model.look.items() if name.startswith(side)}
    sent = {name.removeprefix(f"{theirs}_"): layer for name, layer in model.look.items() if name.startswith(theirs)}
    if config.rounds == 1:
        messages, looked = attend(look["query"](own), sent["query"](other), other, real)
    else:
        first, looked = attend(look["query"](own), sent["key"](other), other, real)
        messages, _ = attend(sent["query_again"](first), sent["key_again"](first), first, own_real)
    if not config.fusion:
        everywhere = torch.ones_like(own_real) if config.text_length and not config.heads else own_real
        return {"looked": looked, "pooled": pooled(model, side, messages, everywhere)}
    if config.rounds == 2:
        messages = messages / messages.norm(dim=1, keepdim=True)
    gate = (own * messages).sum(dim=1, keepdim=True).sigmoid() if config.gate else torch.ones(len(own), 1)
    become = model.fuse[side](gate * torch.cat([own, messages], dim=1)).relu() + own
    return {"looked": looked, "gate": gate[:, 0], "pooled": pooled(model, side, become, own_real)}


def one_pair(model: Camp, regions: Tensor, words: Tensor) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    length = max(model.config.text_length, len(words))
    places = torch.cat([words, words.new_zeros(length - len(words), words.shape[1])])
    there, real = torch.ones(len(regions), dtype=torch.bool), torch.arange(length) < len(words)
    seen = one_side(model, "regions", regions, places, there, real)
    read = one_side(model, "words", places, regions, real, there)
    one, other = seen["pooled"], read["pooled"]
    judged = model.config.fusion and model.config.score == "probability"
    if model.config.rounds == 2 or not judged:
        one, other = one / one.norm(), other / other.norm()
    score = model.judge(torch.cat([one, other])).sigmoid()[0] if judged else one @ other
    return score, seen, read


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("budget_mb", [0, 256])
def test_all_pairs_are_what_the_equations_say_of_each(
    variant: str, budget_mb: int, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model = camp(vocabulary, **VARIANTS[variant], budget_mb=budget_mb)
    images, texts = model.encode_images(toy_images.to(dtype=torch.float64)), model.encode_texts(toy_texts)
    table = model.similarity(images, texts)
    codes = [
        [vectors[real] for vectors, real in zip(*side, strict=True)]
        for side in ((images.regions, images.mask), (texts.words, texts.mask))
    ]
    expected = torch.stack([torch.stack([one_pair(model, r, w)[0] for w in codes[1]]) for r in codes[0]])
    torch.testing.assert_close(table, expected)
    weights = list(model.parameters())
    wanted = torch.autograd.grad(expected.sin().sum(), weights, retain_graph=True)
    given = torch.autograd.grad(table.sin().sum(), weights)
    for name, one, other in zip(dict(model.named_parameters()), given, wanted, strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


def test_an_alignment_shows_the_first_look_and_the_gates(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    model = camp(vocabulary)
    images, texts = model.encode_images(toy_images.to(dtype=torch.float64)), model.encode_texts(toy_texts)
    found = model.align(images, texts)
    assert found.word_gate is not None
    assert found.region_gate is not None
    assert found.word_score is not None
    for p in range(4):
        regions, words = images.regions[p][images.mask[p]], texts.words[p][texts.mask[p]]
        score, seen, read = one_pair(model, regions, words)
        torch.testing.assert_close(found.score[p], score)
        torch.testing.assert_close(found.weights[p, : len(words), : len(regions)], read["looked"])
        torch.testing.assert_close(found.word_gate[p, : len(words)], read["gate"])
        torch.testing.assert_close(found.region_gate[p, : len(regions)], seen["gate"])
        assert (found.word_score.abs() <= 1).all()
        assert not found.word_gate[p, len(words) :].any()
    for ungated in ({"gate": False}, {"fusion": False}):
        other = camp(vocabulary, **ungated).align(images, texts)
        assert other.word_gate is None
        assert other.region_gate is None


def test_what_is_trained_first_can_be_trained_along(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """The own loss is the pre-training model's ranking loss over all negatives, a caption's share of it."""
    from saccade.nn import triplet_loss

    model = camp(vocabulary, message_loss=0.5)
    first = Camp(replace(model.config, fusion=False, heads=0), vocabulary).double()
    first.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith(("fuse", "pool", "judge"))})
    images = toy_images.to(dtype=torch.float64)
    losses = model.own_losses(model.encode_images(images), toy_texts, torch.arange(4))
    expected = 0.5 * triplet_loss(first(images, toy_texts), negatives="all") / 4
    torch.testing.assert_close(losses, {"message_loss": expected})
    assert camp(vocabulary).own_losses(model.encode_images(images), toy_texts, torch.arange(4)) == {}


def test_mixed_precision_keeps_scores_in_float32(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    for settings in VARIANTS.values():
        model = camp(vocabulary, **settings).float()
        plain = model(toy_images, toy_texts)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = model(toy_images, toy_texts)
        assert mixed.dtype == torch.float32
        assert (mixed - plain).abs().max() < 0.05


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"rounds": 3}, "rounds must be one of 1, 2"), ({"heads": -1}, "heads must be zero or more")],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        from_dict(CampConfig, settings)


@pytest.mark.parametrize("rounds", [1, 2])
def test_keys_fusion_and_judge_begin_as_released(vocabulary: Vocabulary, rounds: Literal[1, 2]) -> None:
    """With PyTorch's own start all pairs have nearly one score, from which cross-entropy finds no way."""
    torch.manual_seed(0)
    model = Camp(CampConfig(region_dim=16, word_dim=12, dim=64, rounds=rounds), vocabulary)
    keys = [model.look[f"{side}_{'key' if rounds == 2 else 'query'}"] for side in ("regions", "words")]
    for layer in (*keys, *model.fuse.values(), model.judge[0], model.judge[2]):
        assert float(layer.weight.abs().max()) == pytest.approx((3 / 64) ** 0.5, rel=0.1)
        assert layer.bias is None or not layer.bias.any()
    if rounds == 2:
        assert float(model.look["regions_query"].weight.abs().max()) < 0.13  # PyTorch's: ±1 / √dim
