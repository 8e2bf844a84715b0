"""Video files with PyAV: frames at chosen times, whatever the container and codec; and frames written as MP4.

The packets of a file are listed first, without decoding: they say exactly when each frame is shown, also where the rate
varies, the header's length is wrong, or the file was cut short. Then the wanted frames are decoded; from one to the
next the file is wound to the last key frame before it, if that saves decoding.

PyAV (`pip install "saccade[video]"`) is imported where it is used.
"""

from __future__ import annotations

import importlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import atomic_file
from saccade.vision.pictures import MAX_PIXELS
from saccade.vision.videos.footage import Footage, Sampling

DEFAULT_RATE = Fraction(25)  # of a stream that does not say it
MAX_FOOTAGE_BYTES = 2 << 30  # of the frames of a video in memory
BUFFER_BYTES = 1 << 20  # of a file that are read at once
MAX_PACKETS = 10_000_000  # of a video: 46 hours at 60 frames a second
Prepare = Callable[..., UInt8[np.ndarray, "row column 3"]]
COVER = 0x400  # FFmpeg's mark of a still picture: the cover of a song


def import_av(what: str) -> Any:
    """PyAV. Raises: SaccadeError if it is not installed; `what` is what needs it."""
    try:
        av = importlib.import_module("av")
    except ImportError as error:
        raise SaccadeError(f'{what} needs PyAV: pip install "saccade[video]" brings it') from error
    av.logging.set_level(None)  # FFmpeg's own lines are not for users
    return av


@dataclass(frozen=True)
class Timeline:
    """When the frames of a stream are shown, in its own units of time."""

    shown: tuple[int, ...]  # in order
    keys: tuple[int, ...]  # those that can be decoded by themselves
    base: Fraction  # seconds of a unit
    end: int  # of the last frame

    @property
    def seconds(self) -> float:
        return float((self.end - self.shown[0]) * self.base)

    def frame_at(self, seconds: float) -> int:
        """The number of the frame that stands on the screen then."""
        return max(bisect_right(self.shown, self.shown[0] + seconds / self.base) - 1, 0)


def read_frames(
    path: Path | str,
    sampling: Sampling | Float[np.ndarray, "piece 2"] | None = None,
    prepare: Prepare | None = None,
) -> Footage:
    """The frames of a video file at the times that `sampling` says, upright; each goes through `prepare` at once.

    `sampling` may also be the pieces themselves, in seconds. A file that was cut short gives what there is of it, with
    a note.

    Raises: SaccadeError if it is missing, empty, no video, or nothing in it can be decoded.
    """
    path, sampling = Path(path), Sampling() if sampling is None else sampling
    with _readable(path) as av:
        timeline, declared = timeline_of(av, path)
        if isinstance(sampling, Sampling):
            times = sampling.pieces(timeline.seconds)
        else:
            times = np.clip(sampling, 0, timeline.seconds)
        wanted = [timeline.frame_at(float(middle)) for middle in times.mean(axis=1)]
        found, size = _decode(av, path, timeline, wanted, prepare)
    if not found:
        raise SaccadeError(f"{path} is a damaged video: none of its frames can be decoded")
    return _footage(path, found, wanted, times, timeline, declared, size)


@contextmanager
def _readable(path: Path) -> Iterator[Any]:
    """PyAV for a file. Raises: SaccadeError, one sentence that names the file, for all that it raises."""
    av = import_av(f"{path} is a video: reading it")
    with explain_os_errors(path, "read"):
        if path.is_dir():
            raise SaccadeError(f"{path} is a folder, a video file was expected")
        if path.stat().st_size == 0:
            raise SaccadeError(f"{path} is empty, a video was expected")
    try:
        yield av
    except (SaccadeError, MemoryError):
        raise
    except PermissionError as error:
        raise SaccadeError(f"could not read {path}: {error.strerror}") from error
    except Exception as error:  # av.error has some sixty kinds, and codecs raise ValueError and OSError too
        unreadable = f"{path} is damaged, cut short, or no video that can be read here"
        raise SaccadeError(f"{unreadable}: {reason_of(error)}") from error


def every_frame(path: Path | str, prepare: Prepare) -> Iterator[tuple[float, UInt8[np.ndarray, "row column 3"]]]:
    """(when it begins, in seconds, and the frame) of each, upright and prepared.

    Raises: SaccadeError as `read_frames`.
    """
    path = Path(path)
    with _readable(path) as av:
        timeline, _ = timeline_of(av, path)
        with open_pictures(av, path) as (container, stream):
            for time, frame in decoded(av, container, stream, timeline):
                yield float((time - timeline.shown[0]) * timeline.base), prepare(upright(frame), str(path))


def _footage(
    path: Path,
    found: dict[int, np.ndarray],
    wanted: list[int],
    times: np.ndarray,
    timeline: Timeline,
    declared: float | None,
    size: tuple[int, int],
) -> Footage:
    """What was decoded; of a file whose end is lost, as far as it goes."""
    seconds, whole = timeline.seconds, max(timeline.seconds, declared or 0.0)
    last = max(found)
    kept = [n for n, frame in enumerate(wanted) if frame <= last]
    if len(kept) < len(wanted):
        after = timeline.shown[last + 1] if last + 1 < len(timeline.shown) else timeline.end
        seconds = min(
            max(float((after - timeline.shown[0]) * timeline.base), float(times[kept[-1], 0]) + 1e-3), seconds
        )
    spans = times[kept]
    spans[:, 1] = np.minimum(spans[:, 1], seconds)
    shapes = {frame.shape for frame in found.values()}
    if len(shapes) > 1:
        raise SaccadeError(f"{path} changes the size of its frames, which is not read")
    order = sorted(found)
    frames = np.stack(
        [found[order[bisect_right(order, wanted[n]) - 1] if wanted[n] >= order[0] else order[0]] for n in kept]
    )
    cut = whole - seconds > max(1.0, 0.02 * whole)
    note = f"{path} is cut short: {seconds:.1f} of {whole:.1f} seconds can be read" if cut else ""
    return Footage(frames, spans, seconds, *size, note)


@contextmanager
def open_file(av: Any, path: Path) -> Iterator[Any]:
    """The container of a file alone: what it names of other files and addresses, as playlists do, is not opened."""
    options = {"protocol_whitelist": "none"}
    with (
        path.open("rb") as file,
        av.open(file, buffer_size=BUFFER_BYTES, metadata_errors="ignore", options=options) as container,
    ):
        yield container


@contextmanager
def open_pictures(av: Any, path: Path) -> Iterator[tuple[Any, Any]]:
    """The container, and the stream in it that is a film."""
    with open_file(av, path) as container:
        if not container.streams.video:
            raise SaccadeError(f"{path} has no pictures: it holds {_kinds(container)}")
        stream = next((s for s in container.streams.video if not _is_cover(s)), container.streams.video[0])
        if stream.codec_context is None:
            raise SaccadeError(f"{path} is in a codec that this PyAV cannot decode")
        if stream.codec_context.width * stream.codec_context.height > MAX_PIXELS:
            raise SaccadeError(f"{path} has frames of more than {MAX_PIXELS // 1_000_000} million pixels")
        stream.thread_type = "AUTO"
        yield container, stream


def _is_cover(stream: Any) -> bool:
    """Whether it is a still picture: the cover of a song, a thumbnail."""
    return bool(int(stream.disposition) & COVER)


def _kinds(container: Any) -> str:
    kinds = sorted({stream.type for stream in container.streams})
    return " and ".join(kinds) or "nothing"


def timeline_of(av: Any, path: Path) -> tuple[Timeline, float | None]:
    """When frames are shown, by the packets; and how long the header says that the video is."""
    with open_pictures(av, path) as (container, stream):
        base = Fraction(stream.time_base)
        rate = stream.average_rate or stream.guessed_rate or DEFAULT_RATE
        usual = max(round(1 / (Fraction(rate) * base)), 1)
        shown: list[int] = []
        keys: list[int] = []
        lengths: dict[int, int] = {}
        try:
            for packet in container.demux(stream):
                if not packet.size or packet.is_discard:
                    continue
                time = packet.pts if packet.pts is not None else packet.dts
                time = (shown[-1] + usual if shown else 0) if time is None else time
                shown.append(time)
                lengths[time] = packet.duration or usual
                if packet.is_keyframe:
                    keys.append(time)
                if len(shown) > MAX_PACKETS:
                    raise SaccadeError(f"{path} has more than {MAX_PACKETS:,} frames")
        except av.error.FFmpegError:
            if not shown:
                raise
        declared = float(stream.duration * base) if stream.duration else None
        if declared is None and container.duration:
            declared = container.duration / av.time_base
    if not shown:
        raise SaccadeError(f"{path} is a damaged video: it has no frames")
    ordered = tuple(sorted(set(shown)))
    return Timeline(ordered, tuple(sorted(set(keys))), base, ordered[-1] + lengths[ordered[-1]]), declared


def _decode(
    av: Any, path: Path, timeline: Timeline, wanted: list[int], prepare: Prepare | None
) -> tuple[dict[int, np.ndarray], tuple[int, int]]:
    """The wanted frames by their numbers, and the (width, height) of the video; winding where it saves decoding."""
    numbers = sorted(set(wanted))
    jumps = _jumps(timeline, numbers)
    if jumps:
        try:
            found, size = _pick(av, path, timeline, numbers, jumps, prepare)
            if all(n in found for n in numbers):
                return found, size
        except av.error.FFmpegError:
            pass  # an index that leads astray: read from the beginning
    return _pick(av, path, timeline, numbers, {}, prepare)


def _jumps(timeline: Timeline, numbers: list[int]) -> dict[int, int]:
    """Wanted frame → the key frame to wind to before it, where one lies between it and the frame before."""
    found: dict[int, int] = {}
    before = timeline.shown[0]
    for number in numbers:
        time = timeline.shown[number]
        place = bisect_right(timeline.keys, time) - 1
        if place >= 0 and timeline.keys[place] > before:
            found[number] = timeline.keys[place]
        before = time
    return found


def _pick(
    av: Any, path: Path, timeline: Timeline, numbers: list[int], jumps: dict[int, int], prepare: Prepare | None
) -> tuple[dict[int, np.ndarray], tuple[int, int]]:
    found: dict[int, np.ndarray] = {}
    size = (0, 0)
    with open_pictures(av, path) as (container, stream):
        place, last = 0, None
        while place < len(numbers):
            if numbers[place] in jumps:
                container.seek(jumps[numbers[place]], stream=stream, backward=True)
                jumped = True
            else:
                jumped = False
            for time, frame in decoded(av, container, stream, timeline):
                number = bisect_right(timeline.shown, time) - 1
                last = frame if frame is not None else last
                if frame is None or number < numbers[place]:
                    continue
                if jumped and number > numbers[place]:
                    raise av.error.InvalidDataError(0, "wound too far", str(path))
                shown = upright(frame)
                size = shown.shape[1], shown.shape[0]
                pixels = shown if prepare is None else prepare(shown, str(path))
                if pixels.nbytes * len(numbers) > MAX_FOOTAGE_BYTES:
                    frames = f"{len(numbers):,} frames of {pixels.shape[1]} × {pixels.shape[0]} pixels"
                    most = f"{MAX_FOOTAGE_BYTES >> 20:,} MB"
                    raise SaccadeError(f"{path}: {frames} take more than {most}: look at it less often")
                while place < len(numbers) and numbers[place] <= number:
                    found[numbers[place]] = pixels
                    place += 1
                if place < len(numbers) and numbers[place] in jumps:
                    break
                if place == len(numbers):
                    break
            else:
                break  # the file ends here
    return found, size


def decoded(av: Any, container: Any, stream: Any, timeline: Timeline) -> Iterator[tuple[int, Any]]:
    """(time, frame) as they are decoded; what is damaged is passed over, and the end of a cut file is an end."""
    place = 0
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except (StopIteration, av.error.FFmpegError):
            return
        try:
            decoded = packet.decode()
        except av.error.FFmpegError:
            continue
        for frame in decoded:
            time = frame.pts if frame.pts is not None else timeline.shown[min(place, len(timeline.shown) - 1)]
            place += 1
            yield time, frame


def upright(frame: Any) -> UInt8[np.ndarray, "row column 3"]:
    """A frame as RGB, turned as its display matrix says: telephones film on their side."""
    pixels: np.ndarray = frame.to_ndarray(format="rgb24")
    turns = round(getattr(frame, "rotation", 0) / 90) % 4
    return np.ascontiguousarray(np.rot90(pixels, turns)) if turns else pixels


def reason_of(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).strip().rstrip(".")


@contextmanager
def new_file(av: Any, path: Path, doing: str) -> Iterator[Any]:
    """A container to be filled, there whole or not at all. Raises: SaccadeError, which says what could not be done."""
    with atomic_file(path) as temporary:
        named = temporary.with_name(temporary.name + path.suffix)  # the container is known by its ending
        try:
            with av.open(str(named), "w") as container:
                yield container
            named.replace(temporary)
        except (av.error.FFmpegError, ValueError) as error:
            raise SaccadeError(f"could not {doing}: {reason_of(error)}") from error
        finally:
            named.unlink(missing_ok=True)


def even_sides(pixels: UInt8[np.ndarray, "row column 3"]) -> UInt8[np.ndarray, "row column 3"]:
    """Without the last row and column of an odd number, which H.264 does not take."""
    return np.ascontiguousarray(pixels[: len(pixels) // 2 * 2, : pixels.shape[1] // 2 * 2])


def write_video(
    path: Path | str, frames: Iterable[UInt8[np.ndarray, "row column 3"]], rate: float, codec: str = "libx264"
) -> None:
    """Frames of one size as an MP4, or what else the ending says, at so many a second; whole or not at all."""
    av = import_av(f"writing {path}")
    path = Path(path)
    with new_file(av, path, f"write {path}") as container:
        stream = container.add_stream(codec, rate=Fraction(rate).limit_denominator(1000))
        stream.pix_fmt = "yuv420p"
        for n, pixels in enumerate(frames):
            even = even_sides(pixels)
            if not n:
                stream.height, stream.width = even.shape[:2]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        container.mux(stream.encode())
