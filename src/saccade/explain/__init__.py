"""Explanations: alignments turned into pictures and pages that show which word looks at which part of a picture."""

from saccade.explain.explanation import Explanation

__all__ = ["Explanation"]
