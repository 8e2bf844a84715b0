"""`saccade explain`: why a picture fits a sentence, or why a captioner says it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli.options import Device, ModelOption, default_model, report_unknown


def explain(
    picture: Annotated[Path, typer.Argument(help="A picture file.")],
    text: Annotated[
        str | None,
        typer.Argument(help="The sentence. A captioner may be asked without one: it then explains its own."),
    ] = None,
    model: ModelOption = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to draw it: .png, .jpg, .webp, or .html.")] = Path(
        "why.png"
    ),
    device: Device = "auto",
) -> None:
    """Draw which part of the picture each word found, or came from.

    Without --model, the run in runs/scan is asked, or else the matcher for photographs that comes with the package. A
    captioner draws where it looked for each word of its own caption, or where it would look if it had to say TEXT;
    `saccade caption --attention` does the first for many photos, with all options of decoding.

    Example: saccade explain holiday.jpg "two dogs run on the grass"

    Example: saccade explain scene.png "a red cube left of a blue ball" --model runs/scan -o why.png

    Example: saccade explain holiday.jpg --model runs/updown
    """
    from saccade.tasks.predict import load

    predictor = load(model or default_model(), device)
    if text is not None:
        report_unknown(predictor.model.vocabulary, [text])
    explanation = predictor.explain(picture, text)
    told = f"log-probability {explanation.score:.2f}" if explanation.generated else f"score {explanation.score:.3f}"
    own = f"{' '.join(explanation.words)}\n" if text is None else ""
    explanation.save(out)
    typer.echo(f"{own}{told}; the picture is in {out}")
