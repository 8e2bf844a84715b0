"""Moments as a user finds them: trained, measured beside windows, and looked for in files that strangers bring."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from saccade.tasks.moments.predict import VideoSearcher
from saccade.tasks.predict import load
from saccade.vision.videos import Sampling, read_frames
from toy_runs import saccade_command
from vision.toy_videos import grey, numbers, write

Run = Callable[..., tuple[int, str, str]]
WORLD = ("data=world_videos", "pictures=12", "steps=3", "batch_size=4")
SMALL = ("lstm_dim=6", "word_dim=6", "model.dim=4", "pyramid_dim=6", "location_dim=3")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("moment") / "run"
    assert saccade_command("train", "drn", *WORLD, *SMALL, "-o", folder) == 0
    return folder


@pytest.fixture(scope="module")
def matcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("matcher") / "vse"
    assert saccade_command("train", "vse", *WORLD, "word_dim=6", "model.dim=4", "-o", folder) == 0
    return folder


def rows(out: str) -> list[tuple[float, float]]:
    """Begin and end of the moments that were listed, all of them within a minute."""
    found = [line.split() for line in out.splitlines() if " to " in line]
    return [(float(words[1]), float(words[4])) for words in found]


FILES = {
    "h264.mp4": {"codec": "libx264", "sound": True},
    "mpeg4.avi": {"codec": "mpeg4"},
    "vp9.webm": {"codec": "libvpx-vp9"},
    "uneven.mp4": {"times": tuple(np.cumsum([0, *([40] * 11), *([500] * 12)]).tolist())},
    "turned.mp4": {"rotation": 90},
}


@pytest.mark.parametrize("name", FILES)
def test_videos_of_all_kinds_are_searched_and_cut(saccade: Run, run: Path, name: str, tmp_path: Path) -> None:
    video, drawn, clip = write(tmp_path / name, **FILES[name]), tmp_path / "when.png", tmp_path / "clip.mp4"
    words = ("--model", run, "-o", drawn, "--cut", clip, "--top", 2)
    code, out, err = saccade("moment", video, "the red ball enters", *words)
    assert code == 0, err
    seconds = read_frames(video, Sampling(count=1)).seconds
    found = rows(out)
    assert 1 <= len(found) <= 2
    assert all(0 <= start < end <= seconds + 0.05 for start, end in found)
    assert Image.open(drawn).width > 1000
    whole, part = read_frames(video, Sampling(rate=8)), read_frames(clip, Sampling(rate=8))
    assert part.seconds == pytest.approx(found[0][1] - found[0][0], abs=0.6)
    assert (part.width, part.height) == (whole.width, whole.height)
    if "rotation" not in FILES[name]:
        first = whole.frames[int(np.flatnonzero(whole.times[:, 1] > found[0][0] + 0.05)[0])]
        assert abs(numbers(part.frames[:1])[0] - numbers(first[None])[0]) <= 1


def test_a_file_that_was_cut_short_is_searched_as_far_as_it_goes(saccade: Run, run: Path, tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.mkv", count=30, gop=4)
    short = tmp_path / "short.mkv"
    short.write_bytes(whole.read_bytes()[: whole.stat().st_size * 2 // 3])
    code, out, err = saccade("moment", short, "the red ball enters", "--model", run)
    assert code == 0, err
    seconds = read_frames(short, Sampling(count=1)).seconds
    assert 0.5 < seconds < 3
    assert all(end <= seconds + 0.05 for _, end in rows(out))


def test_a_matcher_looks_through_windows(saccade: Run, matcher: Path, tmp_path: Path) -> None:
    code, out, err = saccade(
        "moment", write(tmp_path / "a.mp4"), "a red ball", "--model", matcher, "--json", "--top", 3
    )
    assert code == 0, err
    found = json.loads(out)
    assert len(found) == 3
    assert found == sorted(found, key=lambda one: -one["score"])


def test_finders_and_matchers_stand_in_one_table(saccade: Run, run: Path, matcher: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    words = ("--task", "moments", "--split", "dev", "--json", figures)
    code, _, err = saccade("eval", run, matcher, *words)
    assert code == 0, err
    results = json.loads(figures.read_text())["results"]
    windows = [f"{matcher} (windows)", f"{matcher} (windows that stand out)"]
    assert [*results] == ["at random", "whole video", str(run), *windows]
    assert all(0 <= own["r1_iou0.5"] <= own["r5_iou0.5"] <= 100 for own in results.values())
    assert {"r1_iou0.7", "miou", "r1_iou0.5_event"} <= results["at random"].keys()


def test_what_each_level_read_is_drawn(saccade: Run, run: Path, tmp_path: Path) -> None:
    video, drawn = write(tmp_path / "a.mp4"), tmp_path / "why.png"
    code, out, err = saccade("explain", video, "the red ball enters", "--model", run, "-o", drawn)
    assert code == 0, err
    assert "score" in out
    found = load(run, kind=VideoSearcher).explain(video, "the red ball enters")
    assert found.words == ("the", "red", "ball", "enters")
    assert found.weights.shape == (3, 4)
    np.testing.assert_allclose(found.weights.sum(axis=1), 1, atol=1e-6)
    assert saccade("explain", video, "--model", run, "-o", drawn)[0] == 2


def test_frames_as_an_array_and_shown(run: Path) -> None:
    """The same through Python, with frames that never were a file."""
    from saccade.vision.videos import Footage

    searcher = load(run, kind=VideoSearcher)
    footage = Footage.evenly(np.stack([grey(n) for n in range(12)]), 3.0)
    prepared = Footage.evenly(np.stack([searcher.extractor.prepare(frame) for frame in footage.frames]), 3.0)
    found = searcher.find(prepared, "the red ball enters", top=1)
    assert 0 <= found[0].start < found[0].end <= 3
    assert searcher.show(prepared, "the red ball enters").spans.shape[1] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing.mp4", "a ball"), "nothing.mp4"),
        (("text.mp4", "a ball"), "no video that can be read"),
        (("empty.mp4", "a ball"), "empty"),
        (("good.mp4", "zzz qqq"), "knows none of the words"),
        (("good.mp4", "  "), "give at least one word"),
        (("good.mp4", "a ball", "--cut", "clip.txt"), "a clip is saved as one of"),
        (("good.mp4", "a ball", "-o", "strip.txt"), "a film strip is saved as one of"),
        (("good.mp4", "a ball", "--cut", "good.mp4"), "good.mp4"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    saccade: Run, run: Path, words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "good.mp4")
    (tmp_path / "text.mp4").write_text("this is no video")
    (tmp_path / "empty.mp4").write_bytes(b"")
    before = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    code, _, err = saccade("moment", *words, "--model", run)
    assert code == 2
    assert said in err.replace("\n", " ")
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == before
