"""What a service offers: indices to search, and the models of every task that can use them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from saccade.core.errors import SaccadeError, not_among
from saccade.explain import Explanation
from saccade.models import Model, load_model
from saccade.search.index import Index
from saccade.search.measure import read_evaluation
from saccade.search.query import Found, Query
from saccade.search.searcher import CANDIDATES, Searcher
from saccade.serve.config import Limits
from saccade.serve.pictures import (
    Fingerprint,
    Gone,
    Missing,
    Recent,
    copies,
    fingerprint,
    indexed_bytes,
    indexed_copy,
    shown_picture,
)
from saccade.serve.worker import Worker
from saccade.tasks import find_task, task_names
from saccade.tasks.predict import Predictor
from saccade.tasks.uses import Use

Seen = Callable[[str, int], None]  # a worker's name, and how many queries it answered together
UNSHOWN = frozenset({"path", "source", "hash", "mtime"})  # what is nobody's business, or of no use
NO_FACETS = frozenset({"id", "size", "taken", "regions", "seconds", "width", "height"})
REFRESH_SECONDS = 2.0  # how often a newer version of an index is looked for
SHOWN_KEPT, SMALL_KEPT = 64, 4096  # pictures and thumbnails kept as they were sent
PRINTS_KEPT = 100_000


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model, the thread that runs it, and what each task's predictor does with it."""

    name: str
    model: Model
    worker: Worker[Any, Any]
    uses: dict[str, tuple[Use, Predictor[Any]]]  # by verb


def task_uses(model: Model) -> dict[str, tuple[Use, Predictor[Any]]]:
    """What every task would do with a model, by verb: its own task's first."""
    found: dict[str, tuple[Use, Predictor[Any]]] = {}
    for name in sorted(task_names(), key=lambda name: (name != model.task, name)):
        predictor = find_task(name).predictor.adopt(model)
        for use in predictor.uses if predictor is not None else ():
            found.setdefault(use.verb, (use, predictor))  # type: ignore[arg-type]
    return found


def all_uses() -> dict[str, Use]:
    """One use for every verb of every task: what a service may offer, whichever models it has."""
    found: dict[str, Use] = {}
    for name in task_names():
        for use in find_task(name).predictor.uses:
            found.setdefault(use.verb, use)
    return found


class ServedIndex:
    """An index with the searcher that reads it, in a thread of its own."""

    def __init__(self, name: str, index: Index, searcher: Searcher, limits: Limits, seen: Seen) -> None:
        self.name, self.index, self.searcher = name, index, searcher
        self.worker: Worker[Query, Found] = Worker(
            name,
            self._answer,
            batch=limits.batch,
            wait=limits.batch_seconds,
            waiting=limits.waiting,
            seen=lambda size: seen(name, size),
        )
        self._shown, self._small = Recent[bytes](SHOWN_KEPT), Recent[bytes](SMALL_KEPT)
        self._seen = Recent[Fingerprint](PRINTS_KEPT)
        self._pixels = limits.pixels
        self._reading = threading.RLock()  # no row is read while the index moves to a newer version
        self._looked = time.monotonic()

    def _answer(self, queries: Sequence[Query]) -> list[Found]:
        """In the worker's thread, which also looks for newer versions of the index."""
        if time.monotonic() - self._looked >= REFRESH_SECONDS:
            with self._reading:
                if self.index.refresh():
                    self.index.snapshot()
            self._looked = time.monotonic()
        return self.searcher.search_many(queries)

    def facts(self) -> dict[str, Any]:
        """What the page needs to know of it."""
        calibration = self.searcher.matcher.model.calibration
        return {
            "name": self.name,
            "model": Path(self.index.settings.model).name,
            "pictures": len(self.index),
            "line": None if calibration is None else -calibration.offset / calibration.slope,
            "columns": self.index.column_kinds,
            "recall": self._recall(),
        }

    def _recall(self) -> dict[str, float] | None:
        """What `saccade index eval INDEX` measured of the usual number of candidates, if it was of these pictures."""
        found = read_evaluation(self.index.folder)
        if found is None or found.get("pictures") != len(self.index):
            return None
        rows = [row for row in found.get("rows", ()) if row.get("candidates", 0) <= CANDIDATES]
        return {"top": found["top"], "recall": rows[-1]["recall"]} if rows else None

    def shown(self, found: Found) -> dict[str, Any]:
        """What was found, without the paths of this machine."""
        hits = [
            {
                "id": hit.id,
                "name": Path(hit.path).name or hit.id,
                "score": hit.score,
                "probability": hit.probability,
                "words": [vars(word) for word in hit.words],
                "metadata": {key: _plain(value) for key, value in hit.metadata.items() if key not in UNSHOWN},
            }
            for hit in found.hits
        ]
        return {
            "index": self.name,
            "model": Path(found.model).name,
            "total": found.total,
            "fits": found.fits,
            "exact": found.exact,
            "unknown": list(found.unknown),
            "seconds": dict(found.seconds),
            "hits": hits,
        }

    def explained(self, id: str, text: str) -> tuple[Future[Explanation], bool]:
        """Why a picture or a video fits; and whether it is drawn on frames of a video, and not on the picture.

        Raises: Missing, Busy; the outcome may raise Gone.
        """
        row = self.row(id, "path", "size", "hash", "kind")
        if row["kind"] != "video":
            return self.worker.call(partial(self.searcher.explain, id, text)), False
        if not self.index.is_own or not row["path"]:
            raise Gone("the file of this video cannot be opened here")

        def explain() -> Explanation:
            with indexed_copy(row["path"], row["size"], row["hash"]) as video:
                return self.searcher.explain_video(video, text, id)

        return self.worker.call(explain), True

    def row(self, id: str, *columns: str) -> dict[str, Any]:
        """Raises: Missing if the index has no such picture."""
        with self._reading:
            self._check_id(id)
            return self.index.rows([id], list(columns))[0]

    def _check_id(self, id: str) -> None:
        if id not in self.index.snapshot().place:
            raise Missing("the index holds no such picture")

    def thumbnail(self, id: str) -> bytes:
        """Raises: Missing if the index has no such picture."""
        with self._reading:
            self._check_id(id)
            return self._small.get((id, self.index.table.version), partial(self.index.thumbnail, id))

    def picture(self, id: str) -> bytes:
        """As a JPEG for the page; of what has no file of its own, the thumbnail.

        Raises: Missing if it is not in the index; Gone if the file has changed.
        """
        row = self.row(id, "path", "size", "hash", "kind")
        if row["kind"] != "photo" or not row["path"]:
            return self.thumbnail(id)
        if not self.index.is_own:
            raise Gone("this index is another user's: the files that it names are not opened")

        def shown() -> bytes:
            content = indexed_bytes(row["path"], row["size"], row["hash"])
            return shown_picture(content, self._pixels)

        return self._shown.get((id, row["hash"]), shown)

    def regions(self, id: str) -> Future[dict[str, Any]]:
        """A picture's regions, and what the model's extractor calls them, if it has names. Raises: Missing, Busy."""
        row = self.row(id, "boxes", "kind")
        boxes = np.frombuffer(row["boxes"], np.float32).reshape(-1, 4)

        def named() -> dict[str, Any]:
            extractor = self.searcher.matcher.extractor if row["kind"] == "photo" else None
            labels = None
            if extractor is not None and extractor.has_names:
                labels = [one.text for one in extractor.describe([self.searcher.picture(id)], [boxes])[0]]
            return {"boxes": np.round(boxes.astype(float), 4).tolist(), "labels": labels}

        return self.worker.call(named)

    def facets(self, columns: int, values: int) -> dict[str, dict[str, int]]:
        """Of columns with few values: those that can be chosen from, the most frequent first."""
        found: dict[str, dict[str, int]] = {}
        for column in self.index.metadata_columns:
            if column in UNSHOWN or column in NO_FACETS or len(found) == columns:
                continue
            with self._reading:
                counts = self.index.facets(column, values + 1)
            if 1 < len(counts) <= values or (column == "labels" and counts):
                found[column] = {str(value): count for value, count in list(counts.items())[:values]}
        return found

    def copies(self, ids: Sequence[str]) -> list[list[str]]:
        """Which of these pictures are copies of each other, in groups."""
        with self._reading:
            known = self.index.snapshot().place
            ids = [id for id in dict.fromkeys(ids) if id in known]
            rows = self.index.rows(ids, ["id", "hash"]) if ids else []

        def seen(row: dict[str, Any]) -> Fingerprint:
            content = row["hash"] or row["id"]
            try:
                return fingerprint(content, self.thumbnail(row["id"]))
            except SaccadeError:  # regions that came without pixels
                return Fingerprint(content, 0)

        found = [self._seen.get((row["id"], row["hash"]), partial(seen, row)) for row in rows]
        return [[rows[place]["id"] for place in group] for group in copies(found)]


def _plain(value: Any) -> Any:
    """As JSON has it."""
    return value if value is None or isinstance(value, str | int | float | bool | list) else str(value)


class Offer:
    """Indices and models by name."""

    def __init__(self, indices: Iterable[ServedIndex], models: Iterable[ServedModel]) -> None:
        self.indices = {one.name: one for one in indices}
        self.models = {one.name: one for one in models}

    def index(self, name: str = "") -> ServedIndex:
        """By name, or the first. Raises: SaccadeError if there is none."""
        if not self.indices:
            raise SaccadeError("this service has no index: `saccade serve INDEX` gives it one")
        if name and name not in self.indices:
            raise SaccadeError(f"there is no index {not_among(name, self.indices)}")
        return self.indices[name] if name else next(iter(self.indices.values()))

    def offered(self, verb: str) -> list[ServedModel]:
        return [model for model in self.models.values() if verb in model.uses]

    def user(self, verb: str, name: str = "") -> ServedModel:
        """The model that does something, by name or the first. Raises: SaccadeError if none does."""
        able = self.offered(verb)
        if not able:
            raise SaccadeError(f"no model of this service can {verb}: `saccade serve … --model RUN` adds one")
        for model in able:
            if name in ("", model.name):
                return model
        raise SaccadeError(f"no model that can {verb} is called {not_among(name, [model.name for model in able])}")

    @property
    def workers(self) -> list[tuple[str, Worker[Any, Any]]]:
        served: list[ServedIndex | ServedModel] = [*self.indices.values(), *self.models.values()]
        return [(one.name, one.worker) for one in served]

    def close(self) -> None:
        for _, worker in self.workers:
            worker.close()


def unique_name(place: str, taken: Iterable[str]) -> str:
    """The last part of a path or of a hub's name, with a number where another has it."""
    plain = Path(place).name or place
    name, number = plain, 2
    while name in set(taken):
        name, number = f"{plain}-{number}", number + 1
    return name


def open_models(places: Sequence[str], device: str, limits: Limits, seen: Seen) -> list[ServedModel]:
    """Raises: SaccadeError if there is no such model, or no task has a use for it."""
    found: list[ServedModel] = []
    for place in places:
        model: Model = load_model(place).to(device).eval()
        uses = task_uses(model)
        if not uses:
            raise SaccadeError(f"{place} holds a model of {model.name}, which does nothing with one picture and a text")
        name = unique_name(place, [one.name for one in found])
        found.append(ServedModel(name, model, Worker(name, waiting=limits.waiting), uses))
    return found


def open_indices(places: Sequence[Path], device: str, limits: Limits, seen: Seen) -> list[ServedIndex]:
    """Raises: SaccadeError if one is no index, or its model is not there."""
    found: list[ServedIndex] = []
    for place in places:
        index = Index.open(place)
        searcher = Searcher(index, device=device)
        found.append(ServedIndex(unique_name(str(place), [one.name for one in found]), index, searcher, limits, seen))
    return found
