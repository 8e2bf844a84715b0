"""Questions into programs: programs as sequences of steps, what is learned, measured and refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.batch import Step
from saccade.core.errors import SaccadeError
from saccade.models import ProgramParser, ProgramParserConfig, load_model
from saccade.models.program_parser import assemble, step_word
from saccade.tasks.parsing.task import (
    ParseAccuracy,
    ParsedQuestions,
    ParsingConfig,
    ParsingTask,
    ProgramReader,
    build_parser,
    prepare_parses,
)
from saccade.vision.augment import AugmentConfig
from saccade.world.questions.balance import drawn_questions
from saccade.world.questions.wording import parse_question
from saccade.world.store import WorldConfig

COLOURS, KINDS = ("red", "green", "blue"), ("cube", "ball", "ring")


def questions(held_out: bool) -> ParsedQuestions:
    """In the world's own words; every fifth is held out."""
    texts = []
    for colour in COLOURS:
        for kind in KINDS:
            texts += [
                f"is there a {colour} {kind}?",
                f"are there any {colour} {kind}s?",
                f"what size is the {colour} {kind}?",
            ]
            texts += [f"how many {colour} {kind}s are there?", f"are there more {colour} things than {kind}s?"]
            texts += [f"is there a {kind} left of the {colour} thing?", f"is there a {colour} thing but no {kind}?"]
    kept = [text for n, text in enumerate(texts) if (n % 5 == 0) == held_out]
    programs = [parse_question(text) for text in kept]
    assert None not in programs
    owners = tuple(n // 3 for n in range(len(kept)))
    return ParsedQuestions("toys", "train", tuple(kept), ("any",) * len(kept), tuple(programs), owners)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def parser() -> ProgramParser:
    train, dev, settings = questions(False), questions(True), ParsingConfig(word_dropout=0.0)
    torch.manual_seed(0)
    config = ProgramParserConfig(word_dim=24, dim=32)
    model = build_parser(ProgramParser, config, prepare_parses(train, settings))
    task = ParsingTask(model, train, dev, settings, AugmentConfig())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(120):
        loss, _ = task.loss(model, task.batch(list(range(step % 2, len(task), 2))), step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def test_every_program_of_the_world_comes_back_from_its_steps() -> None:
    asked = drawn_questions(WorldConfig(), "test", 40)
    assert {question.kind for question in asked} >= {"relate", "logical", "count", "compare_number"}
    for question in asked:
        assert assemble([step_word(step) for step in question.program]) == question.program


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["scene"],
        ["scene", "filter red"],
        ["exist"],
        ["scene", "exist", "exist"],
        ["scene", "scene", "exist"],
        ["scene", "count", "scene", "exist", "and"],
        ["dance"],
    ],
)
def test_steps_that_make_no_program_are_none(words: list[str]) -> None:
    assert assemble(words) is None


def test_a_parser_learns_programs_of_questions_that_it_has_not_read(parser: ProgramParser) -> None:
    figures = ParseAccuracy().evaluate(parser, questions(True), ParsingConfig(eval_batch=5))
    assert figures["accuracy"] == figures["accuracy_any"] > 90
    assert figures["valid"] > 90
    assert ProgramReader(parser).parse("is there a blue ball?") == parse_question("is there a blue ball?")


def test_padding_changes_no_program(parser: ProgramParser) -> None:
    texts = questions(True).texts
    together, alone = parser.parse(texts), [parser.parse([text])[0] for text in texts]
    assert [one.program for one in together] == [one.program for one in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.probability == pytest.approx(other.probability, rel=1e-3)


def test_what_cannot_be_parsed_is_a_sentence(parser: ProgramParser, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ProgramReader(parser)
    with pytest.raises(SaccadeError, match='knows none of the words of "hola"'):
        reader.parse("hola")
    doubtful = parser.parse(["is there a blue ball?"])[0]
    for found, sentence in (
        (type(doubtful)(None, 0.9), 'no program can be made of "is there'),
        (type(doubtful)(doubtful.program, 0.3), r"not sure what .* asks \(30 % for exist"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(parser, "parse", lambda texts, found=found: [found])
            with pytest.raises(SaccadeError, match=sentence):
                reader.parse("is there a blue ball?")
    with pytest.raises(SaccadeError, match='knows no step "filter wooden"'):
        parser.target([(Step("scene"), Step("filter", (0,), "wooden"))])


def test_a_parser_is_saved_loaded_and_pickled(parser: ProgramParser, tmp_path: Path) -> None:
    parser.save_pretrained(tmp_path)
    texts = questions(True).texts
    wanted = [one.program for one in parser.parse(texts)]
    for again in (load_model(tmp_path, ProgramParser).eval(), pickle.loads(pickle.dumps(parser))):
        assert [one.program for one in again.parse(texts)] == wanted


def test_the_loss_is_that_of_the_steps_and_one_end(parser: ProgramParser) -> None:
    data = questions(True)
    target = parser.target(data.programs)
    read = parser.read(data.texts)
    logits = parser(read, target).log_softmax(dim=2)
    each = [logits[n, t, target[n, t]].item() for n in range(len(target)) for t in range(len(data.programs[n]) + 1)]
    assert parser.loss(read, target).item() == pytest.approx(-np.mean(each), rel=1e-4)


def test_a_part_that_is_held_out_is_one_of_pictures() -> None:
    data = questions(False)
    part = data.select(range(0, len(data.images), 2))
    assert part.owners
    assert set(part.owners) == set(range(0, len(data.images), 2))
    assert all(text in data.texts for text in part.texts)
