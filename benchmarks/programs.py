"""Programs of all questions of a batch at once against one question at a time.

One at a time is the plain executor below, which tests hold the other to: it asks the model for what a step needs when
it comes to that step, as the published code does for every question.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.bench import Bench, Case
from benchmarks.rows import Row, Target
from saccade.batch import Program, RegionBatch, Step
from saccade.language import Vocabulary
from saccade.models import ConceptLearner, Nscl, NsclConfig, Vcml, VcmlConfig
from saccade.models.base.concepts import ConceptScene
from saccade.nn.programs import Lexicon

CONCEPTS = ("red", "green", "cube", "ball", "large", "toy")
ATTRIBUTES = (("colour", "red", "green"), ("kind", "cube", "ball"), ("size", "large"))
RELATIONS = ("left of", "behind")
ENDS = ("exist", "count", "query", "equal", "more", "fewer", "as_many", "and", "or", "not")


def random_program(dice: random.Random, lexicon: Lexicon) -> Program:
    """Any program: some sets of things, made of each other, and a last step."""
    steps: list[Step] = []

    def add(op: str, *inputs: int, argument: str = "") -> int:
        steps.append(Step(op, inputs, argument))
        return len(steps) - 1

    def things() -> int:
        place = add("scene")
        for _ in range(dice.randint(1, 3)):
            op = dice.choice(["filter", "filter", "relate", "same"])
            words = {"filter": lexicon.concepts, "relate": lexicon.relations, "same": lexicon.attributes}[op]
            place = add(op, place, argument=dice.choice(words))
        if dice.random() < 0.2:
            place = add(dice.choice(["union", "intersect"]), place, things())
        return place

    op = dice.choice(ENDS)
    if op in ("and", "or", "not"):
        add(op, *(add("exist", things()) for _ in range(1 if op == "not" else 2)))
    elif op in ("exist", "count"):
        add(op, things())
    elif op == "query":
        add(op, things(), argument=dice.choice(lexicon.attributes))
    else:
        add(op, things(), things(), argument=dice.choice(lexicon.attributes) if op == "equal" else "")
    return tuple(steps)


def run_plainly(scene: ConceptScene, lexicon: Lexicon, program: Program, image: int) -> list[Tensor]:
    """Step by step, on the picture's real regions alone: the results of all steps."""
    count = int(scene.mask[image].sum())
    device = scene.mask.device
    picture = torch.tensor([image], device=device)
    kinds = {"filter": ("concepts", "concepts"), "relate": ("relations", "relations"), "query": ("attributes", "query")}

    def told(step: Step) -> Tensor:
        words, question = kinds.get(step.op, ("attributes", "same"))
        found: Tensor = getattr(scene, question)(
            picture, torch.tensor([lexicon.place(words, step.argument)], device=device)
        )[0]
        found = found[:count]
        if step.op in ("relate", "same", "equal"):
            found = found[:, :count].clone()
            found.fill_diagonal_(-10)
        return found

    def one(logits: Tensor) -> Tensor:
        if scene.training:
            return logits.softmax(dim=0)
        chosen = torch.zeros_like(logits)
        chosen[logits.argmax()] = 1
        return chosen

    def number(logits: Tensor) -> Tensor:
        return logits.sigmoid().sum() if scene.training else (logits > 0).sum().to(logits)

    results: list[Tensor] = []
    for step in program:
        given: Any = [results[place] for place in step.inputs]
        if step.op == "scene":
            result = torch.full((count,), scene.scene_logit, device=device, dtype=scene.objects.dtype)
        elif step.op == "filter":
            result = torch.min(given[0], told(step))
        elif step.op in ("relate", "same", "query"):
            result = (one(given[0])[:, None] * told(step)).sum(dim=0)
        elif step.op == "equal":
            result = (one(given[0])[:, None] * told(step) * one(given[1])).sum()
        elif step.op in ("union", "or"):
            result = torch.max(*given)
        elif step.op in ("intersect", "and"):
            result = torch.min(*given)
        elif step.op == "not":
            result = -given[0]
        elif step.op == "exist":
            result = scene.exist(given[0].max()[None])[0]
        elif step.op == "count":
            result = number(given[0])
        else:
            first, second = (number(each) for each in (given[::-1] if step.op == "fewer" else given))
            if step.op == "as_many":
                soft, hard = (0.5 - (first - second).abs()) / 0.5 / 0.25, first == second
            else:
                soft, hard = (first - second - 1 + 0.5) / 0.25, first > second
            result = soft if scene.training else torch.where(hard, 10.0, -10.0).to(first)
        results.append(result)
    return results


QUESTIONS, LOOP, REGIONS = 256, 32, 8


def cases(bench: Bench) -> Iterator[Case]:
    for name in ("vcml", "nscl"):
        for training in (False, True):
            step = "training step" if training else "answers"
            yield Case(f"programs, {name.upper()}, {step}", partial(answer, bench, name, training))


def answer(bench: Bench, name: str, training: bool) -> Row:
    count = bench.size(QUESTIONS, 4)
    some = min(LOOP, count)
    torch.manual_seed(0)
    model = learner(name).to(bench.device).train(training)
    features, boxes = torch.randn(count, REGIONS, 128), torch.rand(count, REGIONS, 4)
    regions = RegionBatch(features, torch.ones(count, REGIONS, dtype=torch.bool), boxes).to(bench.device)
    dice = random.Random(0)
    programs = [random_program(dice, model.lexicon) for _ in range(count)]

    def learn(values: list[Tensor]) -> None:
        if training:
            model.zero_grad()
            torch.stack([value.sum() for value in values]).sum().backward()  # type: ignore[no-untyped-call]

    @torch.set_grad_enabled(training)
    def together() -> None:
        found = model.execute(regions, programs)
        learn([found.values, found.concepts])

    @torch.set_grad_enabled(training)
    def one_by_one() -> None:
        pictures = (regions.select([n]) for n in range(some))
        runs = (run_plainly(model.encode_scene(each), model.lexicon, programs[n], 0) for n, each in enumerate(pictures))
        learn([steps[-1] for steps in runs])

    spent = bench.best_of({"together": together, "one_by_one": one_by_one}, runs=5)
    steps = sum(map(len, programs)) / count
    return Row(
        name="",
        shape=f"{count} questions of {steps:.1f} steps, {REGIONS} regions",
        seconds=spent["together"],
        official_seconds=spent["one_by_one"] * count / some,
        targets=(Target("speedup", "≥", 20),) if name == "vcml" else (),
        note=f"against one question at a time, timed on {some}",
    )


def learner(name: str) -> ConceptLearner:
    """Forty concepts of four attributes, and eight relations."""
    concepts = tuple(f"concept{n}" for n in range(40))
    attributes = tuple((f"attribute{n}", *concepts[10 * n : 10 * n + 10]) for n in range(4))
    relations = tuple(f"relation{n}" for n in range(8))
    words = Vocabulary.build(concepts, min_count=1)
    if name == "vcml":
        return Vcml(VcmlConfig(concepts, attributes, relations, region_dim=128), words)
    return Nscl(NsclConfig(concepts, attributes, relations, region_dim=128), words)
