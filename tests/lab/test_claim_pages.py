"""From finished runs to pages: no training, no model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toy_claims import caption_claim, finish, owners, runs_for, toy_claim, toy_table

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json
from saccade.lab.claims.findings import gather
from saccade.lab.claims.page import write_index, write_report
from saccade.lab.claims.plan import Request
from saccade.lab.claims.run import FAILURE, is_finished
from saccade.metrics import recall
from saccade.tasks.matching.evaluate import Recalls, ensemble_of, load_table

REQUEST = Request(seeds=2, rates=(1.0,))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for run in runs_for(toy_claim(), REQUEST):
        finish(run, tmp_path / "runs", quality=3.0 if "base" in run.name else 2.0)
    return tmp_path / "runs"


def test_findings_are_what_the_runs_left_behind(runs: Path) -> None:
    (split,) = gather(toy_claim(), REQUEST, runs).splits
    assert split.title == "world, test"
    assert split.verdict == "holds"
    wanted = [recall(toy_table(3.0, seed), owners())["rsum"] for seed in range(2)]
    assert split.figures("attention", "rsum") == pytest.approx(wanted)


def test_an_ensemble_averages_the_tables_of_one_seed(runs: Path) -> None:
    (split,) = gather(toy_claim(), REQUEST, runs).splits
    both = ensemble_of([toy_table(3.0, 1), toy_table(2.0, 1)])
    assert split.scores["both"][1].figures["t2i_r1"] == pytest.approx(recall(both, owners())["t2i_r1"], abs=2)
    run = runs_for(toy_claim(), REQUEST)[0]
    kept = load_table(Recalls().tables(runs / run.name, "test"))
    table = toy_table(3.0, 0)
    np.testing.assert_allclose(kept, (table - table.mean()) / table.std(), atol=5e-3)


def test_a_report_has_page_figures_and_picture(runs: Path, tmp_path: Path) -> None:
    published = [{"data": "Flickr30k", "metric": "rsum", "source": "the paper", "values": {"attention": 465.0}}]
    claim = toy_claim(published=published, note="Mind the toys.", metric="t2i_r5")
    findings = gather(claim, REQUEST, runs)
    write_report(findings, REQUEST, tmp_path)
    page = (tmp_path / "toy.md").read_text(encoding="utf-8")
    for part in (
        "world, test: **holds**",
        "text→picture R@5",
        "| chance |",
        "Mind the toys.",
        "465.0",
        "saccade claims toy --seeds 2 --data world",
        "4 runs on cpu (toy)",
        "| world | attention | **300.0** at 0.004 | 30, 30 | flat |",
        "toy-curves.png",
    ):
        assert part in page
    figures = read_json(tmp_path / "toy.json")
    assert figures["splits"][0]["comparisons"][0]["verdict"] == "holds"
    assert len(figures["splits"][0]["variants"]["both"]) == 2
    assert not figures["missing"]
    with Image.open(tmp_path / "toy.png") as picture:
        assert picture.width > picture.height > 200


def test_a_side_that_still_rose_leaves_the_claim_undecided(tmp_path: Path) -> None:
    for run in runs_for(toy_claim(), REQUEST):
        finish(run, tmp_path / "runs", quality=3.0 if "base" in run.name else 2.0, flat=run.seed == 0)
    findings = gather(toy_claim(), REQUEST, tmp_path / "runs")
    assert findings.splits[0].verdict == "undecided"
    write_report(findings, REQUEST, tmp_path)
    page = (tmp_path / "toy.md").read_text(encoding="utf-8")
    assert "**undecided**: “attention” and “Sum-Max” still rose at the last step" in page
    assert "| still rising |" in page


def test_the_held_out_part_chooses_the_learning_rate(tmp_path: Path) -> None:
    """A side is what it is at its best rate; the other rate was tried with the first seed alone."""
    request = Request(seeds=2, rates=(1.0, 0.5))
    for run in runs_for(toy_claim(), request):
        slow = run.config.trainer.learning_rate < 0.004
        if run.seed == 0 or slow:
            finish(run, tmp_path / "runs", quality=3.0 if slow else 2.0)
    findings = gather(toy_claim(), request, tmp_path / "runs")
    assert not findings.missing
    assert [dict(side.tried) for side in findings.sides] == [{0.004: 200.0, 0.002: 300.0}] * 2
    (split,) = findings.splits
    wanted = [recall(toy_table(3.0, seed), owners())["rsum"] for seed in range(2)]
    assert split.figures("Sum-Max", "rsum") == pytest.approx(wanted)


def test_each_extractor_of_photos_has_its_own_figures(tmp_path: Path) -> None:
    claim, data = toy_claim(data={"flickr8k": {}}), ("flickr8k",)
    for extractor in ("bottomup@36", "grid"):
        request = Request(data, seeds=2, rates=(1.0,), extractors=(extractor,))
        for run in runs_for(claim, request):
            assert run.config.data.extractor == extractor
            finish(run, tmp_path / "runs", quality=2.0)
    findings = gather(claim, Request(data, seeds=2, rates=(1.0,), extractors=("grid",)), tmp_path / "runs")
    assert [split.title for split in findings.splits] == ["flickr8k, dev (grid)", "flickr8k, dev (bottomup@36)"]


def test_captions_are_reported_with_their_own_figures(tmp_path: Path) -> None:
    claim = caption_claim()
    for run in runs_for(claim, REQUEST):
        finish(run, tmp_path / "runs", quality=2.0 if "sentinel" in run.name else 3.0)
    findings = gather(claim, REQUEST, tmp_path / "runs")
    assert findings.splits[0].verdict == "holds"
    write_report(findings, REQUEST, tmp_path)
    page = (tmp_path / "toy.md").read_text(encoding="utf-8")
    assert "| BLEU-1 | BLEU-4 | METEOR | ROUGE-L | CIDEr-D | seeds |" in page
    assert "Differences in CIDEr-D" in page
    assert "a beam of 3" in page
    assert "chance" not in page
    assert "Recall" not in page


def test_a_metric_without_parts_by_picture_is_said_to_have_none(tmp_path: Path) -> None:
    claim = caption_claim(metric="bleu4")
    for run in runs_for(claim, REQUEST):
        finish(run, tmp_path / "runs", quality=2.0 if "sentinel" in run.name else 3.0)
    findings = gather(claim, REQUEST, tmp_path / "runs")
    (one,) = findings.splits[0].comparisons
    assert one.p_pictures is None
    write_report(findings, REQUEST, tmp_path)
    assert "no test over pictures" in (tmp_path / "toy.md").read_text(encoding="utf-8")


def test_a_plain_figure_stands_against_every_seed(tmp_path: Path) -> None:
    claim = caption_claim(variants={"trained": {}, "nothing": {"figure": 0}}, expect=["trained > nothing"])
    runs = runs_for(claim, REQUEST)
    assert len(runs) == 2
    for run in runs:
        finish(run, tmp_path / "runs", quality=2.0)
    findings = gather(claim, REQUEST, tmp_path / "runs")
    (split,) = findings.splits
    (one,) = split.comparisons
    assert one.differences == pytest.approx(split.figures("trained", "cider_d"))
    assert one.verdict == "holds"
    write_report(findings, REQUEST, tmp_path)
    assert "no model: a CIDEr-D of 0" in (tmp_path / "toy.md").read_text(encoding="utf-8")


def test_a_metric_that_a_variant_does_not_have_is_not_measured(tmp_path: Path) -> None:
    claim = caption_claim(metric="sentinel_contrast")
    for run in runs_for(claim, REQUEST):
        finish(run, tmp_path / "runs", quality=2.0)
    findings = gather(claim, REQUEST, tmp_path / "runs")
    assert findings.splits[0].verdict == "undecided"
    write_report(findings, REQUEST, tmp_path)


def test_what_is_missing_is_said_with_its_reason(runs: Path, tmp_path: Path) -> None:
    request = Request(seeds=3, rates=(1.0,))
    missing = [run for run in runs_for(toy_claim(), request) if run.seed == 2]
    write_json(runs / missing[0].name / FAILURE, "the loss is nan")
    findings = gather(toy_claim(), request, runs)
    assert findings.missing == {missing[0].name: "the loss is nan", missing[1].name: "not trained yet"}
    assert findings.splits[0].comparisons[0].seeds == (0, 1)
    write_report(findings, request, tmp_path)
    page = (tmp_path / "toy.md").read_text(encoding="utf-8")
    assert "Missing: 2 runs." in page
    assert "**undecided**: 2 of 3 seeds are measured" in page


def test_nothing_measured_is_no_verdict_and_no_picture(tmp_path: Path) -> None:
    findings = gather(toy_claim(), REQUEST, tmp_path / "nowhere")
    write_report(findings, REQUEST, tmp_path)
    assert findings.splits[0].verdict == "undecided"
    assert not (tmp_path / "toy.png").exists()
    assert "Not measured yet." in (tmp_path / "toy.md").read_text(encoding="utf-8")


def test_a_table_that_is_wanted_makes_a_run_unfinished(runs: Path) -> None:
    run = runs_for(toy_claim(), REQUEST)[0]
    assert is_finished(run, runs)
    (runs / run.name / "similarity-test.npy").unlink()
    assert not is_finished(run, runs)


def test_damaged_ranks_are_a_sentence(runs: Path) -> None:
    path = runs / runs_for(toy_claim(), REQUEST)[0].name / Recalls.file
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(SaccadeError, match="is damaged"):
        gather(toy_claim(), REQUEST, runs)


def test_the_index_renews_its_table_and_keeps_the_rest(tmp_path: Path) -> None:
    index = tmp_path / "index.md"
    index.write_text("# Mine\n\n<!-- claims: begin -->\nstale\n<!-- claims: end -->\n\nBy hand.\n", encoding="utf-8")
    write_json(
        tmp_path / "scan-attention.json",
        {
            "statement": "It is so.",
            "sides": [],
            "splits": [{"data": "world", "split": "test", "verdict": "holds", "comparisons": [{"mean": 3.21}]}],
        },
    )
    older = {"data": "flickr8k", "split": "dev", "verdict": "does not hold", "comparisons": []}
    write_json(tmp_path / "scan-pooling.json", {"statement": "It was so.", "splits": [older]})  # of before the rule
    write_json(tmp_path / "earlier.json", {"trained": "six epochs", "verdicts": {"world, test": {"does not hold": 1}}})
    write_index(tmp_path)
    text = index.read_text(encoding="utf-8")
    assert text.startswith("# Mine\n")
    assert text.endswith("\n\nBy hand.\n")
    assert "stale" not in text
    assert "| world, test | six epochs | 0 | 0 | 0 | 1 |" in text
    assert "| world, test | trained until flat | 1 | 0 | 0 | 0 |" in text
    assert "| claim | it says | world, test | flickr8k, dev (bottomup@36) |" in text
    assert "| [scan-attention](scan-attention.md) | It is so. | holds (+3.2) |  |" in text
    assert "| [scan-pooling](scan-pooling.md) † | It was so. |  | does not hold |" in text
    assert "camp-gate" not in text  # nobody has measured it
    write_index(tmp_path)
    assert index.read_text(encoding="utf-8") == text
