"""Referring: which of several boxes an expression or a dialog means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of referrers: how often the right box is chosen, in per cent, of all texts and of each kind, beside a box drawn
    at random. --proposed is for them.
    """

    proposed: bool = False
