"""Many processes, on one machine or a cluster, by Ray: actors that encode pictures, and actors that each hold a part of
an index and score all of it.

The parts are ranges of the index's ids in their order, so that together they are the index and none has a file of its
own; all machines see its folder. A dead actor is started again and asked once more. What did not answer even then is
said (`Found.missing`, or as files that could not be read), never left out in silence. One process gives the same.
"""

from __future__ import annotations

import importlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saccade.core.errors import SaccadeError
from saccade.core.hub import first_line
from saccade.core.progress import note_once
from saccade.data.store.manifest import Broken
from saccade.models import shipped_models
from saccade.search.coding import CodeFormat
from saccade.search.index import Index, Snapshot
from saccade.search.query import Found, Query
from saccade.search.reading import BATCH_SIZE, File, ReadFile, encoded_files
from saccade.search.searcher import Searcher
from saccade.tasks.matching.task import PictureMatcher
from saccade.tasks.predict import load

TRIES = 3  # how often a part is asked, each time of a new actor
TIMEOUT_S = 600.0  # for an answer
PART = 4 * BATCH_SIZE  # files that an actor encodes at once: whole batches, so that none has other neighbours


def start_ray(address: str = "auto") -> Any:
    """Ray, joined to a cluster: `auto` is the one that runs, or else a new one on this machine; else an address.

    Raises: SaccadeError if Ray is not installed, or there is no cluster at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")  # it is said here, not on stdout
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise SaccadeError('--ray needs Ray: pip install "saccade[scale]" brings it') from error
    if ray.is_initialized():
        return ray
    quiet = {"log_to_driver": False, "logging_level": "error"}
    try:
        if address != "auto":
            ray.init(address=address, **quiet)
        elif os.environ.get("RAY_ADDRESS"):
            ray.init(address="auto", **quiet)
        else:
            ray.init(include_dashboard=False, object_store_memory=256 << 20, **quiet)
    except Exception as error:  # ConnectionError, RuntimeError, ValueError …
        raise SaccadeError(f"Ray at {address}: {first_line(error)}") from error
    return ray


def bounds_of(shard: int, shards: int, count: int) -> tuple[int, int]:
    """Which places of an index a part has."""
    return shard * count // shards, (shard + 1) * count // shards


class ShardSearcher(Searcher):
    """Answers for one part of an index."""

    def __init__(self, index: Index, model: PictureMatcher | str | None, device: str, shard: int, shards: int) -> None:
        super().__init__(index, model, device)
        self.shard, self.shards = shard, shards

    def _allowed(self, snapshot: Snapshot, query: Query) -> np.ndarray:
        first, stop = bounds_of(self.shard, self.shards, len(snapshot.ids))
        allowed = super()._allowed(snapshot, query)
        return np.arange(first, stop) if allowed is None else allowed[(allowed >= first) & (allowed < stop)]


class _Holder:
    """What an actor runs: its own opened index and model."""

    def __init__(self, folder: str, model: str | None, device: str, shard: int, shards: int) -> None:
        self.index = Index.open(folder)
        self.searcher = ShardSearcher(self.index, model, device, shard, shards)

    def pid(self) -> int:
        return os.getpid()

    def search(self, queries: Sequence[Query], version: int) -> list[Found]:
        if self.index.table.version != version:
            self.index.table.table.checkout(version)
        return self.searcher.search_many(queries)


class _Encoder:
    """The other thing that an actor runs: pictures through extractor and model."""

    def __init__(self, model: str, device: str, kept: CodeFormat, basis: np.ndarray | None) -> None:
        self.matcher, self.kept = load(model, device, kind=PictureMatcher), kept
        self.basis = None if basis is None else torch.from_numpy(basis.copy())

    def pid(self) -> int:
        return os.getpid()

    def encode(self, files: Sequence[File], videos: bool) -> list[ReadFile]:
        parts = encoded_files(self.matcher, self.kept, self.basis, files, videos, workers=0)
        return [one for part in parts for one in part]


class _Actors:
    """Actors by number, each started when first asked, and again when it died."""

    def __init__(self, ray: Any, kind: type, count: int, arguments: Callable[[int], tuple[Any, ...]]) -> None:
        self.ray, self.arguments = ray, arguments
        share = min(1.0, ray.cluster_resources().get("CPU", 1.0) / count)  # or the last would wait for a core for ever
        self.made = ray.remote(num_cpus=share, max_restarts=0)(kind)
        self.actors: dict[int, Any] = {}

    def __getitem__(self, number: int) -> Any:
        if number not in self.actors:
            self.actors[number] = self.made.remote(*self.arguments(number))
        return self.actors[number]

    def drop(self, number: int, actor: Any) -> None:
        """The next time there is a new one, if this one has not been replaced already."""
        if self.actors.get(number) is actor:
            del self.actors[number]
        self.ray.kill(actor, no_restart=True)

    def close(self) -> None:
        for number, actor in list(self.actors.items()):
            self.drop(number, actor)


def _failure(ray: Any, error: Exception) -> str:
    """In a few words, why an actor gave nothing. Raises: SaccadeError if it was no accident, but said so."""
    cause = getattr(error, "cause", None)
    if isinstance(error, ray.exceptions.RayTaskError) and isinstance(cause, SaccadeError):
        raise SaccadeError(str(cause)) from error
    if isinstance(error, ray.exceptions.RayTaskError):
        raise error
    return "it took too long" if isinstance(error, ray.exceptions.GetTimeoutError) else "its process died"


class RaySearcher:
    """`RaySearcher("index", shards=4).search(Query("a dog"))`: every picture is scored, a part by each actor."""

    def __init__(
        self,
        folder: Path | str,
        model: str | None = None,
        *,
        shards: int | None = None,
        address: str = "auto",
        device: str = "cpu",
        tries: int = TRIES,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        if (shards is not None and shards < 1) or tries < 1 or timeout_s <= 0:
            raise SaccadeError(f"shards ({shards}), tries ({tries}) and timeout ({timeout_s:g} s) must be above zero")
        self.index = Index.open(folder)
        if model is None and not self.index.is_own and self.index.settings.model not in shipped_models():
            raise SaccadeError(f"{folder} is another user's: give --model yourself")
        self.ray = start_ray(address)
        self.shards = shards or max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        self.tries, self.timeout_s = tries, timeout_s
        place = str(Path(folder).absolute())
        self.actors = _Actors(self.ray, _Holder, self.shards, lambda shard: (place, model, device, shard, self.shards))
        self.explainer = model, device
        self._local: Searcher | None = None

    def __enter__(self) -> RaySearcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.actors.close()
        self.index.close()

    def search(self, query: Query) -> Found:
        return self.search_many([query])[0]

    def search_many(self, queries: Sequence[Query]) -> list[Found]:
        """Raises: SaccadeError if no part answers, or one says what is wrong with a query."""
        for query in queries:
            query.check()
        started = time.perf_counter()
        exact = [replace(query, exact=True) for query in queries]
        version, count = self.index.table.version, len(self.index)
        answers: dict[int, list[Found]] = {}
        failed: dict[int, str] = {}
        for _ in range(self.tries):
            left = [shard for shard in range(self.shards) if shard not in answers]
            asked = {shard: self._ask(shard, exact, version) for shard in left}
            for shard, (actor, reference) in asked.items():
                rest = max(0.0, self.timeout_s - (time.perf_counter() - started))
                try:
                    answers[shard] = self.ray.get(reference, timeout=rest)
                    failed.pop(shard, None)
                except self.ray.exceptions.RayError as error:
                    failed[shard] = _failure(self.ray, error)
                    self.actors.drop(shard, actor)
            if not failed:
                break
        if not answers:
            raise SaccadeError(f"none of the {self.shards} parts of {self.index.folder} answered: {failed[0]}")
        missing = tuple(
            f"part {shard + 1} of {self.shards} (pictures {first + 1:,} to {stop:,}): {why}, {self.tries} times"
            for shard, why in sorted(failed.items())
            for first, stop in [bounds_of(shard, self.shards, count)]
        )
        took = time.perf_counter() - started
        parts = [answers[shard] for shard in sorted(answers)]
        return [merged(own, query, missing, took) for query, *own in zip(queries, *parts, strict=True)]

    def _ask(self, shard: int, queries: Sequence[Query], version: int) -> tuple[Any, Any]:
        """Who was asked, and where the answer will be."""
        actor = self.actors[shard]
        return actor, actor.search.remote(queries, version)

    def explain(self, id: str, text: str) -> Any:
        """Which regions each word found: one picture needs no cluster."""
        if self._local is None:
            self._local = Searcher(self.index, *self.explainer)
        return self._local.explain(id, text)


def merged(parts: Sequence[Found], query: Query, missing: tuple[str, ...], seconds: float) -> Found:
    """The best of all parts: by score, and of two alike the one whose id comes first, as in one process."""
    hits = sorted((hit for part in parts for hit in part.hits), key=lambda hit: (-hit.score, hit.id))[: query.top]
    first = parts[0]
    uncalibrated = all(hit.probability is None for hit in hits)
    fits = uncalibrated or any((hit.probability or 0.0) >= 0.5 for hit in hits)
    total = sum(part.total for part in parts)
    return replace(first, hits=tuple(hits), total=total, seconds={"all parts": seconds}, fits=fits, missing=missing)


class RayEncoder:
    """The `encoder` of `Index.update`: files go to actors by the batch, and their rows come back in order."""

    def __init__(
        self,
        index: Index,
        *,
        address: str = "auto",
        workers: int | None = None,
        device: str = "cpu",
        tries: int = TRIES,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.ray = start_ray(address)
        self.workers = workers or max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        self.tries, self.timeout_s = tries, timeout_s
        basis = None if index.basis is None else index.basis.cpu().numpy()
        given = index.settings.model, device, index.settings.kept, basis
        self.actors = _Actors(self.ray, _Encoder, self.workers, lambda _: given)

    def close(self) -> None:
        self.actors.close()

    def __call__(self, files: Sequence[File], videos: bool) -> Iterator[list[ReadFile]]:
        size = 1 if videos else PART
        parts = deque(list(files[start : start + size]) for start in range(0, len(files), size))
        waiting: deque[tuple[int, list[File], tuple[Any, Any]]] = deque()
        turn = 0
        while parts or waiting:
            while parts and len(waiting) < 2 * self.workers:
                number, part = turn % self.workers, parts.popleft()
                waiting.append((number, part, self._ask(number, part, videos)))
                turn += 1
            number, part, asked = waiting.popleft()
            yield self._answer(number, part, videos, asked)

    def _ask(self, number: int, part: Sequence[File], videos: bool) -> tuple[Any, Any]:
        actor = self.actors[number]
        return actor, actor.encode.remote(part, videos)

    def _answer(self, number: int, part: Sequence[File], videos: bool, asked: tuple[Any, Any]) -> list[ReadFile]:
        """What an actor made of some files; if it died, another one; if all do, that these could not be read."""
        why = ""
        for attempt in range(self.tries):
            try:
                found: list[ReadFile] = self.ray.get(asked[1], timeout=self.timeout_s)
                return found
            except self.ray.exceptions.RayError as error:
                why = _failure(self.ray, error)
                note_once(f"an encoder is started again: {why}")
                self.actors.drop(number, asked[0])
                if attempt + 1 < self.tries:
                    asked = self._ask(number, part, videos)
        told = f"its encoder gave nothing: {why}, {self.tries} times"
        return [Broken(file.id, str(file.path), told) for file in part]
