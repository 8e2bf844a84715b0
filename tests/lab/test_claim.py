"""Claim files: what they may say, and the sentence for what they may not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_claims import caption_claim, claim_values, runs_for, toy_claim

from saccade.core.errors import SaccadeError
from saccade.lab.claims.claim import ClaimData, claim_names, evaluator_for, load_claim, read_claim
from saccade.lab.claims.plan import Request, data_defaults, data_of, plan, run_of
from saccade.training.run import run_config


@pytest.mark.parametrize("name", claim_names())
def test_every_claim_of_the_package_can_be_planned_on_every_data_set_it_fits(name: str) -> None:
    """Its settings are settings of its system, and no two of its variants are the same training."""
    claim = load_claim(name)
    trained = [variant for variant in claim.variants if variant.trained]
    known = data_defaults()
    named = {part.name for part in claim.data} if claim.data is not None else None
    fits = [data for data in known if data in named] if named else [d for d in known if not known[d].named_only]
    assert fits
    for data in fits:
        assert len(plan([claim], Request((data,), seeds=1))) == len(trained)


@pytest.mark.parametrize(
    "name",
    [
        "world/scan-base-535586eb-s0",
        "flickr8k/scan-base-17eb92aa-s0",
        "flickr8k/vse-base-eb9f3117-s0",
        "world/camp-gate_false-4c452211-s0",
        "flickr8k/camp-gate_false-d90f6d22-s0",
    ],
)
def test_finished_runs_are_found_again(name: str) -> None:
    """Names of runs that reports were made of. Who changes a default changes names, and trains anew."""
    claims = [load_claim(claim) for claim in ("fine-grained", "camp-gate")]
    assert name in [run.name for side in plan(claims, Request(("world", "flickr8k"), seeds=1)) for run in side.search]


def test_data_of_few_claims_are_for_those_that_name_them() -> None:
    claims = [load_claim(name) for name in ("scan-pooling", "hgr-levels")]
    assert {side.search[0].config.system for side in plan(claims, Request(("msvd",), seeds=1))} == {"hgr"}


def test_a_chain_stands_for_pairs_of_neighbours() -> None:
    variants = {f"K={k}": {"settings": [f"layers={k}"]} for k in (1, 2, 3)}
    claim = toy_claim(variants=variants, expect=["K=3 > K=2 > K=1", "K=3 > K=2"])
    assert claim.expect == (("K=3", "K=2"), ("K=2", "K=1"))


def test_a_variant_takes_the_system_of_its_claim_unless_it_names_one() -> None:
    claim = toy_claim(variants={"a": {}, "b": {"system": "vse"}}, expect=["a > b"])
    assert [variant.system for variant in claim.variants] == ["scan", "vse"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"statment": "x"}, 'no key "statment"; did you mean "statement"'),
        ({"expect": ["attention > SumMax"]}, 'no variant "SumMax"; did you mean "Sum-Max"'),
        ({"expect": ["attention"]}, "LABEL > LABEL"),
        ({"expect": []}, "at least once"),
        ({"expect": ["attention > Sum-Max", "Sum-Max > attention"]}, "contradicts itself"),
        ({"expect": ["attention > attention"]}, "contradicts itself"),
        ({"expect": "attention > Sum-Max"}, "list of texts"),
        ({"metric": "rsun"}, 'no metric "rsun"; did you mean "rsum"'),
        ({"variants": {"attention": {}}}, "at least two variants"),
        ({"variants": {"attention": {}, "Sum-Max": {"setings": []}}}, 'did you mean "settings"'),
        ({"variants": {"attention": {}, "Sum-Max": {"settings": ["pool"]}}}, '"pool" is not of the form key=value'),
        ({"variants": {"attention": {}, "Sum-Max": {"ensemble": ["nobody"]}}}, 'no variant "nobody"'),
        ({"variants": {"attention": {}, "Sum-Max": {"ensemble": ["attention"], "settings": []}}}, "neither settings"),
        ({"variants": {"attention": {}, 7: {}}}, "must be text"),
        ({"variants": {"attention": {}, "Sum-Max": {"figure": "none"}}}, "figure must be a number"),
        (
            {"variants": {"attention": {}, "Sum-Max": {"figure": 0, "settings": []}}},
            "a plain figure, so it has neither",
        ),
        ({"variants": {"attention": {"figure": 1}, "Sum-Max": {"figure": 0}}}, "one of them trained"),
        ({"variants": {"attention": {}, "Sum-Max": {"settings_on": {"world": ["extractor"]}}}}, "settings_on.world"),
        ({"variants": {"attention": {}, "Sum-Max": {"system": "updown"}}}, "updown is measured by other figures than"),
        ({"system": "scna"}, 'no model "scna"; did you mean "scan"'),
        ({"metric": "cider_d"}, 'no metric "cider_d"'),
        ({"data": {"world": {"split": ["test"]}}}, 'did you mean "splits"'),
        ({"data": ["world"]}, "must be a mapping"),
        ({"paper": {"title": "x"}}, "paper.venue must be text"),
        ({"published": {"data": "x"}}, "must be a list"),
        (
            {"published": [{"data": "x", "metric": "rsum", "source": "y", "values": {"attention": "high"}}]},
            "must be a number",
        ),
        ({"published": [{"data": "x", "metric": "rsum", "values": {"attention": 1}}]}, "source must be text"),
    ],
)
def test_a_slip_in_a_file_is_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence) as caught:
        read_claim("toy", claim_values(**changes), "toy.yaml")
    assert str(caught.value).startswith("toy.yaml")


def test_a_task_has_its_own_metrics() -> None:
    assert caption_claim().metric == "cider_d"
    assert caption_claim(metric="meteor").metric_name == "METEOR"
    with pytest.raises(SaccadeError, match='no metric "rsum"'):
        caption_claim(metric="rsum")
    with pytest.raises(SaccadeError, match="an ensemble averages similarities, and adaptive has none"):
        caption_claim(variants={"a": {}, "b": {"ensemble": ["a"]}}, expect=["a > b"])


def test_settings_may_belong_to_one_data_set() -> None:
    variants = {"a": {}, "b": {"settings_on": {"flickr8k": ["extractor=grid"], "world": ["extractor=grid:world/7"]}}}
    claim = caption_claim(variants=variants, expect=["a > b"], data={"world": {}, "flickr8k": {}})
    runs = runs_for(claim, Request(("world", "flickr8k"), seeds=1, rates=(1.0,), extractors=("dinov2",)))
    extractors = [run.config.data.extractor for run in runs]  # none can be asked for: the claim is about them
    assert extractors == ["grid", "grid:world/7", "bottomup@36", "grid"]


def test_what_is_missing_is_named() -> None:
    values = claim_values()
    del values["statement"]
    with pytest.raises(SaccadeError, match=r"toy.yaml has no statement"):
        read_claim("toy", values, "toy.yaml")


def test_a_name_mistyped_is_answered_with_the_nearest() -> None:
    with pytest.raises(SaccadeError, match='did you mean "scan-attention"'):
        load_claim("scan-atention")
    with pytest.raises(SaccadeError, match='did you mean "flickr8k"'):
        Request(("flickr",))


def test_a_run_is_named_for_what_matters_only() -> None:
    """Where the data lie and what computes changes no name; a setting does."""
    claim = toy_claim(data={"flickr8k": {}})
    names = [
        [run.name for run in runs_for(claim, request)]
        for request in (
            Request(("flickr8k",), 1, rates=(1.0,)),
            Request(("flickr8k",), 1, rates=(1.0,), root=Path("elsewhere"), device="cuda"),
            Request(("flickr8k",), 1, rates=(1.0,), words=("dim=2",)),
        )
    ]
    assert names[0] == names[1]
    assert not set(names[0]) & set(names[2])
    assert names[0][0].startswith("flickr8k/scan-base-")
    assert names[0][1].startswith("flickr8k/scan-attention_max-pool_sum-")


def test_what_claims_share_is_trained_once() -> None:
    other = toy_claim(
        variants={"mean": {"settings": ["pool=mean"]}, "plain": {"settings": ["queries=words"]}},
        expect=["plain > mean"],
        data={"world": {"splits": ["hard"]}},
    )
    sides = plan([toy_claim(), other], Request(seeds=2))
    assert len(sides) == 3
    shared = next(run for side in sides for run in side.search if "scan-base" in run.name)
    assert shared.splits == ("test", "hard")
    assert shared.tables  # an ensemble of the first claim needs them
    assert not next(run for side in sides for run in side.search if "pool_mean" in run.name).tables
    assert shared.config.model == run_config("scan", ["data=world"]).model


def test_what_an_extractor_wants_goes_over_what_its_task_shares() -> None:
    def standardised(extractor: str) -> bool:
        config = run_config("scan", data_defaults()["flickr8k"].of("scan", extractor))
        assert config.data.extractor == extractor
        return bool(config.model.standardise)

    assert standardised("grid:dinov2-s@224/7")
    assert not standardised("bottomup@36")


def test_an_extractor_that_all_variants_name_is_the_claims_own() -> None:
    names = {name: data_of(load_claim(name), ["flickr8k"], ["bottomup@36"])[0].extractor for name in
             ("multilevel-levels", "updown-regions", "scan-pooling")}  # fmt: skip
    assert names["multilevel-levels"] == "grid:dinov2-s:6+8+10+12#all@224/8"
    assert names["scan-pooling"] == names["updown-regions"] == "bottomup@36"  # what is asked for; the first there is
    assert data_of(load_claim("multilevel-levels"), ["world"])[0].extractor is None


def test_every_side_has_the_same_search_and_the_same_rule() -> None:
    """Only the learning rate is searched, on a part of the training split that no run learns from."""
    for name in claim_names():
        for side in plan([load_claim(name)], Request(("world", "flickr8k"), seeds=1)):
            one, *others = (run.config for run in side.search)
            rates = [other.trainer.learning_rate / one.trainer.learning_rate for other in others]
            assert rates == pytest.approx([] if one.data.name == "world" else [0.5])  # recipes were tuned on the world
            assert all(replace(o.trainer, learning_rate=one.trainer.learning_rate) == one.trainer for o in others)
            assert (one.data.held_out, one.trainer.patience) == (10, 5)


def test_a_claim_may_be_judged_by_another_tasks_figures() -> None:
    claim = load_claim("multilevel-levels")
    assert claim.metric_name == "pointing game"
    run = run_of(claim, claim.variants[0], ClaimData("world", ("test",)), 0, Request())
    assert "-grounding-" in run.name
    assert run.evaluator is claim.evaluator
    with pytest.raises(SaccadeError, match="cannot be measured as a grounder"):
        evaluator_for("updown", "grounding")
    with pytest.raises(SaccadeError, match='did you mean "grounding"'):
        evaluator_for("scan", "grunding")
