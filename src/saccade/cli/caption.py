"""`saccade caption`: what a captioner says of photos, and where it looked for each word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.cli.options import Device
from saccade.cli.photos import report_broken
from saccade.core.errors import SaccadeError
from saccade.tasks.captioning.options import (
    MAX_COUNT,
    MaxLengthOption,
    NoRepeatNgramSizeOption,
    NumBeamsOption,
    PenaltyOption,
    StrategyOption,
    chosen_decoding,
)

if TYPE_CHECKING:
    from saccade.data.store.manifest import Broken
    from saccade.tasks.captioning.photos import Captioned

MAX_ROWS = 40  # pictures in the table where a file has them all


def caption(
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="PHOTO...",
            help="Photos, folders of them (searched with the folders in them), .txt lists of paths, or feature stores "
            "made by `saccade extract`.",
        ),
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", help="A run or model folder of a captioner (`saccade train updown …`).")
    ] = "runs/updown",
    strategy: StrategyOption = None,
    num_beams: NumBeamsOption = None,
    num_return_sequences: Annotated[
        int | None,
        typer.Option(
            "--num-return-sequences",
            "-n",
            min=1,
            max=MAX_COUNT,
            help="Captions of a picture: so many are drawn, or with --strategy beam and diverse the so many best are "
            "told. If not given: one of a beam, five samples, all diverse ones.",
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Below 1 the likely words become likelier, above 1 less so.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, metavar="K", help="Draw among the K likeliest words.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(metavar="P", help="Draw among the fewest words that share this much of the probability."),
    ] = None,
    max_length: MaxLengthOption = None,
    length_penalty: PenaltyOption = None,
    no_repeat_ngram_size: NoRepeatNgramSizeOption = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="What samples are drawn with.")] = 0,
    attention: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|DIR",
            help="Draw where the captioner looked for each word: why.png for one photo, a folder for a picture of "
            "each, or why.html for a page of all.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help='Write the captions in COCO\'s results format, [{"image_id", "caption"}, …], as `saccade metrics '
            "score` reads them.",
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Say what is in photos, word by word.

    Captions are found by beam search with five beams unless the options say otherwise. A photo that cannot be read is
    told on standard error; the others are captioned, and the exit code is 2.

    Example: saccade caption holiday.jpg --model runs/updown --attention why.png

    Example: saccade caption photos/ --model runs/updown --num-beams 3 --no-repeat-ngram-size 3 --json captions.json

    Example: saccade caption holiday.jpg --model runs/updown --num-return-sequences 5 --top-p 0.9
    """
    import torch

    from saccade.core.files import check_writable, write_json
    from saccade.core.progress import progress_bar
    from saccade.data.store.manifest import Broken
    from saccade.tasks.captioning.photos import Drawings, results, sort_places
    from saccade.tasks.captioning.predict import DECODING, PictureCaptioner
    from saccade.tasks.predict import load

    decoding = chosen_decoding(
        DECODING,
        strategy,
        num_beams,
        num_return_sequences,
        temperature,
        top_k,
        top_p,
        max_length,
        length_penalty,
        no_repeat_ngram_size,
    )
    keep = (
        None
        if decoding.strategy in ("sample", "diverse") and num_return_sequences is None
        else num_return_sequences or 1
    )
    photos, stores = sort_places(places)
    total = len(photos) + sum(map(len, stores))
    if not total:
        raise SaccadeError(f"{places[0]} holds no pictures to caption")
    drawings = Drawings(attention, photos, stores)
    check_writable(json_file)
    captioner = load(model, device, kind=PictureCaptioner)
    torch.manual_seed(seed)
    told: list[Captioned] = []
    broken: list[Broken] = []
    with progress_bar("captioning") as progress:
        for found in captioner.caption_places(photos, stores, decoding, keep, model):
            if isinstance(found, Broken):
                broken.append(found)
            else:
                told.append(found)
                drawings.draw(found)
            progress(len(told) + len(broken), total)
    shown = told[:MAX_ROWS] if json_file is not None else told
    if told:
        plain = decoding.strategy != "diverse" and decoding.length_penalty == "none"
        Console().print(_table(shown, "log p" if plain else "score"))
    if len(shown) < len(told):
        typer.echo(f"and {len(told) - len(shown):,} more")
    if json_file is not None and told:
        write_json(json_file, results(told))
        typer.echo(f"the captions are in {json_file}")
    for line in drawings.finish():
        typer.echo(line)
    report_broken(broken, total)


def _table(told: Sequence[Captioned], score: str) -> Table:
    table = Table()
    table.add_column("picture", overflow="fold")
    table.add_column("caption", overflow="fold")
    table.add_column(score, justify="right")
    for picture in told:
        for number, said in enumerate(picture.captions):
            table.add_row(escape(picture.id) if not number else "", escape(said.text) or "–", f"{said.score:.2f}")
    return table
