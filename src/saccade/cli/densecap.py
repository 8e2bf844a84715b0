"""`saccade densecap`: a phrase for every part of a photo that is worth one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from saccade.cli.device import Device
from saccade.cli.faults import report_broken
from saccade.cli.region_drawings import MANY, ONE, listed_photos, save_drawings, tell_where

if TYPE_CHECKING:
    from PIL import Image

    from saccade.data.store.manifest import Broken
    from saccade.explain.panels.regions import RegionPicture
    from saccade.tasks import DensePhrase

BATCH = 8  # photos of any size in memory at a time


def densecap(
    photos: Annotated[list[Path], typer.Argument(metavar="PHOTO...", help="Photos, or folders of them.")],
    model: Annotated[
        Path,
        typer.Option("--model", "-m", help="A run or model folder of a dense captioner (`saccade train densecap …`)."),
    ] = Path("runs/densecap"),
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Where to draw boxes and phrases: .png, .jpg or .webp; several photos become one contact sheet.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Write every region's phrase, score and box (in pixels) to this file."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many regions of a photo are told, the surest first.")] = 20,
    least: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Regions that the model is less sure of are not told.")
    ] = 0.1,
    beam: Annotated[
        int, typer.Option(min=1, help="Sentences followed at once; 1 takes the likeliest word each time.")
    ] = 1,
    device: Device = "cpu",
) -> None:
    """Find the parts of a photo that are worth a phrase, and say one of each.

    The score is how sure the model is that a box holds something to speak of; boxes that overlap a surer one are left
    out. A photo that cannot be read is told on standard error; the others are described, and the exit code is 2.

    Example: saccade densecap holiday.jpg --model runs/densecap -o phrases.png --json phrases.json
    """
    from saccade.core.files import check_writable, write_json
    from saccade.decoding import DecodingConfig
    from saccade.explain.draw.marks import check_format
    from saccade.models import DenseCap, load_model

    if out is not None:
        check_format(out, "a picture of phrases")
    files = listed_photos(photos)
    check_writable(out, json_file)
    speaker = load_model(model, DenseCap).to(device)
    decoding = DecodingConfig(how="beam" if beam > 1 else "greedy", beam=beam, longest=16)
    told, broken = tell(speaker, files, top, least, decoding)
    console = Console()
    for photo in told:
        console.print(photo.table())
    if json_file is not None and told:
        write_json(json_file, [photo.facts(str(model)) for photo in told])
        typer.echo(f"the phrases are in {json_file}")
    if out is not None and told:
        save_drawings([photo.drawing for photo in told], out, 0)
        tell_where(out, len(told))
    report_broken(broken, len(files))


class ToldPhoto:
    """A photo file, its size in pixels, and what was said of its parts."""

    def __init__(self, file: Path, size: tuple[int, int], regions: list[DensePhrase], drawing: RegionPicture) -> None:
        self.file, (self.width, self.height), self.regions, self.drawing = file, size, regions, drawing

    def boxes(self) -> list[list[float]]:
        """In pixels."""
        scale = (self.width, self.height, self.width, self.height)
        return [[round(side * length, 1) for side, length in zip(r.box, scale, strict=True)] for r in self.regions]

    def facts(self, model: str) -> dict[str, Any]:
        regions = [
            {"phrase": region.phrase, "score": round(region.score, 4), "box": box}
            for region, box in zip(self.regions, self.boxes(), strict=True)
        ]
        size = {"width": self.width, "height": self.height}
        return {"photo": str(self.file), "model": model, **size, "regions": regions}

    def table(self) -> Table:
        table = Table(title=Text(f"{self.file.name}  {self.width} × {self.height}", "bold"), title_justify="left")
        table.add_column("phrase", overflow="fold")
        table.add_column("score", justify="right")
        table.add_column("box: x1, y1, x2, y2", justify="right")
        for region, box in zip(self.regions, self.boxes(), strict=True):
            table.add_row(escape(region.phrase), f"{region.score:.2f}", ", ".join(f"{side:.0f}" for side in box))
        return table


def tell(model: Any, files: list[Path], top: int, least: float, decoding: Any) -> tuple[list[ToldPhoto], list[Broken]]:
    """The phrases of each photo, and what could not be read."""
    from saccade.core.progress import progress_bar
    from saccade.tasks import describe

    found: list[ToldPhoto] = []
    broken: list[Broken] = []
    side = ONE if len(files) == 1 else MANY
    with progress_bar("describing") as bar:
        for start in range(0, len(files), BATCH):
            part, pictures = _opened(files[start : start + BATCH], broken)
            bar(len(found) + len(broken), len(files))
            if not part:
                continue
            described = describe(model, _pixels(pictures, model.config.size), top, decoding)
            phrases = [[region for region in regions if region.score >= least] for regions in described]
            sizes = [picture.size for picture in pictures]
            for picture in pictures:
                picture.thumbnail((side, side))
            found += [
                ToldPhoto(*told) for told in zip(part, sizes, phrases, map(_draw, pictures, phrases, part), strict=True)
            ]
            bar(len(found) + len(broken), len(files))
    return found, broken


def _opened(files: list[Path], broken: list[Broken]) -> tuple[list[Path], list[Image.Image]]:
    """The files that hold pictures, and these; the others join the broken ones."""
    from saccade.core.errors import SaccadeError
    from saccade.data.store.manifest import Broken
    from saccade.vision import open_picture

    read: dict[Path, Image.Image] = {}
    for file in files:
        try:
            read[file] = open_picture(file)
        except SaccadeError as error:
            broken.append(Broken(file.name, str(file), str(error)))
    return list(read), list(read.values())


def _pixels(pictures: list[Image.Image], size: int) -> Any:
    import numpy as np
    import torch

    from saccade.batch import PictureBatch
    from saccade.vision.pictures import as_array

    return PictureBatch(torch.from_numpy(np.stack([as_array(picture, size=size) for picture in pictures])))


def _draw(picture: Image.Image, regions: list[DensePhrase], file: Path) -> RegionPicture:
    import numpy as np

    from saccade.explain.panels.regions import RegionPicture

    boxes = np.array([region.box for region in regions], dtype=np.float64).reshape(-1, 4)
    labels, scores = tuple(region.phrase for region in regions), np.array([region.score for region in regions])
    return RegionPicture(np.asarray(picture), boxes, labels, scores, file.name)
