"""Expressions and dialogs of the world: each means one thing alone, every thing as often, and words tell which."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from saccade.batch.programs import Step
from saccade.core.errors import SaccadeError
from saccade.data.datasets.made import world as reader
from saccade.world import Scene, SceneRelation, Thing, World
from saccade.world.dice import Dice
from saccade.world.questions.programs import Facts
from saccade.world.questions.wording import parse_question
from saccade.world.referring import DIALOGS, EXPRESSIONS, KINDS, Turn, discuss, having, refer, then
from saccade.world.sample import Wish, sample_scene

MUGS = Scene(
    id="mugs",
    things=(
        Thing("mug", "red", "small", "glass", x=0.7),
        Thing("mug", "blue", "small", "glass", x=0.2),
        Thing("mug", "red", "small", "glass", x=0.5),
        Thing("ball", "red", "small", "glass", x=0.22),
    ),
    relations=(SceneRelation(0, "right of", 2), SceneRelation(2, "left of", 0)),
)


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [sample_scene(Dice("referring", n), f"scene-{n}", Wish()) for n in range(250)]


def test_an_expression_means_one_thing_alone(scenes: list[Scene]) -> None:
    """By its program, and by what a reader makes of its words."""
    count = Counter[str]()
    for scene in scenes:
        facts = Facts(scene)
        for expression in refer(scene):
            count[expression.kind] += 1
            assert facts.run(expression.program)[-1] == 1 << expression.thing
            if expression.kind != "ordinal":
                read = parse_question(f"what is {expression.text}?")
                assert read is not None, expression.text
                assert facts.run(read[:-1])[-1] == 1 << expression.thing, expression.text
    assert set(count) == set(KINDS)
    assert min(count.values()) > 0.08 * sum(count.values())


def test_a_dialog_ends_with_one_thing_and_not_before(scenes: list[Scene]) -> None:
    lengths = Counter[int]()
    for scene in scenes:
        facts = Facts(scene)
        for dialog in discuss(scene):
            left = [facts.all]
            for turn in dialog.turns:
                left.append(left[-1] & turn.fitting(facts))
                assert left[-1] >> dialog.thing & 1
            assert left[-1] == 1 << dialog.thing
            assert all(one.bit_count() > 1 for one in left[:-1])
            assert len({turn.question for turn in dialog.turns}) == len(dialog.turns)
            lengths[len(dialog.turns)] += 1
    assert len(lengths) >= 4
    answers = {turn.answer for scene in scenes[:60] for dialog in discuss(scene) for turn in dialog.turns}
    assert {"yes", "no", "small", "wood"} <= answers


def test_every_thing_is_meant_equally_often(scenes: list[Scene]) -> None:
    """Which thing is meant the picture alone does not tell."""
    for scene in scenes:
        things = len(scene.things) if len(scene.things) > 1 else 0
        assert Counter(e.thing for e in refer(scene)) == dict.fromkeys(range(things), EXPRESSIONS)
        assert max(Counter(d.thing for d in discuss(scene)).values(), default=0) <= DIALOGS
    found = sum(len(discuss(scene)) for scene in scenes)
    assert found > 0.98 * DIALOGS * sum(len(scene.things) for scene in scenes if len(scene.things) > 1)


def test_the_same_scene_is_spoken_of_alike(scenes: list[Scene]) -> None:
    assert refer(scenes[3]) == refer(scenes[3])
    assert discuss(scenes[3]) == discuss(scenes[3])
    assert refer(scenes[3]) != refer(scenes[4])


def test_ordinals_count_from_a_side_and_are_plain_to_see() -> None:
    facts = Facts(MUGS)
    mugs = having(("mug",))
    order = [facts.run(then(mugs, "nth", f"{n} {side}"))[-1] for side in ("left", "right") for n in (1, 2, 3, 4)]
    assert order == [0b0010, 0b0100, 0b0001, 0, 0b0001, 0b0100, 0b0010, 0]
    assert facts.run(then(having(()), "nth", "1 left"))[-1] == 0  # the ball stands at the blue mug
    assert facts.run(then(having(()), "side", "right"))[-1] == 0b0101
    for op, argument in (("nth", "left"), ("nth", "2 top"), ("side", "top")):
        with pytest.raises(SaccadeError):
            facts.run((Step("scene"), Step(op, (0,), argument)))


def test_no_turns_a_turn_into_all_others() -> None:
    facts = Facts(MUGS)
    assert Turn("is it red?", "yes", having(("red",))).fitting(facts) == 0b1101
    assert Turn("is it red?", "no", having(("red",))).fitting(facts) == 0b0010
    assert Turn("what colour is it?", "blue", having(("blue",))).fitting(facts) == 0b0010


def test_the_reader_gives_the_boxes_of_what_is_meant(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    part = world.split("dev")
    monkeypatch.setattr(reader, "_open_part", lambda *_: (world.config, part))
    found = reader.open_world_referring("dev")
    assert len(found.candidates) == len(part)
    assert {True, False} == set(found.dialogs)
    for n, owner in enumerate(found.pictures.image_of_text.tolist()):
        scene, boxes = part.scene(owner), part.boxes(owner)
        meant = found.candidates[owner].boxes[found.choices[n][found.targets[n]]]
        (thing,) = (i for i, box in enumerate(boxes) if np.array_equal(box, meant))
        said = found.spoken[n]
        known = refer(scene) if isinstance(said, str) else discuss(scene)
        texts = [(e.text if isinstance(said, str) else tuple(t.text for t in e.turns), e.thing) for e in known]  # type: ignore[union-attr]
        assert (said, thing) in texts
        assert found.candidates[owner].categories[found.targets[n]] == scene.things[thing].kind
