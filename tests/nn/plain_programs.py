"""Programs for tests, and a plain executor of one program at a time."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from saccade.batch import Program, Step
from saccade.nn.programs import Lexicon, Scene

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


def run_plainly(scene: Scene, lexicon: Lexicon, program: Program, image: int) -> list[Tensor]:
    """Step by step, on the picture's real regions alone: the results of all steps."""
    count = int(scene.mask[image].sum())
    picture = torch.tensor([image])
    kinds = {"filter": ("concepts", "concepts"), "relate": ("relations", "relations"), "query": ("attributes", "query")}

    def told(step: Step) -> Tensor:
        words, question = kinds.get(step.op, ("attributes", "same"))
        found: Tensor = getattr(scene, question)(picture, torch.tensor([lexicon.place(words, step.argument)]))[0]
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
            result = torch.full((count,), scene.scene_logit, dtype=torch.float64)
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
