"""Everything that is measured on a GPU, in about four minutes of an H200:

    python -m benchmarks.gpu [--only scan search] [--flickr8k ROOT]

Results go to docs/performance/gpu.json and from there to docs/performance.md; with --only, the others stay.
"""

from __future__ import annotations

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
    training,
)
from benchmarks.bench import Subject
from benchmarks.command import main

SUBJECTS: dict[str, Subject] = {
    "scan": scan.gpu,
    "matchers": matchers.gpu,
    "search": search.gpu,
    "training": training.gpu,
    "cider": cider.cases,
    "beam": beam.gpu,
    "answering": answering.cases,
    "programs": programs.cases,
    "grounding": grounding.cases,
    "hgr": hgr.cases,
    "moments": moments.cases,
    "pretraining": pretraining.gpu,
    "clicks": clicks.cases,
    "backbones": backbones.gpu,
    "extraction": extraction.gpu,
    "growth": growth.gpu,
}

if __name__ == "__main__":
    sys.exit(main("gpu", "cuda", SUBJECTS, 4, __doc__, None))
