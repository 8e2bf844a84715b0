"""From finished runs to pages: no training, no model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toy_claims import caption_claim, finish, owners, toy_claim, toy_table

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json
from saccade.lab.claims.findings import gather
from saccade.lab.claims.page import write_index, write_report
from saccade.lab.claims.plan import Request, plan
from saccade.lab.claims.run import FAILURE, is_finished
from saccade.metrics import recall
from saccade.tasks.matching.evaluate import Recalls, ensemble_of, load_table

REQUEST = Request(seeds=2)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for run in plan([toy_claim()], REQUEST):
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
    run = plan([toy_claim()], REQUEST)[0]
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
    ):
        assert part in page
    figures = read_json(tmp_path / "toy.json")
    assert figures["splits"][0]["comparisons"][0]["verdict"] == "holds"
    assert len(figures["splits"][0]["variants"]["both"]) == 2
    assert not figures["missing"]
    with Image.open(tmp_path / "toy.png") as picture:
        assert picture.width > picture.height > 200


def test_captions_are_reported_with_their_own_figures(tmp_path: Path) -> None:
    claim = caption_claim()
    for run in plan([claim], REQUEST):
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
    for run in plan([claim], REQUEST):
        finish(run, tmp_path / "runs", quality=2.0 if "sentinel" in run.name else 3.0)
    findings = gather(claim, REQUEST, tmp_path / "runs")
    (one,) = findings.splits[0].comparisons
    assert one.p_pictures is None
    write_report(findings, REQUEST, tmp_path)
    assert "no test over pictures" in (tmp_path / "toy.md").read_text(encoding="utf-8")


def test_a_plain_figure_stands_against_every_seed(tmp_path: Path) -> None:
    claim = caption_claim(variants={"trained": {}, "nothing": {"figure": 0}}, expect=["trained > nothing"])
    runs = plan([claim], REQUEST)
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
    for run in plan([claim], REQUEST):
        finish(run, tmp_path / "runs", quality=2.0)
    findings = gather(claim, REQUEST, tmp_path / "runs")
    assert findings.splits[0].verdict == "not measured"
    write_report(findings, REQUEST, tmp_path)


def test_what_is_missing_is_said_with_its_reason(runs: Path, tmp_path: Path) -> None:
    request = Request(seeds=3)
    missing = [run for run in plan([toy_claim()], request) if run.seed == 2]
    write_json(runs / missing[0].name / FAILURE, "the loss is nan")
    findings = gather(toy_claim(), request, runs)
    assert findings.missing == {missing[0].name: "the loss is nan", missing[1].name: "not trained yet"}
    assert findings.splits[0].comparisons[0].seeds == (0, 1)
    write_report(findings, request, tmp_path)
    assert "Missing: 2 runs." in (tmp_path / "toy.md").read_text(encoding="utf-8")


def test_nothing_measured_is_no_verdict_and_no_picture(tmp_path: Path) -> None:
    findings = gather(toy_claim(), REQUEST, tmp_path / "nowhere")
    write_report(findings, REQUEST, tmp_path)
    assert findings.splits[0].verdict == "not measured"
    assert not (tmp_path / "toy.png").exists()
    assert "Not measured yet." in (tmp_path / "toy.md").read_text(encoding="utf-8")


def test_a_table_that_is_wanted_makes_a_run_unfinished(runs: Path) -> None:
    run = plan([toy_claim()], REQUEST)[0]
    assert is_finished(run, runs)
    (runs / run.name / "similarity-test.npy").unlink()
    assert not is_finished(run, runs)


def test_damaged_ranks_are_a_sentence(runs: Path) -> None:
    path = runs / plan([toy_claim()], REQUEST)[0].name / Recalls.file
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
            "splits": [{"data": "world", "split": "test", "verdict": "holds", "comparisons": [{"mean": 3.21}]}],
        },
    )
    write_index(tmp_path)
    text = index.read_text(encoding="utf-8")
    assert text.startswith("# Mine\n")
    assert text.endswith("\n\nBy hand.\n")
    assert "stale" not in text
    assert "| scan-attention | It is so. | holds (+3.2) |" in text
    write_index(tmp_path)
    assert index.read_text(encoding="utf-8") == text
