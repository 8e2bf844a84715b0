# mypy: disable-error-code="attr-defined,no-untyped-call"
"""`saccade.load` of a click predictor: tables of candidates instead of tensors.

Candidates come as a behaviour log does (`data.clicks.log`): an item a row, what its user did before, and the items'
titles, pictures and further columns in the same table or one of items. Items of which these say nothing are looked up
among those that the model learned from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line
import pyarrow.parquet as pq
import torch
from jaxtyping import UInt8

from saccade.core.errors import SaccadeError
from saccade.core.files import atomic_file
from saccade.data.clicks import Catalogue, ImpressionRows
from saccade.data.clicks.items import ItemIndex, open_catalogue
from saccade.data.clicks.log import FIELDS, ParquetLog, decode
from saccade.data.clicks.tables import TableFile, explained
from saccade.data.records import CaptionedDrawings
from saccade.explain.panels.clicks import Behaviour, ClickPicture
from saccade.features.clicks import with_image_features
from saccade.models import ClickPredictor
from saccade.models.base.click_predictor import ClickReasons
from saccade.tasks.clicks.batches import ItemTable, whole_batch, with_own_items
from saccade.tasks.predict import Predictor
from saccade.vision.pictures import as_array

ROWS_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class Predicted:
    """Some candidates of a table, in its order."""

    columns: pa.RecordBatch
    rows: ImpressionRows
    reasons: ClickReasons

    def table(self, modalities: tuple[str, ...]) -> pa.Table:
        """What was given, and beside it the probability, what mattered most, and each modality's part."""
        chances = self.reasons.logits.double().sigmoid().cpu().numpy()
        effects, gates, parts = (
            each.double().cpu().numpy() for each in (self.reasons.effects, self.reasons.gates, self.reasons.parts)
        )
        found: dict[str, Any] = {
            "probability": chances,
            "mattered": np.array(modalities)[np.abs(effects).argmax(axis=1)],
            **{f"effect_{name}": effects[:, n] for n, name in enumerate(modalities)},
            **{f"gate_{name}": gates[:, n] for n, name in enumerate(modalities)},
            **{f"share_{name}": parts[:, n] for n, name in enumerate((*modalities, "invariant"))},
        }
        table = pa.Table.from_batches([self.columns])
        for name in found.keys() & set(table.schema.names):
            table = table.drop_columns([name])
        for name, values in found.items():
            table = table.append_column(name, pa.array(values))
        return table


class ClickRanker(Predictor[ClickPredictor]):
    """Predicts clicks on the items of a table.

    >>> saccade.load("runs/marn").predict("candidates.parquet", "clicks.parquet")
    """

    known: Catalogue | None = None  # the items that the model learned from, where they can be had

    def open(self, candidates: Path | str, items: Path | str | None = None) -> Candidates:
        """Raises: SaccadeError if a column is missing, or nothing is known of an item."""
        return Candidates(self, Path(candidates), None if items is None else Path(items))

    def predict(self, candidates: Path | str, out: Path | str, items: Path | str | None = None) -> int:
        """Write a Parquet table of the candidates with their probabilities; how many there are."""
        opened = self.open(candidates, items)
        return opened.write(Path(out), opened.predictions())


class Candidates:
    """A table of candidates, and the items that it speaks of."""

    def __init__(self, ranker: ClickRanker, path: Path, items: Path | None) -> None:
        self.ranker, self.model, self.file = ranker, ranker.model, TableFile(path)
        self.file.need("item")
        tells = "title" in self.file.columns or "image" in self.file.columns
        tables = [*([TableFile(items)] if items is not None else []), *([self.file] if tells else [])]
        catalogue = ranker.known
        if tables:
            own, _ = open_catalogue(path.name, path.parent, tables)
            own = with_image_features(own, self.model.extractor or "grid")
            catalogue = own if catalogue is None else joined(own, catalogue)
        if catalogue is None:
            raise SaccadeError(
                f"{path} has neither a title nor an image column, and the items that the model learned from are not "
                "here: give a table of items (--items)"
            )
        self.catalogue, self.index = catalogue, ItemIndex.of(catalogue.ids[:, 0])
        self.log = ParquetLog([self.file], self.index, labelled=False)
        self.table = ItemTable(self.model, catalogue)
        known = {name: n for n, name in enumerate(self.model.config.behaviours, start=1)}
        self.kinds = np.array([0, *(known.get(name, 0) for name in self.log.behaviours)], dtype=np.int64)

    @torch.no_grad()
    def predictions(self) -> Iterator[Predicted]:
        """Some rows at a time."""
        device = self.ranker.device
        wanted = {column: holds for holds, column in self.file.columns.items() if holds in FIELDS}
        with explained(self.file.path):
            for columns in self.file.file.iter_batches(ROWS_AT_ONCE):
                columns.validate(full=True)
                given = {wanted[n]: columns.column(i) for i, n in enumerate(columns.schema.names) if n in wanted}
                rows = decode(self.file, given, self.model.config.history, self.index, self.log.behaviours)
                if not len(rows):
                    continue
                batch = with_own_items(whole_batch(rows, self.kinds), self.table.take).to(device)
                yield Predicted(columns, rows, self.model.reasons(batch))

    def write(self, out: Path, predictions: Iterator[Predicted]) -> int:
        """Raises: SaccadeError if there is no candidate, or `out` is no .parquet."""
        if out.suffix != ".parquet":
            raise SaccadeError(f"{out}: predictions are written as .parquet")
        count = 0
        with atomic_file(out) as temporary:
            writer = None
            try:
                for part in predictions:
                    table = part.table(self.model.config.modalities)
                    writer = writer or pq.ParquetWriter(temporary, table.schema)
                    writer.write_table(table)
                    count += len(table)
            finally:
                if writer is not None:
                    writer.close()
            if not count:
                raise SaccadeError(f"{self.file.path} has no candidates")
        return count

    def image_of(self, row: int) -> UInt8[np.ndarray, "height width 3"] | None:
        """An item's picture, where there is one."""
        pictures, rows = self.catalogue.pictures, self.catalogue.picture_rows
        if pictures is None or rows is None:
            return None
        place = np.flatnonzero(rows == row)
        if not len(place):
            return None
        if isinstance(pictures, CaptionedDrawings):
            return pictures.pictures[int(place[0])]()
        path = pictures.paths[int(place[0])]
        return as_array(path, str(path))

    def picture(self, part: Predicted, n: int) -> ClickPicture:
        """What the prediction for the n-th candidate of a part rests on."""
        reasons, rows = part.reasons, part.rows
        attention = reasons.attention[n].cpu().numpy()
        history = tuple(
            Behaviour(
                self.image_of(int(rows.history[n, t])),
                self.catalogue.titles[int(rows.history[n, t])],
                (("", *self.log.behaviours)[int(rows.kinds[n, t])]) or "seen",
                float(attention[t]),
            )
            for t in np.flatnonzero(rows.mask[n])
        )
        item = int(rows.item[n])
        return ClickPicture(
            self.image_of(item),
            self.catalogue.titles[item],
            float(reasons.logits[n].double().sigmoid()),
            self.model.config.modalities,
            reasons.effects[n].double().cpu().numpy(),
            reasons.gates[n].double().cpu().numpy(),
            reasons.parts[n].double().cpu().numpy(),
            history,
        )


def joined(own: Catalogue, known: Catalogue) -> Catalogue:
    """The items of a table, and after them those that the model learned from and that are not among them."""
    new = ~np.isin(known.ids[:-1, 0], own.ids[:-1, 0])
    keep = np.flatnonzero(new)

    def both(one: np.ndarray, names: tuple[str, ...], other: np.ndarray, others: tuple[str, ...]) -> np.ndarray:
        found = np.full((len(keep), len(names)), 0 if one.dtype.kind == "i" else np.nan, one.dtype)
        for place, name in enumerate(names):
            if name in others:
                found[:, place] = other[keep, others.index(name)]
        return np.concatenate([one[:-1], found, one[-1:]])

    fields = (*own.fields, *(name for name in known.fields if name not in own.fields))
    statistics = (*own.statistic_names, *(n for n in known.statistic_names if n not in own.statistic_names))
    ids = np.zeros((len(own), len(fields)), np.int64)
    ids[:, : len(own.fields)] = own.ids
    numbers = np.full((len(own), len(statistics)), np.nan, np.float32)
    numbers[:, : len(own.statistic_names)] = own.statistics
    image, pictures, rows = own.image, own.pictures, own.picture_rows
    if image is not None and known.image is not None:
        if image.shape[1] != known.image.shape[1]:
            raise SaccadeError(
                f"{own.name} has image features of {image.shape[1]} numbers, the model learned from "
                f"{known.image.shape[1]}"
            )
        image = np.concatenate([image[:-1], known.image[keep], image[-1:]])
    elif known.image is not None:
        none = np.zeros((len(own) - 1, known.image.shape[1]), np.float32)
        image = np.concatenate([none, known.image[keep], known.image[-1:]])
        if known.pictures is not None and known.picture_rows is not None:
            place = np.full(len(known), -1)
            place[keep] = len(own) - 1 + np.arange(len(keep))
            pictures, rows = known.pictures, place[known.picture_rows]
    elif image is not None:
        image = np.concatenate([image[:-1], np.zeros((len(keep), image.shape[1]), np.float32), image[-1:]])
    return replace(
        own,
        ids=both(ids, fields, known.ids, known.fields),
        fields=fields,
        titles=(*own.titles[: len(own) - 1], *(known.titles[int(n)] for n in keep), ""),
        statistics=both(numbers, statistics, known.statistics, known.statistic_names),
        statistic_names=statistics,
        image=image,
        pictures=pictures,
        picture_rows=rows,
        extractor=own.extractor or known.extractor,
    )


def with_run(ranker: ClickRanker, run: Any) -> ClickRanker:
    """With the items that its run (a `RunConfig`) learned from, if they are still there."""
    from saccade.features import open_clicks

    try:
        data = open_clicks(replace(run.data, in_memory=False, held_out=0), run.data.train_split)
    except SaccadeError:  # the data are no longer there: the table must say all of its items
        return ranker
    ranker.known = data.catalogue
    return ranker
