"""`saccade densecap`: a phrase for every part of a photo that is worth one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from saccade.cli.options import Device
from saccade.cli.photos import SIDE_ALONE, SIDE_ON_SHEET, listed_photos, print_where, report_broken, save_drawings

if TYPE_CHECKING:
    from saccade.tasks.dense_captioning.predict import DescribedPhoto


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
    num_beams: Annotated[
        int, typer.Option(min=1, help="Sentences followed at once; 1 takes the likeliest word each time.")
    ] = 1,
    device: Device = "auto",
) -> None:
    """Find the parts of a photo that are worth a phrase, and say one of each.

    The score is how sure the model is that a box holds something to speak of; boxes that overlap a surer one are left
    out. A photo that cannot be read is told on standard error; the others are described, and the exit code is 2.

    Example: saccade densecap holiday.jpg --model runs/densecap -o phrases.png --json phrases.json
    """
    from saccade.core.files import check_writable, write_json
    from saccade.core.progress import progress_bar
    from saccade.data.store.manifest import Broken
    from saccade.decoding import DecodingConfig
    from saccade.explain.draw.marks import check_format
    from saccade.tasks.dense_captioning.predict import PictureDescriber
    from saccade.tasks.predict import load

    if out is not None:
        check_format(out, "a picture of phrases")
    files = listed_photos(photos)
    check_writable(out, json_file)
    describer = load(model, device, kind=PictureDescriber)
    decoding = DecodingConfig(strategy="beam" if num_beams > 1 else "greedy", num_beams=num_beams, max_length=16)
    told: list[DescribedPhoto] = []
    broken: list[Broken] = []
    with progress_bar("describing") as progress:
        side = SIDE_ALONE if len(files) == 1 else SIDE_ON_SHEET
        for found in describer.describe_photos(files, top, least, decoding, side):
            if isinstance(found, Broken):
                broken.append(found)
            else:
                told.append(found)
            progress(len(told) + len(broken), len(files))
    console = Console()
    for photo in told:
        console.print(_table(photo))
    if json_file is not None and told:
        write_json(json_file, [photo.facts(str(model)) for photo in told])
        typer.echo(f"the phrases are in {json_file}")
    if out is not None and told:
        save_drawings([photo.drawing for photo in told], out, 0)
        print_where(out, len(told))
    report_broken(broken, len(files))


def _table(photo: DescribedPhoto) -> Table:
    table = Table(title=Text(f"{photo.file.name}  {photo.width} × {photo.height}", "bold"), title_justify="left")
    table.add_column("phrase", overflow="fold")
    table.add_column("score", justify="right")
    table.add_column("box: x1, y1, x2, y2", justify="right")
    for region, box in zip(photo.regions, photo.boxes(), strict=True):
        table.add_row(escape(region.phrase), f"{region.score:.2f}", ", ".join(f"{side:.0f}" for side in box))
    return table
