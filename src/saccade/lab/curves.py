"""How runs went: a panel for each loss and each figure of their metrics.csv, a line for each run."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.core.files import read_text
from saccade.lab.reports import FAINT, INK, colour, new_figure, quiet, save_figure

Line = list[tuple[int, float]]  # (step, figure)
NOT_DRAWN = ("step", "epoch", "split", "seconds", "learning_rate", "gradient_norm")
COLUMNS = 3
JUDGED = "dev"


def read_curves(folder: Path) -> dict[str, dict[str, Line]]:
    """Of every figure of a run, its lines by split. Raises: SaccadeError if it is no run, or a damaged one."""
    path = folder / "metrics.csv"
    if not path.is_file():
        raise SaccadeError(f"{folder} is no run folder: it has no metrics.csv")
    found: dict[str, dict[str, Line]] = {}
    try:
        for row in csv.DictReader(io.StringIO(read_text(path))):
            for name, value in row.items():
                if name not in NOT_DRAWN and value and math.isfinite(float(value)):
                    found.setdefault(name, {}).setdefault(row["split"], []).append((int(row["step"]), float(value)))
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise SaccadeError(f"{path} is damaged: a table of steps and figures was expected") from error
    if not found:
        raise SaccadeError(f"{path} holds no figures yet")
    return found


def draw_run_curves(folders: Sequence[Path], path: Path) -> list[str]:
    """Losses first, then the figures of the dev split; the names of what was drawn. Training is faint, dev is dark."""
    runs = {folder: read_curves(folder) for folder in folders}
    names = dict.fromkeys(name for curves in runs.values() for name in curves)
    order = sorted(names, key=lambda name: (name != "loss", not name.endswith("_loss")))
    rows = -(-len(order) // COLUMNS)
    columns = min(len(order), COLUMNS)
    figure = new_figure((0.4 + 2.9 * columns, 0.3 + 2.1 * rows), dpi=110, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, name in zip(panels, order, strict=False):
        for place, (folder, curves) in enumerate(runs.items()):
            for split, line in curves.get(name, {}).items():
                steps, values = zip(*line, strict=True)
                judged = split == JUDGED
                label = f"{folder.name}, {split}" if len(runs) > 1 else split
                width, alpha, mark = (1.6, 1.0, "o") if judged else (0.9, 0.55, None)  # of one evaluation, a dot
                style: dict[str, Any] = {"linewidth": width, "alpha": alpha, "marker": mark, "markersize": 3}
                panel.plot(steps, values, color=colour(place), label=label, **style)
        panel.set_title(name.replace("_", " "), loc="left", fontsize=9, color=INK, fontweight="bold")
        panel.set_xlabel("step", fontsize=8, color=FAINT)
        quiet(panel)
    for panel in panels[len(order) :]:
        panel.set_visible(False)
    panels[0].legend(fontsize=7, frameon=False)
    save_figure(figure, path)
    return order
