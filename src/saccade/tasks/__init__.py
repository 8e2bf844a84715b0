"""Tasks: one folder for each, with everything that varies by task behind one `TaskSpec`.

A folder holds `spec.py` (the `SPEC`), the task as the trainer sees it, its evaluation, its predictor, and `options.py`:
what `saccade eval` may be asked, which the command line reads without importing PyTorch.
"""

from saccade.tasks.registry import eval_options, find_task, task_names, task_of

__all__ = ["eval_options", "find_task", "task_names", "task_of"]
