"""The load test in small: fifty requests of eight clients, an index grown by noise, and the page that is written."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.serve import Load, grown, load, sentences, write_page
from saccade.search.index import Index
from saccade.search.query import Query
from saccade.search.searcher import Searcher

TEXTS = ("a red cube", "a blue ball left of a cone", "a small green cube")


def test_fifty_requests_of_eight_clients_are_all_answered(live: str) -> None:
    paths = [f"/search?text={text.replace(' ', '+')}" for text in TEXTS]
    found = asyncio.run(load(int(live.rsplit(":", 1)[1]), 8, 50, paths))
    assert (len(found.milliseconds), found.refused) == (50, 0)
    row = found.row()
    assert 0 < row["p50"] <= row["p95"] <= row["p99"]


def test_an_index_grows_by_noise(shelf: Path, tmp_path: Path) -> None:
    with Index.open(grown(shelf / "toys", tmp_path / "many", 60)) as index:
        assert len(index) == 60
        assert index.check() == []
        found = Searcher(index).search(Query("a red cube", top=10, exact=True))
    names = [hit.id.split("/", 1)[1] for hit in found.hits]
    assert len(set(names)) < 10  # a picture and its likeness score nearly the same


def test_the_page_keeps_what_was_measured_before(tmp_path: Path) -> None:
    page = tmp_path / "serve.md"
    row = Load(list(np.linspace(1, 100, 100)), 2.0).row()
    told = {"model": "scan", "pictures": 10_000, "machine": "2 cores", "made": "", "command": "measure"}
    figures = {"figures": {"search": row, "first": 9.0, "second": 5.0}}
    write_page(page, tmp_path / "serve.json", "load 10000", {**told, **figures})
    write_page(page, tmp_path / "serve.json", "load 100000", {**told, **figures, "pictures": 100_000})
    sample = {"minute": 1.0, "megabytes": 700.0, "descriptors": 24, "threads": 12}
    soaked = {"requests": 9, "seconds": 600.0, "errors": 0, "megabytes_a_minute": 0.01, "samples": [sample]}
    write_page(page, tmp_path / "serve.json", "soak", {**told, **soaked})
    begun = {"search_s": 4.24, "torch_s": 2.0, "paint_ms": 80.0}
    write_page(page, tmp_path / "serve.json", "start", {**told, **begun})
    text = page.read_text(encoding="utf-8")
    assert text.index("second, 10,000 pictures") < text.index("second, 100,000 pictures")
    assert "in a new shell answers after 4.2 s" in text
    assert "painted it after 80 ms" in text
    assert "| search | 100 | 50.0 | 50.5 ms | 95.0 ms | 99.0 ms |" in text
    assert "| 1.0 | 700 MB | 24 | 12 |" in text


def test_no_sentence_is_asked_twice_in_a_row() -> None:
    asked = sentences()
    assert len(asked) > 40
    assert all(one != two for one, two in pairwise(asked))
