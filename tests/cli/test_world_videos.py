"""`saccade world videos`: film strips, and MP4 files whose sentences fit their times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from saccade.cli import app
from saccade.core.errors import SaccadeError
from saccade.vision.videos import Sampling, read_frames
from saccade.world.videos.films import FilmConfig, draw_frames, make_clips

SETTINGS = ["videos=30", "hard_groups=1", "size=64"]


def test_film_strips_are_drawn(tmp_path: Path) -> None:
    out = tmp_path / "films.png"
    result = CliRunner().invoke(app, ["world", "videos", *SETTINGS, "--count", "2", "-o", str(out)])
    assert result.exit_code == 0
    assert "2 videos of test" in result.output
    with Image.open(out) as sheet:
        assert (sheet.format, sheet.width > 1000) == ("PNG", True)
    result = CliRunner().invoke(app, ["world", "videos", *SETTINGS, "--start", "99", "-o", str(out)])
    assert isinstance(result.exception, SaccadeError)
    assert "test has 3 videos: none from 99 on" in str(result.exception)


def test_films_are_written_with_their_sentences(tmp_path: Path) -> None:
    command = ["world", "videos", *SETTINGS, "--count", "1", "--rate", "8", "--films", str(tmp_path / "films")]
    assert CliRunner().invoke(app, command).exit_code == 0
    clip = make_clips(FilmConfig(videos=30, hard_groups=1, size=64), "test")[0]
    found = read_frames(tmp_path / "films" / "test-00000.mp4", Sampling(rate=8))
    drawn = draw_frames(clip.story, 64, 8)
    assert found.seconds == pytest.approx(clip.story.seconds, abs=1e-3)
    assert abs(found.frames.astype(float) - drawn).mean() < 8  # what the codec loses
    captions = [json.loads(line) for line in (tmp_path / "films" / "captions.jsonl").read_text().splitlines()]
    assert captions[0] == {"image": "test-00000.mp4", "text": clip.captions[0].text, "split": "test"}
    moments = [json.loads(line) for line in (tmp_path / "films" / "moments.jsonl").read_text().splitlines()]
    assert [tuple(map(tuple, row["spans"])) for row in moments] == [caption.spans for caption in clip.captions]
