"""`saccade moment`: when in a video something happens."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer

from saccade.cli.options import Device, default_model, report_unknown, say


def moment(
    video: Path,
    text: str,
    *,
    model: str | None = None,
    out: Path | None = None,
    cut: Path | None = None,
    top: int = 5,
    rate: float | None = None,
    as_json: bool = False,
    device: Device = "auto",
) -> None:
    """Find when in a video happens what a sentence says.

    The best moments are listed, those that overlap a better one left out. The drawing is a film strip with the moments,
    and below it how well each piece of the video fits. Without --model, the run in runs/drn is used, or else the
    matcher for photographs that comes with the package looks at the frames: it works on any video at once, and knows
    what is to be seen in a frame, not what moves.

    Example: saccade moment holiday.mp4 "two dogs run on the grass" -o when.png

    Example: saccade moment kitchen.mp4 "a person opens the fridge" --model runs/drn --cut fridge.mp4
    """
    from saccade.core.files import check_writable
    from saccade.explain.draw import check_format
    from saccade.explain.panels.film import clock
    from saccade.tasks.moments.predict import moment_searcher
    from saccade.vision.videos.cut import check_cut, cut_video

    if out is not None:
        check_format(out, "a film strip")
    if cut is not None:
        check_cut(cut)
    check_writable(out)
    check_writable(cut)
    searcher = moment_searcher(model or default_model("runs/drn"), device, rate)
    report_unknown(searcher.model.vocabulary, [text])
    found = searcher.search(video, text)
    moments = found.moments(top)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in moments]))
    else:
        for number, one in enumerate(moments, start=1):
            typer.echo(f"{number:3d}  {clock(one.start):>9} to {clock(one.end):>9}  {one.score:6.2f}")
    if out is not None:
        found.strip(video, top, text).save(out)
        say(f"the film strip is in {out}", err=as_json)
    if cut is not None:
        cut_video(video, cut, moments[0].start, moments[0].end)
        say(f"the best moment is in {cut}", err=as_json)
