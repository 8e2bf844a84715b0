"""Programs of a whole batch give what each gives by itself, step by step, and no region that is not there counts."""

from __future__ import annotations

import random

import pytest
import torch

from benchmarks.programs import ATTRIBUTES, CONCEPTS, RELATIONS, random_program, run_plainly
from saccade.batch import Program, RegionBatch, Step
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import ConceptLearner, Nscl, NsclConfig, Vcml, VcmlConfig
from saccade.nn.programs import KINDS, Lexicon

SCENE = Step("scene")


def learner(name: str, training: bool) -> ConceptLearner:
    torch.manual_seed(2)
    words = Vocabulary.build(CONCEPTS, min_count=1)
    sizes = {"concepts": CONCEPTS, "attributes": ATTRIBUTES, "relations": RELATIONS, "region_dim": 5}
    model = Vcml(VcmlConfig(**sizes, dim=6, hidden=7), words) if name == "vcml" else Nscl(NsclConfig(**sizes), words)  # type: ignore[arg-type]
    return model.double().train(training)


def pictures() -> RegionBatch:
    torch.manual_seed(3)
    counts = torch.tensor([5, 3, 1, 4])
    boxes = torch.rand(4, 5, 4, dtype=torch.float64)
    return RegionBatch(torch.randn(4, 5, 5, dtype=torch.float64), torch.arange(5) < counts[:, None], boxes)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", ["vcml", "nscl"])
def test_a_batch_gives_what_a_plain_executor_gives_for_each_program(name: str, training: bool) -> None:
    """Every step of 40 programs of all kinds, and the gradient of what they answer."""
    model, regions, dice = learner(name, training), pictures(), random.Random(4)
    programs = [random_program(dice, model.lexicon) for _ in range(40)]
    assert {step.op for program in programs for step in program} == KINDS.keys()
    images = [dice.randrange(len(regions)) for _ in programs]
    execution = model.execute(regions.pad(2), programs, images)
    plain, answers = [], []
    scene = model.encode_scene(regions)
    for n, (program, image) in enumerate(zip(programs, images, strict=True)):
        steps = run_plainly(scene, model.lexicon, program, image)
        for found, wanted in zip(execution.steps(n), steps, strict=True):
            torch.testing.assert_close(found[: len(wanted)] if wanted.dim() else found, wanted, rtol=0, atol=1e-9)
        plain.append(steps[-1])
        answers.append(execution.concepts[n] if program[-1].op == "query" else execution.values[n])
    if not training:
        return
    pull = torch.randn(len(CONCEPTS), dtype=torch.float64)
    found, wanted = (
        torch.autograd.grad(
            torch.stack([(each * pull[: len(each)]).sum() if each.dim() else each for each in values]).sum(),
            [weight for weight in model.parameters() if weight.requires_grad],
            allow_unused=True,
        )
        for values in (answers, plain)
    )
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)


def test_answers_are_words_and_losses_are_those_of_their_kind() -> None:
    model, regions = learner("nscl", training=True), pictures()
    filtered = (SCENE, Step("filter", (0,), "red"))
    programs: list[Program] = [(*filtered, Step(op, (1,))) for op in ("exist", "count")]
    programs.append((*filtered, Step("query", (1,), "colour")))
    execution = model.execute(regions, programs)
    truth, number = execution.values[0], execution.values[1]
    best = execution.concepts[2].argmax()
    assert execution.answers() == ["yes" if truth > 0 else "no", str(round(number.item())), CONCEPTS[best]]
    losses = execution.losses(["no", "3", "green"])
    torch.testing.assert_close(losses[0], -torch.nn.functional.logsigmoid(-truth))
    torch.testing.assert_close(losses[1], (number - 3).abs())
    torch.testing.assert_close(losses[2], -execution.concepts[2].log_softmax(dim=0)[1])
    assert execution.losses(["2", "yes", "nothing"]).tolist() == [10, 10, 10]


def test_a_picture_without_regions_has_nothing() -> None:
    model = learner("vcml", training=False)
    empty = RegionBatch(torch.zeros(1, 0, 5).double(), torch.zeros(1, 0, dtype=torch.bool), torch.zeros(1, 0, 4))
    programs: list[Program] = [(SCENE, Step(op, (0,))) for op in ("exist", "count")]
    assert model.execute(empty, programs, [0, 0]).answers() == ["no", "0"]
    padded = RegionBatch(torch.zeros(1, 2, 5).double(), torch.zeros(1, 2, dtype=torch.bool), torch.zeros(1, 2, 4))
    assert model.execute(padded, programs, [0, 0]).answers() == ["no", "0"]


def test_no_programs_are_no_answers() -> None:
    execution = learner("vcml", training=False).execute(pictures(), [], [])
    assert execution.answers() == []
    assert execution.losses([]).shape == (0,)


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ((), "a program without steps answers nothing"),
        ((Step("scne"),), 'there is no step "scne"; did you mean "scene"'),
        ((SCENE, Step("exist", (1,))), r"step 1 \(exist\) of a program must take results of steps before it"),
        (
            (SCENE, Step("filter", (0,), "rad")),
            '"rad" is none of the concepts that the model knows; did you',
        ),
        ((SCENE, Step("filter", (), "red")), "takes things, not nothing"),
        ((SCENE, Step("exist", (0,)), Step("count", (1,))), "takes things, not yes or no"),
        ((SCENE, Step("and", (0, 0))), "takes yes or no and yes or no, not things and things"),
    ],
)
def test_what_is_no_program_is_refused(program: Program, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        Lexicon(CONCEPTS).compiled(program)


def test_every_program_needs_a_picture() -> None:
    model = learner("nscl", training=False)
    for programs, images in (([(SCENE, Step("exist", (0,)))], [4]), ([], [0])):
        with pytest.raises(SaccadeError, match="programs need as many pictures, numbered below 4"):
            model.execute(pictures(), programs, images)
