"""Half-spaces: volumes exact whatever the vectors, their derivatives, the release's grid, and what concepts learn."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Nscl, NsclConfig, Vcml, VcmlConfig
from saccade.models.base.concepts import METACONCEPTS
from saccade.nn.halfspaces import LARGEST, LnVolumes, Volumes, lengths_and_gap, logit_of_ln, volumes

# a, b, c; ln Pr(x, y), ln Pr(x, not y), by quadrature with 30 digits
KNOWN = [
    (0.5, 1.5, 0.3, -3.3339154560583415, -1.2987073612477877),
    (1.0, 1.0, 0.999999, -1.8418824808584708, -8.899058755097144),
    (2.0, 0.5, -0.8, -13.279897559621729, -3.783259434757739),
    (4.0, 4.0, -0.9, -168.39470579632317, -10.360101486527292),
    (0.001, 2.0, 0.5, -3.8766808409130853, -0.736301945225664),
    (1.2, 1.2000001, 0.9999, -2.1717841625610497, -6.8164685267273315),
    (3.0, 2.9, 0.0, -12.891784456457769, -6.609593777608531),
    (0.02, 0.03, -0.99, -4.272802379054899, -0.7379792243088178),
]
WORDS = ("red", "green", "cube", "ball")


def vcml(**settings: Any) -> Vcml:
    torch.manual_seed(1)
    config = VcmlConfig(WORDS, (("colour", "red", "green"),), region_dim=5, dim=6, hidden=7, **settings)
    return Vcml(config, Vocabulary.build(WORDS, min_count=1)).double()


def of(x: list[float], y: list[float], method: Any = "exact") -> Volumes:
    return volumes(*lengths_and_gap(torch.tensor([x]), torch.tensor([y])), method)


def test_volumes_are_exact_however_small_or_near_to_parallel() -> None:
    a, b, c, both, only = torch.tensor(KNOWN, dtype=torch.float64).T
    found = LnVolumes.apply(a, b, 1 - c)
    torch.testing.assert_close(found[0], both, rtol=1e-10, atol=1e-9)
    torch.testing.assert_close(found[1], only, rtol=1e-10, atol=1e-7)
    swapped = LnVolumes.apply(b, a, 1 - c)
    torch.testing.assert_close(swapped[0], both, rtol=1e-10, atol=1e-9)
    torch.testing.assert_close(swapped[2], only, rtol=1e-10, atol=1e-7)


def test_derivatives_are_those_of_the_volumes() -> None:
    torch.manual_seed(0)
    a, b = (0.1 + 3 * torch.rand(30, dtype=torch.float64) for _ in range(2))
    gap = 0.05 + 1.9 * torch.rand(30, dtype=torch.float64)
    assert torch.autograd.gradcheck(LnVolumes.apply, [v.requires_grad_() for v in (a, b, gap)], atol=1e-5)


def test_parallel_opposite_and_right_angles_are_known_in_closed_form() -> None:
    within = of([2.0, 0.0], [1.0, 0.0])
    alone = torch.special.ndtr(torch.tensor([-2.0, -1.0], dtype=torch.float64))
    torch.testing.assert_close(within.both.exp(), alone[:1])
    assert within.y_given_x.tolist() == [LARGEST]
    torch.testing.assert_close(within.x_given_y.sigmoid(), alone[:1] / alone[1:])
    assert of([2.0, 0.0], [-1.0, 0.0]).y_given_x.tolist() == [-LARGEST]
    across = of([2.0, 0.0], [0.0, 1.0])
    torch.testing.assert_close(across.both.exp(), alone.prod()[None])
    torch.testing.assert_close(across.ratio, torch.zeros(1, dtype=torch.float64), rtol=0, atol=1e-10)


def test_long_vectors_have_volumes_too() -> None:
    """Beyond ‖x‖ almost all of V(x) lies at its nearest point, 37.3 x̂: within V(y), or at this depth outside it."""
    a, b = torch.tensor([37.3, 37.3], dtype=torch.float64), torch.tensor([1.6, 5.0], dtype=torch.float64)
    gap = torch.tensor([0.9, 0.9], dtype=torch.float64)
    found = LnVolumes.apply(a, b, gap)
    u = a[:, None] + torch.linspace(0, 1, 100_001, dtype=torch.float64)
    inner = torch.special.log_ndtr((0.1 * u - b[:, None]) / math.sqrt(0.99))
    wanted = torch.logsumexp(-u * u / 2 + inner, dim=1) - math.log(2 * math.pi) / 2 + math.log(1e-5)
    torch.testing.assert_close(found[0], wanted, rtol=0, atol=2e-3)


@pytest.mark.parametrize("x", [[0.0, 0.0], [1e-9, 0.0], [30.0, 1.0], [1.0, 1e-9], [37.3, 300.0]])
@pytest.mark.parametrize("y", [[1.0, 0.0], [-1.0, 0.0], [0.0, 25.0]])
def test_nothing_but_numbers_comes_of_extreme_vectors(x: list[float], y: list[float]) -> None:
    vectors = [torch.tensor([v], requires_grad=True) for v in (x, y)]
    found = volumes(*lengths_and_gap(*vectors))
    (found.y_given_x + found.x_given_y + found.ratio.clamp(-9, 9)).sum().backward()
    assert all(v.grad is not None and v.grad.isfinite().all() for v in vectors)
    assert all(value.isfinite().all() for value in vars(found).values())


def test_the_grid_is_near_and_coarser_where_it_has_fewer_points() -> None:
    torch.manual_seed(0)
    given = lengths_and_gap(torch.randn(20, 3), torch.randn(20, 3))
    exact = volumes(*given).y_given_x
    fine, coarse = (volumes(*given, "grid", (points, 400.0)).y_given_x for points in (100_000, 10_000))
    near, far = ((found - exact).abs()[exact > -6] for found in (fine, coarse))
    assert 1e-5 < near.max() < 0.015
    assert near.mean() < far.mean() < 0.2


def test_the_release_keeps_the_largest_logit_where_concepts_go_together() -> None:
    x = torch.tensor([-1.0, 0.0, 0.4], dtype=torch.float64, requires_grad=True)
    logits = logit_of_ln(x)
    torch.testing.assert_close(logits[0], torch.tensor(math.e, dtype=torch.float64).sub(1).log().neg())
    assert logits[1:].tolist() == [LARGEST] * 2
    (3 * logits).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad[1:].tolist() == [1, 1]


@pytest.mark.parametrize("net", ["separate", "shared"])
def test_metaconcepts_read_three_numbers_of_a_pair_in_their_order(net: str) -> None:
    model = vcml(metaconcept_net=net)
    first, second = torch.tensor([0, 2]), torch.tensor([1, 3])
    paper = model.metaconcept_inputs(first, second)
    vectors = model.concept_vectors.weight
    found = volumes(*lengths_and_gap(vectors[first], vectors[second]))
    torch.testing.assert_close(paper, torch.stack([found.x_given_y, found.y_given_x, found.ratio], dim=1))
    release = vcml(metaconcept_net=net, input_order="release").metaconcept_inputs(first, second)
    torch.testing.assert_close(release, paper[:, [1, 0, 2]])
    logits = model.metaconcepts(first, second)
    assert logits.shape == (2, len(METACONCEPTS))
    for place, kind in enumerate(METACONCEPTS):
        torch.testing.assert_close(model.metaconcept(kind, "cube", "ball"), logits[1, place])


def test_probabilities_are_those_of_a_concept_given_another() -> None:
    model = vcml()
    table = model.probabilities()
    assert table.shape == (4, 4)
    torch.testing.assert_close(table.diagonal(), torch.ones(4, dtype=torch.float64))
    alone = torch.special.ndtr(-model.concept_vectors.weight.norm(dim=1))
    torch.testing.assert_close(table * alone, (table * alone).T)  # Pr(a | b) Pr(b) = Pr(b | a) Pr(a)


def test_half_spaces_learn_from_metaconcepts_alone() -> None:
    """Same kind: red and green, cube and ball, and no other pair."""
    model = vcml()
    pairs = torch.combinations(torch.arange(4))
    wanted = torch.tensor([1.0, 0, 0, 0, 0, 1.0], dtype=torch.float64)
    place = METACONCEPTS.index("same_kind")
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(50):
        logits = model.metaconcepts(pairs[:, 0], pairs[:, 1])[:, place]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.1


def test_what_is_unknown_is_refused() -> None:
    model = vcml()
    with pytest.raises(SaccadeError, match='there is no metaconcept "antonym"'):
        model.metaconcept("antonym", "red", "green")
    with pytest.raises(SaccadeError, match='"blue" is none of the concepts'):
        model.metaconcept("synonym", "red", "blue")
    with pytest.raises(SaccadeError, match='"blue" is a value of colour and no concept'):
        VcmlConfig(WORDS, (("colour", "blue"),))
    for settings, sentence in (({"grid_points": 1}, "grid_points"), ({"object_penalty": -1.0}, "object_penalty")):
        with pytest.raises(SaccadeError, match=sentence):
            VcmlConfig(**settings)  # type: ignore[arg-type]
    other = Nscl(NsclConfig(WORDS), Vocabulary.build(WORDS, min_count=1))
    for ask in (other.probabilities, lambda: other.metaconcept("synonym", "red", "green")):
        with pytest.raises(SaccadeError, match=r"nscl .* vcml"):
            ask()


def test_the_penalty_of_objects_adds_up_those_of_a_picture() -> None:
    model = vcml(object_penalty=0.1)
    mask = torch.tensor([[True] * 3, [True, False, False]])
    regions = RegionBatch(torch.randn(2, 3, 5).double(), mask, torch.rand(2, 3, 4).double())
    scene = model.encode_scene(regions)
    each = [scene.objects[n][mask[n]].square().sum() for n in range(2)]
    torch.testing.assert_close(model.own_losses(scene)["object_penalty"], 0.1 * torch.stack(each).mean())
    assert "object_penalty" not in model.own_losses(None)
