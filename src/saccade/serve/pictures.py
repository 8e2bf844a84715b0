"""Pictures in and out: uploads, looked at before they are decoded; files of an index, served as they were indexed.

A file is served by its id alone, and only while it holds the very bytes that were indexed: its size and its hash are
compared first. Whatever a path leads to by now, a link or a folder that was exchanged, nothing else ever leaves. What
leaves is a fresh JPEG, upright and without the camera's notes of place and time.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import tempfile
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

import numpy as np
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.vision.pictures import open_picture, picture_formats

SHOWN_SIDE = 1600  # the longer side of a picture on the page
HASH_SIDE = 8
NEAR = 6  # of 64 bits in which copies may differ …
NEAR_COLOURS = 24  # … and how far, of 256, the colours of their spots
CHANGED = "this picture has changed or gone since it was indexed: run `saccade index` again"
T = TypeVar("T")


class Gone(SaccadeError):
    """What was indexed is no longer there."""


class Missing(SaccadeError):
    """The index holds no such picture."""


class TooLarge(SaccadeError):
    """More pixels than the service takes."""


class Recent(Generic[T]):
    """The last results of a function of one key, for several threads."""

    def __init__(self, most: int) -> None:
        self._most, self._kept, self._lock = most, OrderedDict[Hashable, T](), threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made


@contextmanager
def kept_upload(source: BinaryIO, suffix: str) -> Iterator[Path]:
    """An upload as a file of ours, gone afterwards; what the client calls it plays no part."""
    with tempfile.TemporaryDirectory(prefix="saccade-upload-") as folder:
        path = Path(folder) / f"upload{suffix}"
        with path.open("wb") as file:
            shutil.copyfileobj(source, file)
        try:
            yield path
        except SaccadeError as error:  # which names the file
            raise type(error)(str(error).replace(str(path), "the upload")) from error


def open_bounded(path: Path, pixels: int) -> Image.Image:
    """A picture as RGB, refused before it is decoded if it has more than so many pixels.

    Raises: TooLarge; SaccadeError if it is no picture.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=tuple(picture_formats())) as header:
                size = header.size
    except Image.DecompressionBombError as error:
        raise TooLarge(f"the picture has more than {pixels:,} pixels") from error
    except Exception:  # Pillow raises what it meets: what is wrong, `open_picture` says
        size = (0, 0)
    if size[0] * size[1] > pixels:
        raise TooLarge(f"the picture has {size[0]:,} × {size[1]:,} pixels: at most {pixels:,} are taken")
    return open_picture(path)


def content_hash(content: bytes) -> str:
    """As an index keeps it."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def indexed_bytes(path: str, size: int, digest: str) -> bytes:
    """The bytes that were indexed. Raises: Gone if they are no longer there."""
    with _opened(path, size) as file:
        content = file.read(size + 1)
    if len(content) != size or content_hash(content) != digest:
        raise Gone(CHANGED)
    return content


@contextmanager
def indexed_copy(path: str, size: int, digest: str) -> Iterator[Path]:
    """The bytes that were indexed, as a file of ours that nobody exchanges while it is read, gone afterwards: for
    videos, which memory may not hold. Raises: Gone if they are no longer there."""
    with tempfile.TemporaryDirectory(prefix="saccade-shown-") as folder:
        kept = Path(folder) / f"video{Path(path).suffix}"
        found = hashlib.blake2b(digest_size=16)
        with _opened(path, size) as file, kept.open("wb") as copy:
            while chunk := file.read(1 << 20):
                found.update(chunk)
                copy.write(chunk)
        if found.hexdigest() != digest:
            raise Gone(CHANGED)
        yield kept


@contextmanager
def _opened(path: str, size: int) -> Iterator[BinaryIO]:
    """A plain file of this size. Raises: Gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would be waited for
    except (OSError, ValueError):
        raise Gone(CHANGED) from None
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size != size:
            raise Gone(CHANGED)
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def shown_picture(content: bytes, pixels: int) -> bytes:
    """A JPEG of a picture's bytes that a browser shows quickly."""
    with tempfile.NamedTemporaryFile(prefix="saccade-shown-") as file:
        file.write(content)
        file.flush()
        return as_jpeg(open_bounded(Path(file.name), pixels))


def as_jpeg(picture: Image.Image, side: int = SHOWN_SIDE) -> bytes:
    if max(picture.size) > side:
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=88)
    return out.getvalue()


class Fingerprint(NamedTuple):
    """What tells copies of a picture from pictures that are merely similar."""

    content: str  # the hash of the file
    bits: int  # 64, which stay when a picture is made smaller or saved anew: a difference hash
    colours: bytes = b""  # of 8 × 8 spots, since scenes before one background share their bits

    def copies(self, other: Fingerprint) -> bool:
        if self.content == other.content:
            return True
        if not self.colours or not other.colours or (self.bits ^ other.bits).bit_count() > NEAR:
            return False
        one, two = (np.frombuffer(each.colours, np.uint8).astype(np.int16) for each in (self, other))
        return int(np.abs(one - two).max()) <= NEAR_COLOURS


def fingerprint(content: str, thumbnail: bytes) -> Fingerprint:
    """The bits say whether each of 8 × 8 spots is brighter than its neighbour to the left."""
    with Image.open(io.BytesIO(thumbnail)) as picture:
        picture.draft("RGB", (HASH_SIDE * 8, HASH_SIDE * 8))
        small = picture.convert("RGB")
    grey = np.asarray(small.convert("L").resize((HASH_SIDE + 1, HASH_SIDE), Image.Resampling.BOX), np.int16)
    bits = np.packbits((grey[:, 1:] > grey[:, :-1]).ravel())
    colours = np.asarray(small.resize((HASH_SIDE, HASH_SIDE), Image.Resampling.BOX))
    return Fingerprint(content, int.from_bytes(bits.tobytes(), "big"), colours.tobytes())


def copies(pictures: Sequence[Fingerprint]) -> list[list[int]]:
    """Groups of places whose pictures are copies of the first of their group."""
    groups: list[list[int]] = []
    for place, own in enumerate(pictures):
        for group in groups:
            if own.copies(pictures[group[0]]):
                group.append(place)
                break
        else:
            groups.append([place])
    return [group for group in groups if len(group) > 1]


def heat_facts(explanation: Any) -> dict[str, Any]:
    """An explanation as JSON: words with their heat maps as small pictures, regions, and who belongs to whom."""
    from saccade.explain import draw
    from saccade.explain.explanation import is_content
    from saccade.explain.html.figure import LIGHT_SIDE, light_uri

    shown = explanation.shortened()
    height, wide = shown.image.shape[:2]
    scale = LIGHT_SIDE / max(height, wide)
    size = max(1, round(height * scale)), max(1, round(wide * scale))
    strengths = shown.strengths
    words = [
        {
            "text": word,
            "score": None if shown.word_score is None else float(shown.word_score[place]),
            "strength": None if strengths is None else float(strengths[place]),
            "known": not shown.is_unknown(word),
            "content": is_content(word),
            "colour": draw.PALETTE.index(shown.colours[place]) if place in shown.colours else None,
            "heat": light_uri(shown.heat(place, size)) if any(map(str.isalnum, word)) else None,
        }
        for place, word in enumerate(shown.words)
    ]
    return {
        "score": float(shown.score),
        "probability": shown.probability,
        "fits": shown.fits,
        "generated": shown.generated,
        "width": wide,
        "height": height,
        "more": shown.more,
        "boxes": np.round(shown.boxes, 4).tolist(),
        "weights": np.round(shown.weights, 5).tolist(),
        "words": words,
        "places": [
            {
                "box": np.round(place.box, 4).tolist(),
                "words": list(place.words),
                "text": shown.label(place),
                "colour": draw.PALETTE.index(place.colour),
            }
            for place in shown.places
        ],
    }
