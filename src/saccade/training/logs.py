"""What a run writes down and shows: metrics.csv, TensorBoard events, a progress bar or one line per evaluation."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import read_text, write_text

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

Row = Mapping[str, "str | int | float"]


class MetricsFile:
    """A CSV file that grows by a row at a time, and by a column when a new figure appears."""

    COLUMNS = ("step", "epoch", "split", "seconds", "learning_rate", "loss")

    def __init__(self, path: Path, step: int = 0) -> None:
        """Open the file as it was at `step`: later rows, and a last row cut short, are dropped."""
        self.path = path
        self.columns = list(self.COLUMNS)
        rows: list[dict[str, str]] = []
        if step > 0 and path.exists():
            text = read_text(path)
            text = text[: text.rfind("\n") + 1]  # a killed process may have left half a line
            reader = csv.DictReader(io.StringIO(text))
            self.columns = list(reader.fieldnames or self.COLUMNS)
            try:
                rows = [row for row in reader if (row["step"] or "").isdecimal() and int(row["step"]) <= step]
                if len(set(self.columns)) < len(self.columns) or any(None in row for row in rows):
                    raise ValueError("columns that are not named, or named twice")
            except (KeyError, ValueError, csv.Error) as error:
                raise SaccadeError(f"{path} is damaged: remove it, or train into another folder") from error
        self._rewrite(rows)

    def append(self, row: Row) -> None:
        new = [name for name in row if name not in self.columns]
        if new:
            rows = list(csv.DictReader(io.StringIO(read_text(self.path))))
            self.columns += new
            self._rewrite(rows)
        with explain_os_errors(self.path, "write"), self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(self._lines([row]))

    def _rewrite(self, rows: Sequence[Mapping[str, str]]) -> None:
        header = self._lines([{name: name for name in self.columns}])
        write_text(self.path, header + self._lines(rows))

    def _lines(self, rows: Sequence[Row]) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", lineterminator="\n")
        writer.writerows({k: f"{v:.8g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
        return text.getvalue()


class RunLog:
    """Writes each set of figures to metrics.csv and to TensorBoard."""

    def __init__(self, metrics: Path, events: Path, step: int = 0) -> None:
        self.file = MetricsFile(metrics, step)
        self._events, self._step = events, step
        self._writer: SummaryWriter | None = None

    def write(self, step: int, epoch: int, split: str, seconds: float, figures: Mapping[str, float]) -> None:
        """One row: `split` is train or dev, `epoch` counts from 1, `seconds` from the start of the run."""
        self.file.append({"step": step, "epoch": epoch, "split": split, "seconds": round(seconds, 3), **figures})
        if self._writer is None:
            from torch.utils.tensorboard.writer import SummaryWriter  # late: it takes its time to import

            # Events of steps that a killed run did and its checkpoint does not know are hidden.
            purge = self._step + 1 if self._step else None
            with explain_os_errors(self._events, "write"):
                self._writer = SummaryWriter(str(self._events), purge_step=purge)
        for name, value in figures.items():
            self._writer.add_scalar(f"{split}/{name}", value, step)

    def close(self) -> None:
        if self._writer is not None:
            with explain_os_errors(self._events, "write"):
                self._writer.close()


_REFRESH = 0.1  # seconds between two updates of the bar


class Display:
    """Shows epoch, step, loss, items per second, time left and the best metric so far."""

    def __init__(self, console: Console, step: int, steps: int, epochs: int, batch_size: int, enabled: bool) -> None:
        self.console, self.steps, self.epochs, self.batch_size = console, steps, epochs, batch_size
        self.enabled = enabled
        self._best = "–"
        self._shown_at, self._shown_step = time.perf_counter(), step
        self._rate = 0.0
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[rate]} items/s"),
            TimeRemainingColumn(),
            TextColumn("best {task.fields[best]}"),
            console=console,
            disable=not (enabled and console.is_terminal),
        )
        fields: dict[str, Any] = {"epoch": f"1/{epochs}", "loss": "–", "rate": "–", "best": "–"}
        self._row = self.bar.add_task("train", total=steps, completed=step, **fields)

    def step(self, step: int, epoch: int, loss: float) -> None:
        now = time.perf_counter()
        passed = now - self._shown_at
        if not self.enabled or (passed < _REFRESH and step < self.steps):
            return
        rate = (step - self._shown_step) * self.batch_size / max(passed, 1e-9)
        self._rate = 0.8 * self._rate + 0.2 * rate if self._rate else rate
        self._shown_at, self._shown_step = now, step
        fields: dict[str, Any] = {"loss": f"{loss:.4g}", "rate": f"{self._rate:,.0f}", "best": self._best}
        self.bar.update(self._row, completed=step, epoch=f"{epoch}/{self.epochs}", **fields)

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
