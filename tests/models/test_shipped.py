"""The models that come with the package: a matcher knows a photograph by a sentence, a captioner finds words for
it, an answerer answers questions about it, a referrer finds what is meant in it, a grounder where the things of a
sentence are, a relation detector who does what."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade.core.errors import SaccadeError
from saccade.core.weights import held_shapes
from saccade.explain.explanation import overlap
from saccade.models import Matcher, load_model
from saccade.models.base.model import SHIPPED, find_model, shipped_models
from saccade.tasks.grounding.predict import PictureGrounder
from saccade.tasks.predict import extractor_of
from saccade.vision import load_extractor

SENTENCES = {
    "000000165518.jpg": "a man rides a motorcycle down the road",
    "000000214753.jpg": "two people ride horses on the beach",
    "000000377575.jpg": "a brown dog stands on the sidewalk",
    "000000433998.jpg": "a baseball player throws the ball",
    "000000174375.jpg": "a tennis player on the court",
}


def shipped_for(task: str) -> list[str]:
    return [name for name in shipped_models() if find_model(name)[1].task == task]


@pytest.mark.parametrize("name", shipped_for("matching"))
def test_each_sentence_finds_its_photo(name: str, photos: list[Path]) -> None:
    model = saccade.load(name)
    shown = [next(p for p in photos if p.name == wanted) for wanted in SENTENCES]
    best = model.score(shown, list(SENTENCES.values())).argmax(axis=0).tolist()
    assert sum(found == wanted for wanted, found in enumerate(best)) >= len(SENTENCES) - 1, best
    assert (SHIPPED / name / "README.md").read_text(encoding="utf-8").count("rsum")


@pytest.mark.parametrize("name", shipped_for("matching"))
def test_its_own_extractor_can_be_had_by_name(name: str) -> None:
    """So that a store of `saccade extract --model` holds what the model itself would read."""
    assert load_extractor(extractor_of(name)).digest == saccade.load(name).extractor.digest


@pytest.mark.parametrize("name", shipped_for("captioning"))
def test_captions_name_what_is_in_the_photo(name: str, photos: list[Path]) -> None:
    model = saccade.load(name)
    words = {"000000214753.jpg": "beach", "000000377575.jpg": "dog", "000000433998.jpg": "baseball"}
    shown = [next(p for p in photos if p.name == wanted) for wanted in words]
    said = [found.text for found in model.caption(shown)]
    assert sum(word in text.split() for word, text in zip(words.values(), said, strict=True)) >= 2, said


@pytest.mark.parametrize("name", shipped_for("answering"))
def test_answers_depend_on_the_photo(name: str, photos: list[Path]) -> None:
    model = saccade.load(name)
    asked = {
        "000000214753.jpg": {"is there a horse?": "yes", "is there a dog?": "no", "what is the man doing?": "riding"},
        "000000377575.jpg": {"is there a horse?": "no", "is there a dog?": "yes", "how many dogs are there?": "1"},
    }
    right = [
        model.ask(next(p for p in photos if p.name == photo), question, 1)[0].text == truth
        for photo, questions in asked.items()
        for question, truth in questions.items()
    ]
    assert sum(right) >= len(right) - 1, right


def test_there_is_one_of_each_for_photographs_and_a_quicker_matcher() -> None:
    assert shipped_for("answering") == ["updown_vqa-flickr8k"]
    assert shipped_for("matching") == ["scan-flickr8k", "scan-small"]
    assert shipped_for("captioning") == ["show_attend_tell-flickr8k"]
    assert shipped_for("referring") == ["plan-flickr8k"]
    assert shipped_for("joint") == ["hierarchical-flickr8k"]
    assert shipped_for("relations") == ["analogy-flickr8k"]


def test_a_phrase_finds_the_thing_that_it_means(photos: list[Path]) -> None:
    """Among what the package's detector finds: the dog, and not the sidewalk."""
    photo = next(path for path in photos if path.name == "000000377575.jpg")
    found = saccade.load("plan-flickr8k").refer(photo, "a brown dog")
    assert sum(one.probability for one in found if one.name == "dog") > 0.5, found


def test_the_grounder_helps_to_tell_which_thing_is_meant(photos: list[Path]) -> None:
    """By itself the referrer, which learned from people's boxes, takes the sea for a horse among a detector's."""
    photo = next(path for path in photos if path.name == "000000214753.jpg")
    referrer = saccade.load("plan-flickr8k")
    referrer.grounder = PictureGrounder(saccade.load("hierarchical-flickr8k").model)
    candidates = referrer.candidates(photo)
    for phrase, names in {"a horse": {"horse"}, "a man": {"person", "man"}, "the ocean": {"ocean", "wave"}}.items():
        found = referrer.refer(photo, phrase, candidates)
        assert found[0].name in names, (phrase, found[:3])
        assert sum(one.probability for one in found) == pytest.approx(1)
    assert set(referrer.grounder.box_shares(photo, "zyzzyva", candidates.boxes).tolist()) == {1.0}


def test_a_dialog_narrows_although_phrases_alone_were_learned(photos: list[Path]) -> None:
    photo = next(path for path in photos if path.name == "000000377575.jpg")
    referrer = saccade.load("plan-flickr8k")
    candidates = referrer.candidates(photo)
    for answer, is_dog in (("yes", True), ("no", False)):
        turns = (
            f"is it a brown dog? {answer}",
            "is it a zyzzyva? yes",
            f"is it the collar? {'no' if is_dog else 'yes'}",
        )
        found = referrer.refer(photo, turns, candidates)
        assert found[0].name == ("dog" if is_dog else "collar"), found
        assert found[0].probability > 0.5
        assert sum(one.probability for one in found) == pytest.approx(1)


def test_a_phrase_of_a_sentence_gets_the_box_of_its_thing(photos: list[Path]) -> None:
    photo = next(path for path in photos if path.name == "000000377575.jpg")
    rows = map(json.loads, (photo.parent / "annotations.jsonl").read_text(encoding="utf-8").splitlines())
    about = next(row for row in rows if row["image"] == photo.name)
    x, y, width, height = next(thing["bbox_xywh"] for thing in about["objects"] if thing["category"] == "dog")
    truth = np.array([x, y, x + width, y + height]) / np.tile([about["width"], about["height"]], 2)
    dog, *_ = saccade.load("hierarchical-flickr8k").ground(photo, "a brown dog stands on the sidewalk")
    assert dog.text == "a brown dog"
    assert overlap(np.array(dog.box), truth) >= 0.5


def test_a_relation_ranks_the_photo_that_shows_it_first(photos: list[Path]) -> None:
    names = "000000214753.jpg", "000000377575.jpg", "000000174375.jpg"
    shown = [next(path for path in photos if path.name == name) for name in names]
    found = saccade.load("analogy-flickr8k").find(shown, "person riding horse")
    scores = [pair.probability if pair is not None else 0.0 for pair in found]
    assert scores.index(max(scores)) == 0, scores


def test_the_quicker_matcher_is_the_large_one_reading_smaller_photos() -> None:
    large, small = (load_model(name, Matcher) for name in ("scan-flickr8k", "scan-small"))
    assert large.backbone is not None
    assert small.backbone is not None
    assert (small.backbone.size, large.backbone.size) == (140, 336)
    assert all(value.equal(large.state_dict()[key]) for key, value in small.state_dict().items())
    assert held_shapes(SHIPPED / "scan-small" / "model.safetensors") == [], "its weights are not kept twice"
    assert small.calibration is not None
    assert small.calibration != large.calibration, "smaller photos have other scores"


def test_a_name_that_is_none_is_answered_with_those_there_are() -> None:
    with pytest.raises(SaccadeError, match="scan-flickr8k"):
        load_model("scan-flickr9k")
