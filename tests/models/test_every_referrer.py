"""One sweep takes every referrer of the registry through what all referrers must do."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.batch import CandidateBatch, RegionBatch, StepBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Referrer, entries, load_model
from saccade.models.plan import ranks
from saccade.vision.boxes import corner_geometry

SMALL = {"region_dim": 12, "word_dim": 7, "text_dim": 9, "dim": 10, "attention_dim": 8, "referring_dim": 6}
TEXTS = ("a red cube", ("is it red ? no", "is it a ball ? yes", "left ? no"), ("ball",), "the small blue ball")
SWITCHES: dict[str, list[dict[str, Any]]] = {
    "plan": [
        {},
        {"levels": "image"},
        {"levels": "proposal", "end": 0},
        {"form": "reference", "end": 0, "dropout": 0.5, "feature_scale": 0.1},
        {"geometry": False, "category": False, "step": "text"},
        {"standardise": True, "step": "words"},
        {"ranks": True, "end": 3},
    ],
    "interbert_referring": [
        {
            "heads": 2,
            "image_heads": 5,
            "hidden": 16,
            "image_hidden": 12,
            "max_words": 30,
            "initial_spread": 0.2,
            "layers": 2,
            "text_layers": 0,
            "image_layers": 1,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        }
    ],
}
CASES = [
    pytest.param(entry.name, switches, id=f"{entry.name}-{'-'.join(map(str, switches.values())) or 'paper'}")
    for entry in entries()
    if issubclass(entry.model, Referrer)
    for switches in SWITCHES.get(entry.name, [{}])
]
sweep = pytest.mark.parametrize(("name", "switches"), CASES)


def build(name: str, switches: dict[str, Any], vocabulary: Vocabulary) -> Referrer:
    torch.manual_seed(1)
    model = next(e.model for e in entries() if e.name == name)
    sizes = {k: v for k, v in SMALL.items() if k in {f.name for f in fields(model.Config)}}
    built = model(model.Config(**{"categories": ("cube", "ball"), **sizes, **switches}), vocabulary, "world")
    assert isinstance(built, Referrer)
    return built


@pytest.fixture
def candidates(toy_images: RegionBatch) -> CandidateBatch:
    """Of the four pictures 2, 4, 1 and 3 boxes."""
    draw = torch.Generator().manual_seed(3)
    counts = torch.tensor([2, 4, 1, 3])
    mask = torch.arange(4) < counts[:, None]
    boxes = torch.rand(4, 4, 2, 2, generator=draw).sort(dim=2).values.flatten(2)
    features = torch.randn(4, 4, 12, generator=draw) * mask[..., None]
    return CandidateBatch(features, mask, boxes * mask[..., None], torch.randint(0, 3, (4, 4), generator=draw) * mask)


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@sweep
def test_gradients_reach_every_parameter(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, candidates: CandidateBatch
) -> None:
    model = build(name, switches, vocabulary).train()
    loss = model.loss(model(toy_images, candidates, model.read_spoken(TEXTS)), torch.tensor([1, 3, 0, 2]))
    assert loss.isfinite()
    loss.backward()  # type: ignore[no-untyped-call]
    silent = [k for k, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    if "step" in switches:  # too few steps, or words in a step, to hand a state on
        silent = [k for k in silent if "weight_hh" not in k]
    assert not set(silent) - {"candidate_map.bias"}  # b_r adds the same to all candidates: a softmax is blind to it


@sweep
def test_every_step_is_a_distribution_over_the_candidates(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, candidates: CandidateBatch
) -> None:
    model = build(name, switches, vocabulary).double().eval()
    texts = model.read_spoken(TEXTS)
    found = model(toy_images.to(dtype=torch.float64), candidates.to(dtype=torch.float64), texts)
    for logits, mask in ((found.logits, candidates.mask), (found.steps, candidates.mask[:, None])):
        chance = logits.softmax(dim=-1)
        same(chance.sum(dim=-1), torch.ones(chance.shape[:-1]).double())
        assert (chance * ~mask).abs().max() == 0
    assert found.logits[2].softmax(dim=0)[0] == 1  # one candidate alone
    for weights, mask in ((found.candidates, candidates.mask), (found.regions, toy_images.mask)):
        if weights is not None:
            same(weights.sum(dim=2), texts.steps.double())
            assert (weights * ~mask[:, None]).abs().max() == 0


@sweep
def test_padding_changes_nothing(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, candidates: CandidateBatch
) -> None:
    """Neither padding regions, candidates, steps or words, nor the other texts of a batch."""
    model = build(name, switches, vocabulary).double().eval()
    images, boxes, texts = (
        toy_images.to(dtype=torch.float64),
        candidates.to(dtype=torch.float64),
        model.read_spoken(TEXTS),
    )
    plain = model(images, boxes, texts).logits
    more = texts.resize(step=texts.tokens.shape[1] + 3, word=texts.tokens.shape[2] + 2)
    same(model(images.pad(7), boxes.resize(candidate=9), more).logits[:, :4], plain)
    for i in range(4):
        alone = model(images.select([i]), boxes.select([i]), texts.select([i]).trimmed())
        same(alone.logits[0], plain[i])


@sweep
def test_it_is_saved_loaded_and_copied(
    name: str,
    switches: dict[str, Any],
    vocabulary: Vocabulary,
    toy_images: RegionBatch,
    candidates: CandidateBatch,
    tmp_path: Path,
) -> None:
    model = build(name, switches, vocabulary).eval()
    model.save_pretrained(tmp_path / "model")
    wanted = model(toy_images, candidates, model.read_spoken(TEXTS)).logits
    for other in (load_model(tmp_path / "model", Referrer), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other(toy_images, candidates, other.read_spoken(TEXTS)).logits, wanted)


def test_steps_are_words_of_an_expression_and_turns_of_a_dialog(vocabulary: Vocabulary) -> None:
    def shown(**switches: Any) -> StepBatch:
        return build("plan", switches, vocabulary).read_spoken(TEXTS)

    assert shown().shown[0] == ("a", "red", "cube", ".")
    assert shown().shown[1] == (*TEXTS[1], ".")
    assert shown().mask[1].sum(dim=1).tolist() == [5, 6, 3, 1, 0]
    assert shown(step="text", end=0).shown[1] == (" ".join(TEXTS[1]),)
    assert len(shown(step="words", end=0).shown[1]) == 14


def test_a_text_is_read_to_its_end_before_the_last_attention(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    """Attention comes before its step is read: with the last step <end>, the last word can move it."""
    boxes = CandidateBatch(toy_images.features, toy_images.mask, toy_images.boxes, toy_images.mask.long()).select(
        [0, 0]
    )
    texts = ["a red cube", "a red ball"]
    for end, moved in ((1, True), (0, False)):
        model = build("plan", {"end": end}, vocabulary).double().eval()
        found = model(
            toy_images.select([0, 0]).to(dtype=torch.float64), boxes.to(dtype=torch.float64), model.read_spoken(texts)
        )
        assert found.candidates is not None
        assert bool((found.candidates[0, -1] - found.candidates[1, -1]).abs().max() > 1e-9) == moved


def test_where_a_box_lies_is_said_from_minus_one_to_one() -> None:
    found = corner_geometry(torch.tensor([[0.0, 0.25, 1.0, 0.75], [0.5, 0.0, 0.75, 1.0]]))
    assert found.tolist() == [[-1, -0.5, 1, 0.5, 0, 0, 1, 0], [0, -1, 0.5, 1, 0.25, 0, -0.5, 1]]


def test_ranks_count_candidates_on_both_sides() -> None:
    """All of them, and those of one category; boxes of which no category is known are of none."""
    boxes = torch.tensor([[[0.0, 0, 0.2, 1], [0.6, 0, 0.8, 1], [0.3, 0, 0.5, 1], [0.1, 0, 0.1, 1]]])
    mask, categories = torch.tensor([[True, True, True, False]]), torch.tensor([[1, 1, 2, 1]])
    three = CandidateBatch(torch.zeros(1, 4, 12), mask, boxes, categories)

    def counts(given: CandidateBatch) -> list[list[int]]:
        found: list[list[int]] = ranks(given).view(4, 4, 5).argmax(dim=2).tolist()
        return found[:3]

    assert counts(three) == [[0, 2, 0, 1], [2, 0, 1, 0], [1, 1, 0, 0]]
    assert counts(replace(three, categories=0 * categories)) == [[0, 2, 0, 0], [2, 0, 0, 0], [1, 1, 0, 0]]


def test_the_released_form_has_both_levels(vocabulary: Vocabulary) -> None:
    with pytest.raises(SaccadeError, match=r"model\.levels must be both"):
        build("plan", {"form": "reference", "levels": "image"}, vocabulary)
