"""What every task's spec must say."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from saccade.core.errors import SaccadeError
from saccade.models import entries
from saccade.tasks import eval_options, find_task, task_names, task_of
from saccade.tasks.predict import Predictor


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
    assert systems
    assert all(issubclass(entry.model, spec.protocol) and task_of(entry.name) is spec for entry in systems)


def test_a_task_mistyped_is_answered_with_the_nearest() -> None:
    with pytest.raises(SaccadeError, match='no task "captoining"; did you mean "captioning"'):
        find_task("captoining")


def test_the_command_line_and_the_names_of_tasks_need_no_pytorch() -> None:
    script = "import sys, saccade.cli, saccade.tasks as t; t.task_names(), t.eval_options(); "
    script += "print(*({'torch', 'pyarrow'} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
