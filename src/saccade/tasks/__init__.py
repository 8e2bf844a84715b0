"""Tasks: what a batch is, what loss to minimise, how to predict and which metrics to report."""

from saccade.tasks.task import Task

__all__ = ["Task"]
