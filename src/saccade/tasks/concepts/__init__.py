"""Concept learning: questions as programs that are executed on a picture, and questions about concepts themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of concept learners: accuracy in per cent of all questions, of each kind, and of each metaconcept.
    Programs are the true ones, or with --parser those that a trained parser makes of the questions.
    """

    parser: str | None = None
