"""Visual question answering: a picture, a question, and the answers that a model finds likeliest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of answerers: accuracy in per cent, of all questions and of each kind; VQA accuracy where several people answered
    a question. --wups and --answers are for them.
    """

    wups: bool = False
    answers: Path | None = None
