"""Analogy: transfer as a plain loop has it under every switch, sources, losses of both stages, wrong settings."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL
from saccade.models import Analogy, AnalogyConfig, Relater, entries, load_model
from saccade.models.analogy import union_coordinates
from saccade.models.base.relater import PairLabels, RegionPairs

CLASSES = ("background", "dog", "cat", "boat", "toy car")
PREDICATES = ("no interaction", "riding", "left of")
TRIPLETS = ((1, 1, 3), (2, 1, 3), (1, 1, 4), (2, 2, 1), (1, 2, 2), (3, 2, 4))
COUNTS = (12.0, 11.0, 30.0, 10.0, 25.0, 11.5)
SMALL: dict[str, Any] = {
    "classes": CLASSES,
    "predicates": PREDICATES,
    "triplets": TRIPLETS,
    "occurrences": COUNTS,
    "region_dim": 6,
    "word_dim": 5,
    "hidden_dim": 7,
    "dim": 8,
    "spatial_hidden_dim": 6,
    "spatial_dim": 5,
    "appearance_dim": 4,
    "transform_dim": 9,
    "top": 3,
}
WORDS = sorted({word for name in (*CLASSES, *PREDICATES) for word in name.split()})
TARGETS = torch.tensor([[2, 1, 4], [3, 1, 3], [1, 1, 3]])


def build(**switches: Any) -> Analogy:
    torch.manual_seed(3)
    return Analogy(AnalogyConfig(**{**SMALL, **switches}), Vocabulary((*SPECIAL, *WORDS)), "world").double().eval()


def some_pairs(count: int = 7) -> RegionPairs:
    torch.manual_seed(4)
    corner, side = torch.rand(2, count, 2, dtype=torch.float64) / 2, torch.rand(2, count, 2, dtype=torch.float64) / 2
    boxes = torch.cat([corner, corner + side + 0.01], dim=2)
    features = torch.randn(2, count, 6, dtype=torch.float64)
    return RegionPairs(features[0], features[1], boxes[0], boxes[1])


def test_the_model_is_a_relater_like_every_model_of_its_task() -> None:
    found = [e.model for e in entries() if e.task == "relations"]
    assert found == [Analogy]
    assert all(issubclass(model, Relater) for model in found)


def plain_transfer(model: Analogy, target: tuple[int, int, int]) -> Tensor:
    """One target after the other, one source after the other."""
    c = model.config

    def name_vector(row: int) -> Tensor:
        names = (*CLASSES, *PREDICATES)
        mean = torch.stack([model.words.weight[model.vocabulary.id_of(w)] for w in names[row].split()]).mean(dim=0)
        return mean / mean.norm()

    def language(branch: str, *rows: int) -> Tensor:
        net = model.language[branch]
        found = net.out(net.hidden(torch.cat([name_vector(row) for row in rows])).relu())
        return found / found.norm()

    def words(triplet: tuple[int, int, int], form: str) -> list[Tensor]:
        s, r, o = triplet[0], triplet[1] + len(CLASSES), triplet[2]
        if form == "unigram":
            return [language("s", s), language("r", r), language("o", o)]
        return [language("sro", s, 0, 0), language("sro", 0, r, 0), language("sro", 0, 0, o)]

    def phrase(triplet: tuple[int, int, int]) -> Tensor:
        return language("sro", triplet[0], triplet[1] + len(CLASSES), triplet[2])

    def likeness(source: tuple[int, int, int]) -> float:
        if c.similarity == "joint":
            one, other = words(source, "unigram"), words(target, "unigram")
        else:
            rows = [[t[0], t[1] + len(CLASSES), t[2]] for t in (source, target)]
            one, other = ([name_vector(row) for row in own] for own in rows)
        alone = [float(a @ b) for a, b in zip(one, other, strict=True)]
        rest = 1 - c.alpha_s - c.alpha_r - c.alpha_sro
        both = float(phrase(source) @ phrase(target))
        return c.alpha_s * alone[0] + c.alpha_r * alone[1] + rest * alone[2] + c.alpha_sro * both

    usable = []
    for source, count in zip(TRIPLETS, COUNTS, strict=True):
        shared = sum(a == b for a, b in zip(source, target, strict=True))
        if count > c.min_occurrences and not (c.shared_words and not c.shared_words <= shared < 3):
            usable.append((likeness(source), source))
    if c.least_similarity is not None:
        usable = [one for one in usable if one[0] >= c.least_similarity]
    usable = sorted(usable, key=lambda one: -one[0])[: c.top]
    if not usable:
        return phrase(target)
    vectors, likes = [], []
    of_target = words(target, "vp" if c.gamma == "vp" else "unigram")
    for g, source in usable:
        of_source = words(source, "unigram" if c.gamma == "unigram" else "vp")
        moved = torch.cat([a - b for a, b in zip(of_target, of_source, strict=True)])
        gamma = model.gamma
        if c.transform != "deep":
            assert gamma.differences is not None
            moved = gamma.differences(moved)
        if c.transform != "additive":
            assert gamma.hidden is not None
            assert gamma.out is not None
            given = torch.cat([phrase(source), moved]) if c.transform == "conditioned" else moved
            moved = gamma.out(gamma.hidden(given).relu())
        vector = phrase(source) + moved if c.deform else phrase(source)
        vectors.append(vector / vector.norm() if c.normalise_sources else vector)
        likes.append(g)
    if c.use_target:
        vectors, likes = [*vectors, phrase(target)], [*likes, 1.0]
    weights = torch.tensor(likes, dtype=torch.float64)
    weights = weights.softmax(dim=0) if c.weights == "softmax" else weights
    mean = (weights[:, None] * torch.stack(vectors)).sum(dim=0)
    return mean / mean.norm() if c.normalise_sources else mean


SWITCHES = [
    *(
        {"gamma": gamma, "transform": transform}
        for gamma, transform in product(("hybrid", "vp", "unigram"), ("deep", "additive", "conditioned"))
    ),
    {"similarity": "words", "top": None, "least_similarity": 0.05, "use_target": True, "gamma": "vp"},
    {"top": None, "least_similarity": 5.0},  # none is so similar
    {"weights": "similarity", "alpha_sro": 0.3, "alpha_s": 0.2, "alpha_r": 0.4},
    {"shared_words": 2, "normalise_sources": False},
    {"deform": False, "min_occurrences": 11},
    {"min_occurrences": 1000},
]  # fmt: skip


@pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: "-".join(f"{k}={v}" for k, v in s.items()))
@torch.no_grad()
def test_transfer_is_what_a_loop_over_targets_and_sources_finds(switches: dict[str, Any]) -> None:
    model = build(**switches)
    expected = torch.stack([plain_transfer(model, (s, r, o)) for s, r, o in TARGETS.tolist()])
    torch.testing.assert_close(model.transferred(TARGETS), expected, rtol=0, atol=1e-7)


def test_sources_are_named_with_weights_that_add_up() -> None:
    model = build()
    found = model.sources((2, 1, 4))
    assert len(found) == 3
    assert sum(one.weight for one in found) == pytest.approx(1)
    assert [one.similarity for one in found] == sorted((one.similarity for one in found), reverse=True)
    assert {one.triplet for one in found} <= {model.named(t) for t in TRIPLETS}
    assert ("cat", "left of", "dog") not in {one.triplet for one in found}  # seen ten times, more were asked for
    assert build(min_occurrences=1000).sources((2, 1, 4)) == []


@torch.no_grad()
def test_a_score_is_the_product_of_its_branches_and_only_unseen_triplets_are_transferred() -> None:
    model, pairs = build(), some_pairs()
    triplets = torch.tensor([[1, 1, 3], [2, 1, 4]])
    for mixture in ("s-r-o", "s-sro-o", "s-r-o-sro", "sro"):
        model.config = replace(model.config, mixture=mixture)
        code = model.encode_triplets(triplets)
        expected = torch.ones(7, 2, dtype=torch.float64)
        for place, branch in enumerate(("s", "r", "o")):
            if branch in mixture.split("-"):
                expected = expected * model.logits(pairs, branch).sigmoid()[:, triplets[:, place]]
        if "sro" in mixture:
            vectors = torch.stack([model.phrases(model._rows(triplets))[0], model.transferred(triplets)[1]])
            expected = expected * (model.visual_vectors(pairs, "sro") @ vectors.mT).sigmoid()
        torch.testing.assert_close(model.score(pairs, code), expected)
    plain = model.score(pairs, model.encode_triplets(triplets, "none"))
    assert not torch.allclose(plain[:, 1], expected[:, 1])
    torch.testing.assert_close(plain[:, 0], expected[:, 0])


def labels() -> PairLabels:
    torch.manual_seed(5)
    given = [torch.rand(7, size).round().double() for size in (5, 3, 5, 6)]
    return PairLabels(*given)


def test_the_first_stage_reaches_all_branches_and_the_second_the_phrase_and_gamma_alone() -> None:
    for transform, detach in (("deep", True), ("conditioned", False), ("additive", True)):
        model, pairs = build(transform=transform, detach_language=detach).train(), some_pairs()
        parts = model.losses(pairs, labels())
        assert sorted(parts) == ["o", "r", "s", "sro"]
        torch.stack(list(parts.values())).sum().backward()  # type: ignore[no-untyped-call]
        silent = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
        assert silent == {"words.weight", *(f"gamma.{name}" for name, _ in model.gamma.named_parameters())}
        model.zero_grad()
        parts = model.losses(pairs, labels(), torch.tensor([0, 2, 4]))
        assert sorted(parts) == ["sro", "transfer"]
        torch.stack(list(parts.values())).sum().backward()  # type: ignore[no-untyped-call]
        reached = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
        assert {name.split(".")[0] for name in reached} == {"visual", "language", "gamma"}
        assert not [name for name in reached if name.split(".")[1] in ("s", "r", "o")]


def test_coordinates_are_those_within_the_box_around_both() -> None:
    one, other = torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[2.0, 0, 8, 2]])
    assert union_coordinates(one, other).tolist() == [[0, 0, 0.5, 0.5, 0.5, 0, 1.5, 0.5]]
    moved = union_coordinates(one + 3, other + 3)
    torch.testing.assert_close(moved, union_coordinates(one, other))
    assert union_coordinates(one, one, pixel=1.0).tolist() == [[0, 0, 1, 1, 0, 0, 1, 1]]


@torch.no_grad()
def test_more_padding_changes_no_score() -> None:
    model = build().float()
    torch.manual_seed(2)
    boxes = torch.rand(2, 3, 2).repeat(1, 1, 2) / 2
    boxes[..., 2:] += 0.3
    regions = RegionBatch(torch.randn(2, 3, 6), torch.ones(2, 3, dtype=torch.bool), boxes)
    places = torch.tensor([0, 1]), torch.tensor([0, 2]), torch.tensor([1, 0])
    code = model.encode_triplets(TARGETS)
    few, many = (model.score(RegionPairs.of(own, *places), code) for own in (regions, regions.pad(4)))
    assert torch.equal(few, many)


def test_a_saved_model_scores_the_same(tmp_path: Path) -> None:
    model = build().float()
    model.save_pretrained(tmp_path / "model")
    again = load_model(tmp_path / "model", Analogy).eval()
    pairs = RegionPairs(*(part.float() for part in vars(some_pairs()).values()))
    assert again.config == model.config
    with torch.no_grad():
        torch.testing.assert_close(
            again.score(pairs, again.encode_triplets(TARGETS)), model.score(pairs, model.encode_triplets(TARGETS))
        )


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"triplets": ((1, 1, 9),), "occurrences": (1.0,)}, "names a class or predicate that is not there"),
        ({"occurrences": (1.0,)}, "6 triplets need as many counts, not 1"),
        ({"alpha_r": 0.9, "alpha_s": 0.2}, "at most 1 together"),
        ({"classes": ("background",), "triplets": (), "occurrences": ()}, "needs model.classes"),
        ({"predicates": ("no interaction", "eating", "left of")}, 'the vocabulary lacks "eating"'),
    ],
)
def test_settings_that_do_not_fit_are_refused(switches: dict[str, Any], message: str) -> None:
    with pytest.raises(SaccadeError, match=message):
        build(**switches)


def test_names_that_are_not_known_are_told() -> None:
    model = build()
    assert model.places("toy car", "left of", "dog") == (4, 2, 1)
    with pytest.raises(SaccadeError, match='knows no thing "cow"'):
        model.places("cow", "riding", "dog")
    with pytest.raises(SaccadeError, match="knows no relation"):
        model.places("dog", "eating", "dog")
