"""What `saccade ground` and `saccade explain` take without --model: a run, the package's grounder, its matcher."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.language import Vocabulary
from saccade.metrics.calibration import Platt
from saccade.models import Hierarchical, Scan, ScanConfig
from saccade.models.base import model as models
from saccade.serve.offer import task_uses
from saccade.tasks.predict import load
from saccade.vision.videos import write_video
from toy_scenes import SMALL

Saccade = Callable[..., tuple[int, str, str]]
TEXT = "a red cube left of the ball"
FOUND = "phrases found by hierarchical-flickr8k"


@pytest.fixture
def package(tmp_path: Path, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of an untrained matcher that takes every sentence to fit, and an untrained grounder on finer cells."""
    torch.manual_seed(0)
    package = tmp_path / "package"
    matcher = Scan(ScanConfig(region_dim=64, word_dim=4, dim=8), vocabulary, "grid:world/4")
    matcher.calibration = Platt(0.0, 3.0)
    matcher.save_pretrained(package / "scan-flickr8k")
    config = replace(SMALL, parts=("grounding",), region_dim=64)
    Hierarchical(config, vocabulary, "grid:world/8").save_pretrained(package / "hierarchical-flickr8k")
    monkeypatch.setattr(models, "SHIPPED", package)
    monkeypatch.chdir(tmp_path)
    Image.effect_noise((60, 40), 90).convert("RGB").save("noise.png")
    return package


def grounded(saccade: Saccade, *words: object) -> list[dict[str, object]]:
    code, out, err = saccade("ground", "noise.png", TEXT, "--json", "-o", "where.png", *words)
    assert code == 0, err
    phrases: list[dict[str, object]] = json.loads(out.splitlines()[0])["phrases"]
    return phrases


def test_phrases_are_found_by_the_grounder_if_there_is_one(saccade: Saccade, package: Path) -> None:
    by_grounder, by_matcher = (
        grounded(saccade, "-m", package / f"{name}-flickr8k") for name in ("hierarchical", "scan")
    )
    assert by_grounder != by_matcher
    assert grounded(saccade) == by_grounder
    shutil.rmtree(package / "hierarchical-flickr8k")
    assert grounded(saccade) == by_matcher


def test_a_run_of_the_users_comes_before_the_package(saccade: Saccade, package: Path) -> None:
    shutil.copytree(package / "scan-flickr8k", "runs/scan")
    assert grounded(saccade) == grounded(saccade, "-m", "scan-flickr8k")
    assert FOUND not in saccade("explain", "noise.png", TEXT)[1]


def test_an_explanation_has_the_matchers_verdict_and_the_grounders_places(saccade: Saccade, package: Path) -> None:
    code, out, err = saccade("explain", "noise.png", TEXT)
    assert code == 0, err
    assert out == f"{load('scan-flickr8k').explain('noise.png', TEXT).score_note}; {FOUND}; the picture is in why.png\n"
    with Image.open("why.png") as drawn:
        placed = np.asarray(drawn)
    code, out, err = saccade("explain", "noise.png", TEXT, "--model", "scan-flickr8k")
    assert FOUND not in out
    with Image.open("why.png") as drawn:
        assert not np.array_equal(np.asarray(drawn), placed)


@pytest.mark.parametrize("case", ["nothing named", "nothing fits", "a video", "no grounder"])
def test_what_the_grounder_cannot_draw_is_the_matchers_alone(saccade: Saccade, package: Path, case: str) -> None:
    picture, text = "noise.png", TEXT
    if case == "nothing named":
        text = "left of"
    elif case == "nothing fits":
        (package / "scan-flickr8k" / "calibration.json").write_text('{"slope": 0.0, "offset": -3.0}')
    elif case == "a video":
        picture = "film.mp4"
        write_video(picture, [np.full((40, 60, 3), shade, np.uint8) for shade in (20, 80, 140)], 4)
    else:
        shutil.rmtree(package / "hierarchical-flickr8k")
    code, out, err = saccade("explain", picture, text)
    assert code == 0, err
    assert FOUND not in out
    assert "the picture is in why.png" in out


def test_a_sentence_is_still_asked_for(saccade: Saccade, package: Path) -> None:
    code, _, err = saccade("explain", "noise.png")
    assert code == 2
    assert "give one after the picture" in " ".join(err.split())


def test_a_grounder_offers_nothing_else_and_says_so(saccade: Saccade, package: Path) -> None:
    model = load("hierarchical-flickr8k").model
    assert set(task_uses(model)) == {"ground"}
    assert "To find what the phrases of a sentence mean" in (package / "hierarchical-flickr8k/README.md").read_text()
    for words in (("score", "noise.png", "-t", TEXT), ("ask", "noise.png", "is it red?")):
        code, _, err = saccade(*words, "-m", "hierarchical-flickr8k")
        assert code == 2
        assert "trained without" in err
