"""Concept learners asked in words: programs executed step by step, questions about concepts, drawings of both."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.batch import RegionBatch, Step
from saccade.core.errors import SaccadeError
from saccade.explain.panels.concept_map import ConceptMap, draw_concept_map
from saccade.explain.panels.program import ProgramPicture, StepPicture, draw_program
from saccade.language import Vocabulary
from saccade.models import Nscl, NsclConfig, Vcml, VcmlConfig
from saccade.nn.programs import KINDS
from saccade.tasks.concepts.predict import STEP_WORDS, ConceptAnswerer, in_words, sum_distribution
from saccade.tasks.predict import Answer

WORDS = ("red", "crimson", "green", "cube", "ball")
ATTRIBUTES = (("colour", "green", "red"), ("kind", "ball", "cube"))
SAME_KIND = "is red the same kind of thing as green?"


def answerer(kind: type[Vcml] | type[Nscl] = Vcml) -> ConceptAnswerer:
    torch.manual_seed(0)
    config = {"concepts": WORDS, "attributes": ATTRIBUTES, "relations": ("left of",), "region_dim": 6, "dim": 4}
    made = VcmlConfig(hidden=0, **config) if kind is Vcml else NsclConfig(**config)  # type: ignore[arg-type]
    vocabulary = Vocabulary.build(WORDS, min_count=1)
    return ConceptAnswerer(kind(made, vocabulary).eval())  # type: ignore[arg-type]


def regions() -> RegionBatch:
    torch.manual_seed(1)
    return RegionBatch(torch.randn(1, 3, 6), torch.ones(1, 3, dtype=torch.bool), torch.rand(1, 3, 4).sort(dim=2).values)


@pytest.mark.parametrize("kind", [Vcml, Nscl])
def test_a_question_in_words_gets_answers_with_probabilities_and_the_steps(kind: type[Vcml] | type[Nscl]) -> None:
    asked = answerer(kind)
    for question, steps in (
        ("what colour is the cube?", ["all things", "cube in 1", "which colour is 2?"]),
        ("how many red cubes are there?", ["all things", "red in 1", "cube in 2", "how many in 3?"]),
        (
            "are there more cubes than balls?",
            [*("all things", "cube in 1") * 1, "all things", "ball in 3", "more in 2 than in 4?"],
        ),
        ("is there a ball left of the red thing?", ["all things", "red in 1", "left of 2", "ball in 3", "any in 4?"]),
    ):
        answers = asked.ask(regions(), question, top=0)
        assert sum(answer.probability for answer in answers) == pytest.approx(1, abs=1e-4)
        assert [step.split(" → ")[0] for step in answers[0].steps] == steps
        said = asked.run(regions(), asked.read(question)).execution
        assert said is not None
        assert answers[0].text == said.answers()[0]  # what `saccade eval` counts comes first
        if answers[0].text in ("yes", "no"):  # … and is the likelier, as the last step says
            assert answers[0].probability >= answers[1].probability
            assert answers[0].steps[-1].endswith(f"{answers[0].text}, {100 * answers[0].probability:.0f} %")
        assert asked.ask(regions(), question, top=1) == answers[:1]


def test_what_is_counted_has_the_distribution_of_the_sum() -> None:
    logits = torch.tensor([0.3, -1.0, 2.0, -1e4])
    chances = logits.double().sigmoid().tolist()
    wanted = np.zeros(5)
    for there in product((0, 1), repeat=4):
        wanted[sum(there)] += np.prod([p if t else 1 - p for p, t in zip(chances, there, strict=True)])
    np.testing.assert_allclose(sum_distribution(logits).numpy(), wanted, atol=1e-12)


def test_every_step_has_words() -> None:
    assert STEP_WORDS.keys() == KINDS.keys()
    assert in_words(Step("equal", (1, 3), "colour")) == "same colour, 2 and 4?"


def test_questions_about_concepts_need_no_picture_and_others_do() -> None:
    asked = answerer()
    answers = asked.ask(None, SAME_KIND)
    assert sorted(answer.text for answer in answers) == ["no", "yes"]
    assert answers[0].probability >= answers[1].probability
    assert answers[0] == Answer(asked.relate(SAME_KIND).text, answers[0].probability)
    with pytest.raises(SaccadeError, match="about a picture: give one"):
        asked.ask(None, "what colour is the cube?")
    with pytest.raises(SaccadeError, match=r'"why is it so dark.*" is not worded as the questions'):
        asked.ask(regions(), "why is it so dark?")
    with pytest.raises(SaccadeError, match='"wooden" is none of the concepts that the model knows'):
        asked.ask(regions(), "is there a wooden cube?")
    with pytest.raises(SaccadeError, match="nscl learns no metaconcepts"):
        answerer(Nscl).ask(None, SAME_KIND)


def test_the_map_has_all_concepts_by_kind_and_marks_those_asked_about(tmp_path: Path) -> None:
    asked = answerer()
    drawn = asked.why(None, SAME_KIND)
    assert isinstance(drawn, ConceptMap)
    assert drawn.words == ("green", "crimson", "red", "ball", "cube")  # words that mean the same stand together
    assert drawn.groups == (("colour", 3), ("kind", 2))
    assert [drawn.words[n] for n in drawn.asked] == ["red", "green"]
    chances, words = asked.model.probabilities().detach(), asked.model.lexicon.concepts
    row, column = words.index("cube"), words.index("crimson")
    assert drawn.probability[4, 1] == pytest.approx(float(chances[row, column]))
    assert drawn.save(tmp_path / "map.png").is_file()
    with pytest.raises(SaccadeError, match="nscl has no probabilities of concepts"):
        answerer(Nscl).concept_map()


def test_likelier_pairs_are_brighter_on_the_map() -> None:
    chances = np.array([[1.0, 0.04], [0.0, 1.0]])
    pixels = np.asarray(draw_concept_map(ConceptMap(chances, ("a", "b"), (("letters", 2),))).convert("L"), dtype=int)
    side, left, top = 20, 56 + 150 + 26 + 12, 56 + 150 + 150
    light = [[pixels[top + side * r + 6, left + side * c + 6] for c in range(2)] for r in range(2)]
    assert light[0][0] == light[1][1] > light[0][1] > light[1][0]


def test_a_step_lights_up_what_it_found_and_leaves_the_rest_dark() -> None:
    boxes = np.array([[0.0, 0.0, 0.4, 0.4], [0.6, 0.6, 1.0, 1.0]])
    steps = [
        StepPicture("red in 1", np.array([0.99, 0.01])),
        StepPicture("any in 2?", np.array([0.0, 0.0]), "no, 99 %"),
    ]
    picture = ProgramPicture(np.full((64, 64, 3), 128, np.uint8), boxes, "is there?", "no, 99 %", tuple(steps))
    pixels = np.asarray(draw_program(picture).convert("L"), dtype=float)
    top, side = 56 + 2 * 42 + 26 + 64, 380
    panels = [pixels[top : top + side, x : x + side] for x in (56, 56 + side + 26)]
    found, other = (panels[0][slice(*place), slice(*place)].mean() for place in ((60, 120), (260, 340)))
    assert found > 2 * other
    assert panels[1][60:120, 60:120].mean() == pytest.approx(other, rel=0.1)


def test_the_drawing_of_a_program_has_a_panel_for_each_step(tmp_path: Path) -> None:
    asked = answerer()
    asked.extract = lambda images: regions()  # type: ignore[method-assign, assignment]
    Image.new("RGB", (80, 60), "grey").save(tmp_path / "toys.png")
    drawn = asked.why(tmp_path / "toys.png", "is there a cube and a ball?")
    assert isinstance(drawn, ProgramPicture)
    assert [step.title for step in drawn.steps][-3:] == ["ball in 4", "any in 5?", "3 and 6?"]
    assert [bool(step.result) for step in drawn.steps] == [False, False, True, False, False, True, True]
    assert drawn.save(tmp_path / "steps.png").is_file()
    with pytest.raises(SaccadeError, match="an executed program is saved as one of"):
        drawn.save(tmp_path / "steps.html")
    assert not (tmp_path / "steps.html").exists()
