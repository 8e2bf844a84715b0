"""A part of a video as a file of its own: pictures and sound from one time to another, to the frame."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.vision.videos.files import (
    DEFAULT_RATE,
    decoded,
    even_sides,
    import_av,
    new_file,
    open_file,
    open_pictures,
    timeline_of,
    upright,
)

ENDINGS = (".mp4", ".mov", ".mkv")  # what H.264 and AAC fit into
MILLISECOND = Fraction(1, 1000)
EARLIER = 5.0  # seconds of sound that are read before a cut: not every file finds the very place


def check_cut(path: Path) -> None:
    """Raises: SaccadeError if no clip is written under such a name."""
    if path.suffix.lower() not in ENDINGS:
        raise SaccadeError(
            f"{path}: a clip is saved as one of {', '.join(ENDINGS)}, not {path.suffix or 'a bare name'}"
        )


def cut_video(source: Path | str, out: Path | str, start: float, end: float) -> None:
    """Write what `source` shows from `start` to `end` (seconds), upright; each frame keeps its time, to a millisecond.

    Raises: SaccadeError if nothing is shown then, or the file cannot be read or written.
    """
    source, out = Path(source), Path(out)
    check_cut(out)
    av = import_av(f"cutting {source}")
    with new_file(av, out, f"cut {source}") as container:
        pictures = container.add_stream("libx264", rate=_rate(av, source))
        sound = _sound_stream(av, container, source)  # all streams before the first packet
        if not _write_pictures(av, container, pictures, source, start, end):
            raise SaccadeError(f"{source} shows nothing from {start:.2f} to {end:.2f} seconds")
        if sound is not None:
            _write_sound(av, container, sound, source, start, end)


def _rate(av: Any, source: Path) -> Fraction:
    with open_pictures(av, source) as (_, stream):
        return Fraction(stream.average_rate or DEFAULT_RATE).limit_denominator(1000)


def _write_pictures(av: Any, out: Any, target: Any, source: Path, start: float, end: float) -> int:
    """How many frames were written."""
    timeline, _ = timeline_of(av, source)
    first = timeline.shown[timeline.frame_at(start)]
    written, before = 0, -1
    with open_pictures(av, source) as (container, stream):
        if first > timeline.shown[0]:
            container.seek(first, stream=stream, backward=True)
        for time, frame in decoded(av, container, stream, timeline):
            seconds = float((time - timeline.shown[0]) * timeline.base)
            if time < first:
                continue
            if seconds >= end:
                break
            even = even_sides(upright(frame))
            if not written:
                target.height, target.width = even.shape[:2]
                target.pix_fmt = "yuv420p"
                target.time_base = target.codec_context.time_base = MILLISECOND
            picture = av.VideoFrame.from_ndarray(even, format="rgb24")
            before = max(round((max(seconds, start) - start) * 1000), before + 1)
            picture.pts, picture.time_base = before, MILLISECOND
            out.mux(target.encode(picture))
            written += 1
        if written:
            out.mux(target.encode())
    return written


def _sound_stream(av: Any, out: Any, source: Path) -> Any:
    """A stream for the first sound track, if there is one that can be decoded."""
    with open_file(av, source) as container:
        tracks = [stream for stream in container.streams.audio if stream.codec_context is not None]
        if not tracks or not tracks[0].codec_context.sample_rate:
            return None
        context = tracks[0].codec_context
        return out.add_stream("aac", rate=context.sample_rate, layout=context.layout.name)


def _write_sound(av: Any, out: Any, target: Any, source: Path, start: float, end: float) -> None:
    done, context = 0, target.codec_context
    resampler = av.AudioResampler(format="fltp", layout=context.layout.name, rate=context.sample_rate)
    with open_file(av, source) as container:
        stream = next(track for track in container.streams.audio if track.codec_context is not None)
        try:
            container.seek(max(int((start - EARLIER) * av.time_base), 0), backward=True)
            for frame in container.decode(stream):
                if frame.time is None or frame.time + frame.samples / frame.sample_rate <= start:
                    continue
                if frame.time >= end:
                    break
                frame.pts = None
                for part in resampler.resample(frame):
                    part.pts, part.time_base = done, Fraction(1, part.sample_rate)
                    done += part.samples
                    out.mux(target.encode(part))
        except av.error.FFmpegError:
            pass  # sound that is damaged ends here; the pictures are whole
    out.mux(target.encode())
