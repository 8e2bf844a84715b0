"""A folder with one .npz or .npy file a picture, as ImageCaptioning.pytorch, MMF, UNITER and others write it.

`cocobu_att/391895.npz` holds the features, and `cocobu_box/391895.npy` beside it the boxes in pixels. MMF's
`391895_info.npy` is a pickle and is passed over, and with it the boxes. Pictures in subfolders have them in their id.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.data.formats.arrays import ArrayPictures, Arrays, only_array, read_arrays
from saccade.data.formats.regions import NO_SIZES, Sizes

INFO = "_info.npy"  # MMF: a pickled dictionary


class NpzFolder(ArrayPictures):
    """The pictures of a folder, by file name without ending, in alphabetical order."""

    def __init__(self, path: Path | str, sizes: Sizes = NO_SIZES) -> None:
        super().__init__(path, sizes)
        beside = boxes_beside(self.path)
        self.box_folder = beside if beside is not None and beside.is_dir() else None

    @cached_property
    def _files(self) -> dict[str, Path]:
        with explain_os_errors(self.path, "read"):
            found = sorted(p for p in self.path.rglob("*.np[yz]") if not p.name.endswith(INFO))
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
        if self.box_folder is None and (pickles := sum(1 for _ in self.path.rglob(f"*{INFO}"))):
            return f"missing: they lie in {pickles:,} pickled *{INFO} files, which are not read"
        return super().boxes

    def where(self, index: int) -> str:
        return str(self._files[self.ids[index]])

    def arrays(self, index: int) -> Arrays:
        path = self._files[self.ids[index]]
        arrays = dict(_read(path))
        if self.box_folder is not None:
            boxes = self.box_folder / f"{self.ids[index]}.npy"
            if not boxes.exists():
                raise SaccadeError(f"{boxes} is missing: {path} has no boxes")
            arrays["bbox"] = only_array(_read(boxes), str(boxes))
        return arrays


def boxes_beside(path: Path) -> Path | None:
    """Where ImageCaptioning.pytorch puts the boxes of `path`: cocobu_att → cocobu_box, x_att.lmdb → x_box.lmdb."""
    stem, dot, ending = path.name.partition(".")
    return path.with_name(f"{stem.removesuffix('_att')}_box{dot}{ending}") if stem.endswith("_att") else None


def is_npz_folder(path: Path) -> bool:
    """Whether a folder holds .npz or .npy files, at any depth; looks no further than the first."""
    return path.is_dir() and any(True for _ in path.rglob("*.np[yz]"))


def _read(path: Path) -> Arrays:
    with explain_os_errors(path, "read"):
        return read_arrays(path.read_bytes(), str(path))
