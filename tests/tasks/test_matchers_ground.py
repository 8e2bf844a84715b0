"""Every matcher is a grounder: phrases among its tokens, words that tell, heat maps, proposals, what needs no model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedImages, GroundedPhrase, Groundings
from saccade.explain import Explanation
from saccade.language import Vocabulary
from saccade.metrics.heat_maps import AREA_POWER, LEARNED_POWER
from saccade.models import Align2Ground, Align2GroundConfig, Fusion, Hierarchical, Matcher, Scan, ScanConfig, entries
from saccade.tasks.grounding.evaluate import (
    CENTRE_BOX,
    LARGEST_BOX,
    MODEL,
    RANDOM,
    GroundingAccuracy,
    ground_all,
    phrase_hits,
)
from saccade.tasks.grounding.locate import area_power, locate, read_phrases
from saccade.tasks.grounding.predict import PictureGrounder
from saccade.tasks.grounding.task import GroundingConfig, prepare_sentences
from saccade.tasks.matching.task import MatchingConfig, MatchingTask
from saccade.tasks.prepare import build_model
from saccade.vision.grid import cell_boxes
from toy_runs import TRANSFORMER
from toy_scenes import BOXES, COLOURS, KINDS, captioned, grounded
from toy_scenes import SMALL as TOY_SMALL

SMALL = ScanConfig(region_dim=12, word_dim=7, dim=10)


def test_phrases_shift_with_start_and_words_that_show_nothing_are_left_out(vocabulary: Vocabulary) -> None:
    texts, words = read_phrases(
        Scan(SMALL, vocabulary), ["a red cube on the ball", "the"], [[(0, 3), (4, 6)], [(0, 1)]]
    )
    assert texts.words[0][:3] == ("<start>", "a", "red")
    assert words[0].nonzero().tolist() == [[0, 2], [0, 3], [1, 6]]  # red, cube; ball
    assert words[1].nonzero().tolist() == [[0, 1]]  # a phrase of such words alone keeps them
    whole = Align2Ground(Align2GroundConfig(region_dim=12, word_dim=7, dim=10, state_dim=9), vocabulary)
    texts, words = read_phrases(whole, ["a red cube"], [[(0, 3)]])
    assert words.nonzero().tolist() == [[0, 0, 1], [0, 0, 2], [0, 0, 3]]
    assert texts.phrases == (((1, 4),),)


def test_maps_that_were_learned_from_boxes_have_tighter_boxes(vocabulary: Vocabulary) -> None:
    """A warm rim around hot cells belongs to what a matcher found, and not to what a grounder did."""
    grounder = Hierarchical(replace(TOY_SMALL, parts=("grounding",)), vocabulary)
    matcher = Scan(SMALL, vocabulary)
    assert (area_power(grounder), area_power(matcher)) == (LEARNED_POWER, AREA_POWER)
    heat = np.zeros((8, 8))
    heat[2:6, 2:6], heat[3:5, 3:5] = 0.35, 1.0
    wide, tight = (
        locate(heat.reshape(1, 64), cell_boxes(8, 8).numpy(), power=area_power(model))[0].box
        for model in (matcher, grounder)
    )
    assert wide.tolist() == [0.25, 0.25, 0.75, 0.75]
    assert tight.tolist() == [0.375, 0.375, 0.625, 0.625]


@pytest.mark.parametrize("name", [e.name for e in entries() if issubclass(e.model, Matcher) and e.task == "matching"])
def test_every_matcher_says_where_phrases_are_and_padding_changes_nothing(
    name: str, vocabulary: Vocabulary, toy_images: RegionBatch
) -> None:
    torch.manual_seed(0)
    kind = next(e.model for e in entries() if e.name == name)
    sizes = {
        "region_dim": 12,
        "word_dim": 6,
        "dim": 16,
        "state_dim": 9,
        **(TRANSFORMER if issubclass(kind, Fusion) else {}),
    }
    model = kind(replace(kind.Config(), **{k: v for k, v in sizes.items() if hasattr(kind.Config, k)}), vocabulary)
    assert isinstance(model, Matcher)
    images = model.double().eval().encode_images(toy_images.to(dtype=torch.float64))
    longer = model.encode_images(toy_images.to(dtype=torch.float64).pad(2))
    texts, words = read_phrases(model, ["a red cube on the ball"] * 4, [[(0, 3), (4, 6)]] * 4)
    code = model.encode_texts(texts)
    heat = model.heat(images, code, words.double())
    assert heat.shape == (4, 2, 5)
    assert heat.isfinite().all()
    torch.testing.assert_close(model.heat(longer, code, words.double())[..., :5], heat)


def test_a_matcher_that_learned_from_captions_alone_grounds_phrases() -> None:
    """Weak supervision: no box is seen in training."""
    torch.manual_seed(0)
    train, dev, config = captioned(60, 1), grounded(30, 2), MatchingConfig(min_count=1, negatives="all")
    sizes = Align2GroundConfig(word_dim=8, state_dim=12, score="pooled")
    model = build_model(Align2Ground, sizes, prepare_sentences(grounded(60, 1), GroundingConfig()))
    task = MatchingTask(train, captioned(30, 2), model.read, config)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(60):
        loss, _ = task.loss(model, task.batch(list(range(step % 4, len(task), 4))), step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    found = ground_all(model.eval(), dev)
    assert found.report()["accuracy"] > 80
    assert found.report()["pointing"] > 80
    assert found.report(RANDOM)["accuracy"] == pytest.approx(100 / 3)
    measured = GroundingAccuracy().measure(model, dev, MatchingConfig(), None, False)  # type: ignore[arg-type]
    assert measured["part/pointing"].sum() == pytest.approx(found.report()["pointing"])
    seen = PictureGrounder(model).ground(dev.images.batch([0]), f"a {COLOURS[0]} {KINDS[0]} here")  # type: ignore[arg-type]
    assert [one.text for one in seen] == ["a red cube"]
    assert seen[0].box in [tuple(map(float, box)) for box in BOXES.astype(np.float64)]


def test_what_needs_no_model_stands_beside_it() -> None:
    truth = GroundedPhrase(0, 1, np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]], dtype=np.float32), "people")
    proposals = np.array([[0, 0, 0.5, 1], [0, 0, 1, 1], [0.9, 0.9, 1, 1]])
    (found,) = locate(np.array([[0.2, 0.1, 0.7]]), proposals)
    assert found.box.tolist() == [0.9, 0.9, 1, 1]
    judged = phrase_hits(truth, found)
    assert judged[MODEL] == {
        "accuracy": 0, "recall_5": 1, "recall_10": 1, "accuracy_merged": 0, "pointing": 1, "upper_bound": 1,
    }  # fmt: skip
    assert judged[RANDOM]["accuracy"] == pytest.approx(2 / 3)  # the whole overlaps either half by half
    assert judged[LARGEST_BOX] == {"accuracy": 1, "accuracy_merged": 1, "pointing": 1}
    assert judged[CENTRE_BOX] == {"accuracy": 0, "accuracy_merged": 1, "pointing": 1}


def test_cells_are_a_heat_map_and_may_choose_among_the_boxes_of_others() -> None:
    cells, heat = cell_boxes(4, 4).double().numpy(), np.zeros((1, 16))
    heat[0, [0, 1, 4, 5]] = 1
    (found,) = locate(heat, cells)
    assert found.box.tolist() == [0, 0, 0.5, 0.5]
    assert locate(heat, cells, "peaks")[0].box.tolist() == [0, 0, 0.5, 0.5]
    boxes = np.array([[0.4, 0.4, 1, 1], [0, 0, 0.6, 0.6]])
    (chosen,) = locate(heat, cells, proposals=boxes)
    assert chosen.boxes.tolist() == boxes[::-1].tolist()
    assert chosen.every is boxes
    with pytest.raises(SaccadeError, match="these regions are boxes"):
        locate(np.ones((1, 3)), BOXES.astype(np.float64), proposals=boxes)


def test_a_split_of_several_kinds_has_figures_of_each() -> None:
    split = grounded(6, 1)
    kinds = tuple((replace(own[0], kind="red" if n % 2 else "blue"),) for n, own in enumerate(split.phrases))
    named: Groundings[CaptionedImages] = replace(split, phrases=kinds)
    model = build_model(Scan, replace(SMALL, region_dim=5), prepare_sentences(split, GroundingConfig()))
    report = ground_all(model, named).report()
    assert {name for name in report if "_red" in name} == {"accuracy_red", "pointing_red"}
    assert report["accuracy"] == pytest.approx((report["accuracy_red"] + report["accuracy_blue"]) / 2)


def test_a_grounder_places_the_phrases_of_a_matchers_explanation(vocabulary: Vocabulary) -> None:
    """Scores stay, other words stay where they were, and phrases of words that it does not know do too."""
    torch.manual_seed(0)
    text = "a red cube left of the ball and a zebra"
    words = tuple(text.split())
    draw = np.random.default_rng(0)
    found = Explanation(
        draw.integers(0, 255, (64, 64, 3), np.uint8),
        words,
        draw.random((len(words), 16)),
        cell_boxes(4, 4).double().numpy(),
        0.5,
        draw.random(len(words)),
        region_score=draw.random(16),
        probability=0.9,
    )
    model = Hierarchical(replace(TOY_SMALL, parts=("grounding",), region_dim=64), vocabulary, "grid:world/8")
    grounder = PictureGrounder(model.eval())
    placed = grounder.place_phrases(found, text)
    cube, ball = grounder.ground(found.image, text)[:2]
    assert set(placed.word_boxes) == {0, 1, 2, 5, 6}
    assert all(tuple(placed.word_boxes[word]) == cube.box for word in (0, 1, 2))
    assert all(tuple(placed.word_boxes[word]) == ball.box for word in (5, 6))
    assert np.array_equal(placed.weights[0], placed.weights[2])
    assert (placed.score, placed.probability, placed.words) == (found.score, found.probability, found.words)
    assert placed.word_score is found.word_score
    assert placed.region_score is None
    kept = [3, 4, 7, 8, 9]  # left of · and · a zebra: each large cell's weight is shared by four small ones
    spread = found.weights[kept].reshape(-1, 4, 1, 4, 1).repeat(2, axis=2).repeat(2, axis=4).reshape(-1, 64) / 4
    np.testing.assert_allclose(placed.weights[kept], spread, atol=1e-6)
    for nothing in ("left of", "a zebra"):
        assert grounder.place_phrases(found, nothing) is found


def test_a_grounders_explanation_frames_the_boxes_and_marks_phrases_it_does_not_know(vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    model = Hierarchical(replace(TOY_SMALL, parts=("grounding",), region_dim=64), vocabulary, "grid:world/8")
    grounder, picture = PictureGrounder(model.eval()), np.zeros((64, 64, 3), np.uint8)
    text = "a red cube on a striped zebra"
    found, shown = grounder.ground(picture, text), grounder.explain(picture, text)
    assert {n: tuple(box) for n, box in shown.word_boxes.items()} == {0: found[0].box}
    assert (found[1].box, found[1].score) == (None, None)
    assert shown.unknown == {"a striped zebra"}
    assert shown.word_score is not None
    np.testing.assert_allclose(shown.word_score, [found[0].score, 0], rtol=1e-6)
