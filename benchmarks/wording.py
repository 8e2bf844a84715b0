"""Figures as readers want them: three digits, and a unit."""

from __future__ import annotations

from benchmarks.rows import Growth, Result, Row, Target

NAMES = {
    "speedup": "{} as fast",
    "times_floor": "{} the floor",
    "gemm_share": "{} of the GEMM's rate",
    "difference": "difference {}",
    "peak_bytes": "peak {}",
    "exponent": "exponent {}",
    "of_budget": "{} of the budget",
    "recalls_that_differ": "{} recalls differ",
    "idle": "GPU idle {}",
    "percent_again": "{} % of the pairs scored again",
    "answers_that_differ": "{} answers differ",
    "pictures_a_second": "{} pictures a second",
    "examples_a_second": "{} examples a second",
    "frames_a_second": "{} frames a second",
    "clips_a_minute": "{} clips a minute",
    "decoded_alone_a_second": "{} decoded alone",
    "seen_alone_a_second": "{} seen alone",
    "of_decoding": "{} of the decoding rate",
    "of_peak": "{} of the peak rate",
    "of_peak_eager": "{} without compiling",
    "padding": "padding {}",
    "pairs_a_second": "{} pairs a second",
}
SHARES = ("gemm_share", "idle", "of_budget", "of_decoding", "of_peak", "of_peak_eager", "padding")


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{three(seconds / size)} {unit}"
    return f"{three(seconds * 1e6)} µs"


def times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{three(ratio)}×"


def size(count: float | None) -> str:
    if count is None:
        return "–"
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{three(count / unit)} {name}"
    return f"{count / 1e6:.1f} MB"


def three(value: float) -> str:
    """1,234 · 123 · 12.3 · 1.23 · 0.123"""
    if 0 < value < 0.005:
        return f"{value:.1e}"
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def figure(name: str, value: float | None) -> str:
    """A figure by its name, with its unit: `18.3× the floor`."""
    if value is None:
        text = "unknown"
    elif name in ("speedup", "times_floor"):
        text = times(value)
    elif name in SHARES:
        text = f"{100 * value:.3g} %"
    elif name.endswith("_seconds"):
        name, text = name.removesuffix("_seconds"), duration(value)
    elif name == "difference":
        text = f"{value:.1e}"
    elif name == "peak_bytes":
        text = size(value)
    else:
        text = f"{value:,.0f}" if float(value).is_integer() else three(value)
    return NAMES.get(name, name.replace("_", " ") + " {}").format(text)


def wanted(target: Target) -> str:
    """≤ 2× the floor"""
    if target.figure in ("speedup", "times_floor"):
        value = NAMES[target.figure].format(f"{target.value:g}×")
    else:
        value = figure(target.figure, target.value)
    plain = NAMES.get(target.figure, "").startswith("{}")
    return f"{target.relation} {value}" if plain else value.replace(" ", f" {target.relation} ", 1)


def line(result: Result) -> str:
    """A result in one line of a terminal."""
    mark = "✗" if not result.met else "✓" if result.targets else " "
    if isinstance(result, Growth):
        name = f"{result.name}, doubling {result.axis}"
        said = result.failed or f"time ∝ {result.axis}^{result.exponent or 0:.2f}"
        return f"{mark} {name:58} {said}"
    return f"{mark} {result.name:58} {result.failed or '   '.join(parts(result))}"


def parts(row: Row) -> list[str]:
    found = [duration(row.seconds)] if row.seconds is not None else []
    for name in ("speedup", "times_floor", "difference", "peak_bytes"):
        if row.figure(name) is not None:
            found.append(figure(name, row.figure(name)))
    return [*found, *(figure(name, value) for name, value in row.figures.items())]
