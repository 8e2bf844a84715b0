"""Programs executed on the things of pictures, differentiably and for all questions of a batch at once (NS-CL, § 3).

A set of things is a logit for every region, and a step computes with logits:

    filter, intersect, and   min(x, y)                   union, or   max(x, y)                   not     −x
    relate, same             y_j = Σ_i p_i M_ij          query       Σ_i p_i q_ik                exist   max_i x_i
    equal                    Σ_ij p_i M_ij p'_j          count       n(x) = Σ_i σ(x_i)
    more                     (n(x) − n(y) − 1 + 2γ) / τ  as_many     (2γ − |n(x) − n(y)|) / 2γτ

p = softmax(x) is the one thing that a set is taken for, M the logits of a relation or of sharing an attribute (a thing
is not related to itself) and γ = τ = 1/4. In evaluation p is the likeliest thing alone, n(x) counts the logits above
zero and comparisons of numbers are ±10.

Steps that wait for nothing run first, then those that waited for them; within such a level all steps of the same kind
are one operation on rows of regions. What a model says of its regions is asked once for each picture and word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import Program
from saccade.core.errors import SaccadeError, did_you_mean

THINGS, TRUTH, NUMBER, CONCEPT = range(4)  # what a step may give
NAMES = ("things", "yes or no", "a number", "a concept")
ABSENT = -1e4  # the logit of padding: no probability is left of it, even in float64
ITSELF = -10.0  # the logit with which a thing is related to itself
CERTAIN = 10.0  # the logit of what was counted
MARGIN = TEMPERATURE = 0.25  # γ, τ
MISTAKEN = 10.0  # the loss of an answer of another kind than the program's
SMALLEST = -100.0  # of a truth: nothing at all exists in a picture without regions


class Kind(NamedTuple):
    """What a step takes and gives, and which words it knows."""

    inputs: tuple[int, ...]
    result: int
    words: str = ""


KINDS: dict[str, Kind] = {
    "scene": Kind((), THINGS),
    "filter": Kind((THINGS,), THINGS, "concepts"),
    "relate": Kind((THINGS,), THINGS, "relations"),
    "same": Kind((THINGS,), THINGS, "attributes"),
    "union": Kind((THINGS, THINGS), THINGS),
    "intersect": Kind((THINGS, THINGS), THINGS),
    "exist": Kind((THINGS,), TRUTH),
    "count": Kind((THINGS,), NUMBER),
    "query": Kind((THINGS,), CONCEPT, "attributes"),
    "equal": Kind((THINGS, THINGS), TRUTH, "attributes"),
    "more": Kind((THINGS, THINGS), TRUTH),
    "fewer": Kind((THINGS, THINGS), TRUTH),
    "as_many": Kind((THINGS, THINGS), TRUTH),
    "and": Kind((TRUTH, TRUTH), TRUTH),
    "or": Kind((TRUTH, TRUTH), TRUTH),
    "not": Kind((TRUTH,), TRUTH),
}
OPS = tuple(KINDS)
# what a `Scene` is asked, and the steps that need it
ASKED = {"concepts": ("filter",), "relations": ("relate",), "same": ("same", "equal"), "query": ("query",)}


@dataclass(frozen=True)
class Lexicon:
    """The words that programs may use."""

    concepts: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    _compiled: dict[Program, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def places(self) -> dict[str, dict[str, int]]:
        words = {"concepts": self.concepts, "attributes": self.attributes, "relations": self.relations}
        return {kind: {word: place for place, word in enumerate(given)} for kind, given in words.items()}

    def place(self, kind: str, word: str) -> int:
        """Raises: SaccadeError if there is no such word."""
        if word not in self.places[kind]:
            raise SaccadeError(
                f'"{word}" is none of the {kind} that the model knows{did_you_mean(word, self.places[kind])}'
            )
        return self.places[kind][word]

    def compiled(self, program: Program) -> np.ndarray:
        """Its steps as rows of numbers: op, level, two inputs (−1: none), the place of its word, what it gives.

        Raises: SaccadeError if the program is not one: an unknown step or word, or a step that takes something else.
        """
        if program not in self._compiled:
            if len(self._compiled) >= 1 << 16:
                self._compiled.clear()
            self._compiled[program] = self._compile(program)
        return self._compiled[program]

    def _compile(self, program: Program) -> np.ndarray:
        if not program:
            raise SaccadeError("a program without steps answers nothing")
        rows: list[tuple[int, ...]] = []
        for number, step in enumerate(program):
            if step.op not in KINDS:
                raise SaccadeError(f'there is no step "{step.op}"{did_you_mean(step.op, KINDS)} in programs')
            kind = KINDS[step.op]
            if not all(0 <= place < number for place in step.inputs):
                raise SaccadeError(f"step {number} ({step.op}) of a program must take results of steps before it")
            given = tuple(rows[place][5] for place in step.inputs)
            if given != kind.inputs:
                wanted, found = (
                    " and ".join(NAMES[each] for each in kinds) or "nothing" for kinds in (kind.inputs, given)
                )
                raise SaccadeError(f"step {number} ({step.op}) of a program takes {wanted}, not {found}")
            level = 1 + max((rows[place][1] for place in step.inputs), default=-1)
            word = self.place(kind.words, step.argument) if kind.words else 0
            rows.append((OPS.index(step.op), level, *(*step.inputs, -1, -1)[:2], word, kind.result))
        return np.array(rows, dtype=np.int64)


class Scene(Protocol):
    """What a model says of the regions of some pictures. `image` is the picture of every row."""

    mask: Bool[Tensor, "image region"]
    scene_logit: float  # of every thing, before anything is asked
    training: bool

    def concepts(self, image: Int[Tensor, " row"], concept: Int[Tensor, " row"]) -> Float[Tensor, "row region"]: ...

    def relations(
        self, image: Int[Tensor, " row"], relation: Int[Tensor, " row"]
    ) -> Float[Tensor, "row region region"]:
        """At [i, j], whether j is (left of) i."""
        ...

    def same(self, image: Int[Tensor, " row"], attribute: Int[Tensor, " row"]) -> Float[Tensor, "row region region"]:
        """Whether two regions share the attribute."""
        ...

    def query(self, image: Int[Tensor, " row"], attribute: Int[Tensor, " row"]) -> Float[Tensor, "row region concept"]:
        """Logits of all concepts as values of the attribute."""
        ...

    def exist(self, largest: Float[Tensor, " row"]) -> Float[Tensor, " row"]:
        """The truth of a set whose largest logit this is."""
        ...


@dataclass(frozen=True)
class Execution:
    """What programs gave, and every step on the way."""

    programs: tuple[Program, ...]
    kinds: np.ndarray  # of each answer: TRUTH, NUMBER, CONCEPT or THINGS
    values: Float[Tensor, " question"]  # the logit of yes, or the number; zero for other kinds
    concepts: Float[Tensor, "question concept"]  # the logits of a query; zero for other kinds
    lexicon: Lexicon
    pools: tuple[Tensor, Tensor, Tensor]  # the results of all steps: things, truths and numbers, concepts
    slots: tuple[np.ndarray, ...]  # for each question, the row of each of its steps in its pool

    def steps(self, question: int) -> list[Tensor]:
        """The result of each step: logits of the regions, of yes, or of the concepts, or a number."""
        program = self.programs[question]
        pools = [self.pools[POOL[KINDS[step.op].result]] for step in program]
        return [pool[int(slot)] for pool, slot in zip(pools, self.slots[question], strict=True)]

    def answers(self) -> list[str]:
        """As words: yes or no, a number, a concept; nothing where a program ends with things."""
        values, best = self.values.tolist(), self.concepts.argmax(dim=1).tolist()
        words: dict[int, list[str]] = {
            THINGS: [""] * len(values),
            TRUTH: ["yes" if value > 0 else "no" for value in values],
            NUMBER: [str(round(value)) for value in values],
            CONCEPT: [self.lexicon.concepts[place] for place in best] if self.lexicon.concepts else [],
        }
        return [words[kind][n] for n, kind in enumerate(self.kinds.tolist())]

    def losses(self, answers: Sequence[str]) -> Float[Tensor, " question"]:
        """−log σ(± logit) of a truth, |n − answer| of a number, −log softmax of a concept."""
        wanted, kinds = np.zeros(len(answers)), np.full(len(answers), -1)
        places = self.lexicon.places["concepts"]
        for n, answer in enumerate(answers):
            if answer in ("yes", "no"):
                kinds[n], wanted[n] = TRUTH, answer == "yes"
            elif answer.isdecimal():
                kinds[n], wanted[n] = NUMBER, int(answer)
            elif answer in places:
                kinds[n], wanted[n] = CONCEPT, places[answer]
        values, device = self.values, self.values.device
        target = torch.from_numpy(wanted).to(device, values.dtype)
        losses = torch.full_like(values, MISTAKEN)
        right = [torch.from_numpy((kinds == kind) & (self.kinds == kind)).to(device) for kind in range(4)]
        losses = torch.where(right[TRUTH], F.softplus(values) - values * target, losses)
        losses = torch.where(right[NUMBER], (values - target).abs(), losses)
        if self.concepts.shape[1]:
            chosen = (target * right[CONCEPT]).long()[:, None]
            words = -self.concepts.log_softmax(dim=1).gather(1, chosen)[:, 0]
            losses = torch.where(right[CONCEPT], words, losses)
        return losses


POOL = {THINGS: 0, TRUTH: 1, NUMBER: 1, CONCEPT: 2}


class _Pool:
    """Rows of results; what was added is put together when it is asked for."""

    def __init__(self, empty: Tensor) -> None:
        self.parts, self.count = [empty], 0

    def add(self, rows: Tensor) -> np.ndarray:
        self.parts.append(rows)
        self.count += len(rows)
        return np.arange(self.count - len(rows), self.count)

    def all(self) -> Tensor:
        if len(self.parts) > 1:
            self.parts = [torch.cat(self.parts)]
        return self.parts[0]


def execute(scene: Scene, lexicon: Lexicon, programs: Sequence[Program], images: Sequence[int]) -> Execution:
    """All programs; `images` has the picture of each.

    Raises: SaccadeError if one of them is no program, or is about a picture that is not there.
    """
    mask = scene.mask
    count, device = len(mask), mask.device
    if len(images) != len(programs) or not all(0 <= image < count for image in images):
        raise SaccadeError(f"{len(programs)} programs need as many pictures, numbered below {count}")
    tables = [lexicon.compiled(tuple(program)) for program in programs]
    sizes = np.array([len(table) for table in tables], dtype=np.int64)
    ends = np.cumsum(sizes)
    starts = np.repeat(ends - sizes, sizes)
    table = np.concatenate([*tables, np.zeros((0, 6), dtype=np.int64)])
    ops, levels, inputs, words = table[:, 0], table[:, 1], table[:, 2:4] + starts[:, None], table[:, 4]
    of_picture = np.repeat(np.asarray(images, dtype=np.int64), sizes)

    def index(numbers: np.ndarray) -> Int[Tensor, " row"]:
        return torch.from_numpy(np.ascontiguousarray(numbers)).to(device)

    facts: dict[str, Tensor] = {}
    fact_of = np.full(len(table), -1)
    for question, of in ASKED.items():
        steps = np.flatnonzero(np.isin(ops, [OPS.index(op) for op in of]))
        if not len(steps):
            continue
        asked, fact_of[steps] = np.unique(words[steps] * count + of_picture[steps], return_inverse=True)
        found = getattr(scene, question)(index(asked % count), index(asked // count))
        if found.dim() == 3 and question != "query":
            found = found.masked_fill(torch.eye(mask.shape[1], dtype=torch.bool, device=device), ITSELF)
        facts.update(dict.fromkeys(of, found))

    like = next(iter(facts.values())) if facts else mask.new_zeros(0, dtype=torch.get_default_dtype())
    all_things = torch.where(mask, scene.scene_logit, ABSENT).to(like.dtype)
    empty = (all_things[:0], like.new_zeros(0), like.new_zeros(0, len(lexicon.concepts)))
    pools = [_Pool(each) for each in empty]
    slots = np.zeros(len(table), dtype=np.int64)
    order = np.lexsort((ops, levels))
    starts_group = np.flatnonzero(np.diff(ops[order]) | np.diff(levels[order])) + 1
    for group in np.split(order, starts_group) if len(order) else ():
        op = OPS[ops[group[0]]]
        kind = KINDS[op]
        sources = zip(kind.inputs, inputs[group].T, strict=False)
        given = [pools[POOL[each]].all().index_select(0, index(slots[before])) for each, before in sources]
        if op == "scene":
            found = all_things.index_select(0, index(of_picture[group]))
        else:
            fact = facts[op].index_select(0, index(fact_of[group])) if op in facts else None
            found = _step(op, scene, given, fact)
            if op in ("relate", "same"):
                found = found.masked_fill(~mask[index(of_picture[group])], ABSENT)
        slots[group] = pools[POOL[kind.result]].add(found)

    last, kinds = slots[ends - 1], table[ends - 1, 5]
    results = [pool.all() for pool in pools]

    def answers(number: int) -> Tensor:
        """Of the programs that end in this pool; others read a row of zeros."""
        mine = np.array([POOL[kind] == number for kind in kinds.tolist()], dtype=bool)
        padded = torch.cat([results[number], results[number].new_zeros(1, *results[number].shape[1:])])
        return padded.index_select(0, index(np.where(mine, last, len(results[number]))))

    return Execution(
        programs=tuple(tuple(program) for program in programs),
        kinds=kinds,
        values=answers(1),
        concepts=answers(2),
        lexicon=lexicon,
        pools=(results[0], results[1], results[2]),
        slots=tuple(np.split(slots, ends[:-1])) if len(programs) else (),
    )


def _step(op: str, scene: Scene, given: list[Tensor], fact: Tensor | None) -> Tensor:
    first, second = (*given, given[0])[:2]
    match op:
        case "filter" | "intersect" | "and":
            return torch.minimum(first, second if fact is None else fact)
        case "union" | "or":
            return torch.maximum(first, second)
        case "not":
            return -first
        case "relate" | "same" | "query":
            assert fact is not None
            return torch.bmm(one_thing(first, scene.training)[:, None], fact)[:, 0]
        case "equal":
            assert fact is not None
            sharing = torch.bmm(one_thing(first, scene.training)[:, None], fact)[:, 0]
            return (sharing * one_thing(second, scene.training)).sum(dim=1)
        case "exist":
            return scene.exist(F.pad(first, (0, 1), value=SMALLEST).max(dim=1).values)
        case "count":
            return counted(first, scene.training)
    if op == "fewer":
        first, second = second, first
    difference = counted(first, scene.training) - counted(second, scene.training)
    if op == "as_many":
        if not scene.training:
            return torch.where(difference == 0, CERTAIN, -CERTAIN).to(first.dtype)
        return (2 * MARGIN - difference.abs()) / (2 * MARGIN) / TEMPERATURE
    if not scene.training:
        return torch.where(difference > 0, CERTAIN, -CERTAIN).to(first.dtype)
    return (difference - 1 + 2 * MARGIN) / TEMPERATURE


def one_thing(logits: Float[Tensor, "row region"], training: bool) -> Float[Tensor, "row region"]:
    """p: in evaluation all of it is the likeliest's."""
    if training or not logits.shape[1]:
        return logits.softmax(dim=1)
    return F.one_hot(logits.argmax(dim=1), logits.shape[1]).to(logits.dtype)


def counted(logits: Float[Tensor, "row region"], training: bool) -> Float[Tensor, " row"]:
    return logits.sigmoid().sum(dim=1) if training else (logits > 0).sum(dim=1).to(logits.dtype)
