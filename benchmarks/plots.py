"""Two pictures of a machine's results: each row between its floor and the official algorithm, and how time grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.rows import Growth, Row
from saccade.core.files import atomic_file
from saccade.explain.draw import PALETTE

INK, FAINT, GRID = "#1d2429", "#8a949c", "#e3e7ea"
PANELS = ("pictures", "captions", "regions", "dimensions")


def draw_ladder(rows: Sequence[Row], path: Path | str) -> None:
    """Time along a logarithmic axis: the floor as a bar, ours as a dot, the official algorithm as a ring."""
    shown = [row for row in rows if row.seconds and (row.official_seconds or row.floor_seconds)]
    figure, (axes,) = _figure(1, (8.4, 1.0 + 0.27 * max(1, len(shown))))
    for place, row in enumerate(reversed(shown)):
        known = [value for value in (row.floor_seconds, row.seconds, row.official_seconds) if value]
        axes.plot([1000 * value for value in known], [place] * len(known), color=GRID, linewidth=3, zorder=1)
        for value, marker, fill in ((row.official_seconds, "o", "white"), (row.floor_seconds, "|", FAINT)):
            if value:
                edge = {"markeredgecolor": FAINT, "markeredgewidth": 1.6, "markerfacecolor": fill, "zorder": 2}
                axes.plot(1000 * value, place, marker, markersize=10 if marker == "|" else 6, **edge)
        axes.plot(1000 * (row.seconds or 0), place, "o", color=PALETTE[0].ink, markersize=7, zorder=3)
    axes.set_yticks(range(len(shown)), [row.name for row in reversed(shown)])
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}" if value < 1 else f"{value:,.0f}")
    axes.set_xlabel("milliseconds: | floor   ● ours   ○ the official algorithm", color=INK, fontsize=9)
    axes.grid(axis="x", color=GRID, linewidth=0.8, zorder=0)
    _save(figure, path)


def draw_growth(growth: Sequence[Growth], path: Path | str) -> None:
    """Time against size, both as multiples of the smallest; the dashed line is linear growth."""
    shown = [one for one in growth if not one.failed and len(one.sizes) > 1]
    panels = [axis for axis in PANELS if any(one.axis == axis for one in shown)]
    figure, all_axes = _figure(len(panels), (2.6 * max(1, len(panels)), 3.4))
    names = list(dict.fromkeys(one.name for one in shown))
    for axis, axes in zip(panels, all_axes, strict=False):
        here = [one for one in shown if one.axis == axis]
        most = max(one.sizes[-1] / one.sizes[0] for one in here)
        axes.plot([1, most], [1, most], color=FAINT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        for one in here:
            colour = PALETTE[names.index(one.name) % len(PALETTE)].ink
            along, up = ([value / values[0] for value in values] for values in (one.sizes, one.seconds))
            label = f"{one.name} ({one.exponent:.2f})"
            axes.plot(along, up, "o-", color=colour, markersize=4, linewidth=1.4, label=label, zorder=2)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        for side in (axes.xaxis, axes.yaxis):
            side.set_major_formatter(lambda value, _: f"{value:g}×")
        axes.set_title(axis, loc="left", fontsize=10, color=INK)
        axes.grid(color=GRID, linewidth=0.8, zorder=0)
        axes.legend(fontsize=6, frameon=False, loc="upper left", labelcolor=INK)
    _save(figure, path)


def _figure(columns: int, size: tuple[float, float]) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=160, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = [figure.add_subplot(1, max(1, columns), place + 1) for place in range(max(1, columns))]
    for axes in all_axes:
        axes.tick_params(axis="both", which="both", length=0, colors=INK, labelsize=8)
        for side in axes.spines.values():
            side.set_visible(False)
    return figure, all_axes


def _save(figure: Any, path: Path | str) -> None:
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", metadata={"Software": None})
