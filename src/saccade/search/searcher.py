# mypy: disable-error-code="attr-defined"
"""Two-stage search of an index: candidates by the vectors of whole pictures, then the model's own score of the best.

The first stage is one product with a table in memory; the second reads the codes of a few dozen pictures from the index
and lets the matcher score them, word by region, as it would in `saccade score`. `exact` scores every picture. How often
the first stage loses what the second would have found is measured by `saccade index eval INDEX`, on the index at hand.
With `maxsim` the first stage goes through the region codes of all pictures: each word takes its best region. That finds
what a vector of the whole picture hides, a small thing in a corner, and is slower.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saccade.batch import ImageCode, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.core.progress import note_once
from saccade.explain import Explanation
from saccade.nn import unit
from saccade.search.coding import (
    StoredCodes,
    check_probe,
    encode,
    image_code,
    images_whole,
    probe_dim,
    reduced_texts,
    texts_whole,
    unpacked,
)
from saccade.search.exact import top_k
from saccade.search.index import CODE_COLUMNS, Index, Snapshot, damage
from saccade.search.maxsim import maxsim
from saccade.search.query import Box, Found, Hit, Query, WordHit
from saccade.tasks.matching.task import PictureMatcher
from saccade.tasks.predict import load
from saccade.vision.pictures import as_array

CANDIDATES = 50  # pictures of the first stage that the model scores, where the query does not say
EXACT_NUMBERS = 4 << 20  # of codes that are all scored: no more than those of some 75 photos
EXACT_TILE_BYTES = 64 << 20  # of codes that are scored at once
HELD_BYTES = 64 << 20  # codes that are kept in memory: those of small indices, all of them
SPECIAL = ("<start>", "<end>", "<pad>")


@dataclass
class Clock:
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True, eq=False)
class EncodedQuery:
    """A query with its sentences encoded: which of a batch are its own."""

    query: Query
    rows: list[int]  # of its sentences in the batch, the positive ones first
    positives: int
    picture: Float[Tensor, "region dim"] | None = None  # of a query by picture: unit codes
    whole: Float[Tensor, " vector_dim"] | None = None  # … and its vector


class Searcher:
    """`Searcher(Index.open("index")).search(Query("a dog in the snow"))`."""

    def __init__(self, index: Index, model: PictureMatcher | str | None = None, device: str = "cpu") -> None:
        if isinstance(model, PictureMatcher):
            index.use(model)
        elif model is not None:
            index.use(load(model, device, kind=PictureMatcher))
        self.index, self.kept = index, index.settings.kept
        self.matcher = index.matcher(device)
        self.name = str(model) if isinstance(model, str) else index.settings.model
        check_probe(self.matcher, self.kept, self.name, index.folder)
        self.basis = None if index.basis is None else index.basis.to(self.device)
        if self.basis is not None and self.basis.shape[0] != probe_dim(self.matcher):
            raise SaccadeError(f"{index.folder}: its basis is not of {self.name}")
        self._held: tuple[int, StoredCodes] | None = None

    @property
    def device(self) -> torch.device:
        return self.matcher.device

    def __len__(self) -> int:
        return len(self.index)

    def search(self, query: Query) -> Found:
        return self.search_many([query])[0]

    @torch.no_grad()
    def search_many(self, queries: Sequence[Query]) -> list[Found]:
        """The answers to several queries, whose sentences are read, and compared with the vectors, at once."""
        for query in queries:
            query.check()
        clock = Clock()
        snapshot = self.index.snapshot()
        with clock.stage("read"):
            asked, batch, codes = self._read(queries)
        with clock.stage("candidates"):
            table = self._first_stage(snapshot, asked, codes)
        shared = {name: seconds / len(queries) for name, seconds in clock.seconds.items()} if queries else {}
        return [
            self._answer(snapshot, one, batch, codes, None if table is None else table[n], Clock(dict(shared)))
            for n, one in enumerate(asked)
        ]

    def _read(self, queries: Sequence[Query]) -> tuple[list[EncodedQuery], TextBatch | None, TextCode | None]:
        """Queries with the sentences of all of them, each once, as words and as codes."""
        texts = list(dict.fromkeys(text for query in queries for text in query.texts))
        batch = self.matcher.read(texts) if texts else None
        codes = None if batch is None else reduced_texts(self.matcher.model.encode_texts(batch), self.basis)
        return [self._encode_query(query, texts) for query in queries], batch, codes

    def _encode_query(self, query: Query, texts: Sequence[str]) -> EncodedQuery:
        place = {text: n for n, text in enumerate(texts)}
        rows = [place[text] for text in query.texts]
        if not query.by_picture:
            return EncodedQuery(query, rows, len(query.positive))
        codes, boxes, whole = self._picture(query)
        if query.region is not None:
            codes = codes[inside(boxes, query.region)]
            whole = codes.mean(dim=0) if whole is not None and self.kept.whole == "mean" else whole
        return EncodedQuery(query, rows, len(query.positive), unit(codes), None if whole is None else unit(whole))

    def _picture(self, query: Query) -> tuple[Tensor, np.ndarray, Tensor | None]:
        """The codes, boxes and vector of the picture that a query goes by."""
        if query.like_id:
            place = self.index.snapshot().place.get(query.like_id)
            if place is None:
                raise SaccadeError(f'"{query.like_id}" is not in the index')
            stored, real = self._codes(self.index.snapshot(), np.array([place]))
            if not len(real):
                raise SaccadeError(f'the row of "{query.like_id}" is damaged (saccade index check)')
            image = image_code(stored, self.kept, self.device)
            whole = images_whole(image, self.kept)
            return image.regions[0][image.mask[0]], stored.boxes[0], None if whole is None else whole[0]
        assert query.like is not None
        if self.matcher.sees_videos:
            raise SaccadeError("the model of this index learned from videos: it cannot search by a photo")
        (row,) = encode(self.matcher, self.matcher.extract([query.like]), self.kept, self.basis, ["the picture"])
        codes = torch.from_numpy(row.codes.astype(np.float32)).to(self.device) * row.scale
        vector = None if row.vector is None else torch.from_numpy(row.vector.astype(np.float32)).to(self.device)
        return codes, row.boxes, vector

    # First stage

    def _first_stage(
        self, snapshot: Snapshot, asked: Sequence[EncodedQuery], codes: TextCode | None
    ) -> Float[Tensor, "query picture"] | None:
        """The product of every query's vector with those of all pictures; None for models that have none."""
        if snapshot.vectors is None or not self.kept.compares or not asked:
            return None
        return whole_products(snapshot.vectors, self._wanted(asked, codes))

    def _wanted(self, asked: Sequence[EncodedQuery], codes: TextCode | None) -> Float[Tensor, "query vector_dim"]:
        """The vector of each query: of its picture and its sentences, less those that must not fit."""
        texts = None if codes is None else texts_whole(codes, self.kept)
        wanted = []
        for one in asked:
            vector = torch.zeros(self.kept.vector_dim, device=self.device)
            if one.whole is not None:
                vector = vector + one.whole
            if texts is not None and one.rows:
                vector = vector + texts[one.rows[: one.positives]].sum(dim=0)
                vector = vector - texts[one.rows[one.positives :]].sum(dim=0)
            wanted.append(vector)
        return torch.stack(wanted).cpu()

    def _answer(
        self,
        snapshot: Snapshot,
        one: EncodedQuery,
        batch: TextBatch | None,
        codes: TextCode | None,
        first: Float[Tensor, " picture"] | None,
        clock: Clock,
    ) -> Found:
        query = one.query
        with clock.stage("candidates"):
            allowed = self._allowed(snapshot, query)
            total = len(snapshot.ids) if allowed is None else len(allowed)
            count = query.candidates or max(CANDIDATES, 2 * query.top) * (2 if one.rows[1:] or query.region else 1)
            numbers = self._numbers(snapshot) * total / max(1, len(snapshot.ids))
            exact = query.exact or first is None or total <= max(count, query.top) or numbers <= EXACT_NUMBERS
            texts = None if codes is None or not one.rows else codes.select(one.rows).trimmed()
            every = np.arange(len(snapshot.ids)) if allowed is None else allowed
            if exact:
                places = every
            elif query.maxsim and texts is not None and one.positives:
                asked = texts.select(range(one.positives))
                places = self._by_regions(snapshot, every, asked, max(count, query.top))
            else:
                assert first is not None
                scores = first if allowed is None else first[torch.from_numpy(allowed)]
                chosen = top_k(scores[None], max(count, query.top)).indices[0].numpy()
                places = chosen if allowed is None else allowed[chosen]
        with clock.stage("scores"):
            places, scores, probability, tile = self._scored(snapshot, places, one, texts)
            order = top_k(scores[None], query.top).indices[0].numpy() if len(places) else np.zeros(0, np.int64)
        with clock.stage("words"):
            best = None if tile is None else tile.pick(torch.from_numpy(order))
            words = self._words(snapshot, places[order], one, batch, texts, best)
        hits = [
            self._hit(
                snapshot, int(places[n]), float(scores[n]), None if probability is None else float(probability[n]), own
            )
            for n, own in zip(order, words, strict=True)
        ]
        fits = probability is None or any((hit.probability or 0.0) >= 0.5 for hit in hits)
        unknown = sorted({word for text in query.texts for word in self.matcher.model.vocabulary.unknown(text)})
        return Found(tuple(hits), total, clock.seconds, fits, self.name, exact, tuple(unknown))

    def _by_regions(self, snapshot: Snapshot, places: np.ndarray, texts: TextCode, count: int) -> np.ndarray:
        """The places of the pictures whose regions fit the words best, by MaxSim."""
        words, mask = texts.words.flatten(0, 1)[None], texts.mask.flatten()[None]
        sound, scores = list[np.ndarray](), list[Tensor]()
        for stored, own in self._tiles(snapshot, places):
            images = image_code(stored, self.kept, self.device)
            scores.append(maxsim(words, mask, images.regions, images.mask)[0].cpu())
            sound.append(own)
        if not sound:
            return np.zeros(0, np.int64)
        chosen = top_k(torch.cat(scores)[None], count).indices[0].numpy()
        return np.asarray(np.concatenate(sound)[chosen])

    def _numbers(self, snapshot: Snapshot) -> int:
        """Of all codes."""
        return int(snapshot.region_count) * self.kept.dim

    def _allowed(self, snapshot: Snapshot, query: Query) -> np.ndarray | None:
        """The places of the pictures that a query may find; None: of all."""
        places = None
        if query.among is not None:
            places = np.array(sorted({snapshot.place[id] for id in query.among if id in snapshot.place}), np.int64)
        if not query.where.strip():
            return places
        found = np.flatnonzero(np.isin(snapshot.row_ids, self.index.table.where_row_ids(query.where)))
        return found if places is None else np.intersect1d(places, found)

    # Second stage

    def _codes(self, snapshot: Snapshot, places: np.ndarray) -> tuple[StoredCodes, np.ndarray]:
        """The codes of pictures from the index, and which of them are sound: a damaged row is left out, and said."""
        held = self._all_codes(snapshot)
        if held is not None:
            return held.pick(torch.from_numpy(places)), places
        return self._read_codes(snapshot, places)

    def _read_codes(self, snapshot: Snapshot, places: np.ndarray) -> tuple[StoredCodes, np.ndarray]:
        rows = self.index.table.take(snapshot.row_ids[places], CODE_COLUMNS)
        bad = []
        vectors = snapshot.vectors
        for n, place in enumerate(places.tolist()):
            if not snapshot.verified[place]:
                row = {name: rows[name][n] for name in CODE_COLUMNS}
                values = {
                    name: row[name].as_buffer() if name in ("codes", "boxes") else row[name].as_py() for name in row
                }
                values["codes"], values["boxes"] = (memoryview(values[name]) for name in ("codes", "boxes"))
                own = b"" if vectors is None else vectors[place].numpy().tobytes()
                if values["id"] != snapshot.ids[place] or damage(values, self.kept, own) is not None:
                    bad.append(n)
                    note_once(f'{self.index.folder}: the row of "{snapshot.ids[place]}" is damaged and left out')
                else:
                    snapshot.verified[place] = True
        if bad:
            good = np.setdiff1d(np.arange(len(places)), bad)
            rows, places = rows.take(good), places[good]
        own_vectors = None if vectors is None else vectors[torch.from_numpy(places)]
        return unpacked(rows, self.kept, own_vectors), places

    def _all_codes(self, snapshot: Snapshot) -> StoredCodes | None:
        """The codes of all pictures, where they are few enough to be kept, and none is damaged."""
        if self._held is not None and self._held[0] == snapshot.version:
            return self._held[1] if len(self._held[1].codes) == len(snapshot.ids) else None
        self._held = None
        if self._numbers(snapshot) * self.kept.itemsize > HELD_BYTES or not snapshot.ids:
            return None
        stored, _ = self._read_codes(snapshot, np.arange(len(snapshot.ids)))
        self._held = snapshot.version, stored
        return stored if len(stored.codes) == len(snapshot.ids) else None

    def _scored(
        self, snapshot: Snapshot, places: np.ndarray, one: EncodedQuery, texts: TextCode | None
    ) -> tuple[np.ndarray, Tensor, Tensor | None, StoredCodes | None]:
        """The model's score of pictures, a tile at a time, those whose rows are sound; how likely each fits; and their
        codes, where one tile held them all."""
        found, scores, chances = list[np.ndarray](), list[Tensor](), list[Tensor]()
        stored = None
        for stored, sound in self._tiles(snapshot, places):
            score, chance = self._score_tile(image_code(stored, self.kept, self.device), one, texts)
            found.append(sound)
            scores.append(score.nan_to_num(nan=-torch.inf).cpu())
            if chance is not None:
                chances.append(chance.cpu())
        if not found:
            return np.zeros(0, np.int64), torch.zeros(0), None, None
        tile = stored if len(found) == 1 else None
        return np.concatenate(found), torch.cat(scores), torch.cat(chances) if chances else None, tile

    @torch.no_grad()
    def table(self, texts: Sequence[str]) -> Float[Tensor, "picture text"]:
        """The model's score of every picture, by its place among the ids, with every sentence; −∞ for damaged rows."""
        snapshot = self.index.snapshot()
        codes = reduced_texts(self.matcher.model.encode_texts(self.matcher.read(texts)), self.basis)
        scores = torch.full((len(snapshot.ids), len(texts)), -torch.inf)
        for stored, places in self._tiles(snapshot, np.arange(len(snapshot.ids))):
            found = self.matcher.model.similarity(image_code(stored, self.kept, self.device), codes)
            scores[torch.from_numpy(places)] = found.float().nan_to_num(nan=-torch.inf).cpu()
        return scores

    def _tiles(self, snapshot: Snapshot, places: np.ndarray) -> Iterator[tuple[StoredCodes, np.ndarray]]:
        """The codes of pictures whose rows are sound, so many at a time that they stay small."""
        regions = snapshot.metadata["regions"].to_numpy()[:64]
        each = (float(regions.mean()) if len(regions) else 1.0) * self.kept.dim * 4
        step = max(1, int(EXACT_TILE_BYTES // each))
        for start in range(0, len(places), step):
            stored, sound = self._codes(snapshot, places[start : start + step])
            if len(sound):
                yield stored, sound

    def _score_tile(
        self, images: ImageCode, one: EncodedQuery, texts: TextCode | None
    ) -> tuple[Float[Tensor, " image"], Float[Tensor, " image"] | None]:
        """One number for each picture.

        Several sentences: where the model was calibrated, the probability that all positive ones fit and no other does,
        brought back to the scale of its scores; else the mean of the positive scores less that of the others. A picture
        to go by adds the mean over its regions of the best cosine.
        """
        parts = []
        chance = None
        if texts is not None:
            table = self.matcher.model.similarity(images, texts).float()
            good, bad = table[:, : one.positives], table[:, one.positives :]
            curve = self.matcher.model.calibration
            if curve is not None and curve.slope:
                logits = (curve.slope * table.double() + curve.offset).clamp(-700, 700)
                logits[:, one.positives :] *= -1
                log_chance = torch.nn.functional.logsigmoid(logits).sum(dim=1)
                chance = log_chance.exp()
                if table.shape[1] == 1 and one.positives:
                    parts.append(table[:, 0])
                else:
                    logit = log_chance - torch.log1p(-chance.clamp(max=1 - 1e-12))
                    parts.append(((logit - curve.offset) / curve.slope).float())
            else:
                nothing = table.new_zeros(len(table))
                less = bad.mean(dim=1) if bad.shape[1] else nothing
                parts.append((good.mean(dim=1) if one.positives else nothing) - less)
        if one.picture is not None:
            chance = None  # the curve knows sentences alone
            parts.append(likeness(images, one.picture))
        return torch.stack(parts).sum(dim=0), chance

    # Words

    def _words(
        self,
        snapshot: Snapshot,
        places: np.ndarray,
        one: EncodedQuery,
        batch: TextBatch | None,
        texts: TextCode | None,
        stored: StoredCodes | None,
    ) -> list[tuple[WordHit, ...]]:
        """What each word of the positive sentences found in each picture, whose codes may be known."""
        if texts is None or batch is None or not one.positives or not len(places):
            return [()] * len(places)
        if stored is None:
            stored, sound = self._codes(snapshot, places)
            if len(sound) < len(places):
                return [()] * len(places)
        images = image_code(stored, self.kept, self.device)
        unknown = {w for text in one.query.positive for w in self.matcher.model.vocabulary.unknown(text)}
        found = [list[WordHit]() for _ in places]
        for n in range(one.positives):
            alignment = self.matcher.model.align(images, texts.select([n] * len(places)))
            words = batch.words[one.rows[n]]
            match = word_scores(alignment.word_score, alignment.weights, images, texts, n)
            best = alignment.weights.argmax(dim=2).cpu().numpy()
            mask = np.flatnonzero(alignment.word_mask[0].cpu().numpy())
            for own, values, regions in zip(found, match, best, strict=True):
                for word, at in zip(words, mask, strict=False):
                    if word not in SPECIAL:
                        own.append(WordHit(word, float(values[at]), int(regions[at]), word not in unknown))
        return [tuple(own) for own in found]

    def _hit(
        self, snapshot: Snapshot, place: int, score: float, probability: float | None, words: tuple[WordHit, ...]
    ) -> Hit:
        row = {name: snapshot.metadata[name][place].as_py() for name in snapshot.metadata.column_names}
        return Hit(row.pop("id"), row.pop("path") or "", score, probability, words, row)

    # Explaining

    def picture(self, id: str) -> np.ndarray:
        """The pixels of a picture: of its file, if the index is this user's own and the file is still the same, else of
        the thumbnail."""
        import io

        from PIL import Image

        (row,) = self.index.rows([id], ["path", "size", "mtime"])
        path = Path(row["path"]) if row["path"] else None
        if path is not None and self.index.is_own:
            try:
                if path.stat().st_size == row["size"]:
                    return as_array(path)
            except (OSError, SaccadeError):
                pass  # moved, changed or unreadable: the thumbnail shows it as it was
        with Image.open(io.BytesIO(self.index.thumbnail(id)), formats=["JPEG"]) as image:
            if max(image.size) > 4096:
                raise SaccadeError(f'the thumbnail of "{id}" is {image.size[0]} × {image.size[1]} pixels large')
            return np.asarray(image.convert("RGB"))

    def thumbnail(self, id: str) -> bytes:
        """A small JPEG. Raises: SaccadeError if the picture is not there, or has none."""
        return self.index.thumbnail(id)

    @torch.no_grad()
    def explain(self, id: str, text: str) -> Explanation:
        """Which regions of a picture of the index each word found, from the codes that are stored; of a video, which
        frames, from its file."""
        snapshot = self.index.snapshot()
        if id not in snapshot.place:
            raise SaccadeError(f'"{id}" is not in the index')
        (row,) = self.index.rows([id], ["kind", "path"])
        if row["kind"] == "video":
            if not self.index.is_own or not row["path"]:
                raise SaccadeError(f'"{id}" is a video whose file cannot be opened here')
            return self.explain_video(row["path"], text, id)
        stored, sound = self._codes(snapshot, np.array([snapshot.place[id]]))
        if not len(sound):
            raise SaccadeError(f'the row of "{id}" is damaged (saccade index check)')
        words = self.matcher.read(text)
        image = image_code(stored, self.kept, self.device)
        alignment = self.matcher.model.locate(image, reduced_texts(self.matcher.model.encode_texts(words), self.basis))
        found = Explanation.from_alignment(alignment, 0, words.words[0], stored.boxes[0], self.picture(id), id)
        chance = self.matcher.probabilities(np.array(found.score))
        unknown = frozenset(self.matcher.model.vocabulary.unknown(text))
        return replace(found, probability=None if chance is None else float(chance), unknown=unknown)

    def explain_video(self, path: Path | str, text: str, id: str) -> Explanation:
        """Which frames of a video each word found: they are the regions of a picture of all of them."""
        unknown = frozenset(self.matcher.model.vocabulary.unknown(text))
        return self.matcher.explain_video(path, text).as_picture(id, unknown)


def whole_products(vectors: Tensor, wanted: Float[Tensor, "query dim"]) -> Float[Tensor, "query picture"]:
    """The product of every query with every picture's vector, of float16: half the memory to go through."""
    return (vectors @ wanted.to(vectors.dtype).T).float().T


def likeness(images: ImageCode, picture: Float[Tensor, "part dim"]) -> Float[Tensor, " image"]:
    """For every part of a picture the best cosine with a region of each image; their mean."""
    table = unit(images.regions) @ picture.T  # [image region part]
    return table.masked_fill(~images.mask[..., None], -torch.inf).amax(dim=1).mean(dim=1)


def word_scores(
    match: Tensor | None, weights: Tensor, images: ImageCode, texts: TextCode, n: int
) -> Float[np.ndarray, "image word"]:
    """How well each word found its regions: as the model says, or by the best cosine, or by the weight it gave."""
    if match is None and images.regions.shape[2] == texts.words.shape[2]:
        cosines = unit(images.regions) @ unit(texts.words[n]).T
        match = cosines.masked_fill(~images.mask[..., None], -torch.inf).amax(dim=1)
    return np.asarray((weights.amax(dim=2) if match is None else match).float().cpu().numpy())


def inside(boxes: np.ndarray, region: Box) -> Tensor:
    """Which regions lie in a box with their middle; if none does, the one that overlaps most."""
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    x1, y1, x2, y2 = region
    found = (middle[:, 0] >= x1) & (middle[:, 0] <= x2) & (middle[:, 1] >= y1) & (middle[:, 1] <= y2)
    if not found.any():
        wide = np.minimum(boxes[:, 2], x2) - np.maximum(boxes[:, 0], x1)
        high = np.minimum(boxes[:, 3], y2) - np.maximum(boxes[:, 1], y1)
        found = np.zeros(len(boxes), bool)
        found[int((wide.clip(0) * high.clip(0)).argmax())] = True
    return torch.from_numpy(found)
