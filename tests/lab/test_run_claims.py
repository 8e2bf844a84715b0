"""The lab at work: faults stay with their run, the clock stops new runs, and a real pair of tiny trainings."""

from __future__ import annotations

import io
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from toy_claims import find_memory_late, pretend, runs_for, sleep, toy_claim
from typer.testing import CliRunner

from saccade.cli import app
from saccade.lab.claims.findings import gather
from saccade.lab.claims.plan import Request
from saccade.lab.claims.run import run_claims
from saccade.lab.workers import run_jobs


def test_one_runs_fault_is_its_own(tmp_path: Path) -> None:
    """One run takes its process with it, one meets a bug, one is refused; all others are done."""
    words = io.StringIO()
    claim, request = toy_claim(), Request(seeds=3, rates=(1.0,))
    outcome = run_claims([claim], request, tmp_path, console=Console(file=words, width=200), run_job=pretend)
    assert outcome.finished == 3
    assert list(outcome.failed.values()) == [
        "its process ended before its time (exit code 9)",
        "ValueError: first line",
        "the toy is broken",
    ]
    assert words.getvalue().count("begun") == 6
    assert gather(claim, request, tmp_path).missing == outcome.failed


def test_a_run_that_found_no_memory_beside_others_is_tried_again(tmp_path: Path) -> None:
    words = io.StringIO()
    claim, request = toy_claim(), Request(seeds=2, rates=(1.0,))
    outcome = run_claims([claim], request, tmp_path, console=Console(file=words, width=200), run_job=find_memory_late)
    assert list(outcome.failed.values()) == ["RuntimeError: CUDA out of memory, always"]
    assert outcome.finished == 3
    later = [line.split()[1][:-1] for line in words.getvalue().splitlines() if line.startswith("later")]
    full, busy = runs_for(claim, request)[:2]
    assert later == [full.name, busy.name, full.name]  # behind all others, and three times at the most


def test_when_the_time_is_up_no_run_begins(tmp_path: Path) -> None:
    runs = runs_for(toy_claim(), Request(seeds=2))
    left = run_jobs(runs, partial(pretend, runs=tmp_path, lean=False), at_once=2, until=time.monotonic())
    assert left == runs
    assert not list(tmp_path.iterdir())


def test_what_is_under_way_when_the_time_is_up_comes_back(tmp_path: Path) -> None:
    assert run_jobs(["long", "never begun"], sleep, at_once=1, until=time.monotonic() + 0.5) == ["long", "never begun"]


@pytest.fixture
def precomp(tmp_path: Path) -> Path:
    """Eight pictures of two regions with a caption each, in SCAN's own format."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "data"
    folder.mkdir()
    things = ("cube", "ball", "robot", "star", "cat", "dog", "tree", "house")
    for split in ("train", "dev", "test", "hard"):
        np.save(folder / f"{split}_ims.npy", rng.normal(size=(8, 2, 6)).astype(np.float32))
        (folder / f"{split}_caps.txt").write_text("".join(f"a {t}\n" for t in things), encoding="utf-8")
    return folder


def test_a_claim_is_trained_measured_reported_and_not_trained_again(tmp_path: Path, precomp: Path) -> None:
    settings = ["data=precomp", f"root={precomp}", "held_out=2", "dim=8", "word_dim=8", "epochs=1"]
    settings += ["batch_size=2", "min_count=1"]
    command = ["claims", "scan-negatives", *settings, "--seeds", "2", "--runs", str(tmp_path / "runs")]
    command += ["--out", str(tmp_path / "out"), "--lean", "--rate", "1", "--rate", "0.5"]
    first = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "6 runs for 1 claim: 0 are there, 6 to do" in first.output
    assert "failed" not in first.output
    runs = sorted((tmp_path / "runs" / "world").iterdir())
    assert len(runs) == 6  # two sides: two learning rates, then the other seed
    page = (tmp_path / "out" / "scan-negatives.md").read_text(encoding="utf-8")
    assert "8 pictures, 8 texts" in page
    assert "**undecided**: “hardest” and “all summed” still rose at the last step" in page
    assert (tmp_path / "out" / "scan-negatives-curves.png").exists()
    (tmp_path / "out" / "scan-negatives.md").unlink()
    again = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "6 are there, 0 to do" in again.output
    assert (tmp_path / "out" / "scan-negatives.md").read_text(encoding="utf-8") == page
    report = CliRunner().invoke(app, [*command, "--report"], catch_exceptions=False)
    assert "to do" not in report.output
    more = CliRunner().invoke(app, [*command, "epochs=30"], catch_exceptions=False)  # what still rose goes on
    assert "0 are there, 6 to do" in more.output
    assert "undecided" not in more.output
    assert not list((tmp_path / "runs").rglob("*-s0/**/*.safetensors"))  # --lean, and nothing is left to go on with


def test_without_a_name_the_claims_are_listed() -> None:
    shown = CliRunner().invoke(app, ["claims"])
    assert "scan-attention" in shown.output
    assert shown.exit_code == 0
