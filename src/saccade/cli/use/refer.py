"""`saccade refer`: the thing in a photo that an expression or a dialog means."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from saccade.cli.options import GROUNDER, REFERRER, Device, default_model, is_shipped, report_unknown, say
from saccade.core.errors import SaccadeError
from saccade.core.text import escaped

if TYPE_CHECKING:
    from saccade.data.records import Spoken
    from saccade.language import Vocabulary


def refer(
    photo: Path,
    expression: str | None = None,
    *,
    dialog: str | None = None,
    model: str | None = None,
    boxes: Path | None = None,
    detector: str | None = None,
    out: Path | None = None,
    top: int = 5,
    as_json: bool = False,
    device: Device = "auto",
) -> None:
    """Find the thing in a photo that an expression or a dialog means.

    Without --model the package's referrer is asked, and its grounder along with it.

    Candidates are what a detector finds, or boxes of your own. They are ranked by how likely each is meant, with
    their boxes (x1, y1, x2, y2) in pixels; the drawing dims those that are not. A dialog is a question with its answer
    on each line; from the terminal (`--dialog -`) every turn is answered at once with what is left, and an empty line
    ends it. Its drawing has a panel after every turn.

    Example: saccade refer photo.jpg "the man in the red shirt" -o which.png

    Example: saccade refer scene.png "the second cup from the left" --model runs/plan -o which.png

    Example: saccade refer photo.jpg --dialog turns.txt --model runs/plan -o turns.png
    """
    import sys

    from saccade.core.files import check_writable
    from saccade.explain.draw import check_format
    from saccade.tasks.grounding.predict import PictureGrounder
    from saccade.tasks.predict import load
    from saccade.tasks.referring.dialog import as_turn, read_dialog
    from saccade.tasks.referring.predict import PictureReferrer, given_boxes
    from saccade.vision.boxes import in_pixels
    from saccade.vision.pictures import open_sized

    if (expression is None) == (dialog is None):
        raise SaccadeError(
            "give either an expression after the photo, or a dialog with --dialog FILE (- for the terminal)"
        )
    check_writable(out)
    if out is not None:
        check_format(out, "a picture of what is meant")
    turns = () if dialog in (None, "-") else read_dialog(Path(dialog))
    name = model or default_model("runs/plan", REFERRER)
    referrer = load(name, device, kind=PictureReferrer)
    if name == REFERRER and is_shipped(GROUNDER):
        referrer.grounder = load(GROUNDER, device, kind=PictureGrounder)
    candidates = (
        referrer.candidates(photo, detector) if boxes is None else referrer.given(photo, given_boxes(boxes, photo))
    )
    if dialog == "-":
        told = list[str]()
        say(f"{len(candidates.boxes)} candidates; a question and its answer a line, an empty line ends", err=True)
        for line in sys.stdin:
            if not line.strip():
                break
            try:
                told.append(as_turn(line, "left out"))
            except SaccadeError as error:
                say(f"note: {error}", err=True)
                continue
            left = [found for found in referrer.refer(photo, tuple(told), candidates) if found.probability >= 0.1]
            names = ", ".join(f"{found.name or 'box'} {100 * found.probability:.0f} %" for found in left)
            say(f"after {len(told)}: {names}", err=True)
        turns = tuple(told)
    text = expression if expression is not None else turns
    _report_unread(referrer.model.vocabulary, text)
    found, size = referrer.refer(photo, text, candidates)[: top or None], open_sized(photo)[1]
    if as_json:
        rows = [{**asdict(one), "box": in_pixels(one.box, size)} for one in found]
        typer.echo(json.dumps(rows, ensure_ascii=False))
    else:
        for number, one in enumerate(found, start=1):
            place = ", ".join(f"{side:.0f}" for side in in_pixels(one.box, size))
            typer.echo(f"{number:3d}  {100 * one.probability:5.1f} %  {escaped(one.name or 'box')}  ({place})")
    if out is not None:
        referrer.show(photo, text, candidates).save(out)
        typer.echo(f"the picture is in {out}", err=as_json)


def _report_unread(vocabulary: Vocabulary, text: Spoken) -> None:
    """Say on standard error which words, and which turns of a dialog, the model cannot read.

    Raises: SaccadeError if it can read none.
    """
    from saccade.tasks.referring.dialog import learned_dialogs, turn_phrase

    if isinstance(text, str) or learned_dialogs(vocabulary):
        report_unknown(vocabulary, [text] if isinstance(text, str) else list(text))
        return
    phrases = {turn: turn_phrase(turn, vocabulary)[0] for turn in text}
    if phrases and not any(phrases.values()):
        raise SaccadeError("the model learned no dialogs, and finds no phrase that it knows in any turn of this one")
    report_unknown(vocabulary, [phrase for phrase in phrases.values() if phrase])
    for turn in (turn for turn, phrase in phrases.items() if not phrase):
        say(f'note: "{turn}" changes nothing: the model finds no phrase in it that it knows', err=True)
