"""The command line as a function: words in; exit code, output and errors out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from saccade.cli import main


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
