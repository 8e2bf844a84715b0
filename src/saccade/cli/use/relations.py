"""`saccade relations`: photos in which something stands in a relation to something, seen in training or not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from saccade.cli.options import (
    Device,
    default_model,
    escape,
    listed_photos,
    report_broken,
    say,
    without_broken,
)
from saccade.core.errors import SaccadeError
from saccade.core.text import plain_number

if TYPE_CHECKING:
    from saccade.tasks.relations.predict import FoundPhoto

MAX_DRAWN = 12  # photos


def relations(
    photos: list[Path],
    text: str,
    *,
    model: str | None = None,
    out: Path | None = None,
    top: int = 9,
    as_json: bool = False,
    device: Device = "auto",
) -> None:
    """Find photos in which a thing does something to another, and say how the model knows what that looks like.

    Photos are ranked by their best pair of boxes. For a combination that training never showed, the known triplets that
    stand in for it are printed with their weights. A photo that cannot be read is reported on standard error; the
    others go on, and the exit code is 2.

    Example: saccade relations photos/ "person riding horse" -o found.png

    Example: saccade relations photos/ "dog riding boat" --model runs/analogy -o found.png
    """
    from saccade.explain.draw import check_format
    from saccade.tasks.predict import load
    from saccade.tasks.relations.predict import RelationFinder

    if out is not None:
        check_format(out, "a relation")
    model = model or default_model("runs/analogy", "analogy-flickr8k")
    files = listed_photos(photos)
    if not files:
        raise SaccadeError(f"{photos[0]} holds no pictures to look at")
    finder = load(model, device, kind=RelationFinder)
    words, sources = finder.model.named(finder.triplet(text)), finder.sources(text)
    looked, broken = without_broken(finder.find_in_files(files, text, model), "looking", len(files))
    found = sorted((photo for photo in looked if photo is not None), key=lambda photo: -photo.pair.probability)
    found = found[:top] if top else found
    if as_json and looked:
        seen = finder.model.counts.get(finder.triplet(text), 0)
        facts = {"triplet": words, "seen": seen, "sources": [asdict(one) for one in sources]}
        typer.echo(json.dumps({**facts, "photos": [photo.facts() for photo in found]}, ensure_ascii=False))
    elif looked:
        say(f"{' '.join(words)}: {finder.reason(text)}")
        for one in sources:
            say(f"{one.weight:7.3f}  {' '.join(one.triplet)}  (similarity {one.similarity:.2f})")
        if found:
            Console().print(_pair_table(found, words))
        else:
            say("no photo has two regions that could be a pair")
    if out is not None and found:
        finder.sheet(found[:MAX_DRAWN], text).save(out)
        say(f"the picture is in {out}", err=as_json)
    report_broken(broken, len(files))


def _pair_table(found: Sequence[FoundPhoto], words: tuple[str, str, str]) -> Table:
    table = Table()
    table.add_column("photo", overflow="fold")
    for heading in ("score", words[0], words[2]):
        table.add_column(escape(heading), justify="right")
    for photo in found:
        shown = photo.facts()
        boxes = (", ".join(f"{v:.0f}" for v in shown[key]) for key in ("subject_box", "object_box"))
        table.add_row(escape(photo.path.name), plain_number(photo.pair.probability), *boxes)
    return table
