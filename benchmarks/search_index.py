"""Search an index of 100,000 pictures in two stages, beside scoring all of them: docs/results/search.md.

    python -m benchmarks.search_index STORE… --sentences captions.txt --photos photos/

The stores hold region features that scan-flickr8k's encoder reads (`saccade extract --regions
grid:tuned:scan-flickr8k@224/8`). Each picture of the index is one of theirs with noise on every code, so that no two
are alike. The sentences are captions of some of the photos.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from saccade.core.files import read_json, write_json, write_text
from saccade.data import FeatureStore
from saccade.search.coding import Encoded, packed, reduced_images
from saccade.search.index import Index
from saccade.search.measure import evaluate
from saccade.search.query import Query
from saccade.search.searcher import Searcher

MODEL = "scan-flickr8k"
NOISE = 0.5  # its length beside a code's
FINER = (12, 12)  # cells, as scan-flickr8k reads photos
MIXED = 0.25  # of collages, the share of regions from another picture
CHOSEN = 50  # candidates of which the parts of a query are told
BATCH, COMMIT = 100, 5000
PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "search.md"


@torch.no_grad()
def base_codes(index: Index, stores: Sequence[FeatureStore]) -> Tensor:
    """[picture region dim] float16, as the index keeps them but for the rounding to bytes."""
    model, basis = index.matcher().model, index.basis
    parts = []
    for store in stores:
        for start in range(0, len(store), 256):
            code = model.encode_images(store.batch(range(start, min(start + 256, len(store)))))
            parts.append(reduced_images(code, basis).regions.half())
    return torch.cat(parts)


def as_photos(base: Tensor) -> Tensor:
    """Maps of 8 × 8 cells as 12 × 12, as the model reads photos."""
    side = round(base.shape[1] ** 0.5)
    maps = base.view(len(base), side, side, -1).permute(0, 3, 1, 2)
    finer = [functional.interpolate(part.float(), FINER, mode="bilinear") for part in maps.split(256)]
    return torch.cat([part.flatten(2).mT.half() for part in finer])


def drawn(base: Tensor, count: int, mixed: float = 0.0, seed: int = 0) -> Iterator[Tensor]:
    """Codes of `count` pictures, no two alike, a batch at a time."""
    draw = torch.Generator().manual_seed(seed)
    regions, dim = base.shape[1:]
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        own = base[torch.arange(start, start + size) % len(base)].float()
        if mixed:
            other = base[torch.randint(len(base), (size,), generator=draw)].float()
            own = torch.where(torch.rand(size, regions, 1, generator=draw) < mixed, other, own)
        noise = torch.randn(size, regions, dim, generator=draw) * (NOISE / dim**0.5)
        noise[..., -1] = 0  # what lies outside the codes' subspace
        yield functional.normalize(own + noise, dim=2)


def fill(index: Index, base: Tensor, count: int, mixed: float = 0.0) -> float:
    """Put `count` pictures into an index; the seconds that it took to write them."""
    kept, seconds, number = index.settings.kept, 0.0, 0
    boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (base.shape[1], 1))
    rows, codes = list[dict[str, Any]](), list[Encoded]()
    for batch in drawn(base, count, mixed):
        for own, whole in zip(batch, functional.normalize(batch.sum(dim=1), dim=1), strict=True):
            id = f"p{number:07d}"
            rows.append({"id": id, "kind": "regions", "path": "", "source": "", "year": 2000 + number % 25})
            codes.append(packed(own, boxes, whole, kept, id))
            number += 1
        if len(rows) >= COMMIT or number == count:
            started = time.perf_counter()
            index.put(rows, codes, False)
            seconds += time.perf_counter() - started
            rows, codes = [], []
    return seconds


def resident() -> float:
    """Megabytes of memory that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(
    place: Path,
    stores: Sequence[FeatureStore],
    count: int,
    sentences: Sequence[str],
    mixed: float = 0.0,
    finer: bool = False,
) -> dict[str, Any]:
    """An index of so many pictures: what it takes, and both stages beside scoring everything."""
    with Index.create(place, MODEL) as index:
        base = base_codes(index, stores)
        if finer:
            base = as_photos(base)
        seconds = fill(index, base, count, mixed)
    facts = {"from": len(base), "regions": base.shape[1], "dim": base.shape[2], "written_per_second": count / seconds}
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # whose memory is a search's alone
        return {**facts, **fresh.submit(measure_search, place, list(sentences), mixed > 0).result()}


def measure_search(place: Path, sentences: Sequence[str], by_regions: bool = False) -> dict[str, Any]:
    """Both stages; and with `by_regions` candidates by MaxSim too."""
    with Index.open(place) as index:
        searcher = Searcher(index)
        before = resident()
        started = time.perf_counter()
        searcher.search(Query(sentences[0], top=10))
        first = 1000 * (time.perf_counter() - started)
        held = resident() - before
        found = evaluate(searcher, sentences, 10)
        size = index.stats()
        filtered = _median([Query(text, top=10, where="year >= 2020") for text in sentences[:30]], searcher)
        shown = _median([Query(text, top=20) for text in sentences[:50]], searcher)
        regions = evaluate(searcher, sentences, 10, (CHOSEN,), maxsim=True).rows if by_regions else ()
    return {
        "bytes_per_picture": size.bytes_per_picture,
        "memory_per_picture": 1e6 * held / found.pictures,
        "first_query_ms": first,
        "filtered_ms": filtered,
        "top_20_ms": shown,
        **asdict(found),
        **({"by_regions": asdict(regions[0])} if regions else {}),
    }


def _median(queries: Sequence[Query], searcher: Searcher) -> float:
    took = []
    for query in queries:
        started = time.perf_counter()
        searcher.search(query)
        took.append(1000 * (time.perf_counter() - started))
    return float(np.median(took))


def indexing(place: Path, photos: Path, limit: int) -> dict[str, float]:
    """Photos a second: decoded alone, and indexed."""
    from saccade.features.decoding import Opener, open_ahead
    from saccade.features.extraction import list_pictures

    files = list_pictures([photos], limit)
    listing = place / "list.txt"
    write_text(listing, "".join(f"{path.absolute()}\n" for _, path in files))
    found: dict[str, float] = {"photos": len(files)}
    for model in (MODEL, "scan-small"):
        with Index.create(place / model, model) as index:
            extractor = index.matcher().extractor
            started = time.perf_counter()
            for _ in open_ahead(Opener(extractor, None, "fraction", {}), files, None, 16):
                pass
            found[f"{model}_decoded"] = len(files) / (time.perf_counter() - started)
            started = time.perf_counter()
            index.update(listing)
            found[f"{model}_indexed"] = len(files) / (time.perf_counter() - started)
            found[f"{model}_bytes"] = index.stats().bytes_per_picture
            searcher = Searcher(index)
            searcher.search(Query("a dog", top=1))
            took = []
            for id in index.snapshot().ids[:20]:
                started = time.perf_counter()
                searcher.explain(id, "two dogs run on the grass")
                took.append(1000 * (time.perf_counter() - started))
            found[f"{model}_explain_ms"] = float(np.median(took))
    return found


def page(found: dict[str, Any]) -> str:
    """docs/results/search.md."""
    lines = [HEAD.format(cores=found["cores"])]
    for name, title in TITLES.items():
        one = found[name]
        lines += [
            f"## {title}\n",
            f"{one['pictures']:,} pictures of {one['regions']} regions, made from the codes of {one['from']:,} photos; "
            f"{one['queries']} captions, the best {one['top']} of each.\n",
            "| candidates | recall@10 of scoring all | same first | ms a query | times as quick |",
            "|---|---|---|---|---|",
        ]
        for row in one["rows"]:
            lines.append(
                f"| {row['candidates']:,} | {row['recall']:.3f} | {row['first']:.3f} | {row['milliseconds']:.1f} | "
                f"{one['exact_milliseconds'] / row['milliseconds']:,.0f} |"
            )
        if row := one.get("by_regions"):
            lines.append(
                f"| {row['candidates']:,}, by MaxSim | {row['recall']:.3f} | {row['first']:.3f} | "
                f"{row['milliseconds']:.1f} | {one['exact_milliseconds'] / row['milliseconds']:,.0f} |"
            )
        lines.append(f"| all | 1.000 | 1.000 | {one['exact_milliseconds']:,.0f} | 1 |\n")
        chosen = next((row for row in one["rows"] if row["candidates"] == CHOSEN), one["rows"][-1])
        stages = ", ".join(f"{stage} {ms:.1f}" for stage, ms in chosen["stages"].items())
        lines.append(
            f"Of a query with {chosen['candidates']} candidates, in ms: {stages}. The best 20 with each word's share: "
            f"{one['top_20_ms']:.0f} ms. With a filter that lets a fifth through: {one['filtered_ms']:.0f} ms. The "
            f"first query of a process, which reads all vectors: {one['first_query_ms']:.0f} ms. A picture takes "
            f"{one['bytes_per_picture'] / 1e3:.1f} KB on disk and {one['memory_per_picture'] / 1e3:.2f} KB of memory; "
            f"{one['written_per_second']:,.0f} rows a second are written.\n"
        )
    rate = found["indexing"]
    lines += [
        "## Indexing photos\n",
        f"{rate['photos']:,} photos, two cores.\n",
        "| model | photos a second | decoding alone | KB a photo on disk, thumbnail included | explaining one, ms |"
        "\n|---|---|---|---|---|",
    ]
    for model in (MODEL, "scan-small"):
        lines.append(
            f"| {model} | {rate[f'{model}_indexed']:.1f} | {rate[f'{model}_decoded']:.0f} | "
            f"{rate[f'{model}_bytes'] / 1e3:.0f} | {rate[f'{model}_explain_ms']:.0f} |"
        )
    if kills := found.get("kills"):
        under_way = ", ".join(f"{count} in {name}" for name, count in sorted(kills["by_change"].items()))
        lines.append(KILLS.format(**kills, under_way=under_way.replace("in between", "between two changes")))
    return "\n".join(lines) + "\n"


HEAD = """# Search

*Written by `python -m benchmarks.search_index`, on {cores} cores that others used too.*

An [index](../search.md) is searched in two stages: candidates by one vector a picture, then the
[matcher](../glossary.md#matcher)'s own score of these. *Recall* is how many of the best ten that scoring every picture
finds are among the ten that two stages find. The first stage compares the mean of a sentence's word
[codes](../glossary.md#code) with the mean of a picture's region codes, of unit length. The pictures are made from
photos of Flickr8k: on every code lies noise of half its length, so that no two are alike. They are thus copies of
7,091 photos, of which a collection of different photos may lose more or less; `saccade index eval` tells. The parts
were measured in runs of their own (`--only`), with more or less beside them, so times compare within a table alone.
"""
TITLES = {
    "large": "100,000 pictures",
    "photos": "Pictures of 12 × 12 cells, which scan-flickr8k reads: here maps of 8 × 8, made finer",
    "collages": "Collages: a quarter of the regions are of another photo",
}
KILLS = """
## Kills

`python scripts/kill_index.py --kills {kills}` ends a process that adds, changes, deletes and compacts by SIGKILL at
random moments and looks at every row each time: {kills} kills ({under_way}), {acknowledged:,} changes acknowledged,
{lost} lost, {problems} rows damaged, twice there or half changed. Compacted, the index of {pictures:,} rows takes
{bytes_live:,} bytes, a new one of the same rows {bytes_fresh:,}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", type=Path, nargs="+")
    parser.add_argument("--sentences", type=Path, required=True)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--kills", type=Path, help="what scripts/kill_index.py --json wrote")
    parser.add_argument("--pictures", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--limit", type=int, default=200, help="photos that are indexed")
    parser.add_argument("--others", type=int, default=10_000, help="pictures of the two smaller collections")
    parser.add_argument("--no-page", action="store_true", help="print the page, and leave docs/results as it is")
    parser.add_argument("--only", action="append", help="measure this part again: indexing, photos, collages or large")
    given = parser.parse_args()
    sentences = given.sentences.read_text(encoding="utf-8").splitlines()[: given.queries]
    found: dict[str, Any] = read_json(PAGE.with_suffix(".json")) if given.only else {}
    found["cores"] = len(os.sched_getaffinity(0))
    opened = [FeatureStore.open(store) for store in given.stores]
    parts = {
        "indexing": lambda place: indexing(place, given.photos, given.limit),
        "photos": lambda place: measure(place / "index", opened, given.others, sentences, finer=True),
        "collages": lambda place: measure(place / "index", opened, given.others, sentences, MIXED),
        "large": lambda place: measure(place / "index", opened, given.pictures, sentences),
    }
    for name, run in parts.items():
        if not given.only or name in given.only:
            with tempfile.TemporaryDirectory() as folder:
                found[name] = run(Path(folder))
            print(name, json.dumps(found[name]), flush=True)
    if given.kills is not None:
        found["kills"] = read_json(given.kills)
    if given.no_page:
        print(page(found))
    else:
        write_json(PAGE.with_suffix(".json"), found)
        write_text(PAGE, page(found))


if __name__ == "__main__":
    main()
