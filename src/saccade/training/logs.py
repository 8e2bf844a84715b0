"""The record of a run: metrics.csv for reading, TensorBoard events for watching."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from saccade.core.errors import explain_os_errors
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
            rows = [row for row in reader if row["step"].isdigit() and int(row["step"]) <= step]
            self.columns = list(reader.fieldnames or self.COLUMNS)
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
