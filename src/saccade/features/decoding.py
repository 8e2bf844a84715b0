"""Pictures made ready for an extractor, in order and ahead of it: opened, shrunk, their boxes brought to 0..1.

Many files are decoded by several processes, since Python's lock lets threads decode only so many small pictures a
second. The processes are forks, so they know the extractor's `prepare` without being sent it, and they leave what they
prepared in anonymous shared memory: nothing has a name that a kill could leave behind, and a process whose parent is
gone reads the end of its pipe and ends. Few pictures, pictures in memory, and systems without a safe fork get threads.
"""

from __future__ import annotations

import math
import mmap
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.core.interrupt import without_interrupts
from saccade.core.threads import ahead, openers
from saccade.data.formats.regions import Unit
from saccade.data.records import PictureFile
from saccade.data.store.manifest import Broken, printable
from saccade.data.text_files import BOX_SLACK
from saccade.vision import RegionExtractor
from saccade.vision.boxes import as_boxes
from saccade.vision.pictures import open_sized
from saccade.vision.videos.extractor import VideoExtractor
from saccade.vision.videos.footage import Footage

MIN_FILES_FOR_PROCESSES = 128  # fewer are decoded sooner than processes are started
CHUNK = 8  # pictures of one request to a process …
CHUNKS_AHEAD = 3  # … and such requests that wait for each process, so that it never waits for its parent
SLOT_BYTES = 32 << 20  # for the pictures of a chunk where an extractor keeps their shape; larger ones go by the pipe

Listed = tuple[str, PictureFile]
Result = TypeVar("Result")


def or_broken(opening: Callable[[], Result], id: str, path: str = "") -> Result | Broken:
    """What `opening` a picture gives, or why it could not be opened: one bad file must not end a run."""
    try:
        return opening()
    except SaccadeError as error:
        return Broken(id, path, printable(error))
    except MemoryError as error:
        raise SaccadeError(f"there is too little memory to open {path or id}: use fewer workers") from error
    except Exception as error:  # a decoder met what its author did not think of
        return Broken(id, path, f"{path or id} could not be decoded ({type(error).__name__})")


@dataclass(frozen=True)
class Opened:
    """A picture ready for the extractor."""

    id: str
    pixels: UInt8[np.ndarray, "*frame row column 3"]
    width: int  # of the original
    height: int
    boxes: Float32[np.ndarray, "region 4"] | None  # in 0..1
    seconds: float | None = None  # of a video, whose pixels are [frame, row, column, 3] and boxes its film strip
    note: str = ""  # what is wrong with a file that could be read all the same

    @property
    def seen(self) -> Any:
        """What an extractor takes: pixels, or the frames of a video with their times (Footage)."""
        if self.seconds is None or self.boxes is None:
            return self.pixels
        return Footage(self.pixels, self.boxes[:, [0, 2]] * self.seconds, self.seconds, self.width, self.height)


@dataclass(frozen=True)
class Opener:
    """Opens a picture, shrinks it to what the extractor wants, and brings its boxes to 0..1; in any thread or fork."""

    extractor: RegionExtractor
    boxes: Mapping[str, np.ndarray] | None
    unit: Unit
    sizes: Mapping[str, tuple[int, int]]
    seconds: Mapping[str, float] = field(default_factory=dict)  # of videos that are drawn

    def __call__(self, picture: Listed) -> Opened | Broken:
        id, source = picture
        path = printable(source) if isinstance(source, Path) else ""
        return or_broken(lambda: self._open(id, source, path or id), id, path)

    def _open(self, id: str, source: PictureFile, name: str) -> Opened:
        if isinstance(self.extractor, VideoExtractor):
            return self._open_video(self.extractor, id, source, name)
        if isinstance(source, Path):
            image, (width, height) = open_sized(source)
            pixels = self.extractor.prepare(image, name)
        else:
            array = source()
            (height, width), pixels = array.shape[:2], self.extractor.prepare(array, name)
        width, height = self.sizes.get(id, (width, height))
        boxes = None
        if self.boxes is not None:
            given = self.boxes.get(id)
            if given is None or not len(given):
                raise SaccadeError(f"{name} has no boxes, which were to be given for every picture")
            boxes = in_fractions(given, width, height, name) if self.unit == "pixel" else np.asarray(given)
            boxes = as_boxes(boxes, name).numpy()
        return Opened(id, pixels, width, height, boxes)

    def _open_video(self, extractor: VideoExtractor, id: str, source: PictureFile, name: str) -> Opened:
        if isinstance(source, Path):
            footage = extractor.footage(source)
        else:
            drawn = Footage.evenly(source(), self.seconds[id])
            footage = replace(drawn, frames=np.stack([extractor.prepare(frame, name) for frame in drawn.frames]))
        size = footage.width, footage.height
        return Opened(id, footage.frames, *size, footage.strip, footage.seconds, footage.note)


@dataclass(frozen=True)
class ShownPhoto:
    """A photo file ready for a network, and small enough to be kept for a drawing."""

    file: Path
    width: int  # of the original
    height: int
    pixels: UInt8[np.ndarray, "row column 3"]
    picture: UInt8[np.ndarray, "row column 3"]


def open_shown(
    files: Sequence[Path], prepare: Callable[[Image.Image], np.ndarray], side: int, most: int
) -> Generator[ShownPhoto | Broken, None, None]:
    """Photos in order, opened by a few threads at most `most` ahead, the drawing's picture no longer than `side`."""

    def opened(file: Path) -> ShownPhoto:
        image, (width, height) = open_sized(file)
        pixels = prepare(image)
        image.thumbnail((side, side))
        return ShownPhoto(file, width, height, pixels, np.asarray(image))

    return ahead(lambda file: or_broken(lambda: opened(file), file.name, printable(file)), files, openers(), most)


def in_fractions(boxes: np.ndarray, width: int, height: int, name: str) -> Float[np.ndarray, "region 4"]:
    """Boxes in pixels as parts of the picture; what is less than `BOX_SLACK` pixels outside is cut off.

    Raises: SaccadeError, which starts with `name`, if one leaves the picture.
    """
    pixels = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    sides = np.array([width, height, width, height], dtype=np.float64)
    wrong = ((pixels < -BOX_SLACK) | (pixels > sides + BOX_SLACK) | ~np.isfinite(pixels)).any(axis=1)
    if wrong.any():
        box = ", ".join(f"{x:g}" for x in pixels[int(wrong.argmax())])
        raise SaccadeError(f"{name}: the box ({box}) leaves the picture of {width} × {height} pixels")
    clipped: np.ndarray = np.clip(pixels / sides, 0, 1)
    return clipped


def open_ahead(
    opener: Opener, pictures: Sequence[Listed], workers: int | None, most: int
) -> Generator[Opened | Broken, None, None] | ProcessesAhead:
    """`map(opener, pictures)`, done ahead by processes, or by threads that are at most `most` pictures ahead.

    `workers` None: a process for each core that this one may use, or `openers()` threads. Close the iterator when
    leaving early: what works ahead ends with it.
    """
    count = (len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1) if workers is None else workers
    videos = opener.extractor.videos  # take long enough each, and to draw one takes Python's lock
    files = len(pictures) >= MIN_FILES_FOR_PROCESSES and all(isinstance(source, Path) for _, source in pictures)
    if (files or (videos and len(pictures) > 1)) and count > 1 and sys.platform == "linux":
        return ProcessesAhead(opener, pictures, count)
    return ahead(opener, pictures, openers() if workers is None else workers, most)


class ProcessesAhead:
    """Pictures in order, decoded by processes that were forked when this was made.

    Chunk k goes to process k mod `workers`: answers are taken in the order of the requests, and so come in order.
    """

    def __init__(self, opener: Opener, pictures: Sequence[Listed], workers: int) -> None:
        size = 1 if opener.extractor.videos else CHUNK
        self.chunks = [range(i, min(i + size, len(pictures))) for i in range(0, len(pictures), size)]
        self.workers = min(workers, len(self.chunks))
        self.decoders: list[_Decoder] = []
        try:
            for number in range(self.workers):  # each is at work while the next is forked
                self.decoders.append(_Decoder(opener, pictures))
                for ahead_of_it in range(CHUNKS_AHEAD):
                    self._request(number + ahead_of_it * self.workers)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise SaccadeError(f"{workers} processes could not be started: use fewer workers ({error})") from error
            raise
        self._results = self._take()

    def __iter__(self) -> Iterator[Opened | Broken]:
        return self

    def __next__(self) -> Opened | Broken:
        return next(self._results)

    def close(self) -> None:
        for decoder in self.decoders:
            decoder.end()
        for decoder in self.decoders:  # all were told: a process with a GPU's memory maps takes its time to end
            decoder.join()
        self.decoders = []

    def _request(self, number: int) -> None:
        if number < len(self.chunks):
            self.decoders[number % self.workers].request(self.chunks[number])

    def _take(self) -> Iterator[Opened | Broken]:
        for number, chunk in enumerate(self.chunks):
            results = self.decoders[number % self.workers].answer(chunk)
            self._request(number + CHUNKS_AHEAD * self.workers)
            yield from results


class _Decoder:
    """A process that decodes chunks of the pictures into a ring of slots of shared memory."""

    def __init__(self, opener: Opener, pictures: Sequence[Listed]) -> None:
        side = opener.extractor.picture_size
        self.slot_bytes = SLOT_BYTES if side is None else CHUNK * side * side * 3
        self.memory = mmap.mmap(-1, self.slot_bytes * CHUNKS_AHEAD)
        self.pictures = pictures
        self.requested = self.answered = 0
        self.pipe, theirs = Pipe()
        with without_interrupts():
            self.process = os.fork()
            if self.process == 0:
                try:
                    threading.excepthook = lambda _: None  # what libraries start anew in a fork loses its files here
                    _close_all_but(theirs)
                    _serve(opener, pictures, self.memory, self.slot_bytes, theirs)
                finally:
                    os._exit(0)  # nothing of the parent's is cleaned up here
        theirs.close()

    def request(self, chunk: range) -> None:
        with suppress(BrokenPipeError):  # it died: `answer` says so
            self.pipe.send((chunk.start, chunk.stop, self._slot(self.requested)))
        self.requested += 1

    def answer(self, chunk: range) -> list[Opened | Broken]:
        """The pictures of the earliest request, copied out of its slot."""
        try:
            found = self.pipe.recv()
        except (EOFError, ConnectionResetError) as error:
            names = ", ".join(printable(source) for _, source in self.pictures[chunk.start : chunk.stop])
            raise SaccadeError(f"a process that decodes pictures was ended while it opened {names}") from error
        if isinstance(found, SaccadeError):
            raise found
        used, results = found
        block = np.frombuffer(self.memory, np.uint8, used, self._slot(self.answered)).copy()
        self.answered += 1
        return [one.opened(block) if isinstance(one, _InSlot) else one for one in results]

    def _slot(self, number: int) -> int:
        return number % CHUNKS_AHEAD * self.slot_bytes

    def end(self) -> None:
        """Tell the process to end, whatever it is at."""
        self.pipe.close()
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)

    def join(self) -> None:
        """Wait until it has ended."""
        with suppress(ChildProcessError):
            os.waitpid(self.process, 0)
        self.memory.close()


class _InSlot(NamedTuple):
    """An `Opened` whose pixels lie in the slot, `start` bytes from its beginning."""

    id: str
    start: int
    shape: tuple[int, ...]
    width: int
    height: int
    boxes: np.ndarray | None
    seconds: float | None
    note: str

    def opened(self, block: UInt8[np.ndarray, " byte"]) -> Opened:
        pixels = block[self.start : self.start + math.prod(self.shape)].reshape(self.shape)
        return Opened(self.id, pixels, self.width, self.height, self.boxes, self.seconds, self.note)


def _serve(opener: Opener, pictures: Sequence[Listed], memory: mmap.mmap, slot_bytes: int, pipe: Connection) -> None:
    """What a process does: decode the requested chunks until its parent closes the pipe or is gone."""
    torch.set_num_threads(1)  # the threads of the parent were not forked with it
    with suppress(EOFError, OSError):
        while True:
            first, last, start = pipe.recv()
            slot = np.frombuffer(memory, np.uint8, slot_bytes, start)
            found: list[_InSlot | Opened | Broken] = []
            used = 0
            try:
                for picture in pictures[first:last]:
                    one = opener(picture)
                    if isinstance(one, Opened) and used + one.pixels.size <= slot_bytes:
                        slot[used : used + one.pixels.size].reshape(one.pixels.shape)[:] = one.pixels
                        facts = one.width, one.height, one.boxes, one.seconds, one.note
                        found.append(_InSlot(one.id, used, one.pixels.shape, *facts))
                        used += one.pixels.size
                    else:
                        found.append(one)
            except SaccadeError as error:
                pipe.send(error)
            else:
                pipe.send((used, found))


def _close_all_but(pipe: Connection) -> None:
    """Locks, files and others' pipes must end with the parent, not with a process that it forked."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != pipe.fileno():
            with suppress(OSError):
                os.close(int(name))
