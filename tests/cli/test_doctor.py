"""`saccade doctor` says what a machine offers, and why not more."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from saccade.cli import app, doctor


def test_every_operator_is_listed_with_its_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_KERNELS", "0")
    monkeypatch.setenv("SACCADE_NATIVE", "0")
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["versions"]["torch"] != "not installed"
    assert found["switches"]["SACCADE_NATIVE"] == "0"
    assert {"attended_similarity", "maxsim"} <= set(found["operators"])
    rows = {row["backend"]: row["unavailable"] for row in found["operators"]["attended_similarity"]}
    assert rows["cuda epilogue"] == rows["triton"] == "SACCADE_KERNELS=0"
    assert rows["native"] == "SACCADE_NATIVE=0"
    for operator in found["operators"].values():
        assert operator[-1]["unavailable"] is None


def test_it_reads_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("SACCADE_NATIVE", "0")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    for word in ("Versions", "Devices", "Compilers", "attended_similarity", "SACCADE_NATIVE=0", "available"):
        assert word in result.stdout


def test_a_compiler_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert "none found" in found["compilers"]["C++"]
    assert "no C++ compiler" in found["operators"]["attended_similarity"][-2]["unavailable"]


def test_torch_is_imported_only_when_it_runs() -> None:
    code = f"import runpy, sys; runpy.run_path({doctor.__file__!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
