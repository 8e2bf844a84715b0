"""The precomputed format of SCAN and its descendants: `{split}_ims.npy` [picture, region, dim] and `{split}_caps.txt`.

The array is memory-mapped, never loaded whole. The format knows neither boxes nor ids; where `{split}_boxes.npy`,
`{split}_sizes.npy` and `{split}_ids.txt` lie beside it (our writer puts them there), they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np

from saccade.core.arrays import map_npy
from saccade.core.errors import SaccadeError, did_you_mean, explain_os_errors
from saccade.core.files import atomic_file, read_text
from saccade.data.formats.regions import WHOLE_IMAGE, check_boxes, check_features, position
from saccade.data.records import CaptionedImages, PictureRegions, RegionSource
from saccade.data.registry import need_root


class PrecompImages(RegionSource):
    """The pictures of one split, as a RegionSource. `step` is how often the array repeats each picture."""

    def __init__(self, folder: Path, split: str, step: int = 1) -> None:
        self.folder, self.split, self.step = folder, split, step
        self.path = folder / f"{split}_ims.npy"
        self.array = map_array(self.path, ("picture", "region", "dim"))
        rows, regions, _ = self.array.shape
        self._boxes = self._beside("boxes", (rows, regions, 4))
        self._sizes = self._beside("sizes", (rows, 2))

    def __reduce__(self) -> tuple[type[PrecompImages], tuple[Path, str, int]]:
        return PrecompImages, (self.folder, self.split, self.step)  # a pickled memory map would carry the whole array

    @property
    def has_boxes(self) -> bool:
        """False: the format threw the boxes away, and every region claims the whole picture."""
        return self._boxes is not None

    @property
    def dim(self) -> int:
        return int(self.array.shape[2])

    @cached_property
    def ids(self) -> Sequence[str]:
        path = self.folder / f"{self.split}_ids.txt"
        if path.exists():  # other people's id files count captions or repeat ids: only a usable one is used
            lines = read_stripped_lines(path)
            names = tuple(lines[:: self.step] if len(lines) == len(self.array) else lines)
            if len(names) == len(self) == len(set(names)):
                return names
        return tuple(f"{self.split}-{i:06d}" for i in range(len(self)))

    def __len__(self) -> int:
        return len(self.array) // self.step

    def get(self, index: int) -> PictureRegions:
        index = position(index, len(self), self.path)
        row = index * self.step
        features = self.array[row]
        if not np.isfinite(features).all():
            raise SaccadeError(f"{self.path}: picture {row} holds NaN or infinity")
        if self._boxes is None:
            boxes = np.broadcast_to(WHOLE_IMAGE, (len(features), 4))
        else:
            boxes = check_boxes(self._boxes[row], f"{self.folder / f'{self.split}_boxes.npy'}: picture {row}")
        width, height = (0, 0) if self._sizes is None else self._sizes[row].tolist()
        return PictureRegions(self.ids[index], features, boxes, width, height)

    def _beside(self, name: str, shape: tuple[int, ...]) -> np.ndarray | None:
        path = self.folder / f"{self.split}_{name}.npy"
        if not path.exists():
            return None
        array = map_array(path, ("picture", "region", "4")[: len(shape)])
        if array.shape != shape:
            raise SaccadeError(f"{path} has shape {list(array.shape)}, beside {self.path.name} it needs {list(shape)}")
        return array


def open_precomp(split: str, root: Path | None, captions_per_image: int | None = None) -> CaptionedImages:
    """One split. `captions_per_image` None infers it from the counts (see docs/data/formats.md)."""
    folder = need_root(root, "precomp", "{split}_ims.npy and {split}_caps.txt")
    path = folder / f"{split}_caps.txt"
    if not path.exists() and split not in precomp_splits(folder):
        known = precomp_splits(folder)
        raise SaccadeError(f"{folder / f'{split}_ims.npy'} is missing{did_you_mean(split, known)}")
    texts = read_stripped_lines(path)
    rows = PrecompImages(folder, split).array
    per_image, step = _owners(path, rows, len(texts), captions_per_image)
    return CaptionedImages(
        name="precomp",
        split=split,
        images=PrecompImages(folder, split, step),
        texts=tuple(texts),
        image_of_text=np.arange(len(texts), dtype=np.int64) // per_image,
    )


def precomp_splits(folder: Path) -> tuple[str, ...]:
    """The splits a folder holds, train first."""
    names = [p.name[: -len("_ims.npy")] for p in folder.glob("*_ims.npy")]
    order = ["train", "dev", "val", "test", "testall"]
    return tuple(sorted(names, key=lambda n: (order.index(n) if n in order else len(order), n)))


def _owners(path: Path, rows: np.ndarray, texts: int, per_image: int | None) -> tuple[int, int]:
    """(captions per picture, array rows per picture)."""
    if not texts:
        raise SaccadeError(f"{path} holds no captions")
    if per_image is not None and per_image < 1:
        raise SaccadeError(f"captions_per_image is {per_image}, a whole number of at least 1 was expected")
    if len(rows) == texts:  # one row per caption: single captions, or pictures repeated once per caption
        step = repeats(rows) if per_image is None else per_image
        if texts % step == 0:
            return step, step
    elif texts % len(rows) == 0 and per_image in (None, texts // len(rows)):
        return texts // len(rows), 1
    wanted = f"{per_image} captions a picture" if per_image else "a whole number of captions a picture"
    raise SaccadeError(f"{path} has {texts} captions for {len(rows)} pictures: {wanted} was expected")


def repeats(rows: np.ndarray) -> int:
    """How often each picture stands in a row, e.g. 5 in the official test arrays; judged by every first region."""
    same = 1
    while same < len(rows) and np.array_equal(rows[same], rows[0]):
        same += 1
    if len(rows) % same:
        return 1
    blocks = range(0, len(rows), same)
    regular = all(np.array_equal(rows[b, 0], rows[b + same - 1, 0]) for b in blocks)
    return same if regular else 1


def map_array(path: Path, axes: tuple[str, ...]) -> np.ndarray:
    """A .npy file of numbers with these axes, memory-mapped; a file that holds Python objects is refused."""
    array = map_npy(path)
    if array.ndim != len(axes) or 0 in array.shape:
        raise SaccadeError(f"{path} has shape {list(array.shape)}, [{', '.join(axes)}] was expected")
    return array


def read_stripped_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, stripped; only a line feed ends a line."""
    lines = read_text(path).split("\n")
    return [line.strip() for line in (lines[:-1] if not lines[-1] else lines)]


def write_precomp(
    folder: Path | str, data: CaptionedImages, dtype: str = "float32", progress: Callable[[], None] = lambda: None
) -> None:
    """`{split}_ims.npy`, `_boxes.npy`, `_sizes.npy`, `_caps.txt`, `_ids.txt`: all of them, or none."""
    folder, split, count = Path(folder), data.split, len(data.images)
    if (folder / f"{split}_ims.npy").exists():
        raise SaccadeError(f"{folder / f'{split}_ims.npy'} exists already; remove it or choose another folder")
    if not count:
        raise SaccadeError(f"the split {split} has no pictures")
    order = _caption_order(data)
    regions, dim = len(data.regions.get(0).features), data.regions.dim
    if not regions:
        raise SaccadeError(f'picture "{data.images.ids[0]}" has no regions, which the precomputed format cannot say')
    with ExitStack() as stack:  # every file takes its place only when all are written

        def begin(ending: str) -> BinaryIO:
            temporary = stack.enter_context(atomic_file(folder / f"{split}_{ending}"))
            return stack.enter_context(temporary.open("wb"))

        features, boxes, sizes = begin("ims.npy"), begin("boxes.npy"), begin("sizes.npy")
        _header(features, dtype, (count, regions, dim))
        _header(boxes, "float32", (count, regions, 4))
        _header(sizes, "int32", (count, 2))
        stack.enter_context(explain_os_errors(folder / f"{split}_ims.npy", "write"))
        for i in range(count):
            picture = data.regions.get(i)
            if len(picture.features) != regions:
                raise SaccadeError(
                    f'picture "{picture.id}" has {len(picture.features)} regions and those before have {regions}: '
                    "the precomputed format needs the same number in all"
                )
            features.write(check_features(picture.features, dim, dtype, f'picture "{picture.id}"').tobytes())
            boxes.write(np.ascontiguousarray(picture.boxes, dtype="<f4").tobytes())
            sizes.write(np.array([picture.width, picture.height], dtype="<i4").tobytes())
            progress()
        captions, ids = begin("caps.txt"), begin("ids.txt")
        captions.write("".join(_line(data.texts[t]) for t in order).encode())
        ids.write("".join(_line(id) for id in data.images.ids).encode())
        for file in (features, boxes, sizes, captions, ids):
            file.flush()  # a full disk shows here, before the first file takes its place


def _caption_order(data: CaptionedImages) -> list[int]:
    """Captions picture by picture; the format needs the same number for each."""
    owned = data.texts_of_image
    counts = {len(texts) for texts in owned}
    if len(counts) != 1 or counts == {0}:
        raise SaccadeError(
            f"{data.name}/{data.split}: pictures have {min(counts)} to {max(counts)} captions, "
            "and the precomputed format needs the same number, at least one, for each"
        )
    return [text for texts in owned for text in texts]


def _header(file: BinaryIO, dtype: str, shape: tuple[int, ...]) -> None:
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype).newbyteorder("<"))
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


def _line(text: str) -> str:
    return " ".join(text.splitlines()) + "\n"
