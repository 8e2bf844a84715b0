"""`saccade.models` gives every model by name, and imports its file no sooner."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import saccade.models
from saccade.models import FILES, entries
from saccade.models.dual_encoder import DualEncoder

FOLDER = Path(saccade.models.__file__).parent


def imported(script: str) -> set[str]:
    """The files of models that a script imports."""
    script += "\nimport sys\nprint(*(name.removeprefix('saccade.models.') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {*done.stdout.split()} & {*FILES}


def test_every_file_is_named_but_that_of_other_libraries() -> None:
    there = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", DualEncoder.__module__.rpartition(".")[2]}
    assert there == {*FILES}
    assert {known.model.__module__ for known in entries()} <= {f"saccade.models.{file}" for file in FILES}


@pytest.mark.parametrize("file", FILES)
def test_the_names_of_a_file_are_public_and_its_own(file: str) -> None:
    for name in FILES[file].split():
        assert name in saccade.models.__all__
        assert getattr(saccade.models, name).__module__ == f"saccade.models.{file}"


def test_every_public_name_is_there() -> None:
    for name in saccade.models.__all__:
        assert getattr(saccade.models, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Scna'"):
        saccade.models.Scna  # noqa: B018


def test_one_model_brings_no_other() -> None:
    assert not imported("import saccade.models")
    assert imported("from saccade.models import entry; entry('scan')") == {"scan"}
    assert imported("from saccade.models import ScanConfig") == {"scan"}


def test_a_model_is_found_whatever_its_file() -> None:
    assert "interbert" in imported("from saccade.models import entry; assert entry('interbert_matching').fine_tunes")
