"""Parsing: what a question asks, as a program, learned from questions whose programs are known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of parsers: how many programs are the true ones, step by step, of all questions and of each kind."""
