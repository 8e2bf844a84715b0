"""One sweep takes every click predictor of the registry through what all of them must do."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.batch import ClickBatch, ItemBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import ClickPredictor, Marn, MarnConfig, entries, load_model
from saccade.models.marn import Discriminator

SIZES: dict[str, Any] = {
    "id_fields": ("item", "brand"), "id_counts": (5, 2), "id_dim": 3, "image_dim": 12, "word_dim": 5, "title_dim": 6,
    "statistics": ("price", "clicks"), "buckets": 4, "statistic_dim": 2, "behaviours": ("view", "buy"),
    "property_dim": 2, "dim": 8, "common_dim": 7, "attention_dim": 6, "state_dim": 5, "hidden_dim": 9,
}  # fmt: skip
PLAIN: dict[str, Any] = {"discriminators": 0, "specific": False}
SWITCHES: dict[str, list[dict[str, Any]]] = {
    "marn": [
        {},
        {"discriminators": 1, "invariant": "sum", "common": "pad"},
        {
            "adversary": "pairwise",
            "normalise_weights": True,
            "standardise": True,
            "unit_parts": True,
            "gate_start": 1.0,
        },
        {"specific": False, "sequence": "agru", "reset": "before", "use_properties": False},
        {"discriminators": 0, "sequence": "aigru", "attention_normaliser": "sigmoid"},
        {**PLAIN, "invariant": "none", "sequence": "gru", "reset": "before"},
        {**PLAIN, "invariant": "none", "fusion": "concat", "sequence": "din", "attention_normaliser": "none"},
        {**PLAIN, "fusion": "sum", "attention_inputs": "product_difference"},
        {"modalities": ("image", "title"), "adversary_moves": "projections"},
    ]
}
CASES = [
    pytest.param(entry.name, switches, id=f"{entry.name}-{'-'.join(map(str, switches.values())) or 'paper'}")
    for entry in entries()
    if issubclass(entry.model, ClickPredictor)
    for switches in SWITCHES.get(entry.name, [{}])
]
sweep = pytest.mark.parametrize(("name", "switches"), CASES)


def build(name: str, switches: dict[str, Any], vocabulary: Vocabulary) -> ClickPredictor:
    torch.manual_seed(1)
    model = next(e.model for e in entries() if e.name == name)
    built = model(model.Config(**{**SIZES, **switches}), vocabulary, "world")
    assert isinstance(built, ClickPredictor)
    built.embed.learn(
        {0: torch.tensor([3, 7, 20, 21, 90]), 1: torch.tensor([5, 6])},
        torch.tensor([[1.0, 2, 3], [10, 20, 30]]),
        torch.linspace(-1, 1, 12),
        torch.linspace(1, 2, 12),
    )
    return built


@pytest.fixture
def impressions() -> ClickBatch:
    """Four users who did 3, 1, 0 and 4 things with six items; the last has no picture, the third no known brand."""
    draw = torch.Generator().manual_seed(2)
    image = torch.randn(6, 12, generator=draw, dtype=torch.float64)
    image[5] = 0
    tokens = torch.tensor([[4, 5, 6], [7, 4, 0], [5, 0, 0], [0, 0, 0], [6, 7, 8], [9, 5, 4]])
    numbers = torch.tensor([[0.5, 15], [2.5, 35], [9, torch.nan], [1, 5], [2, 20], [torch.nan, 11]])
    ids = torch.tensor([[3, 5], [7, 6], [20, 99], [21, 5], [90, 6], [4, 5]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()
    history = torch.tensor([[1, 2, 3, 0], [5, 0, 0, 0], [0, 0, 0, 0], [4, 1, 5, 2]])
    candidate = torch.tensor([0, 4, 2, 3])
    counts = torch.bincount(torch.cat([candidate, history[mask]]), minlength=6).double()
    return ClickBatch(
        candidate, history, mask, torch.tensor([1, 2, 0, 1])[:, None] * mask,
        torch.tensor([30.0, 100, torch.nan, 1e7])[None].expand(4, -1), torch.tensor([1.0, 0, 0, 1]),
        torch.arange(6), counts, ItemBatch(ids, image, tokens, numbers),
    )  # fmt: skip


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@sweep
def test_gradients_reach_every_parameter(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, impressions: ClickBatch
) -> None:
    model = build(name, switches, vocabulary).double().train()
    losses = model.losses(impressions)
    assert all(loss.isfinite() for loss in losses.values())
    torch.stack([*losses.values()]).sum().backward()  # type: ignore[no-untyped-call]
    silent = {k for k, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    unused = {"gru": {"behaviours.attend.", "behaviours.weigh."}}.get(switches.get("sequence", ""), set())
    if not switches.get("use_properties", True):
        unused |= {"properties."}
    if "modalities" in switches:
        unused |= {"embed.ids.", "embed.statistics."}
    left = {k for k in silent if not any(k.startswith(part) for part in unused)}
    assert left <= {"behaviours.weigh.bias"}  # a softmax is blind to it


@sweep
def test_padding_changes_nothing(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, impressions: ClickBatch
) -> None:
    """Neither padding behaviours, words or items, nor the order of the items, nor the other impressions."""
    model = build(name, switches, vocabulary).double().eval()
    plain, losses = model(impressions), model.losses(impressions)
    assert impressions.items is not None
    order = torch.tensor([2, 0, 5, 1, 4, 3])
    place = order.argsort()
    turned = replace(
        impressions.resize(behaviour=7),
        candidate=place[impressions.candidate],
        history=place[impressions.resize(behaviour=7).history],
        items=impressions.items.resize(word=6).select([*order.tolist(), 0, 0]),
        counts=torch.cat([impressions.counts[order], torch.zeros(2).double()]),
    )
    same(model(turned), plain)
    for loss, other in zip(losses.values(), model.losses(turned).values(), strict=True):
        same(loss, other)
    alone = replace(
        impressions,
        **{k: getattr(impressions, k)[1:2] for k in ("candidate", "history", "mask", "kinds", "ages", "clicked")},
    )
    same(model(alone), plain[1:2])


@sweep
def test_reasons_say_what_a_prediction_rests_on(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, impressions: ClickBatch
) -> None:
    model = build(name, switches, vocabulary).double().eval()
    found = model.reasons(impressions)
    same(found.logits, model(impressions))
    modalities = len(model.config.modalities)
    assert found.effects.shape == found.gates.shape == (4, modalities)
    assert (found.attention * ~impressions.mask).abs().max() == 0
    if switches.get("fusion") != "concat":
        same(found.parts.sum(dim=1), torch.ones(4).double())
    if switches.get("attention_normaliser", "softmax") == "softmax":
        same(found.attention.sum(dim=1), torch.tensor([1.0, 1, 0, 1]).double())


@sweep
def test_it_is_saved_loaded_and_copied(
    name: str, switches: dict[str, Any], vocabulary: Vocabulary, impressions: ClickBatch, tmp_path: Path
) -> None:
    model, batch = build(name, switches, vocabulary).eval(), impressions.to(dtype=torch.float32)
    model.save_pretrained(tmp_path / "model")
    wanted = model(batch)
    for other in (
        load_model(tmp_path / "model", ClickPredictor),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
    ):
        torch.testing.assert_close(other(batch), wanted)


def test_an_unknown_id_is_one_of_many_and_a_known_one_is_itself(
    vocabulary: Vocabulary, impressions: ClickBatch
) -> None:
    model = build("marn", {}, vocabulary)
    assert impressions.items is not None
    items = impressions.items
    found = model.embed.embed_ids(items)
    tables = model.embed.ids
    torch.testing.assert_close(found[4], torch.cat([tables[0].weight[5], tables[1].weight[2]]))  # type: ignore[index,union-attr]
    torch.testing.assert_close(found[2], torch.cat([tables[0].weight[3], tables[1].weight[0]]))  # type: ignore[index,union-attr]


def test_statistics_are_cut_at_the_edges(vocabulary: Vocabulary, impressions: ClickBatch) -> None:
    model = build("marn", {}, vocabulary)
    assert impressions.items is not None
    found = model.embed.embed_statistics(impressions.items)
    price: Any = model.embed.statistics[0]
    rows = [(price.weight == own).all(dim=1).nonzero().item() for own in found[:, :2]]
    assert rows == [1, 3, 4, 2, 3, 0]  # 0.5, 2.5, 9, 1 (an edge belongs to the bucket above it), 2, unknown


def test_the_adversaries_move_what_they_are_to_move(vocabulary: Vocabulary, impressions: ClickBatch) -> None:
    """L_D0 moves D₀ alone; L_D1 moves I against D₁; L_Ds moves S with D₁."""
    model = build("marn", {"adversarial_weight": 1.0}, vocabulary).double()

    def moved(loss: str, reversal: float = 1.0) -> dict[str, Tensor]:
        assert isinstance(model, Marn)
        model.discriminators.config = replace(model.config, reversal=reversal)
        model.zero_grad()
        model.losses(impressions)[loss].backward()
        return {k: p.grad.clone() for k, p in model.named_parameters() if p.grad is not None and p.grad.any()}

    assert set(moved("d0")) == {"discriminators.first.guess.weight", "discriminators.first.guess.bias"}
    once, twice = moved("d1"), moved("d1", 2.0)
    assert not any(name.startswith(("fusion.specific", "fusion.gates", "discriminators.first")) for name in once)
    same(2 * once["fusion.invariant.weight"], twice["fusion.invariant.weight"])
    same(once["discriminators.second.guess.weight"], twice["discriminators.second.guess.weight"])
    assert not any(name.startswith(("fusion.invariant", "discriminators.first")) for name in moved("ds"))


@pytest.mark.parametrize("moves", ["all", "projections"])
def test_discriminators_may_move_the_projections_alone(
    moves: str, vocabulary: Vocabulary, impressions: ClickBatch
) -> None:
    model = build("marn", {"adversary_moves": moves}, vocabulary).double()
    assert isinstance(model, Marn)
    losses = model.losses(impressions)
    (losses["d1"] + losses["ds"]).backward()
    assert model.fusion.invariant is not None
    assert model.fusion.common is not None
    for layer in (model.fusion.invariant, *model.fusion.specific):
        assert layer.weight.grad.abs().max() > 0
    before = [weight.grad for part in (model.fusion.common, model.embed) for weight in part.parameters()]
    assert any(grad is not None and grad.abs().max() > 0 for grad in before) == (moves == "all")


def test_one_against_one_is_a_guess_for_every_two() -> None:
    guess = Discriminator(3, 3, "pairwise").double()
    parts = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = guess.guess(parts)  # pairs 01, 02, 12
    own = guess.own_log(parts)
    same(own[:, 0, 1], logits[:, 0, 1].sigmoid().log())
    same(own[:, 1, 0], (-logits[:, 1, 0]).sigmoid().log())
    same(own[:, 2, 1], (-logits[:, 2, 2]).sigmoid().log())


def test_what_goes_together_is_told() -> None:
    for wrong, text in (
        ({"modalities": ("title",)}, "nobody to be told from"),
        ({"fusion": "concat"}, "no specific and invariant parts"),
        ({"invariant": "none"}, "leaves nothing to the adversaries"),
        ({"modalities": ("title", "title")}, "each once"),
    ):
        with pytest.raises(SaccadeError, match=text):
            MarnConfig(**wrong)  # type: ignore[arg-type]
