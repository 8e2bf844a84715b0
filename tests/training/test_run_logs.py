from __future__ import annotations

import csv
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from saccade.training.logs import Display, MetricsFile, RunLog


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(path.read_text())))


def test_a_new_figure_adds_a_column_and_keeps_the_rows(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv")
    file.append({"step": 1, "loss": 0.5})
    file.append({"step": 2, "rsum": 100.0})
    assert [row["step"] for row in rows(file.path)] == ["1", "2"]
    assert (rows(file.path)[0]["loss"], rows(file.path)[0]["rsum"]) == ("0.5", "")
    assert rows(file.path)[1]["rsum"] == "100"


def test_opening_at_a_step_drops_later_rows_and_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    file = MetricsFile(path)
    for step in range(1, 6):
        file.append({"step": step, "loss": step / 3})
    whole = path.read_text()
    path.write_text(whole + "6,1,tra")
    MetricsFile(path, step=5)
    assert path.read_text() == whole
    MetricsFile(path, step=3)
    assert [row["step"] for row in rows(path)] == ["1", "2", "3"]
    MetricsFile(path, step=0)
    assert rows(path) == []


def test_tensorboard_shows_each_step_once_after_a_resume(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for start, stop in ((0, 6), (3, 8)):  # the first run was killed at 6, its checkpoint at 3
        log = RunLog(tmp_path / "metrics.csv", tmp_path / "tensorboard", step=start)
        for step in range(start + 1, stop):
            log.write(step, 1, "train", 0.0, {"loss": start + step / 10})
        log.close()
        time.sleep(1.1)  # TensorBoard orders its files by the second of their making
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    shown = {event.step: event.value for event in events.Scalars("train/loss")}
    assert len(events.Scalars("train/loss")) == 7
    assert shown[4] == pytest.approx(3.4)


def test_without_a_terminal_there_is_one_line_per_evaluation() -> None:
    console = Console(file=StringIO(), width=200)
    display = Display(console, step=0, steps=10, epochs=2, batch_size=4, enabled=True)
    with display.bar:
        for step in range(1, 11):
            display.step(step, 1, 0.5)
        display.evaluated(10, 2, {"rsum": 123.4}, "rsum", 123.4, improved=True)
    assert console.file.getvalue() == "epoch 2/2  step 10/10  rsum 123.4  (best so far)\n"  # type: ignore[attr-defined]


def test_on_a_terminal_a_bar_shows_where_the_run_stands() -> None:
    console = Console(file=StringIO(), width=200, force_terminal=True, color_system=None)
    display = Display(console, step=0, steps=10, epochs=2, batch_size=4, enabled=True)
    with display.bar:
        display.evaluated(5, 1, {"rsum": 123.4}, "rsum", 123.4, improved=True)
        display.step(10, 2, 0.25)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("epoch 2/2", "10/10", "loss 0.25", "items/s", "best rsum 123.4"):
        assert part in shown


def test_other_ranks_show_nothing() -> None:
    console = Console(file=StringIO(), force_terminal=True)
    display = Display(console, step=0, steps=10, epochs=2, batch_size=4, enabled=False)
    with display.bar:
        display.step(10, 2, 0.25)
        display.evaluated(5, 1, {"rsum": 123.4}, "rsum", 123.4, improved=True)
        display.note("hello")
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]
