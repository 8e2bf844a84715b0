from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from saccade.training import TrainerConfig
from saccade.training.config import MAY_CHANGE

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_page_has_every_setting_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE, flags=re.MULTILINE))
    for field in dataclasses.fields(TrainerConfig):
        shown = {"None": "none", "True": "true", "0.0": "0"}
        assert rows[field.name] == shown.get(str(field.default), str(field.default))
    for name in MAY_CHANGE:
        assert f"`{name}`" in PAGE.split("Exempt are")[1].split("(With")[0]


def test_the_example_of_a_task_works_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(example, "docs/training.md", "exec"), {"__name__": "example"})
    assert "{'accuracy': 1.0}" in capsys.readouterr().out
    assert (tmp_path / "runs/line/best/model.pt").exists()
