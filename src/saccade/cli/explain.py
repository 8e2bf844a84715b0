"""`saccade explain`: why a picture fits a sentence, or why a captioner says it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli.device import Device
from saccade.cli.score import MODEL_HELP
from saccade.core.errors import SaccadeError


def explain(
    picture: Annotated[Path, typer.Argument(help="A picture file.")],
    text: Annotated[
        str | None,
        typer.Argument(help="The sentence. A captioner may be asked without one: it then explains its own."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help=MODEL_HELP)] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to draw it: .png, .jpg, .webp, or .html.")] = Path(
        "why.png"
    ),
    device: Device = "cpu",
) -> None:
    """Draw which part of the picture each word found, or came from.

    Without --model, the run in runs/scan is asked, or else the matcher for photographs that comes with the package. A
    captioner draws where it looked for each word of its own caption, or where it would look if it had to say TEXT;
    `saccade caption --attention` does the first for many photos, with all options of decoding.

    Example: saccade explain holiday.jpg "two dogs run on the grass"

    Example: saccade explain scene.png "a red cube left of a blue ball" --model runs/scan -o why.png

    Example: saccade explain holiday.jpg --model runs/updown
    """
    from saccade.api import PictureCaptioner, PictureMatcher, load
    from saccade.cli.score import default_model, report_unknown
    from saccade.explain import save_explanation

    asked: PictureMatcher | PictureCaptioner = load(model or default_model(), device)
    if text is not None:
        report_unknown(asked.model.vocabulary, [text])
    if isinstance(asked, PictureCaptioner):
        explanation = asked.explain(picture, text)
        said = "" if text is not None else f"{' '.join(explanation.words)}\n"
        told = f"{said}log-probability {explanation.score:.2f}"
    elif text is None:
        raise SaccadeError("a matcher explains why a picture fits a sentence: give one after the picture")
    else:
        explanation = asked.explain(picture, text)
        told = f"score {explanation.score:.3f}"
    save_explanation(explanation, out)
    typer.echo(f"{told}; the picture is in {out}")
