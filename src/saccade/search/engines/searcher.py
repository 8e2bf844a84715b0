# mypy: disable-error-code="attr-defined"
"""Search with candidates from elsewhere: from an engine, or from another model's search.

What the candidates' codes are scored with is the same code that searches an index (`search/searcher.py`); here the rows
come one query at a time instead of from a table.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line
import torch
from PIL import Image
from torch import Tensor

from saccade.batch import TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.explain import Explanation
from saccade.models import shipped_models
from saccade.search.coding import (
    CodeFormat,
    StoredCodes,
    check_probe,
    encode,
    format_of,
    image_code,
    images_whole,
    probe_dim,
    reduced_texts,
)
from saccade.search.engines.base import Engine, Row
from saccade.search.engines.qdrant import QdrantEngine
from saccade.search.index import Snapshot
from saccade.search.query import Found, Query
from saccade.search.reading import extractor_for
from saccade.search.region_codes import RegionCodes
from saccade.search.searcher import CANDIDATES, Clock, EncodedQuery, Searcher
from saccade.tasks.matching.task import PictureMatcher
from saccade.tasks.predict import load
from saccade.vision.pictures import as_array
from saccade.vision.videos.extractor import VideoExtractor

COUNTED_S = 60.0
MAX_THUMBNAIL = 4096  # pixels a side


@dataclass(frozen=True, eq=False)
class FetchedRows(Snapshot):
    """Some rows in memory."""

    rows: list[Row] = field(default_factory=list)

    @staticmethod
    def of(rows: Sequence[Row]) -> FetchedRows:
        table = [{"id": row.id, "path": "", **row.metadata, "regions": len(row.code.codes)} for row in rows]
        vectors = [row.code.vector for row in rows if row.code.vector is not None]
        whole = torch.from_numpy(np.stack(vectors)) if vectors and len(vectors) == len(rows) else None
        try:
            metadata = pa.Table.from_pylist(table) if table else pa.table({"id": [], "path": [], "regions": []})
        except (pa.ArrowException, TypeError, ValueError) as error:  # a server may say anything
            raise SaccadeError("the metadata of these pictures is of no one kind") from error
        return FetchedRows(0, [row.id for row in rows], np.arange(len(rows)), whole, metadata, list(rows))


class RowSearcher(Searcher):
    """Scores rows that it is given, by its model."""

    def __init__(self, matcher: PictureMatcher, kept: CodeFormat, basis: Tensor | None, name: str) -> None:
        self.matcher, self.kept, self.name = matcher, kept, name
        self.basis = None if basis is None else basis.to(matcher.device)

    def _codes(self, snapshot: Snapshot, places: np.ndarray) -> tuple[StoredCodes, np.ndarray]:
        assert isinstance(snapshot, FetchedRows)
        return stored_rows([snapshot.rows[n] for n in places.tolist()]), places

    @torch.no_grad()
    def search_rows(self, rows: Sequence[Row], query: Query) -> Found:
        """The best of some rows."""
        query.check()
        (one,), batch, codes = self._read([query])
        return self._answer_rows(rows, one, batch, codes, Clock())

    def _answer_rows(
        self, rows: Sequence[Row], one: EncodedQuery, batch: TextBatch | None, codes: TextCode | None, clock: Clock
    ) -> Found:
        given = replace(one, query=replace(one.query, where="", among=None))  # they went into the candidates
        return self._answer(FetchedRows.of(rows), given, batch, codes, None, clock)


class EngineSearcher(RowSearcher):
    """`EngineSearcher(open_engine("qdrant+http://host:6333/photos"), "scan-flickr8k").search(Query("a dog"))`."""

    def __init__(self, engine: Engine, model: PictureMatcher | str | None = None, device: str = "cpu") -> None:
        named = engine.settings.model
        if model is None and named not in shipped_models():
            raise SaccadeError(f"{engine.address} was made with the model {named}: give --model yourself")
        matcher = model if isinstance(model, PictureMatcher) else load(model or named, device, kind=PictureMatcher)
        name = str(model) if isinstance(model, str) else named
        super().__init__(matcher, engine.settings.kept, engine.basis, name)
        self.engine = engine
        self._counted: tuple[float, int] | None = None
        check_probe(matcher, self.kept, name, engine.address)
        if self.basis is not None and self.basis.shape[0] != probe_dim(matcher):
            raise SaccadeError(f"{engine.address}: its basis is not of {name}")

    @torch.no_grad()
    def search_many(self, queries: Sequence[Query]) -> list[Found]:
        for query in queries:
            query.check()
            if query.exact or query.among is not None:
                raise SaccadeError(f"{self.engine.address} gives candidates: every picture is scored on an index alone")
            if query.maxsim and not getattr(self.engine, "maxsim", False):
                raise SaccadeError(
                    f"{self.engine.address} has no MaxSim: Qdrant has, where an index was copied with --maxsim"
                )
        clock = Clock()
        with clock.stage("read"):
            asked, batch, codes = self._read(queries)
            vectors = self._wanted(asked, codes).float().numpy() if queries else np.zeros((0, 1), np.float32)
        total = len(self)
        return [
            self._answered(one, vector, batch, codes, total, clock) for one, vector in zip(asked, vectors, strict=True)
        ]

    def _answered(
        self,
        one: EncodedQuery,
        vector: np.ndarray,
        batch: TextBatch | None,
        codes: TextCode | None,
        total: int,
        read: Clock,
    ) -> Found:
        clock, query = Clock(dict(read.seconds)), one.query
        count = query.candidates or max(CANDIDATES, 2 * query.top)
        with clock.stage("candidates"):
            options: dict[str, Any] = {}
            if isinstance(self.engine, QdrantEngine) and self.engine.maxsim and codes is not None and one.positives:
                places = one.rows[: one.positives]
                options["words"] = [torch.cat([codes.words[n][codes.mask[n]] for n in places]).float().cpu().numpy()]
            (found,) = self.engine.search(vector[None], max(count, query.top), query.where, **options)
            rows = self.engine.fetch(found.ids)
        answer = self._answer_rows(rows, one, batch, codes, clock)
        hits = tuple(replace(hit, path="", metadata={"path": hit.path, **hit.metadata}) for hit in answer.hits)
        return replace(answer, hits=hits, total=total, exact=False)  # no file that an engine names is opened

    def _picture(self, query: Query) -> tuple[torch.Tensor, np.ndarray, torch.Tensor | None]:
        if not query.like_id:
            return super()._picture(query)
        stored = stored_rows(self.engine.fetch([query.like_id]))
        image = image_code(stored, self.kept, self.device)
        whole = images_whole(image, self.kept)
        return image.regions[0][image.mask[0]], stored.boxes[0], None if whole is None else whole[0]

    def __len__(self) -> int:
        """How many rows there are, as of a minute ago at most: to count them takes a server longer than to search."""
        if self._counted is None or time.monotonic() - self._counted[0] > COUNTED_S:
            self._counted = time.monotonic(), len(self.engine)
        return self._counted[1]

    def thumbnail(self, id: str) -> bytes:
        return self.engine.fetch([id])[0].thumbnail

    @torch.no_grad()
    def explain(self, id: str, text: str) -> Explanation:
        """Which regions each word found, on the thumbnail: no file that an engine names is opened."""
        (row,) = self.engine.fetch([id])
        words, stored = self.matcher.read(text), stored_rows([row])
        codes = reduced_texts(self.matcher.model.encode_texts(words), self.basis)
        alignment = self.matcher.model.locate(image_code(stored, self.kept, self.device), codes)
        found = Explanation.from_alignment(alignment, 0, words.words[0], stored.boxes[0], shown(row), id)
        chance = self.matcher.probabilities(np.array(found.score))
        unknown = frozenset(self.matcher.model.vocabulary.unknown(text))
        return replace(found, probability=None if chance is None else float(chance), unknown=unknown)


def stored_rows(rows: Sequence[Row]) -> StoredCodes:
    """The codes of rows, one after the other."""
    codes = [torch.from_numpy(row.code.codes.copy()) for row in rows]
    counts = torch.tensor([len(own) for own in codes], dtype=torch.int64)
    vectors = [row.code.vector for row in rows if row.code.vector is not None]
    whole = torch.from_numpy(np.stack(vectors)) if vectors and len(vectors) == len(rows) else None
    scales = torch.tensor([row.code.scale for row in rows], dtype=torch.float32)
    packed = RegionCodes.rows(torch.cat(codes), counts)
    return StoredCodes(packed, scales, [row.code.boxes for row in rows], whole)


def shown(row: Row) -> np.ndarray:
    """The pixels of a row's thumbnail. Raises: SaccadeError if it has none, or a damaged one."""
    if not row.thumbnail:
        raise SaccadeError(f'"{row.id}" has no thumbnail: its regions came without pixels')
    try:
        with Image.open(io.BytesIO(row.thumbnail), formats=["JPEG"]) as image:
            if max(image.size) > MAX_THUMBNAIL:
                raise SaccadeError(f'the thumbnail of "{row.id}" is {image.size[0]} × {image.size[1]} pixels large')
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise SaccadeError(f'the thumbnail of "{row.id}" is damaged') from error


def rerank(
    found: Found, query: Query, second: Searcher | PictureMatcher, name: str = "", opens_files: bool = True
) -> Found:
    """What one search found, in the order of another model, the best `query.top` of it.

    A `Searcher` over another index of the same pictures has its codes; a matcher looks at the files anew, which takes
    as long as `saccade score` of so many, unless they are another user's to name (`opens_files`). Hits that the second
    cannot see stay below, in the order they had.
    """
    ids = tuple(hit.id for hit in found.hits)
    if isinstance(second, Searcher):
        better = second.search(replace(query, among=ids, where="", top=max(query.top, len(ids)), exact=True))
    else:
        kept, basis = format_of(second, "float16")
        rows, metadata = list[Row](), {hit.id: hit.metadata for hit in found.hits}
        for hit in found.hits:
            if not opens_files or not hit.path or not Path(hit.path).is_file():
                continue
            extractor = extractor_for(second, hit.metadata.get("kind") == "video")
            opened: Any = extractor.footage(hit.path) if isinstance(extractor, VideoExtractor) else as_array(hit.path)
            (regions,) = extractor.each_batch([opened], None, 1)
            (code,) = encode(second, regions.to(second.device), kept, basis, [hit.id])
            rows.append(Row(hit.id, code, {"path": hit.path}))
        better = RowSearcher(second, kept, basis, name).search_rows(rows, replace(query, top=max(query.top, len(ids))))
        better = replace(
            better, hits=tuple(replace(hit, metadata=metadata[hit.id]) for hit in better.hits), unknown=better.unknown
        )
    seen = {hit.id for hit in better.hits}
    below = tuple(hit for hit in found.hits if hit.id not in seen)
    lost = (f"{len(below)} of {len(ids)} candidates were not seen by the second model",) if below else ()
    seconds = {**found.seconds, "rerank": sum(better.seconds.values())}
    return replace(
        better,
        hits=(*better.hits, *below)[: query.top],
        total=found.total,
        seconds=seconds,
        exact=False,
        missing=found.missing + lost,
    )
