"""Tasks: one folder for each, with everything that varies by task behind one `TaskSpec`.

A folder holds `task.py` (the `SPEC`, and the task as the trainer knows it), its evaluation and its predictor. Its
options of `saccade eval` are `EvalOptions` in its `__init__.py`, which the command line reads without importing
PyTorch. The rest of a task is imported when it is needed, not before.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.core.errors import SaccadeError, did_you_mean

if TYPE_CHECKING:
    from saccade.tasks.base import TaskSpec

FOLDER = Path(__file__).parent


def task_names() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in FOLDER.glob("*/task.py")))


def find_task(name: str) -> TaskSpec[Any, Any]:
    """The task of this name. Raises: SaccadeError if there is none."""
    if name not in task_names():
        raise SaccadeError(
            f'there is no task "{name}"{did_you_mean(name, task_names())} (there are: {", ".join(task_names())})'
        )
    spec: TaskSpec[Any, Any] = import_module(f"saccade.tasks.{name}.task").SPEC
    return spec


def task_of(system: str) -> TaskSpec[Any, Any]:
    """The task that a system is for. Raises: SaccadeError if there is no such system."""
    from saccade.models import entry

    return find_task(entry(system).task)


@cache
def eval_options() -> tuple[type, ...]:
    """The options that some tasks have in `saccade eval`: a dataclass for each, found without importing PyTorch."""
    modules = (import_module(f"saccade.tasks.{name}") for name in task_names())
    return tuple(module.EvalOptions for module in modules if hasattr(module, "EvalOptions"))
