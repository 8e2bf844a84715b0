"""NumPy's files, .npy and .npz, read without pickles and without unpacking more than a file of that size may hold."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import check_archive

MAX_ARRAY_BYTES = 1 << 30  # of one array in memory: more is a damaged header, or an attack
PICKLE = "holds pickled Python objects, which are not read; docs/data/formats.md says how to turn them into arrays"
NUMBERS, PLAIN = "fiu", "fiubU"  # kinds of NumPy's types: numbers alone; also bool and text


def read_npy(stream: IO[bytes], where: str, kinds: str = NUMBERS) -> np.ndarray:
    """One array. NumPy reads the header; the values are taken as they lie, so that no pickle can be reached.

    Raises: SaccadeError if it holds anything else than such values, and what NumPy raises if it is damaged.
    """
    version = np.lib.format.read_magic(stream)
    reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, by_columns, dtype = reader(stream)
    if dtype.hasobject:
        raise SaccadeError(f"{where} {PICKLE}")
    if dtype.kind not in kinds:
        raise SaccadeError(f"{where} holds values of type {dtype}, numbers were expected")
    size = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size > MAX_ARRAY_BYTES:
        raise ValueError(f"an array of shape {shape}")
    content = stream.read(size)
    if len(content) != size:
        raise ValueError("cut short")
    array = np.frombuffer(content, dtype)
    return array.reshape(shape[::-1]).T if by_columns else array.reshape(shape)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz by name. Raises: SaccadeError if it is missing, damaged, or holds more than arrays."""
    try:
        with explain_os_errors(path, "read"), zipfile.ZipFile(path) as archive:
            check_archive(archive, path)
            names = archive.namelist()
            return {n.removesuffix(".npy"): read_npy(archive.open(n), str(path), PLAIN).copy() for n in names}
    except SaccadeError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise some ten kinds on damaged bytes
        raise SaccadeError(f"{path} is damaged, cut short or no .npz file") from error


def map_npy(path: Path) -> np.memmap:
    """The array of a .npy, mapped. Raises: SaccadeError if it is missing, damaged or holds anything but numbers."""
    try:
        with explain_os_errors(path, "read"):
            array = np.lib.format.open_memmap(path, mode="r")  # np.load's mapping, without its way into pickle
    except SaccadeError:
        raise
    except Exception as error:  # what reads the header raises tokenising and syntax errors beside NumPy's own
        if "Python objects" in str(error):
            raise SaccadeError(f"{path} holds Python objects, which are not read; numbers were expected") from error
        raise SaccadeError(f"{path} is cut short or is not a .npy array") from error
    if array.dtype.kind not in NUMBERS:
        raise SaccadeError(f"{path} does not hold a plain array of numbers")
    return array
