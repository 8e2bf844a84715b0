"""`saccade explain`: why a picture fits a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli.device import Device
from saccade.cli.score import MODEL_HELP


def explain(
    picture: Annotated[Path, typer.Argument(help="A picture file.")],
    text: Annotated[str, typer.Argument(help="The sentence.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help=MODEL_HELP)] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to draw it: .png, .jpg, .webp, or .html.")] = Path(
        "why.png"
    ),
    device: Device = "cpu",
) -> None:
    """Draw which part of the picture each word found.

    Without --model, the run in runs/scan is asked, or else the matcher for photographs that comes with the package.

    Example: saccade explain holiday.jpg "two dogs run on the grass"

    Example: saccade explain scene.png "a red cube left of a blue ball" --model runs/scan -o why.png
    """
    from saccade.api import load
    from saccade.cli.score import default_model, report_unknown

    matcher = load(model or default_model(), device)
    report_unknown(matcher.model.vocabulary, [text])
    explanation = matcher.explain(picture, text)
    explanation.save(out)
    typer.echo(f"score {explanation.score:.3f}; the picture is in {out}")
