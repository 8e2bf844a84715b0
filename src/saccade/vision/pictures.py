"""Pictures from anywhere: a path, a Pillow image or an array becomes RGB."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from saccade.core.errors import SaccadeError, explain_os_errors

Picture: TypeAlias = "str | Path | Image.Image | np.ndarray"

_warnings = threading.Lock()  # Python's filters of warnings belong to all threads: one at a time may change them

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"})


def open_picture(path: Path | str) -> Image.Image:
    """A picture file as RGB, upright: the camera's rotation (EXIF) is applied, transparency is laid on white.

    Raises: SaccadeError if it is missing, empty, damaged, no picture, or too large to open safely.
    """
    path = Path(path)
    with explain_os_errors(path, "read"):
        if path.is_dir():
            raise SaccadeError(f"{path} is a folder, a picture file was expected")
        if path.stat().st_size == 0:
            raise SaccadeError(f"{path} is empty, a picture was expected")
    try:
        with _warnings, warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            opened = Image.open(path)  # reads the header only
        with opened as image:
            image.load()
            return to_rgb(ImageOps.exif_transpose(image))
    except UnidentifiedImageError as error:
        raise SaccadeError(f"{path} is not a picture (PNG, JPEG, WebP, … were expected)") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        limit = (Image.MAX_IMAGE_PIXELS or 0) // 1_000_000
        raise SaccadeError(f"{path} unpacks to more than {limit} million pixels, too many to open safely") from error
    except PermissionError as error:
        raise SaccadeError(f"could not read {path}: {error.strerror}") from error
    except (OSError, SyntaxError, ValueError, EOFError, IndexError) as error:  # what Pillow's decoders raise
        raise SaccadeError(f"{path} is a damaged or cut-off picture: {str(error).rstrip('.')}") from error


def to_rgb(image: Image.Image) -> Image.Image:
    """Any mode (RGBA, grey, palette, 16-bit, CMYK …) as RGB, transparency laid on white."""
    if image.mode == "RGB":
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):  # Pillow clips these to 0..255: scale instead
        values = np.asarray(image, dtype=np.float64)
        top = 65535.0 if image.mode != "F" else max(float(values.max(initial=0.0)), 1e-9)
        return Image.fromarray((values / top * 255).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        layered = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), layered).convert("RGB")
    return image.convert("RGB")


def as_array(
    picture: Picture, where: str = "the picture", size: int | None = None
) -> UInt8[np.ndarray, "row column 3"]:
    """RGB bytes of a path, a Pillow image or an array, stretched to `size` × `size` when asked (boxes in 0..1 hold)."""
    if isinstance(picture, str | Path):
        image = open_picture(picture)
    elif isinstance(picture, Image.Image):
        image = to_rgb(picture)
    else:
        array = _check_array(np.asarray(picture), where)
        if size is None or array.shape[:2] == (size, size):
            return array
        image = Image.fromarray(array)
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)  # Pillow widens the filter: no aliasing
    return np.asarray(image)


def find_pictures(folder: Path | str) -> list[Path]:
    """The picture files below a folder, in name order; also links that lead nowhere, which are then reported."""
    folder = Path(folder)
    if not folder.is_dir():
        raise SaccadeError(f"{folder} is not a folder of pictures")
    named = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    found = sorted(path for path in named if path.is_file() or not path.exists())
    if not found:
        raise SaccadeError(f"{folder} holds no picture ({', '.join(sorted(SUFFIXES))} were looked for)")
    return found


def name_of(picture: Picture, position: int) -> str:
    """What to call a picture in sentences and ids: its path, or its place in the list."""
    return str(picture) if isinstance(picture, str | Path) else f"picture {position}"


def _check_array(array: np.ndarray, where: str) -> np.ndarray:
    if array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, axis=2)
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or 0 in array.shape:
        raise SaccadeError(f"{where}: an array of shape [height, width, 3] was expected, not {list(array.shape)}")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise SaccadeError(f"{where}: the array holds NaN or infinite values")
        if array.min() < 0 or array.max() > 1:
            raise SaccadeError(f"{where}: an array of floats must lie in 0..1, one of bytes in 0..255")
        array = (array * 255).round().astype(np.uint8)
    if array.dtype != np.uint8:
        raise SaccadeError(f"{where}: the array must hold bytes (uint8) or floats in 0..1, not {array.dtype}")
    if array.shape[2] == 4:
        return np.asarray(to_rgb(Image.fromarray(array)))
    return np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array


def ids_of(pictures: Sequence[Picture]) -> tuple[str, ...]:
    """Their paths, if all are paths: pictures from memory have no ids."""
    return tuple(map(str, pictures)) if all(isinstance(p, str | Path) for p in pictures) else ()
