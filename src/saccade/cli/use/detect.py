"""`saccade detect`: what an extractor finds in a photo."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from saccade.cli.options import (
    SIDE_ALONE,
    SIDE_ON_SHEET,
    Device,
    check_outputs,
    escape,
    listed_photos,
    print_where,
    report_broken,
    save_drawings,
    without_broken,
)
from saccade.core.text import escaped

if TYPE_CHECKING:
    import numpy as np

    from saccade.data.store.manifest import Broken
    from saccade.explain.panels.regions import RegionPicture
    from saccade.vision import RegionExtractor


BATCH_PHOTOS = 16


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

    A photo that cannot be read is reported on standard error; the others go on, and the exit code is 2.

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
    files = listed_photos(photos)
    found, broken = without_broken(detect_regions(load_extractor(extractor, device), files), "detecting", len(files))
    if not found:
        report_broken(broken, len(files))
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
    report_broken(broken, len(files))


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
        title = Text(f"{escaped(self.file.name)}  {self.width} × {self.height}", "bold")
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


def detect_regions(extractor: RegionExtractor, files: list[Path]) -> Iterator[DetectedPhoto | Broken]:
    """What the extractor finds in each photo; an extractor without names gives regions without labels."""
    import numpy as np

    from saccade.explain.panels.regions import MAX_SHEET_PHOTOS, RegionPicture
    from saccade.features.decoding import ShownPhoto, open_shown

    side, drawn_count = (SIDE_ALONE if len(files) == 1 else SIDE_ON_SHEET), 0
    with closing(open_shown(files, extractor.prepare, side, BATCH_PHOTOS)) as opened:
        while batch := list(islice(opened, BATCH_PHOTOS)):
            photos = [photo for photo in batch if isinstance(photo, ShownPhoto)]
            regions = iter(_find_regions(extractor, [photo.pixels for photo in photos]))
            for photo in batch:
                if not isinstance(photo, ShownPhoto):
                    yield photo
                    continue
                drawn_count += 1
                picture = photo.picture if drawn_count <= MAX_SHEET_PHOTOS else np.zeros((1, 1, 3), np.uint8)
                drawing = RegionPicture(picture, *next(regions), photo.file.name)
                yield DetectedPhoto(photo.file, photo.width, photo.height, drawing)


def _find_regions(
    extractor: RegionExtractor, pictures: list[np.ndarray]
) -> list[tuple[np.ndarray, tuple[str, ...], np.ndarray | None]]:
    """Boxes, labels and scores of each picture."""
    import numpy as np

    if extractor.has_names:
        return [
            (
                np.array([region.box for region in regions]).reshape(-1, 4),
                tuple(region.text for region in regions),
                np.array([region.score for region in regions]),
            )
            for regions in extractor.describe(pictures)
        ]
    batch = extractor.extract(pictures)
    return [
        (boxes[real].double().numpy(), (), None if batch.scores is None else batch.scores[i][real].double().numpy())
        for i, (boxes, real) in enumerate(zip(batch.boxes, batch.mask, strict=True))
    ]
