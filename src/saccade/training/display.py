"""What a person sees of a run: a progress bar on a terminal, one line per evaluation elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_REFRESH = 0.1  # seconds between two updates of the bar


class Display:
    """Shows epoch, step, loss, items per second, time left and the best metric so far."""

    def __init__(self, console: Console, step: int, steps: int, epochs: int, batch_size: int, enabled: bool) -> None:
        self.console, self.steps, self.epochs, self.batch_size = console, steps, epochs, batch_size
        self.enabled = enabled
        self._bar: Progress | None = None
        self._best = "–"
        self._shown_at, self._shown_step = time.perf_counter(), step
        self._rate = 0.0
        if enabled and console.is_terminal:
            self._bar = Progress(
                TextColumn("epoch {task.fields[epoch]}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("loss {task.fields[loss]}"),
                TextColumn("{task.fields[rate]} items/s"),
                TimeRemainingColumn(),
                TextColumn("best {task.fields[best]}"),
                console=console,
            )
            fields: dict[str, Any] = {"epoch": f"1/{epochs}", "loss": "–", "rate": "–", "best": "–"}
            self._row = self._bar.add_task("train", total=steps, completed=step, **fields)

    def __enter__(self) -> Display:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, step: int, epoch: int, loss: float) -> None:
        now = time.perf_counter()
        passed = now - self._shown_at
        if not self.enabled or (passed < _REFRESH and step < self.steps):
            return
        rate = (step - self._shown_step) * self.batch_size / max(passed, 1e-9)
        self._rate = 0.8 * self._rate + 0.2 * rate if self._rate else rate
        self._shown_at, self._shown_step = now, step
        if self._bar is not None:
            fields: dict[str, Any] = {
                "epoch": f"{epoch}/{self.epochs}",
                "loss": f"{loss:.4g}",
                "rate": f"{self._rate:,.0f}",
            }
            self._bar.update(self._row, completed=step, best=self._best, **fields)

    def evaluated(
        self, step: int, epoch: int, metrics: Mapping[str, float], selection: str, best: float, improved: bool
    ) -> None:
        """Report an evaluation; the time it took does not count against the rate."""
        self._best = f"{selection} {_figure(best)}"
        self._shown_at, self._shown_step = time.perf_counter(), step
        if self.enabled:
            figures = "  ".join(f"{name} {_figure(value)}" for name, value in metrics.items())
            mark = "  (best so far)" if improved else ""
            self.console.print(
                f"epoch {epoch}/{self.epochs}  step {step}/{self.steps}  {figures}{mark}", highlight=False, markup=False
            )

    def note(self, text: str) -> None:
        if self.enabled:
            self.console.print(text, highlight=False, markup=False)


def _figure(value: float) -> str:
    """Four digits; what is next to nothing is nothing (a BLEU of 4e-12 says that no four words were right)."""
    return f"{0.0 if abs(value) < 1e-4 else value:.4g}"
