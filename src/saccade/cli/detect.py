"""`saccade detect`: what an extractor finds in a photo."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from saccade.cli.options import (
    SIDE_ALONE,
    SIDE_ON_SHEET,
    Device,
    check_outputs,
    listed_photos,
    print_where,
    save_drawings,
)

if TYPE_CHECKING:
    from saccade.explain.panels.regions import RegionPicture
    from saccade.vision import RegionExtractor


BATCH_PHOTOS = 16  # of any size, in memory at a time


def detect(
    photos: list[Path],
    *,
    extractor: str = "bottomup",
    out: Path | None = None,
    top: int | None = None,
    as_json: bool = False,
    device: Device = "auto",
) -> None:
    """Draw and list the regions an extractor finds in your photos: names, confidence, and place in pixels.

    Example: saccade detect holiday.jpg --extractor bottomup -o regions.png
    """
    from saccade.explain.draw import check_format
    from saccade.explain.panels.regions import NAMED_ON_SHEET
    from saccade.vision import load_extractor

    if out is None and not as_json:
        out = Path("regions.png")
        check_outputs({"photos": photos, "out": out}, ("out",))
    if out is not None:
        check_format(out, "a picture of regions")
    found = detect_regions(load_extractor(extractor, device), listed_photos(photos))
    if out is not None:
        save_drawings([photo.drawing for photo in found], out, top)
    if as_json:
        facts = [photo.facts(extractor, 0 if top is None else top) for photo in found]
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        console = Console()
        for photo in found:
            surest = NAMED_ON_SHEET if top is None and len(found) > 1 and photo.drawing.labels else top
            console.print(photo.table(surest))
    if out is not None:
        print_where(out, len(found), err=as_json)


@dataclass(frozen=True)
class DetectedPhoto:
    """A photo file, its size in pixels, and what was found in it."""

    file: Path
    width: int
    height: int
    drawing: RegionPicture  # of the photo made smaller, so that a folder of large ones fits into memory

    def regions(self, top: int | None) -> list[dict[str, Any]]:
        """Each region with its number, label, score and box in pixels, the surest first."""
        labels, scores = self.drawing.labels, self.drawing.scores
        boxes = self.drawing.boxes * (self.width, self.height, self.width, self.height)
        return [
            {
                "region": i + 1,
                "label": (labels[i] or None) if labels else None,
                "score": None if scores is None else round(float(scores[i]), 4),
                "box": [round(float(v), 1) for v in boxes[i]],
            }
            for i in self.drawing.best(top)
        ]

    def facts(self, extractor: str, top: int | None) -> dict[str, Any]:
        """The photo as JSON."""
        size = {"width": self.width, "height": self.height}
        return {"photo": str(self.file), "extractor": extractor, **size, "regions": self.regions(top)}

    def table(self, top: int | None) -> Table:
        regions = self.regions(top)
        title = Text(f"{self.file.name}  {self.width} × {self.height}", "bold")
        table = Table(title=title, title_justify="left")
        table.add_column("region", justify="right")
        if self.drawing.labels:
            table.add_column("label", overflow="fold")
        if self.drawing.scores is not None:
            table.add_column("score", justify="right")
        table.add_column("box: x1, y1, x2, y2", justify="right")
        for region in regions:
            cells = [str(region["region"])]
            nameless = "the whole picture" if self.drawing.is_whole[region["region"] - 1] else "–"
            cells += [escape(region["label"] or nameless)] if self.drawing.labels else []
            cells += [f"{region['score']:.2f}"] if self.drawing.scores is not None else []
            table.add_row(*cells, ", ".join(f"{v:.0f}" for v in region["box"]))
        if len(regions) < len(self.drawing.boxes):
            table.caption = f"and {len(self.drawing.boxes) - len(regions)} more (--top 0 shows all)"
        return table


def detect_regions(extractor: RegionExtractor, files: list[Path]) -> list[DetectedPhoto]:
    """What the extractor finds in each photo; an extractor without names gives regions without labels."""
    import numpy as np
    from rich.progress import track

    from saccade.core.threads import ahead, openers
    from saccade.explain.panels.regions import MAX_SHEET_PHOTOS, RegionPicture
    from saccade.vision import open_picture

    found: list[DetectedPhoto] = []
    starts = range(0, len(files), BATCH_PHOTOS)
    for start in track(starts, "detecting", console=Console(stderr=True), transient=True, disable=len(starts) < 2):
        pictures = list(ahead(open_picture, files[start : start + BATCH_PHOTOS], openers(), BATCH_PHOTOS))
        scores: list[np.ndarray | None]
        if extractor.has_names:
            named = extractor.describe(pictures)
            boxes = [np.array([r.box for r in regions]).reshape(-1, 4) for regions in named]
            labels = [tuple(r.text for r in regions) for regions in named]
            scores = [np.array([r.score for r in regions]) for regions in named]
        else:
            batch = extractor.extract(pictures)
            real = [mask.nonzero()[:, 0] for mask in batch.mask]
            boxes = [batch.boxes[i][r].double().numpy() for i, r in enumerate(real)]
            labels = [() for _ in pictures]
            scores = [None if batch.scores is None else batch.scores[i][r].double().numpy() for i, r in enumerate(real)]
        for i, picture in enumerate(pictures):
            width, height = picture.size
            side = (
                SIDE_ALONE if len(files) == 1 else (SIDE_ON_SHEET if start + i < MAX_SHEET_PHOTOS else 1)
            )  # what no sheet will show
            picture.thumbnail((side, side))
            drawing = RegionPicture(np.asarray(picture), boxes[i], labels[i], scores[i], files[start + i].name)
            found.append(DetectedPhoto(files[start + i], width, height, drawing))
    return found
