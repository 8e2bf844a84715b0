"""Writing SCAN's precomputed format, picture by picture, with the boxes, sizes and ids that the original threw away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np

from saccade.data.picture import check_features, picture_of
from saccade.data.records import CaptionedImages
from saccade.errors import SaccadeError, explain_os_errors
from saccade.files import atomic_file


def write_precomp(
    folder: Path | str,
    data: CaptionedImages,
    dtype: str = "float32",
    progress: Callable[[], None] = lambda: None,
) -> None:
    """`{split}_ims.npy`, `_boxes.npy`, `_sizes.npy`, `_caps.txt`, `_ids.txt`: all of them, or none."""
    folder, split, count = Path(folder), data.split, len(data.images)
    if (folder / f"{split}_ims.npy").exists():
        raise SaccadeError(f"{folder / f'{split}_ims.npy'} exists already; remove it or choose another folder")
    if not count:
        raise SaccadeError(f"the split {split} has no pictures")
    order = _caption_order(data)
    regions, dim = len(picture_of(data.regions, 0).features), data.regions.dim
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
            picture = picture_of(data.regions, i)
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
