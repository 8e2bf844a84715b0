"""Image–text matching: which pictures belong to which sentences, by a score for every pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class EvalOptions:
    """Of matchers: Recall@1, 5, 10 from pictures to texts and from texts to pictures, beside chance. --folds, --quick,
    --ensemble, --raw and --weights are for them; --raw and --weights, ways of averaging, imply --ensemble.
    """

    folds: Annotated[int, typer.Option(help="Cut the pictures into so many folds and average (COCO 1K: 5).")] = 1
    ensemble: Annotated[
        bool,
        typer.Option("--ensemble", help="Also average the models' similarities, each brought to the same spread."),
    ] = False
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Average the similarities as they are, as VSRN's and GSMN's papers do."),
    ] = False
    weights: Annotated[
        str | None, typer.Option(metavar="2,1", help="How much each model counts in the average; equally if not given.")
    ] = None
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Two-stage scoring on a GPU: all pairs in 16 bits, then in float32 those that a rank depends on. The "
            "same recalls, sooner.",
        ),
    ] = False
