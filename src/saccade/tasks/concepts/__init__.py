"""Concept learning: questions as programs that are executed on a picture, and questions about concepts themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of concept learners: accuracy in per cent of all questions, of each kind, and of each metaconcept."""
