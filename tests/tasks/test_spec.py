"""What every task's spec must say."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import saccade
from saccade.cli import VERBS
from saccade.core.errors import SaccadeError
from saccade.models import entries
from saccade.tasks import eval_options, find_task, task_names, task_of
from saccade.tasks.predict import Predictor

ROOT = Path(saccade.__file__).parent


@pytest.mark.parametrize("name", task_names())
def test_every_spec_says_what_the_rest_of_the_house_asks(name: str) -> None:
    spec = find_task(name)
    assert spec.name == name
    assert dataclasses.is_dataclass(spec.config)
    spec.config()  # every setting has a default
    assert issubclass(spec.predictor, Predictor)
    assert spec.options in eval_options()
    assert all("{run}" in step for step in spec.next_steps)
    systems = [entry for entry in entries() if entry.task == name]
    assert systems or any(issubclass(entry.model, spec.protocol) for entry in entries())
    assert all(issubclass(entry.model, spec.protocol) and task_of(entry.name) is spec for entry in systems)


def test_a_task_mistyped_is_answered_with_the_nearest() -> None:
    with pytest.raises(SaccadeError, match='no task "captoining"; did you mean "captioning"'):
        find_task("captoining")


def test_the_command_line_and_the_names_of_tasks_need_no_pytorch() -> None:
    script = "import sys, saccade.cli, saccade.tasks as t; t.task_names(), t.eval_options(); "
    script += "print(*({'torch', 'pyarrow'} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_what_serves_every_task_knows_none_by_name() -> None:
    shared = [
        path for room in ("tasks", "training", "lab/claims", "lab/leaderboard") for path in (ROOT / room).glob("*.py")
    ]
    shared += [ROOT / "cli" / f"{verb}.py" for verb in ("models", "lab")]
    for path in shared:
        text = path.read_text(encoding="utf-8")
        for name in task_names():
            assert f"saccade.tasks.{name}" not in text, f"{path.name} imports the task {name}"


def test_no_verb_imports_another() -> None:
    modules = {verb.module for verb in VERBS.values()}
    assert len(modules) >= 10
    for module in modules:
        text = (ROOT / "cli" / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert [other for other in modules if f"saccade.cli.{other} import" in text] == []
