"""A model in another package is found through an entry point, and a broken one harms nobody."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import saccade
from saccade.core.errors import SaccadeError
from saccade.models import entries, entry
from saccade.models.base import model as registry
from toy_runs import saccade_command

MODULE = """
from saccade.models import Vse, register

@register("{name}", task="matching", title="A model of another package", venue="nobody, 2026")
class Foreign(Vse):
    pass
"""
POINTS = """
[saccade.models]
foreign = foreign_models:Foreign
gone = foreign_nowhere:Model
raising = foreign_raising
silent = foreign_silent
scan = foreign_scan
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution on the path with one good model, three broken ones, and one that takes the name of ours."""
    site = tmp_path / "site"
    (site / "foreign-1.0.dist-info").mkdir(parents=True)
    (site / "foreign-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n")
    (site / "foreign-1.0.dist-info" / "entry_points.txt").write_text(POINTS)
    (site / "foreign_models.py").write_text(MODULE.format(name="foreign"))
    (site / "foreign_scan.py").write_text(MODULE.format(name="scan"))
    (site / "foreign_raising.py").write_text("raise RuntimeError('first line\\nsecond')\n")
    (site / "foreign_silent.py").write_text("")
    monkeypatch.setattr(registry, "_entries", {known.name: known for known in entries()})
    registry.note_once.cache_clear()
    monkeypatch.syspath_prepend(site)
    yield site
    for name in [name for name in sys.modules if name.startswith("foreign_")]:
        del sys.modules[name]


def test_it_is_listed_trained_evaluated_and_loaded(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert saccade_command("models", "--json") == 0
    printed = capsys.readouterr()
    (row,) = [row for row in json.loads(printed.out)["systems"] if row["name"] == "foreign"]
    assert (row["task"], row["title"]) == ("matching", "A model of another package")
    notes = printed.err.splitlines()
    assert [
        note for note in notes if 'the model "gone" (foreign_nowhere:Model of the package foreign) cannot be' in note
    ]
    assert [note for note in notes if note.endswith("cannot be loaded: RuntimeError: first line")]
    assert [note for note in notes if 'does not register itself: @register("silent", …) was expected' in note]
    assert len(notes) == 3
    small = ["pictures=40", "steps=2", "batch_size=4", "dim=8", "word_dim=4", "accelerator=cpu"]
    assert saccade_command("train", "foreign", "data=world", *small, "-o", tmp_path / "run") == 0
    assert saccade_command("eval", tmp_path / "run", "--device", "cpu") == 0
    assert type(saccade.load(tmp_path / "run").model).__module__ == "foreign_models"


def test_a_broken_one_asked_for_by_name_gets_a_sentence(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert saccade_command("train", "gone") == 2
    error = capsys.readouterr().err
    assert (
        'error: the model "gone" (foreign_nowhere:Model of the package foreign) cannot be loaded: ModuleNotF' in error
    )
    assert entry("foreign").model.name == "foreign"


def test_no_package_takes_the_name_of_our_own(package: Path) -> None:
    assert next(e for e in entries() if e.name == "scan").model.__module__ == "saccade.models.scan"
    with pytest.raises(SaccadeError, match='"scan" is a model of Saccade: foreign_scan must call its own otherwise'):
        __import__("foreign_scan")
