"""docs/performance.md from what was measured: `python -m benchmarks.report`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import wording
from benchmarks.plots import draw_growth, draw_ladder
from benchmarks.rows import Growth, Result, Results, Row
from saccade.core.errors import SaccadeError
from saccade.core.files import write_text

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
FOLDER = PAGE.with_suffix("")  # of the results and the plots
MACHINES = {"gpu": "On a GPU", "cpu": "On a CPU"}
GROUPS = {
    "Every picture with every caption": ("scan", "matchers", "grounding", "hgr", "moments"),
    "Search": ("search",),
    "Training": ("training", "pretraining", "clicks"),
    "Captions and features": ("cider", "beam", "answering", "programs", "backbones", "extraction", "videos", "shipped"),
}
WRITTEN = {"python": "Python", "torch": "PyTorch", "triton": "Triton"}
ABOUT = """\
# Performance

```console
$ make bench                                          # this machine's CPU: up to ten minutes
$ python -m benchmarks.gpu                            # a GPU: about four minutes
$ python -m benchmarks.gpu --only scan search         # parts of it; the other rows stay as they were
$ python -m benchmarks.gpu --flickr8k data/flickr8k   # recalls on photographs instead of synthetic pairs
$ python -m benchmarks.report                         # this page again, from docs/performance/*.json
```

Both commands keep their figures in `docs/performance/` and write this page; no number on it is typed. Every row is held
against two things measured beside it, each by the best of its times (rows of parts run again are newer than the rest):

- **the official algorithm**, written again from what is known of the published code (`benchmarks/official.py`), in
  float32. It takes as long for every caption or picture, so of large tables some are timed and multiplied. Where there
  is none to hold a row against, the row says against what it is;
- **the floor**: what the hardware needs for the part that cannot be avoided. For a table of scores that is one matrix
  product of all regions with all words, in the same precision and without padding (*GEMM*); for a search, reading every
  code once at the speed of a copy (*read once*).

*Difference* is the largest of a sample of scores to the same computed in float64 from vectors that nothing has rounded.
*Memory* is the peak on top of the inputs. Pictures have 36 regions, captions 8 to 18 words.

On a CPU with a C++ compiler, SCAN's scores and all that follows them, and GSMN's node level, run in loops of our own
(`src/saccade/ops/native`). They are compiled once, in some seconds, and kept in Saccade's cache: here before anything
is timed, elsewhere for the first table that takes a core two seconds or more. Smaller tables are left to PyTorch, which
gives the same scores to rounding; `SACCADE_NATIVE=1` takes the loops for any table, `SACCADE_NATIVE=0` for none.

On a GPU kernels of our own do it: in Triton (`src/saccade/ops/triton`), and for SCAN's tables in 16 bits in CUDA C++
(`src/saccade/ops/cuda`). They are compiled when they are first needed, in some seconds, and kept in the cache, which is
done before anything is timed; so are the trials of how a table is cut best (`note: a large table …`) and where each
item's vectors go, as for whoever measures a model after every epoch. Codes of unit length keep three bits more in
float16 than in bfloat16, and their recalls with them. `SACCADE_KERNELS=0` leaves all to PyTorch. `saccade doctor` says
what a machine offers, `SACCADE_LOG=ops` what runs.
"""


def write_page(folder: Path, page: Path) -> None:
    """The page and its plots, from the results that are there."""
    parts = [ABOUT]
    for kind, heading in MACHINES.items():
        if (folder / f"{kind}.json").exists():
            parts += _machine(heading, kind, Results.read(folder / f"{kind}.json"), folder, page)
    if len(parts) == 1:
        raise SaccadeError(f"{folder} holds no results: run `make bench` or `python -m benchmarks.gpu`")
    write_text(page, "\n".join(parts))


def _machine(heading: str, kind: str, results: Results, folder: Path, page: Path) -> Iterator[str]:
    machine = dict(results.machine)
    count, device = machine.pop("threads", None), machine.pop("device", "")
    threads = [] if count is None else [f"{count} thread{'' if count == 1 else 's'}"]
    yield f"## {heading}\n"
    yield (
        ", ".join([str(device), *threads, *(f"{WRITTEN.get(name, name)} {value}" for name, value in machine.items())])
        + ".\n"
    )
    yield f"{_tally(list(results))}\n"
    place = folder.relative_to(page.parent)
    draw_ladder(results.rows, folder / f"{kind}.png")
    yield f"![Each row between its floor and the official algorithm]({place}/{kind}.png)\n"
    for group, subjects in GROUPS.items():
        rows = [row for row in results.rows if row.subject in subjects]
        if rows:
            yield f"### {group}{'' if kind == 'cpu' else ', GPU'}\n"
            yield from _table(rows)
    if results.growth:
        yield f"### Growth{'' if kind == 'cpu' else ', GPU'}\n"
        yield "Time as a power of what doubles while the rest stays: 1 is linear, less where much is idle.\n"
        draw_growth(results.growth, folder / f"{kind}-growth.png")
        yield f"![How time grows]({place}/{kind}-growth.png)\n"
        yield from _growth_table(results.growth)


def _tally(found: Sequence[Result]) -> str:
    aimed = [result for result in found if result.targets or result.failed]
    failed = sum(bool(result.failed) for result in found)
    said = f"{sum(result.met for result in aimed)} of {len(aimed)} results with a target reach it"
    return said + (f"; {failed} could not be measured." if failed else ".")


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "| | time | official | × official | floor | × floor | difference | memory | target |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---|"
    for row in rows:
        beside = "; ".join(part for part in (row.shape, _own(row), row.note) if part)
        name = f"**{row.name}**" + (f"<br>{beside}" if beside else "")
        if row.failed:
            yield f"| {name} | – | | | | | | | ✗ {row.failed.replace('|', '/')} |"
            continue
        floor = f"{wording.duration(row.floor_seconds)} {row.floor}".strip() if row.floor_seconds else "–"
        cells = (
            name,
            wording.duration(row.seconds),
            wording.duration(row.official_seconds),
            wording.times(row.speedup),
            floor,
            wording.times(row.times_floor),
            "–" if row.difference is None else f"{row.difference:.1e}",
            wording.size(row.peak_bytes),
            "<br>".join(f"{_mark(t.met(row.figure(t.figure)))} {wording.wanted(t)}" for t in row.targets),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _own(row: Row) -> str:
    return ", ".join(wording.figure(name, value) for name, value in row.figures.items())


def _growth_table(growth: Sequence[Growth]) -> Iterator[str]:
    yield "| | doubling | sizes | times | exponent | target | the rest |"
    yield "|---|---|---|---|---:|---|---|"
    for one in growth:
        if one.failed:
            yield f"| {one.name} | {one.axis} | – | – | – | ✗ {one.failed.replace('|', '/')} | |"
            continue
        sizes, times = " · ".join(f"{size:,}" for size in one.sizes), " · ".join(map(wording.duration, one.seconds))
        target = "<br>".join(f"{_mark(t.met(one.exponent))} {t.relation} {t.value:g}" for t in one.targets)
        yield f"| {one.name} | {one.axis} | {sizes} | {times} | {one.exponent or 0:.2f} | {target} | {one.shape} |"
    yield ""


def _mark(met: bool) -> str:
    return "✓" if met else "✗"


def main() -> int:
    try:
        write_page(FOLDER, PAGE)
    except SaccadeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
