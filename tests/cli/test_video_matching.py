"""`saccade score` and `saccade explain` of videos: models of videos and of photos, and a file that is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.explain.panels.frames import FrameExplanation, draw_frames
from saccade.language import Vocabulary
from saccade.models import Hgr, HgrConfig, Scan, ScanConfig
from saccade.tasks.matching.task import PictureMatcher
from saccade.tasks.predict import load
from saccade.vision.videos import write_video

Saccade = Callable[..., tuple[int, str, str]]
TEXT = "the red ball is left of a cube"


def moving(colour: tuple[int, int, int], count: int = 8) -> list[np.ndarray]:
    frames = []
    for n in range(count):
        frame = np.full((48, 64, 3), 230, np.uint8)
        frame[10:30, 5 * n : 5 * n + 20] = colour
        frames.append(frame)
    return frames


@pytest.fixture
def place(vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of videos and one of photos, and two films."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    torch.manual_seed(0)
    config = HgrConfig(region_dim=512, word_dim=8, dim=16, actions=2, entities=3)
    Hgr(config, vocabulary, "frames:world,rate=4,places=2").save_pretrained("videos-model")
    Scan(ScanConfig(256, 8, 16), vocabulary, "world").save_pretrained("photos-model")
    Path("films").mkdir()
    for name, colour in (("red", (200, 20, 20)), ("blue", (20, 20, 200))):
        write_video(f"films/{name}.mp4", moving(colour), 4.0)
    return tmp_path


@pytest.mark.parametrize("model", ["videos-model", "photos-model"])
def test_videos_are_scored_one_bad_file_among_them(model: str, place: Path, saccade: Saccade) -> None:
    code, out, err = saccade("score", "films", "-t", TEXT, "--json", "--model", model)
    assert code == 0, err
    rows = {Path(row["picture"]).stem: row["scores"] for row in json.loads(out)}
    assert rows.keys() == {"red", "blue"}
    assert rows["red"] != rows["blue"]
    Path("films/none.mp4").write_bytes(b"no film at all")
    code, out, err = saccade("score", "films", "-t", TEXT, "--json", "--model", model)
    assert code == 2
    assert "none.mp4" in err
    assert len(json.loads(out)) == 2


def test_a_photo_model_takes_the_mean_over_frames(place: Path) -> None:
    matcher = load("photos-model", kind=PictureMatcher)
    ((_, _, scores),) = matcher.score_videos([("red", Path("films/red.mp4"))], [TEXT])  # type: ignore[misc]
    from saccade.tasks.matching.task import PHOTO_SAMPLING
    from saccade.vision.videos import read_frames

    frames = list(read_frames("films/red.mp4", PHOTO_SAMPLING).frames)
    np.testing.assert_allclose(scores, matcher.score(frames, TEXT).mean(axis=0), rtol=1e-4, atol=1e-5)


def test_photos_are_not_for_a_model_of_videos(place: Path, saccade: Saccade) -> None:
    Path("photos").mkdir()
    Image.fromarray(moving((0, 0, 0))[0]).save("photos/a.png")
    code, _, err = saccade("score", "photos", "-t", TEXT, "--model", "videos-model")
    assert code == 2
    assert "learned from videos, and photos holds photos" in err


@pytest.mark.parametrize("model", ["videos-model", "photos-model"])
def test_an_explanation_is_a_film_strip_for_every_phrase(model: str, place: Path, saccade: Saccade) -> None:
    code, out, err = saccade("explain", "films/red.mp4", TEXT, "--model", model, "-o", "why.png")
    assert code == 0, err
    assert ("entity" in out) is (model == "videos-model")
    with Image.open("why.png") as drawn:
        assert drawn.width > 1000
    found = load(model, kind=PictureMatcher).explain("films/red.mp4", TEXT)
    assert isinstance(found, FrameExplanation)
    assert found.seconds == pytest.approx(2.0)
    if model == "videos-model":
        assert found.phrases == ("the red ball", "left of a cube")
        assert found.score == pytest.approx(np.mean(list(found.levels.values())), abs=1e-5)
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0, atol=1e-4)


def test_what_attended_most_is_brightest() -> None:
    frames = tuple(np.full((40, 40, 3), 200, np.uint8) for _ in range(4))
    spans = np.stack([np.arange(4) / 4, np.arange(1, 5) / 4], axis=1)
    weights = np.array([[0.0, 0.7, 0.2, 0.1]])
    explained = FrameExplanation(frames, 8.0, spans, ("a", "ball"), ("ball",), weights, np.array([0.5]), 0.3)
    drawn = np.asarray(draw_frames(explained).convert("L"), dtype=float)
    row = drawn[-200:-140, -1500:].mean(axis=0)  # the strip of the only phrase, above the axis
    quarters = [float(part.mean()) for part in np.array_split(row[:1440], 4)]
    assert int(np.argmax(quarters)) == 1
    shown = explained.as_picture("a film", frozenset(["zebra"]))
    assert (shown.words, shown.title, shown.unknown) == (("ball",), "a film", {"zebra"})
    assert shown.boxes.tolist() == [[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]]
    np.testing.assert_array_equal(shown.weights, weights)
    with pytest.raises(SaccadeError, match="a weight for every piece"):
        FrameExplanation(frames, 8.0, spans, ("a",), ("a", "b"), weights, np.array([0.5]), 0.3)
