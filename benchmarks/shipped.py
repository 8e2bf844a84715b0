"""The matchers of the package from photo files, as `saccade score` and `saccade extract --model` read them.

    python -m benchmarks.cpu --only shipped            # a minute; the page's other rows stay

The small one is held against the large one, `scan-flickr8k`; what it costs in rsum is told in docs/photos.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import saccade
from benchmarks.bench import Bench, Case
from benchmarks.extraction import extracting, mean_side, photo_files
from benchmarks.rows import Row, Target
from saccade.tasks.matching.task import PictureMatcher

LARGE, SMALL = "scan-flickr8k", "scan-small"
SENTENCE = "a man rides a horse on the beach"
Listed = Sequence[tuple[str, Path]]


def cpu(bench: Bench) -> Iterator[Case]:
    for verb, run in (("score", scoring), ("extract", lambda listed, matcher: extracting(listed, matcher.extractor))):
        yield Case(f"{verb}, {SMALL}, photo files", partial(read, bench, run))


def read(bench: Bench, run: Callable[[Listed, PictureMatcher], Callable[[], None]]) -> Row:
    listed = photo_files(bench.size(32, 1))
    spent = bench.best_of(
        {name: run(listed, saccade.load(name, bench.device, kind=PictureMatcher)) for name in (LARGE, SMALL)},
        runs=3,
        limit=60,
    )
    return Row(
        name="",
        shape=f"{len(listed)} photos of {mean_side(listed):.0f} pixels a side",
        seconds=spent[SMALL],
        official_seconds=spent[LARGE],
        figures={"pictures_a_second": len(listed) / spent[SMALL]},
        targets=() if bench.quick else (Target("speedup", "≥", 5),),
        note=f"against {LARGE}",
    )


def scoring(listed: Listed, matcher: PictureMatcher) -> Callable[[], None]:
    return lambda: [*matcher.score_places(listed, (), [SENTENCE])].clear()
