"""One sweep takes every concept learner of the registry through what all must do."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade.batch import Program, RegionBatch, Step
from saccade.language import Vocabulary
from saccade.models import ConceptLearner, entries, load_model
from saccade.models.base.concepts import METACONCEPTS

SMALL: dict[str, Any] = {
    "concepts": ("red", "green", "cube", "toy"),
    "attributes": (("colour", "red", "green"), ("kind", "cube")),
    "relations": ("left of", "on"),
    "region_dim": 12,
    "dim": 6,
}
SWITCHES: dict[str, list[dict[str, Any]]] = {
    "vcml": [
        {},
        {"metaconcept_net": "shared", "third_input": "logit", "input_order": "release", "hidden": 0},
        {"volume": "grid", "grid_points": 10_000, "metaconcept_hidden": 0},
        {"metaconcept_penalty": 0.1, "object_penalty": 0.001},
    ],
    "nscl": [{}, {"belonging": "learned", "relation_kinds": 2}],
}
CASES = [
    pytest.param(entry.name, switches, id=f"{entry.name}-{'-'.join(map(str, switches.values())) or 'paper'}")
    for entry in entries()
    if issubclass(entry.model, ConceptLearner)
    for switches in SWITCHES[entry.name]
]
CUBES = (Step("scene"), Step("filter", (0,), "cube"))
PROGRAMS: list[Program] = [
    (*CUBES, Step("exist", (1,))),
    (*CUBES, Step("relate", (1,), "on"), Step("filter", (2,), "red"), Step("count", (3,))),
    (*CUBES, Step("same", (1,), "colour"), Step("filter", (2,), "toy"), Step("query", (3,), "colour")),
    (*CUBES, Step("scene"), Step("filter", (2,), "green"), Step("more", (1, 3))),
]
ANSWERS = ["yes", "1", "green", "no"]


def build(name: str, switches: dict[str, Any], vocabulary: Vocabulary) -> ConceptLearner:
    torch.manual_seed(1)
    model = next(e.model for e in entries() if e.name == name)
    built = model(replace(model.Config(), **{**SMALL, **switches}), vocabulary, "world")
    assert isinstance(built, ConceptLearner)
    return built


def test_every_registered_concept_learner_is_swept() -> None:
    assert {e.name for e in entries() if issubclass(e.model, ConceptLearner)} == set(SWITCHES)


@pytest.mark.parametrize(("name", "switches"), CASES)
class TestEveryConceptLearner:
    def test_gradients_of_answers_reach_every_parameter_that_learns(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch
    ) -> None:
        model = build(name, switches, vocabulary).train()
        scene = model.encode_scene(toy_images)
        execution = model.execute(scene, PROGRAMS)
        losses = [execution.losses(ANSWERS).sum(), *model.own_losses(scene).values()]
        if name == "vcml":
            pairs = torch.combinations(torch.arange(4))
            losses.append(model.metaconcepts(pairs[:, 0], pairs[:, 1]).square().sum())
        loss = torch.stack(losses).sum()
        assert loss.isfinite()
        loss.backward()
        silent = [
            k for k, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.abs().sum() > 0)
        ]
        assert not silent

    @pytest.mark.parametrize("training", [True, False])
    def test_padding_and_other_pictures_never_change_an_answer(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, training: bool
    ) -> None:
        model = build(name, switches, vocabulary).double().train(training)
        images = toy_images.to(dtype=torch.float64)
        whole, padded = model.execute(images, PROGRAMS), model.execute(images.pad(7), PROGRAMS)
        torch.testing.assert_close(padded.values, whole.values, rtol=0, atol=1e-9)
        torch.testing.assert_close(padded.concepts, whole.concepts, rtol=0, atol=1e-9)
        for n, program in enumerate(PROGRAMS):
            alone = model.execute(images.select([n]), [program])
            torch.testing.assert_close(alone.values[0], whole.values[n], rtol=0, atol=1e-6)
            torch.testing.assert_close(alone.concepts[0], whole.concepts[n], rtol=0, atol=1e-6)

    def test_saved_and_loaded_it_answers_the_same(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch, tmp_path: Path
    ) -> None:
        model = build(name, switches, vocabulary).eval()
        model.save_pretrained(tmp_path / "model")
        loaded = load_model(tmp_path / "model", ConceptLearner)
        assert loaded.config == model.config
        wanted = model.execute(toy_images, PROGRAMS)
        for other in (loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            found = other.execute(toy_images, PROGRAMS)
            assert torch.equal(found.values, wanted.values)
            assert torch.equal(found.concepts, wanted.concepts)
        if name == "vcml":
            assert torch.equal(loaded.probabilities(), model.probabilities())
            assert loaded.metaconcept(METACONCEPTS[0], "red", "toy") == model.metaconcept("synonym", "red", "toy")

    def test_mixed_precision_changes_little(
        self, name: str, switches: dict[str, Any], vocabulary: Vocabulary, toy_images: RegionBatch
    ) -> None:
        model = build(name, switches, vocabulary).train()
        wanted = model.execute(toy_images, PROGRAMS)
        with torch.autocast("cpu", torch.bfloat16):
            found = model.execute(toy_images, PROGRAMS)
        assert found.values.dtype == torch.float32
        torch.testing.assert_close(found.values, wanted.values, rtol=0.1, atol=0.2)
