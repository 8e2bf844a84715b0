"""`saccade ctr`: which items a user will click on, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table

from saccade.cli.options import Device, say

if TYPE_CHECKING:
    from saccade.tasks.clicks.predict import Predicted


def ctr(
    model: str,
    candidates: Path,
    *,
    out: Path | None = None,
    items: Path | None = None,
    picture: Path | None = None,
    rows: int = 5,
    device: Device = "auto",
) -> None:
    """Predict clicks on the items of a table, and say which modality of each mattered.

    A row is a candidate: `item`, and what its user did before (`history`, `history_kinds`, `history_times`, `time`), as
    in a behaviour log. What an item is stands in the same row (`title`, `image` and further columns) or in a table of
    items; items that the model learned from are known. The output has these rows, with the probability of a click and,
    of each modality (ids, image, title, statistics), its effect, which is what the logit would lose without it, its
    gate, and its share of the item's vector, beside the share of what all modalities say alike (invariant).

    Example: saccade ctr runs/marn candidates.parquet -o clicks.parquet --picture why.png
    """
    from saccade.core.errors import SaccadeError
    from saccade.core.files import check_writable
    from saccade.explain.draw import check_format
    from saccade.explain.panels.clicks import save_clicks
    from saccade.models import ClickPredictor, load_model
    from saccade.tasks.clicks.predict import ClickRanker, with_run
    from saccade.training.run import load_run_config, run_folder

    if picture is not None:
        check_format(picture, "a picture of predicted clicks")
    if out is not None and out.suffix != ".parquet":
        raise SaccadeError(f"{out}: predictions are written as .parquet")
    check_writable(out, picture)
    ranker = ClickRanker(load_model(model, ClickPredictor).to(device))
    run = run_folder(model)
    if run is not None:
        with_run(ranker, load_run_config(run))
    opened = ranker.open(candidates, items)
    best: list[tuple[float, Predicted, int]] = []

    def noted() -> Iterator[Predicted]:
        """Every part, of which the likeliest candidates are kept."""
        for part in opened.predictions():
            best.extend((float(chance), part, n) for n, chance in enumerate(part.reasons.logits.sigmoid()))
            best.sort(key=lambda found: -found[0])
            del best[rows:]
            yield part

    count = opened.write(out, noted()) if out is not None else sum(len(part.rows) for part in noted())
    modalities = ranker.model.config.modalities
    table = Table(Column("click", justify="right"), "item", *(Column(name, justify="right") for name in modalities))
    shown = [opened.picture(part, n) for _, part, n in best]
    for one in shown:
        table.add_row(f"{100 * one.probability:.1f} %", one.title, *(f"{effect:+.2f}" for effect in one.effects))
    Console().print(table)
    say(f"{count:,} candidates; the likeliest are shown, with what the logit would lose without each modality")
    if out is not None:
        say(f"the predictions are in {out}")
    if picture is not None:
        save_clicks(tuple(shown), picture, f"{candidates.name}: the likeliest clicks, and what they rest on")
        say(f"the picture is in {picture}")
