"""Concept learning: what is prepared, learned and measured; toy programs are learned from their answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from saccade.batch import Program, RegionBatch, Step
from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedImages, Questions
from saccade.models import ConceptLearner, Nscl, NsclConfig, Vcml, VcmlConfig
from saccade.tasks.concepts.task import (
    ConceptAccuracy,
    ConceptAnswerer,
    ConceptsConfig,
    ConceptTask,
    Lessons,
    build_learner,
    in_table,
    most_frequent,
    prepare_lessons,
)
from saccade.vision.augment import AugmentConfig
from saccade.world.questions.metaconcepts import MetaQuestion

COLOURS, SHAPES = ("red", "green", "blue"), ("cube", "ball")
SCENE = Step("scene")
CUBES = (SCENE, Step("filter", (0,), "cube"))
WHOLE = [0.0, 0.0, 1.0, 1.0]


class Things:
    """Pictures of three things whose features say colour and kind outright, the first the only cube."""

    def __init__(self, count: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.colour = draw.integers(3, size=(count, 3))
        self.ids, self.dim = tuple(map(str, range(count))), 5

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: list[int]) -> RegionBatch:
        features = torch.zeros(len(indices), 4, 5)
        for row, index in enumerate(indices):
            features[row, torch.arange(3), torch.as_tensor(self.colour[index])] = 1
            features[row, 0, 3] = features[row, 1:3, 4] = 1
        boxes = torch.tensor([[0, 0, 0.3, 1], [0.3, 0, 0.6, 1], [0.6, 0, 1, 1], WHOLE])
        return RegionBatch(features, torch.ones(len(indices), 4, dtype=torch.bool), boxes.expand(len(indices), 4, 4))


def questions(colours: np.ndarray) -> list[tuple[str, str, Program, str]]:
    """Kind, text, program and answer of a picture's questions."""
    cube, *balls = (COLOURS[c] for c in colours)
    word = COLOURS[(colours.sum() + 1) % 3]
    found: list[tuple[str, str, Program, str]] = [
        ("query", "what colour is the cube?", (*CUBES, Step("query", (1,), "colour")), cube),
        ("exist", f"is anything {word}?", (SCENE, Step("filter", (0,), word), Step("exist", (1,))), ""),
        ("count", f"how many are {word}?", (SCENE, Step("filter", (0,), word), Step("count", (1,))), ""),
        ("same", "?", (*CUBES, Step("same", (1,), "colour"), Step("exist", (2,))), "yes" if cube in balls else "no"),
    ]
    number = [cube, *balls].count(word)
    found[1] = (*found[1][:3], "yes" if number else "no")
    found[2] = (*found[2][:3], str(number))
    return found


PAIRS = tuple(
    MetaQuestion("same_kind", a, b, f"is {a} the same kind of thing as {b}?", "yes" if same else "no")
    for a, b, same in (
        ("red", "green", 1),
        ("green", "blue", 1),
        ("cube", "red", 0),
        ("cube", "ball", 1),
        ("ball", "blue", 0),
    )
)


def lessons(count: int, seed: int) -> Lessons:
    things = Things(count, seed)
    rows = [row for colours in things.colour for row in questions(colours)]
    kinds, texts, programs, answers = zip(*rows, strict=True)
    owners = np.repeat(np.arange(count), 4)
    pictures = CaptionedImages("toys", "train", things, tuple(texts), owners, "toys")  # type: ignore[arg-type]
    visual = Questions(pictures, tuple((a,) for a in answers), kinds, tuple(map(str, range(len(rows)))), programs)
    return Lessons(visual, PAIRS)


def trained(kind: type[ConceptLearner], config: VcmlConfig | NsclConfig, steps: int) -> tuple[ConceptLearner, Lessons]:
    settings = ConceptsConfig(metaconcept_batch=16 if kind is Vcml else 0, short_first=10)
    train, dev = lessons(60, 1), lessons(30, 2)
    torch.manual_seed(0)
    model = build_learner(kind, config, prepare_lessons(train, settings))
    task = ConceptTask(model, train, dev, settings, AugmentConfig())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for step in range(steps):
        loss, figures = task.loss(model, task.batch(list(range(step % 3, len(task), 3))), step)
        assert ("metaconcept_loss" in figures) == (kind is Vcml)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval(), dev


def test_the_programs_say_which_concepts_attributes_and_relations_there_are() -> None:
    prepared = prepare_lessons(lessons(40, 1), ConceptsConfig())
    assert prepared.facts["concepts"] == ["ball", "blue", "cube", "green", "red"]  # "ball" from a pair alone
    assert prepared.facts["attributes"] == [("colour", "blue", "green", "red")]
    assert prepared.facts["relations"] == []
    assert prepared.widths == {"region_dim": 5}


@pytest.mark.parametrize(
    ("kind", "config"),
    [(Vcml, VcmlConfig(dim=8, hidden=16)), (Nscl, NsclConfig(dim=16))],
    ids=["vcml", "nscl"],
)
def test_toy_programs_are_learned_from_their_answers(
    kind: type[ConceptLearner], config: VcmlConfig | NsclConfig
) -> None:
    model, dev = trained(kind, config, 60)
    figures = ConceptAccuracy().evaluate(model, dev, ConceptsConfig(eval_batch=50))
    assert figures["accuracy"] > 90
    assert {"accuracy_query", "accuracy_exist", "accuracy_count", "accuracy_same"} <= figures.keys()
    assert ("metaconcepts" in figures) == (kind is Vcml)
    kept = ConceptAccuracy().measure(model, dev, ConceptsConfig(), None, False)  # type: ignore[arg-type]
    assert kept["part/accuracy"].sum() == pytest.approx(figures["accuracy"])
    predictor = ConceptAnswerer(model)
    image = dev.visual.images.batch([0])
    program, answer = dev.visual.programs[0], dev.visual.answers[0][0]
    verdict = predictor.run(image, program)
    assert verdict.text in COLOURS
    assert 0.3 < verdict.probability <= 1
    assert verdict.execution is not None
    assert len(verdict.execution.steps(0)) == len(program)
    assert answer in COLOURS
    if kind is Vcml:
        assert figures["metaconcepts"] == figures["metaconcepts_same_kind"] >= 80
        assert predictor.relate("is red the same kind of thing as green?").text in ("yes", "no")
        with pytest.raises(SaccadeError, match="is no question about two concepts"):
            predictor.relate("how many cubes?")


def test_the_floor_says_what_is_most_often_true_of_a_kind() -> None:
    dev = lessons(30, 2)
    floor = most_frequent(dev)
    for kind in ("query", "exist", "count", "same"):
        said = [answers[0] for answers, own in zip(dev.visual.answers, dev.visual.kinds, strict=True) if own == kind]
        assert floor[f"accuracy_{kind}"] == pytest.approx(100 * max(map(said.count, said)) / len(said))
    assert floor["metaconcepts"] == floor["metaconcepts_same_kind"] == pytest.approx(60)  # three of five pairs hold
    shown = [in_table(name) for name in floor]
    assert shown == [
        *("accuracy", "mean of all kinds", "… count", "… exist", "… query", "… same", "about concepts", "… same kind"),
    ]


def test_the_whole_picture_is_no_thing_and_unknown_words_have_no_answer() -> None:
    train = lessons(10, 1)
    model = build_learner(Nscl, NsclConfig(dim=8), prepare_lessons(train, ConceptsConfig())).eval()
    everything = model.execute(train.visual.images.batch([0]), [(SCENE, Step("count", (0,)))])
    assert everything.answers() == ["3"]
    strange = Questions(
        train.visual.pictures.select([0]),
        (("yes",),) * 4,
        ("exist",) * 4,
        tuple("abcd"),
        ((SCENE, Step("filter", (0,), "purple"), Step("exist", (1,))),) * 4,
    )
    assert ConceptAccuracy().evaluate(model, Lessons(strange, ()), ConceptsConfig())["accuracy"] == 0


def test_settings_are_checked() -> None:
    with pytest.raises(SaccadeError, match="metaconcept_weight must be zero or more"):
        ConceptsConfig(metaconcept_weight=-1.0)
