"""Drawn pictures on disk: which formats there are, and files that are whole or absent."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from saccade.errors import SaccadeError
from saccade.files import atomic_file

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}


def check_format(path: Path | str, what: str, also: tuple[str, ...] = ()) -> str:
    """The ending of `path` in lower case, or a sentence on the endings that `what` (an explanation …) may have."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS and suffix not in also:
        known = ", ".join([*FORMATS, *also])
        raise SaccadeError(f"{path}: {what} is saved as one of {known}, not {suffix or 'a bare name'}")
    return suffix


def save_drawing(drawn: Image.Image, path: Path | str, what: str) -> Path:
    """Write a picture drawn at twice the size it is meant to be seen at, in the format its ending names."""
    suffix = check_format(path, what)
    with atomic_file(path) as temporary:
        drawn.save(temporary, format=FORMATS[suffix], dpi=(192, 192), compress_level=2, quality=90)
    return Path(path)
