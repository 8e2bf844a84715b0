"""What the two stages of a search cost and lose on an index, measured against scoring every picture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json
from saccade.explain.explanation import FUNCTION_WORDS
from saccade.search.exact import top_k
from saccade.search.query import Query
from saccade.search.searcher import Searcher

EVALUATION = "evaluation.json"
CANDIDATES = (20, 50, 100, 200, 500)
TIMED = 3  # searches that score everything, to time them; what they would find is computed for all sentences at once


@dataclass(frozen=True)
class Stage:
    """The best of so many candidates, beside scoring everything."""

    candidates: int
    recall: float  # of the exact best `top`
    first: float  # how often the exact first is first
    milliseconds: float  # of a query, the median
    stages: dict[str, float] = field(default_factory=dict)  # … by stage


@dataclass(frozen=True)
class Evaluation:
    pictures: int
    queries: int
    top: int
    exact_milliseconds: float
    rows: tuple[Stage, ...]
    version: int  # of the index


def evaluate(
    searcher: Searcher,
    texts: Sequence[str],
    top: int = 10,
    candidates: Sequence[int] = CANDIDATES,
    maxsim: bool = False,
) -> Evaluation:
    """Raises: SaccadeError if there are no sentences."""
    if not texts:
        raise SaccadeError("to measure a search takes sentences to search for")
    snapshot = searcher.index.snapshot()
    pictures = len(snapshot.ids)
    searcher.search(Query(texts[0], top=top))  # what the first one loads is no part of it
    exact_ms = []
    for text in texts[:TIMED]:
        start = time.perf_counter()
        searcher.search(Query(text, top=top, exact=True))
        exact_ms.append(1000 * (time.perf_counter() - start))
    best = top_k(searcher.table(texts).T, top).indices.tolist()
    truth = [[snapshot.ids[n] for n in row] for row in best]
    rows = []
    for count in candidates if searcher.kept.compares else ():
        if count >= pictures or count < top:
            continue
        took, hit_rate, firsts, stages = list[float](), list[float](), list[bool](), list[dict[str, float]]()
        for text, right in zip(texts, truth, strict=True):
            start = time.perf_counter()
            found = searcher.search(Query(text, top=top, candidates=count, maxsim=maxsim))
            took.append(1000 * (time.perf_counter() - start))
            ids = [hit.id for hit in found.hits]
            hit_rate.append(len(set(ids) & set(right)) / max(1, len(right)))
            firsts.append(ids[:1] == right[:1])
            stages.append(dict(found.seconds))
        median = {name: round(1000 * float(np.median([s[name] for s in stages])), 2) for name in stages[0]}
        rows.append(
            Stage(count, float(np.mean(hit_rate)), float(np.mean(firsts)), round(float(np.median(took)), 2), median)
        )
    return Evaluation(
        pictures, len(texts), top, round(float(np.median(exact_ms)), 2), tuple(rows), searcher.index.table.version
    )


def plain_sentences(words: Sequence[str], count: int = 200) -> list[str]:
    """Words that a model knows, each as something to search for: `a dog`. Spread over all of them."""
    named = [word for word in words if word.isalpha() and len(word) > 2 and word not in FUNCTION_WORDS]
    step = max(1, len(named) // count)
    return [f"a {word}" for word in named[::step]][:count]


def save_evaluation(folder: Path, found: Evaluation) -> None:
    write_json(folder / EVALUATION, asdict(found))


def read_evaluation(folder: Path) -> dict[str, Any] | None:
    """What was measured last, if it was."""
    path = folder / EVALUATION
    if not path.is_file():
        return None
    found = read_json(path)
    return found if isinstance(found, dict) else None
