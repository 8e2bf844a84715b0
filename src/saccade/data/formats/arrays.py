"""The arrays that other tools keep of a picture, under their many names, as one picture's regions.

The names come from the tools themselves: `feat` and `z` (ImageCaptioning.pytorch), `x` and `bbox` (bottom-up attention
in PyTorch), `features` and `norm_bb` (UNITER), `image_width` (MMF), `img_w` (LXMERT). A grid [row, column, dim] becomes
one region a cell. Nothing here unpickles: arrays of Python objects are refused, or not read.

`NpzFolder` is a folder with one .npz or .npy file a picture, as ImageCaptioning.pytorch, MMF and UNITER write it:
`cocobu_att/391895.npz` holds the features, and `cocobu_box/391895.npy` beside it the boxes in pixels. MMF's
`391895_info.npy` is a pickle and is passed over, and with it the boxes. Pictures in subfolders have them in their id.

"""

from __future__ import annotations

import io
import math
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from saccade.core.arrays import read_npy
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import check_archive
from saccade.data.formats.regions import NO_SIZES, WHOLE_IMAGE, Sizes, check_boxes, check_features, position
from saccade.data.records import PictureRegions, RegionSource

Arrays = Mapping[str, np.ndarray]

FEATURES = ("features", "feat", "x", "z", "image_features", "image_feat", "arr_0", "c3d_features")
PIXEL_BOXES = ("bbox", "boxes", "image_bb", "image_bboxes")
UNIT_BOXES = ("norm_bb", "spatial_features")  # x1, y1, x2, y2 in 0..1, with width and height (and area) after them
WIDTHS, HEIGHTS = ("image_width", "image_w", "img_w", "width"), ("image_height", "image_h", "img_h", "height")
SCORES = ("conf", "objects_conf", "obj_conf", "scores")
KNOWN = (*FEATURES, *PIXEL_BOXES, *UNIT_BOXES, *WIDTHS, *HEIGHTS, *SCORES)

MAX_PIXELS_OUTSIDE = 1.0  # by which a detector's box may leave the picture and be clipped
MAX_SHARE_OUTSIDE = 0.005  # the same where the size is not known
MMF_INFO = "_info.npy"  # MMF: a pickled dictionary


class UnknownSize(SaccadeError):
    """Boxes in pixels of a picture whose size is not known."""


class ArrayPictures(RegionSource, ABC):
    """Another tool's feature file as a RegionSource: a subclass knows the ids and reads one picture's arrays."""

    def __init__(self, path: Path | str, sizes: Sizes = NO_SIZES) -> None:
        self.path = Path(path)
        self.sizes = sizes

    @property
    @abstractmethod
    def ids(self) -> Sequence[str]: ...

    @abstractmethod
    def arrays(self, index: int) -> Arrays:
        """The arrays of one picture under names that the tools use."""

    @cached_property
    def box_path(self) -> Path | None:
        """The boxes beside, as ImageCaptioning.pytorch has them: cocobu_att → cocobu_box, x_att.lmdb → x_box.lmdb."""
        stem, dot, ending = self.path.name.partition(".")
        beside = self.path.with_name(f"{stem.removesuffix('_att')}_box{dot}{ending}")
        return beside if stem.endswith("_att") and beside.exists() else None

    def where(self, index: int) -> str:
        """What an error about one picture begins with."""
        return f'{self.path}: picture "{self.ids[index]}"'

    def __reduce__(self) -> Any:  # a loader's worker process opens the file itself
        return type(self), (self.path, self.sizes)

    @cached_property
    def dim(self) -> int:
        features = _features(self.arrays(0), self.where(0))
        return int(features.shape[-1])

    @cached_property
    def boxes(self) -> str:
        """What there is of boxes, for people: judged by the first picture."""
        arrays, size = self.arrays(0), self.sizes.get(self.ids[0])
        if _first(arrays, UNIT_BOXES) is not None:
            return "kept"
        if _first(arrays, PIXEL_BOXES) is not None:
            known = size or (_number(arrays, WIDTHS) and _number(arrays, HEIGHTS))
            return "kept" if known else "in pixels of pictures whose sizes are not known: give --sizes FILE"
        grid = _features(arrays, self.where(0)).ndim == 3
        return "the cells of the grid" if grid else "missing: explanations cannot point into the picture"

    def get(self, index: int) -> PictureRegions:
        index = position(index, len(self), self.path)
        id, where = self.ids[index], self.where(index)
        return regions_of(id, self.arrays(index), where, self.dim, self.sizes.get(id))


def regions_of(id: str, arrays: Arrays, where: str, dim: int, size: tuple[int, int] | None = None) -> PictureRegions:
    """One picture from its arrays; `size` is what is known from elsewhere. Raises: SaccadeError if they do not fit."""
    found = _features(arrays, where)
    dtype = "float16" if found.dtype == np.float16 else "float32"
    features = check_features(found.reshape(-1, found.shape[-1]), dim, dtype, where)
    width, height = size or (_number(arrays, WIDTHS), _number(arrays, HEIGHTS))
    unit, pixels = _first(arrays, UNIT_BOXES), _first(arrays, PIXEL_BOXES)
    if unit is not None:
        boxes = _boxes(unit, len(features), where)
        if pixels is not None and not (width and height):
            width, height = _size_from(_boxes(pixels, len(features), where), boxes)
        outside = MAX_SHARE_OUTSIDE
    elif pixels is not None:
        if not width or not height:
            raise UnknownSize(
                f'{where}: the boxes are in pixels and the size of "{id}" is not known: give --sizes FILE, or put '
                "sizes.tsv (image, width, height) beside it"
            )
        boxes = _boxes(pixels, len(features), where) / np.array([width, height] * 2, dtype=np.float32)
        outside = MAX_PIXELS_OUTSIDE / min(width, height)
    else:
        boxes, outside = _grid(found), 0.0
    inside = np.clip(boxes, 0, 1)
    if not np.abs(inside - boxes).max(initial=0) <= outside:  # not ≤ also catches NaN
        raise SaccadeError(f"{where}: a box leaves the picture" + (f" of {width}×{height} pixels" if width else ""))
    scores = _first(arrays, SCORES)
    if scores is not None and scores.shape != (len(features),):
        raise SaccadeError(f"{where}: scores of shape {list(scores.shape)} for {len(features)} regions")
    kept = None if scores is None else np.asarray(scores, dtype=np.float32)
    return PictureRegions(id, features, check_boxes(inside, where), width, height, kept)


def read_arrays(content: bytes, where: str) -> Arrays:
    """The bytes of a .npz, or of a .npy (as the one array `features`); only known names are read."""
    try:
        if content[:2] == b"PK":
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                check_archive(archive, where)
                names = [n for n in archive.namelist() if n.removesuffix(".npy") in KNOWN]
                found = {n.removesuffix(".npy"): read_npy(archive.open(n), where) for n in names}
        else:
            found = {"features": read_npy(io.BytesIO(content), where)}
    except SaccadeError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise some ten kinds on damaged bytes
        raise SaccadeError(f"{where} is cut short or is not a .npz or .npy file") from error
    return found


def only_array(arrays: Arrays, where: str) -> np.ndarray:
    """The one array of a file that holds boxes and nothing else."""
    found = _first(arrays, FEATURES)
    if found is None:
        raise SaccadeError(f"{where} holds no array that is known")
    return found


def _features(arrays: Arrays, where: str) -> np.ndarray:
    """[region, dim] or [row, column, dim]."""
    found = _first(arrays, FEATURES)
    if found is None:
        raise SaccadeError(f"{where}: there are no features ({', '.join(FEATURES[:4])} were looked for)")
    if found.ndim == 4 and len(found) == 1:  # MMF's grids, a batch of one
        found = found[0]
    if found.ndim > 3 and found.size == len(found) * found.shape[-1]:  # I3D's maps of one cell
        found = found.reshape(len(found), -1)
    if found.ndim not in (2, 3) or not found.shape[-1]:
        raise SaccadeError(f"{where}: features have shape {list(found.shape)}, [regions, dim] was expected")
    if found.ndim == 3 and found.shape[2] < max(found.shape[:2]):
        raise SaccadeError(f"{where}: features have shape {list(found.shape)}, [rows, columns, dim] was expected")
    return found


def _grid(features: np.ndarray) -> Float32[np.ndarray, "region 4"]:
    """The cells of [row, column, dim]; the whole picture for regions whose boxes were thrown away."""
    if features.ndim == 2:
        return np.broadcast_to(WHOLE_IMAGE, (len(features), 4))
    rows, columns = features.shape[:2]
    y, x = (part.reshape(-1) for part in np.mgrid[:rows, :columns])
    edges = [x / columns, y / rows, (x + 1) / columns, (y + 1) / rows]
    return np.stack(edges, axis=1).astype(np.float32)


def _boxes(array: np.ndarray, count: int, where: str) -> Float32[np.ndarray, "region 4"]:
    if array.ndim != 2 or array.shape[1] < 4 or len(array) != count:
        raise SaccadeError(f"{where}: boxes have shape {list(array.shape)} for {count} regions, [{count}, 4] expected")
    return np.asarray(array[:, :4], dtype=np.float32)


def _size_from(pixels: np.ndarray, unit: np.ndarray) -> tuple[int, int]:
    """The picture's size, where the same boxes are kept both ways; 0 if no box tells it."""
    ends = zip(pixels[:, 2:].max(axis=0, initial=0), unit[:, 2:].max(axis=0, initial=0), strict=True)
    width, height = (round(float(p / u)) if 0 < u < p < math.inf else 0 for p, u in ends)
    return (width, height) if width and height else (0, 0)


def _first(arrays: Arrays, names: Sequence[str]) -> np.ndarray | None:
    return next((arrays[name] for name in names if name in arrays), None)


def _number(arrays: Arrays, names: Sequence[str]) -> int:
    found = _first(arrays, names)
    value = float(found.reshape(-1)[0]) if found is not None and found.size == 1 else 0.0
    return int(value) if 1 <= value < 1 << 31 else 0


class NpzFolder(ArrayPictures):
    """The pictures of a folder, by file name without ending, in alphabetical order."""

    @cached_property
    def _files(self) -> dict[str, Path]:
        with explain_os_errors(self.path, "read"):
            found = sorted(p for p in self.path.rglob("*.np[yz]") if not p.name.endswith(MMF_INFO))
        files: dict[str, Path] = {}
        for path in found:
            id = path.relative_to(self.path).with_suffix("").as_posix()
            if id in files:
                raise SaccadeError(f"{files[id]} and {path.name} are the same picture: keep one of them")
            files[id] = path
        if not files:
            raise SaccadeError(f"{self.path} holds no .npz or .npy files, one a picture was expected")
        return files

    @cached_property
    def ids(self) -> Sequence[str]:
        return tuple(self._files)

    @cached_property
    def boxes(self) -> str:
        if self.box_path is None and (pickles := sum(1 for _ in self.path.rglob(f"*{MMF_INFO}"))):
            return f"missing: they lie in {pickles:,} pickled *{MMF_INFO} files, which are not read"
        return super().boxes

    def where(self, index: int) -> str:
        return str(self._files[self.ids[index]])

    def arrays(self, index: int) -> Arrays:
        path = self._files[self.ids[index]]
        arrays = dict(_read_file(path))
        if self.box_path is not None:
            boxes = self.box_path / f"{self.ids[index]}.npy"
            if not boxes.exists():
                raise SaccadeError(f"{boxes} is missing: {path} has no boxes")
            arrays["bbox"] = only_array(_read_file(boxes), str(boxes))
        return arrays


def is_npz_folder(path: Path) -> bool:
    """Whether a folder holds .npz or .npy files, at any depth; looks no further than the first."""
    return path.is_dir() and any(True for _ in path.rglob("*.np[yz]"))


def _read_file(path: Path) -> Arrays:
    with explain_os_errors(path, "read"):
        return read_arrays(path.read_bytes(), str(path))
