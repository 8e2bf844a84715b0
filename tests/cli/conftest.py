"""The command line as a function: words in; exit code, output and errors out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from saccade.cli import main
from saccade.features import open_questions
from saccade.world.questions import make


@pytest.fixture
def saccade(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["saccade", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return run


@pytest.fixture
def few_foils(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Questions are balanced over fewer scenes: a fifth of the time."""
    make.foils.cache_clear()
    open_questions.cache_clear()
    monkeypatch.setattr(make, "FOILS", 600)
    monkeypatch.setattr(make, "SUPPORT", 8)
    yield
    make.foils.cache_clear()
    open_questions.cache_clear()
