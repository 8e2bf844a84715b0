"""The bottom-up-attention TSV: one picture a line, boxes in pixels and features as base64 of little-endian float32.

Columns, without a header: image_id, image_w, image_h, num_boxes, boxes, features. LXMERT's ten are read as well.
The reference writes CRLF line ends; both kinds are read. Lines are found by byte offset, so any picture can be read
without decoding those before it.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import atomic_file
from saccade.data.formats.regions import check_boxes, position
from saccade.data.records import PictureRegions, RegionSource
from saccade.data.text_files import first_bytes

COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
# LXMERT: img_id, img_h, img_w, objects_id, objects_conf, attrs_id, attrs_conf, num_boxes, boxes, features
LXMERT = ("image_id", "image_h", "image_w", "", "scores", "", "", "num_boxes", "boxes", "features")
LAYOUTS = {len(COLUMNS): COLUMNS, len(LXMERT): LXMERT}
MAX_PIXELS_OUTSIDE = 1.0  # by which the reference's proposals may leave the picture after rounding


@dataclass(frozen=True)
class TsvRow:
    """One line, decoded and otherwise untouched, so that writing it again gives the same bytes."""

    id: str
    width: int
    height: int
    boxes: Float32[np.ndarray, "region 4"]  # x1, y1, x2, y2 in pixels of the original
    features: Float32[np.ndarray, "region dim"]
    scores: Float32[np.ndarray, " region"] | None = None  # LXMERT's objects_conf; not written

    def picture(self, where: str = "") -> PictureRegions:
        """The same with boxes in 0..1; what leaves the picture by less than a pixel is clipped."""
        where = where or f'picture "{self.id}"'
        if not np.isfinite(self.features).all():
            raise SaccadeError(f"{where}: the features hold NaN or infinity")
        size = np.array([self.width, self.height] * 2, dtype=np.float32)
        inside = np.clip(self.boxes, 0, size)
        if not np.abs(inside - self.boxes).max(initial=0) <= MAX_PIXELS_OUTSIDE:  # not ≤ also catches NaN
            raise SaccadeError(f"{where}: a box leaves the picture of {self.width}×{self.height} pixels")
        boxes = check_boxes(inside / size, where)
        return PictureRegions(self.id, self.features, boxes, self.width, self.height, self.scores)

    @staticmethod
    def of(picture: PictureRegions) -> TsvRow:
        """A picture with its boxes back in pixels."""
        if not picture.width or not picture.height:
            raise SaccadeError(f'picture "{picture.id}" has no known size, and the TSV keeps boxes in pixels')
        size = np.array([picture.width, picture.height] * 2, dtype=np.float32)
        features = np.asarray(picture.features, dtype=np.float32)
        return TsvRow(picture.id, picture.width, picture.height, picture.boxes * size, features)

    def line(self) -> bytes:
        """The bytes the reference function writes."""
        if not self.id or set(self.id) & set('\t\r\n"'):
            raise SaccadeError(f"the id {self.id!r} cannot stand in a TSV column")
        head = f"{self.id}\t{self.width}\t{self.height}\t{len(self.boxes)}\t".encode()
        return head + _encode(self.boxes) + b"\t" + _encode(self.features) + b"\r\n"


class BottomUpTsv(RegionSource):
    """A TSV file as a RegionSource. Opening it looks at the first line; the line index is made when first needed."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @cached_property
    def dim(self) -> int:
        return next((row.features.shape[1] for row in self.rows() if len(row.features)), 0)

    @property
    def ids(self) -> Sequence[str]:
        return self._index[0]

    def region_counts(self) -> np.ndarray:
        return self._index[2]

    def rows(self) -> Iterator[TsvRow]:
        """Every line in order, one in memory at a time."""
        dim = None
        for number, line in enumerate(self.lines(), start=1):
            row = parse_line(line, f"{self.path}, line {number}", dim)
            if len(row.features):
                dim = row.features.shape[1]
            yield row

    def lines(self) -> Iterator[bytes]:
        with explain_os_errors(self.path, "read"), self.path.open("rb") as file:
            yield from file

    def get(self, index: int) -> PictureRegions:
        index = position(index, len(self), self.path)
        with explain_os_errors(self.path, "read"), self.path.open("rb") as file:
            file.seek(int(self._index[1][index]))
            line = file.readline()
        where = f"{self.path}, line {index + 1}"
        return parse_line(line, where, self.dim).picture(where)

    def __iter__(self) -> Iterator[PictureRegions]:
        for number, row in enumerate(self.rows(), start=1):
            yield row.picture(f"{self.path}, line {number}")

    @cached_property
    def _index(self) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
        """(ids, byte offsets, region counts)."""
        ids, offsets, counts, offset = [], [], [], 0
        for number, line in enumerate(self.lines(), start=1):
            where = f"{self.path}, line {number}"
            columns = _columns(line, where)
            ids.append(_id(columns["image_id"], where))
            counts.append(_whole(columns, "num_boxes", where))
            offsets.append(offset)
            offset += len(line)
        if not ids:
            raise SaccadeError(f"{self.path} is empty: one picture a line was expected")
        twice, times = Counter(ids).most_common(1)[0]
        if times > 1:
            raise SaccadeError(f'{self.path}: the picture "{twice}" occurs {times} times')
        return tuple(ids), np.array(offsets, dtype=np.int64), np.array(counts, dtype=np.int64)


def is_tsv(path: Path) -> bool:
    """Whether a file is one by its ending, or has as many columns."""
    return path.is_file() and (path.suffix == ".tsv" or first_bytes(path).count(b"\t") >= len(COLUMNS) - 2)


def write_tsv(path: Path | str, rows: Iterable[TsvRow]) -> None:
    """Write rows one by one; the file appears when the last is written."""
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        for row in rows:
            file.write(row.line())


def parse_line(line: bytes, where: str, dim: int | None = None) -> TsvRow:
    """One line; `dim` is what the lines before had. Raises: SaccadeError, which starts with `where`, if it is none."""
    columns = _columns(line, where)
    width, height, count = (_whole(columns, name, where) for name in COLUMNS[1:4])
    if not width or not height:
        raise SaccadeError(f"{where}: the picture is {width}×{height} pixels, a size was expected")
    boxes, features = _decode(columns, "boxes", where), _decode(columns, "features", where)
    if len(boxes) != 4 * count:
        raise SaccadeError(
            f"{where}: num_boxes is {count}, but the boxes column holds {len(boxes)} numbers, not {4 * count}"
        )
    if count and (not len(features) or len(features) % count):
        raise SaccadeError(
            f"{where}: the {len(features)} numbers of the features column do not divide by {count} boxes"
        )
    if not count and len(features):
        raise SaccadeError(f"{where}: num_boxes is 0, but the features column is not empty")
    found = len(features) // count if count else dim or 0
    if dim and found != dim:
        raise SaccadeError(f"{where}: features of width {found}, the lines before have {dim}")
    scores = _decode(columns, "scores", where) if "scores" in columns else None
    if scores is not None and len(scores) != count:
        raise SaccadeError(f"{where}: num_boxes is {count}, but there are {len(scores)} scores")
    id = _id(columns["image_id"], where)
    return TsvRow(id, width, height, boxes.reshape(-1, 4), features.reshape(count, found), scores)


def _columns(line: bytes, where: str) -> dict[str, bytes]:
    columns = line.rstrip(b"\r\n").split(b"\t")
    if len(columns) not in LAYOUTS:
        raise SaccadeError(f"{where}: {len(columns)} columns, {len(COLUMNS)} were expected ({', '.join(COLUMNS)})")
    return {name: value for name, value in zip(LAYOUTS[len(columns)], columns, strict=True) if name}


def _id(column: bytes, where: str) -> str:
    try:
        name = column.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SaccadeError(f"{where}: image_id is not UTF-8 text") from error
    if not name:
        raise SaccadeError(f"{where}: image_id is empty")
    return name


def _whole(columns: dict[str, bytes], name: str, where: str) -> int:
    column = columns[name]
    if not column.isdigit() or len(column) > 9:
        raise SaccadeError(
            f"{where}: {name} is {column[:20].decode('utf-8', 'replace')!r}, a whole number was expected"
        )
    return int(column)


def _decode(columns: dict[str, bytes], name: str, where: str) -> np.ndarray:
    column = columns[name]
    try:
        raw = base64.b64decode(column, validate=True)
    except binascii.Error as error:
        hint = " (it holds Python's b'…' around the text)" if column[:2] in (b"b'", b'b"') else ""
        raise SaccadeError(f"{where}: the {name} column is not valid base64{hint}") from error
    if len(raw) % 4:
        raise SaccadeError(f"{where}: the {name} column holds {len(raw)} bytes, a whole number of float32 was expected")
    return np.frombuffer(raw, dtype="<f4")


def _encode(array: np.ndarray) -> bytes:
    return base64.b64encode(np.ascontiguousarray(array, dtype="<f4").tobytes())
