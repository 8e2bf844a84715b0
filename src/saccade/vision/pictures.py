"""Pictures from anywhere: a path, a Pillow image or an array becomes RGB.

What is bounded is memory, not pixels. A picture takes at most `MAX_DECODED_BYTES` once decoded (four bytes a pixel, as
Pillow keeps RGB: 134 megapixels); a JPEG larger than that, up to `MAX_JPEG_PIXELS`, is decoded at half its scale, and
anything else is refused before it is decoded.
"""

from __future__ import annotations

import os
import stat
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from saccade.core.errors import SaccadeError, explain_os_errors

Picture: TypeAlias = "str | Path | Image.Image | np.ndarray"

MAX_DECODED_BYTES = 512 << 20  # of one picture in memory
MAX_PIXELS = MAX_DECODED_BYTES // 4  # Pillow's RGB has four bytes a pixel
MAX_JPEG_PIXELS = 2 * MAX_PIXELS  # of a progressive one libjpeg itself holds up to six bytes a pixel

_pillow = threading.Lock()  # its limit of pixels and Python's filters of warnings belong to all threads

# Formats that Pillow only recognises (videos, tables), or opens by running another program.
NO_PICTURES = frozenset({"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"})
HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
HEIC_SUFFIXES = frozenset({".heic", ".heif", ".hif"})
VIDEO_SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".ts", ".flv", ".wmv", ".3gp", ".ogv"}
)


@lru_cache(maxsize=1)
def picture_formats() -> dict[str, frozenset[str]]:
    """The formats that can be opened here, each with the endings of its files; HEIC's if pillow-heif is installed."""
    Image.init()
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        pass
    else:
        register_heif_opener()
    formats = [name for name in Image.ID if name in Image.OPEN and name not in NO_PICTURES]
    endings = Image.registered_extensions()
    return {name: frozenset(ending for ending, of in endings.items() if of == name) for name in formats}


def open_picture(path: Path | str) -> Image.Image:
    """A picture file as RGB, upright: the camera's rotation (EXIF) is applied, transparency is laid on white.

    Raises: SaccadeError if it is missing, empty, damaged, no picture, or too large to open safely.
    """
    return open_sized(path)[0]


def open_sized(path: Path | str) -> tuple[Image.Image, tuple[int, int]]:
    """`open_picture`, and the (width, height) of the upright original: a huge JPEG is decoded at half its scale."""
    path = Path(path)
    with explain_os_errors(path, "read"):
        if path.is_dir():
            raise SaccadeError(f"{path} is a folder, a picture file was expected")
        if path.stat().st_size == 0:
            raise SaccadeError(f"{path} is empty, a picture was expected")
    try:
        with _read_header(path) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                if not isinstance(image, JpegImageFile):
                    raise _too_large(path, MAX_PIXELS)
                image.draft(None, (width // 2, height // 2))
            image.load()
            turned = image.getexif().get(0x0112) in (5, 6, 7, 8)
            upright = to_rgb(ImageOps.exif_transpose(image))
            return upright, ((height, width) if turned else (width, height))
    except (SaccadeError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise SaccadeError(_unknown(path)) from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise _too_large(path, MAX_JPEG_PIXELS) from error
    except PermissionError as error:
        raise SaccadeError(f"could not read {path}: {error.strerror}") from error
    except Exception as error:  # Pillow's decoders raise what they meet: OSError, SyntaxError, struct.error, KeyError …
        raise SaccadeError(f"{path} is a damaged or cut-off picture: {str(error).rstrip('.')}") from error


def _read_header(path: Path) -> Image.Image:
    """A picture that is not decoded yet. Pillow's own limit of pixels is lower than ours, and stays for others."""
    formats = tuple(picture_formats())
    with _pillow, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, MAX_JPEG_PIXELS
        try:
            return Image.open(path, formats=formats)
        finally:
            Image.MAX_IMAGE_PIXELS = before


def picture_facts(path: Path | str) -> dict[str, Any]:
    """What a camera wrote into a photo file: when it was `taken`, and by which `camera`; nothing where it does not say.

    The pixels are not decoded.
    """
    found: dict[str, Any] = {}
    with suppress(Exception), _read_header(Path(path)) as image:  # whatever Pillow meets, the facts are not there
        tags = image.getexif()
        camera = str(tags.get(0x0110) or "").strip("\0 ")
        if camera.isprintable() and camera:
            found["camera"] = camera[:100]
        written = tags.get_ifd(0x8769).get(0x9003) or tags.get(0x0132)  # DateTimeOriginal, else DateTime
        found["taken"] = datetime.strptime(str(written)[:19], "%Y:%m:%d %H:%M:%S")
    return found


def _too_large(path: Path, limit: int) -> SaccadeError:
    return SaccadeError(f"{path} unpacks to more than {limit // 1_000_000} million pixels, too many to open safely")


def _unknown(path: Path) -> str:
    """Why a file is no picture to Pillow; phones' formats are named with what opens them."""
    with explain_os_errors(path, "read"), path.open("rb") as file:
        head = file.read(12)
    if head[4:8] == b"ftyp" and head[8:] in HEIC_BRANDS and "HEIF" not in picture_formats():
        return f'{path} is a HEIC photo, which needs pillow-heif: pip install "saccade[heic]"'
    if head[4:8] == b"ftyp" and head[8:] in (b"avif", b"avis") and "AVIF" not in picture_formats():
        return f'{path} is an AVIF photo, which needs a newer Pillow: pip install "pillow>=11.3"'
    return f"{path} is not a picture (PNG, JPEG, WebP, … were expected)"


def to_rgb(image: Image.Image) -> Image.Image:
    """Any mode (RGBA, grey, palette, 16-bit, CMYK …) as RGB, transparency laid on white."""
    if image.mode == "RGB":
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):  # Pillow clips these to 0..255: scale instead
        if image.mode == "F":
            light = np.nan_to_num(np.asarray(image))
            grey = light * np.float32(255 / max(float(light.max(initial=0.0)), 1e-9))
        else:
            grey = np.asarray(image) // 257  # 65535 is white
        return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")
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


def find_pictures(folder: Path | str, passed_over: Counter[str] | None = None) -> list[Path]:
    """The picture files below a folder, in name order; also links that lead nowhere, which are then reported.

    Linked folders are searched too, each folder once. `passed_over` counts the other files by their endings.
    """
    return _found(Path(folder), HEIC_SUFFIXES.union(*picture_formats().values()), "picture", passed_over)


def find_videos(folder: Path | str, passed_over: Counter[str] | None = None) -> list[Path]:
    """As `find_pictures`, of video files."""
    return _found(Path(folder), VIDEO_SUFFIXES, "video", passed_over)


def _found(folder: Path, endings: frozenset[str], what: str, passed_over: Counter[str] | None) -> list[Path]:
    if not folder.is_dir():
        raise SaccadeError(f"{folder} is not a folder of {what}s")
    others = Counter[str]()
    found = []
    for path in _files_below(folder, others):
        if path.suffix.lower() in endings:
            found.append(path)
        else:
            others[path.suffix.lower() or "no ending"] += 1
    if not found:
        told = f" ({others_told(others, what)})" if others else ""
        raise SaccadeError(f"{folder} holds no {what}{told}")
    if passed_over is not None:
        passed_over.update(others)
    return sorted(found)


def others_told(passed_over: Counter[str], what: str = "picture") -> str:
    """`passed over 3 files that are no pictures: .txt 2, .mov 1`."""
    count = passed_over.total()
    each = ", ".join(f"{ending} {number:,}" for ending, number in passed_over.most_common())
    return f"passed over {count:,} {f'file that is no {what}' if count == 1 else f'files that are no {what}s'}: {each}"


def _files_below(folder: Path, passed_over: Counter[str]) -> Iterator[Path]:
    """Every file (pipes and sockets are none); a folder that lies inside and is linked too goes by its own path."""
    seen: set[tuple[int, int]] = set()
    waiting = [folder]

    def unreadable(_: OSError) -> None:
        passed_over["unreadable folder"] += 1

    while waiting:
        linked: list[Path] = []
        for place, folders, files in os.walk(waiting.pop(0), onerror=unreadable):
            facts = os.stat(place)
            if (facts.st_dev, facts.st_ino) in seen:
                folders.clear()
                continue
            seen.add((facts.st_dev, facts.st_ino))
            linked += (path for name in sorted(folders) if (path := Path(place, name)).is_symlink())
            yield from (path for name in files if _may_be_read(path := Path(place, name)))
        waiting += linked


def _may_be_read(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # a link that leads nowhere, or round in a circle
        return True


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
