"""Functional programs: what a question asks, as steps over the things of a picture."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Step(NamedTuple):
    """One step: what it does, to the results of which earlier steps, and with what word.

    | op | inputs → result | argument |
    |---|---|---|
    | scene | → all things | |
    | filter | things → things | a concept: red, cube, large, metal |
    | relate | one thing → things | a relation: left of |
    | same | one thing → the other things that share it | an attribute: colour |
    | union, intersect | things, things → things | |
    | exist | things → yes or no | |
    | count | things → a number | |
    | query | one thing → a concept | an attribute: colour, kind, size, material |
    | equal | thing, thing → yes or no | an attribute |
    | more, fewer, as_many | things, things → yes or no | |
    | and, or, not | yes or no (, yes or no) → yes or no | |
    """

    op: str
    inputs: tuple[int, ...] = ()  # positions of earlier steps
    argument: str = ""


Program: TypeAlias = tuple[Step, ...]  # its last step gives the answer
