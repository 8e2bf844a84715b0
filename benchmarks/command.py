"""What `python -m benchmarks.cpu` and `python -m benchmarks.gpu` share: options, printing, and keeping the results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from benchmarks import timing, wording
from benchmarks.bench import Bench, Subject, measure
from benchmarks.report import FOLDER, PAGE, write_page
from benchmarks.rows import Result, Results
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig


def main(
    kind: str, device: str, subjects: Mapping[str, Subject], minutes: float, about: str | None, words: list[str] | None
) -> int:
    """Measures, prints, keeps the results in docs/performance/KIND.json and writes docs/performance.md."""
    options = _parser(kind, subjects, minutes, about).parse_args(words)
    if device == "cuda" and not torch.cuda.is_available():
        print("error: there is no GPU here: `make bench` measures the CPU", file=sys.stderr)
        return 2
    if options.threads:
        torch.set_num_threads(options.threads)
    chosen = {name: subjects[name] for name in options.only or subjects}
    photographs = (DataConfig("flickr8k", options.flickr8k), options.model) if options.flickr8k else None
    bench = Bench(device, options.quick, photographs)
    out = Path(options.out)
    machine = timing.machine(device)
    print(" · ".join(f"{value} {name}" if name == "threads" else f"{name} {value}" for name, value in machine.items()))
    try:
        kept = Results.read(out) if options.only and out.exists() else Results(machine)
        results = Results(machine, kept.rows, kept.growth)
        found: list[Result] = []
        for result in measure(
            chosen, bench, options.minutes, options.each, lambda r: print(wording.line(r), flush=True)
        ):
            found.append(result)
            results.with_results(found).write(out)  # what is known by now outlives a crash of the next
        results.with_results(found).without_others(chosen, found).write(out)
        if not options.no_page:
            write_page(FOLDER, PAGE)
    except SaccadeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    failed, missed = [r for r in found if r.failed], [r for r in found if not r.failed and not r.met]
    print(f"{len(found)} results, {len(failed)} failed, {len(missed)} short of their target; {out}")
    return 1 if failed else 0


def _parser(kind: str, subjects: Mapping[str, Subject], minutes: float, about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{kind}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(subjects),
        metavar="SUBJECT",
        help=f"of {', '.join(subjects)}; others are kept",
    )
    parser.add_argument("--minutes", type=float, default=minutes, help="after these nothing new is begun")
    parser.add_argument("--each", type=float, default=90.0, help="seconds that one row may take")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything work?")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; PyTorch's own choice if not given")
    parser.add_argument("--out", default=str(FOLDER / f"{kind}.json"), help="where the results go")
    parser.add_argument("--no-page", action="store_true", help="leave docs/performance.md as it is")
    parser.add_argument(
        "--flickr8k", type=Path, metavar="ROOT", help="compare recalls on these photos; on synthetic pairs if not given"
    )
    parser.add_argument("--model", default="scan-flickr8k", help="that sees and reads them")
    return parser
