"""Everything that is measured on a CPU: `make bench`, or

    python -m benchmarks.cpu [--only scan growth] [--threads 2]

Results go to docs/performance/cpu.json and from there to docs/performance.md; with --only, the others stay.
"""

from __future__ import annotations

import os
import sys

from benchmarks import (
    answering,
    backbones,
    beam,
    cider,
    clicks,
    extraction,
    grounding,
    growth,
    hgr,
    matchers,
    moments,
    pretraining,
    programs,
    scan,
    search,
    shipped,
    training,
    videos,
)
from benchmarks.bench import Subject
from benchmarks.command import main

SUBJECTS: dict[str, Subject] = {
    "scan": scan.cpu,
    "matchers": matchers.cpu,
    "search": search.cpu,
    "training": training.cpu,
    "cider": cider.cases,
    "beam": beam.cpu,
    "answering": answering.cases,
    "programs": programs.cases,
    "grounding": grounding.cases,
    "hgr": hgr.cases,
    "moments": moments.cases,
    "pretraining": pretraining.cpu,
    "clicks": clicks.cases,
    "backbones": backbones.cpu,
    "extraction": extraction.cpu,
    "videos": videos.cases,
    "shipped": shipped.cpu,
    "growth": growth.cpu,
}

if __name__ == "__main__":
    os.environ.setdefault("SACCADE_NATIVE", "1")  # tables measured here are too small to be worth compiling for
    sys.exit(main("cpu", "cpu", SUBJECTS, 10, __doc__, None))
