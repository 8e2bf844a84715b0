"""Questions about scenes: what programs find, what the words alone say, and that wording and reading are inverse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from saccade.batch.programs import Program, Step
from saccade.core.errors import SaccadeError
from saccade.data.datasets.made import world as reader
from saccade.world import Scene, SceneRelation, Thing, World, WorldConfig
from saccade.world.dice import Dice
from saccade.world.questions.balance import drawn_questions, picture_balance, question_balance
from saccade.world.questions.make import KINDS, Foils, Question, ask
from saccade.world.questions.programs import answer, spelled, with_names
from saccade.world.questions.wording import parse_question
from saccade.world.sample import HELD_OUT_COLOURS, Wish, is_novel, sample_scene

# A small red metal cube left of a large red wooden ball, and behind the ball a large blue metal dog that wears a hat.
SCENE = Scene(
    id="table",
    things=(
        Thing("cube", "red", "small", "metal"),
        Thing("ball", "red", "large", "wood"),
        Thing("dog", "blue", "large", "metal"),
        Thing("hat", "white", "small", "cloth"),
    ),
    relations=(
        SceneRelation(0, "left of", 1),
        SceneRelation(1, "right of", 0),
        SceneRelation(2, "behind", 1),
        SceneRelation(1, "in front of", 2),
        SceneRelation(2, "wearing", 3),
        SceneRelation(3, "on", 2),
    ),
)


@pytest.fixture(scope="module")
def train() -> list[Question]:
    return drawn_questions(WorldConfig(), "train", 350)


@pytest.fixture(scope="module")
def dev() -> list[Question]:
    return drawn_questions(WorldConfig(), "dev", 350)


# What programs find: every step, told by questions that use it


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("is there a red cube?", "yes"),
        ("is there a crimson block?", "yes"),
        ("is there a blue cube?", "no"),
        ("are there any animals?", "yes"),  # a family
        ("are there any vehicles?", "no"),
        ("can you see a thing with a tail?", "yes"),  # a part
        ("do you see any warm-coloured toys made of wood?", "yes"),
        ("how many red things are there?", "2"),
        ("how many cars are there?", "0"),
        ("how many dogs or red objects are there?", "3"),  # union
        ("are there more red things than large things?", "no"),
        ("are there as many red things as large things?", "yes"),
        ("are there fewer dogs than metal things?", "yes"),
        ("what colour is the dog?", "blue"),
        ("what is the blue thing?", "dog"),
        ("how big is the sphere?", "large"),
        ("what is the cube made of?", "metal"),
        ("what is the thing left of the ball?", "cube"),  # relate
        ("what material is the toy that is worn by the dog?", "cloth"),  # … the other way round
        ("what colour is the animal wearing the hat?", "blue"),
        ("is there a metal thing behind the ball?", "yes"),
        ("is there a cube behind the ball?", "no"),
        ("is any thing both behind the ball and under the hat?", "no"),  # intersect
        ("is the cube the same colour as the ball?", "yes"),
        ("are the cube and the ball of the same size?", "no"),
        ("is the cube made of the same material as the dog?", "yes"),
        ("is there another thing of the same colour as the cube?", "yes"),
        ("is there another thing of the same colour as the dog?", "no"),  # not the dog itself
        ("is there another ball of the same colour as the cube?", "yes"),
        ("is any other dog of the same size as the ball?", "yes"),
        ("is there a cube and a car?", "no"),
        ("is there a cube or a car?", "yes"),
        ("is there a cube but no car?", "yes"),  # not
        ("is there a cube but no ball?", "no"),
    ],
)
def test_a_program_finds_what_is_true(text: str, expected: str) -> None:
    program = parse_question(text)
    assert program is not None
    assert answer(program, SCENE) == expected


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (parse_question("what is the red thing?"), '"query" needs one thing, and there are 2'),
        (parse_question("what colour is the car?"), "there are none"),
        (parse_question("is there a cube left of the large thing?"), '"relate" needs one thing'),
        (parse_question("is the red thing the same size as the dog?"), '"equal" needs one thing'),
        (parse_question("is there another thing of the same size as the red toy?"), '"same" needs one thing'),
        ((Step("scene"),), "ends in an answer"),
        ((), "without steps"),
        ((Step("scene"), Step("filter", (0,), "rde")), 'no concept "rde"; did you mean "red"'),
        ((Step("scene"), Step("filter", (1,), "red")), "step 1 of a program"),
        ((Step("dance"),), "step 0 of a program"),
    ],
)
def test_what_cannot_be_answered_is_refused(program: Program | None, sentence: str) -> None:
    assert program is not None
    with pytest.raises(SaccadeError, match=sentence):
        answer(program, SCENE)


def test_programs_are_spelled_and_named() -> None:
    program = parse_question("is there a crimson thing left of the large sphere?")
    assert program is not None
    assert spelled(program) == "exist(filter[crimson](relate[left of](filter[sphere](filter[large](scene)))))"
    assert spelled(with_names(program)) == "exist(filter[red](relate[left of](filter[ball](filter[large](scene)))))"
    assert answer(with_names(program), SCENE) == answer(program, SCENE) == "yes"


# What is asked


def test_a_scene_is_asked_the_same_whatever_else_is(dev: Sequence[Question]) -> None:
    few = drawn_questions(WorldConfig(pictures=50), "dev", 20)
    assert few == dev[: len(few)]
    assert len(few) > 200


def test_every_kind_is_asked_with_every_answer(train: Sequence[Question]) -> None:
    counts = {kind: Counter(q.answer for q in train if q.kind == kind) for kind in KINDS}
    sizes = {kind: len(found) for kind, found in counts.items()}
    yes_no = dict.fromkeys(KINDS, 2)
    assert sizes == yes_no | {"count": 4, "query_colour": 10, "query_kind": 25, "query_size": 3, "query_material": 5}
    assert min(found.total() for found in counts.values()) > 400
    used = {step.op for q in train for step in q.program}
    assert used == {
        *("scene", "filter", "relate", "same", "union", "intersect", "exist", "count", "query", "equal"),
        *("more", "fewer", "as_many", "and", "or", "not"),
    }


def test_the_words_alone_say_nothing_of_the_answer(train: Sequence[Question], dev: Sequence[Question]) -> None:
    rows = question_balance(train, dev)
    assert {row.kind for row in rows} == set(KINDS)
    for row in rows:
        assert row.question_only <= row.majority + 3.0, row
        assert row.majority <= 1.25 * row.uniform + 2.0, row


def test_the_picture_alone_says_nothing_of_yes_or_no() -> None:
    """A foil has as many things, pairs alike and acts as its scene; with foils at random: 55 to 61."""
    accuracies = picture_balance(WorldConfig(), "dev", 350)
    yes_no = ("exist", "compare_number", "compare_attribute", "relate", "same_attribute", "logical")
    assert max(accuracies[kind] for kind in yes_no) < 54.0


class Leaky(NamedTuple):
    kind: str
    text: str
    answer: str


def test_the_question_only_model_finds_what_words_give_away() -> None:
    """One whose answer hangs on a word, and one where only whole texts tell."""
    dice = Dice("leaks")
    colours, kinds = ("red", "blue", "green", "white"), ("cube", "ball", "dog", "car")
    pairs = [(dice.pick(colours), dice.pick(kinds)) for _ in range(1200)]
    by_word = [Leaky("word", f"is there a {c} {k}?", "yes" if c in ("red", "blue") else "no") for c, k in pairs]
    by_text = [
        Leaky("text", f"is the {c} thing there or the {k}?", "yes" if (colours.index(c) + kinds.index(k)) % 2 else "no")
        for c, k in pairs
    ]
    rows = question_balance(by_word[:900] + by_text[:900], by_word[900:] + by_text[900:])
    assert [row.question_only for row in rows] == [100.0, 100.0]


def test_every_question_is_read_back_as_what_was_meant(train: Sequence[Question]) -> None:
    for question in train:
        assert parse_question(question.text) == question.program, question
        assert parse_question(question.text.upper().removesuffix("?")) == question.program


@pytest.mark.parametrize(
    "text", ["", "?", "why?", "is there a zebra?", "is there a red blue cube?", "is there a #?", "what colour is love?"]
)
def test_what_is_no_question_of_the_world_is_not_read(text: str) -> None:
    assert parse_question(text) is None


def test_no_question_is_ambiguous_and_each_answer_is_true() -> None:
    """Asked again of the scene itself: the executor refuses "the cube" where there are two."""
    for n in range(60):
        scene = sample_scene(Dice("again", n), f"again-{n}")
        for question in ask(scene):
            assert answer(question.program, scene) == question.answer


def test_novel_scenes_are_asked_about_what_is_novel_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.world.questions.make.FOILS", 300)
    monkeypatch.setattr("saccade.world.questions.make.SUPPORT", 4)
    monkeypatch.setattr("saccade.world.questions.make.CHOICE", 1)
    novel = Foils(WorldConfig().wish("novel"))
    monkeypatch.setattr("saccade.world.questions.make.foils", lambda wish: novel)
    asked = drawn_questions(WorldConfig(), "novel", 200)
    said = [{s.argument for s in with_names(q.program)} for q in asked if q.kind == "exist" and q.answer == "yes"]
    assert any(words >= set(pair) for words in said for pair in HELD_OUT_COLOURS)


# Scenes in which colours go with kinds


def _things(colours: str, split: str, scenes: int = 400) -> list[Thing]:
    config = WorldConfig(colours=colours)  # type: ignore[arg-type]
    wish = config.wish(split)
    drawn = [sample_scene(Dice(0, split, n), f"{split}-{n}", wish) for n in range(scenes)]
    assert not any(is_novel(scene.things, scene.relations) for scene in drawn)
    return [thing for scene in drawn for thing in scene.things]


def _share(things: Sequence[Thing], colour: str, kind: str) -> float:
    own = [thing.kind == kind for thing in things if thing.colour == colour]
    assert len(own) > 30
    return sum(own) / len(own)


def test_red_things_are_mostly_cubes_in_biased_scenes_only() -> None:
    for split in ("train", "dev"):
        biased = _things("biased", split)
        for colour, kind in (("red", "cube"), ("green", "ball"), ("blue", "pyramid"), ("yellow", "cone")):
            assert _share(biased, colour, kind) > 0.7
        assert _share(biased, "pink", "cube") < 0.2
    assert _share(_things("biased", "test"), "red", "cube") < 0.2


def test_what_cogent_b_shows_is_held_out_of_cogent_a() -> None:
    a, b = ({(t.kind, t.colour) for t in _things("cogent", split)} for split in ("train", "test"))
    for kind in ("cube", "ball"):  # one of each half
        in_a, in_b = ({c for k, c in shown if k == kind} for shown in (a, b))
        assert in_a
        assert in_b
        assert not in_a & in_b
    assert {c for _, c in a} == {c for _, c in b}
    assert {k for k, _ in a} == {k for k, _ in b}
    assert {c for k, c in a if k == "cone"} & {c for k, c in b if k == "cone"}  # of neither half: any colour


def test_an_ordinary_world_is_drawn_and_named_as_ever() -> None:
    assert WorldConfig().digest() == "679db619832e6f69"
    assert WorldConfig(colours="biased").digest() != WorldConfig().digest()
    assert WorldConfig().wish("test") == WorldConfig(colours="biased").wish("test") == Wish()


# As data


def test_the_reader_gives_questions_with_their_pictures(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "make_world", lambda config, root, progress: world)
    found = reader.open_world_questions("dev")
    pictures = found.pictures
    assert len(found.texts) == len(found.programs) == len(set(found.ids)) > 150
    assert set(found.kinds) == set(KINDS)
    for text, own, program, picture in zip(
        found.texts, found.answers, found.programs, pictures.image_of_text, strict=True
    ):
        scene = world.split("dev").scene(int(picture))
        assert pictures.ids[int(picture)] == scene.id
        assert own == (answer(program, scene),)
        assert parse_question(text) == program


def test_everything_that_is_asked_about_can_be_seen(world: World) -> None:
    """Questions count all things of a scene; captions and phrases of boxes do so too."""
    for name in world.splits:
        for i in range(len(world.split(name))):
            for box in world.split(name).boxes(i):
                assert min(box[2] - box[0], box[3] - box[1]) > reader.MIN_PHRASED_SIDE


def test_coloured_splits_are_worlds_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[WorldConfig, Path]] = []

    class Stop(Exception):
        pass

    def make(config: WorldConfig, root: Path, progress: object) -> World:
        made.append((config, root))
        raise Stop

    monkeypatch.setattr(reader, "make_world", make)
    for split in ("biased", "cogent_b", "test"):
        with pytest.raises(Stop):
            reader.open_world_questions(split, Path("worlds/one"), pictures=300)
    assert [(config.colours, root.name) for config, root in made] == [
        ("biased", "one-biased"),
        ("cogent", "one-cogent"),
        ("any", "one"),
    ]


def test_questions_are_asked_once_and_read_back_as_they_were(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path))
    first = reader.open_world_questions("dev", pictures=40)
    kept = list((tmp_path / "world" / "questions").glob("*.json"))
    monkeypatch.setattr("saccade.world.questions.asked.ask", None)  # would fail if it were called
    again = reader.open_world_questions("dev", pictures=40)
    assert len(kept) == 1
    assert (again.programs, again.answers, again.kinds, again.ids) == (
        first.programs, first.answers, first.kinds, first.ids
    )  # fmt: skip
    assert all(isinstance(step, Step) for program in again.programs for step in program)
