"""The matchers that come with the package know a photograph when they read about it."""

from __future__ import annotations

from pathlib import Path

import pytest

import saccade
from saccade.core.errors import SaccadeError
from saccade.models import load_model
from saccade.models.base.model import shipped_models

SENTENCES = {
    "000000165518.jpg": "a man rides a motorcycle down the road",
    "000000214753.jpg": "two people ride horses on the beach",
    "000000377575.jpg": "a brown dog stands on the sidewalk",
    "000000433998.jpg": "a baseball player throws the ball",
    "000000174375.jpg": "a tennis player on the court",
}


@pytest.mark.parametrize("name", shipped_models())
def test_each_sentence_finds_its_photo(name: str, photos: list[Path]) -> None:
    model = saccade.load(name)
    shown = [next(p for p in photos if p.name == wanted) for wanted in SENTENCES]
    best = model.score(shown, list(SENTENCES.values())).argmax(axis=0).tolist()
    assert sum(found == wanted for wanted, found in enumerate(best)) >= len(SENTENCES) - 1, best
    assert (Path(saccade.models.base.model.SHIPPED) / name / "README.md").read_text(encoding="utf-8").count("rsum")


def test_there_is_one_for_photographs() -> None:
    assert "scan-flickr8k" in shipped_models()


def test_a_name_that_is_none_is_answered_with_those_there_are() -> None:
    with pytest.raises(SaccadeError, match="scan-flickr8k"):
        load_model("scan-flickr9k")
