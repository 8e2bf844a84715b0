"""`saccade eval` of dense captioners: are the right boxes found, and the right words said of them?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from saccade.data import DataConfig

NAMES = {"map": "mAP", "detection_map": "mAP of boxes", "regions": "regions a picture"}


def evaluate_dense(folders: Sequence[str], config: DataConfig, split: str, device: str, json_file: Path | None) -> None:
    """Mean average precision of each model on the whole of one split, as a table and as JSON."""
    from saccade.core.files import write_json
    from saccade.features.region_phrases import open_region_phrases
    from saccade.models import DenseCap, load_model
    from saccade.tasks import DenseCaptioningConfig, dense_captioning_figures
    from saccade.training.run import CONFIG, load_run_config

    data = open_region_phrases(config, split)
    rows = {}
    for folder in folders:
        run = (Path(folder) / CONFIG).exists()
        task = load_run_config(folder).task if run else DenseCaptioningConfig()
        model = load_model(folder, DenseCap).to(device)
        rows[folder] = dense_captioning_figures(model, data, replace(task, eval_pictures=len(data.images)))
    boxes = sum(len(regions.boxes) for regions in data.regions)
    title = f"{data.name}/{data.split}: {len(data.images)} pictures, {boxes} boxes, {len(data.texts)} phrases"
    table = Table(title=escape(title), title_justify="left")
    table.add_column("model", overflow="fold")
    for name in NAMES.values():
        table.add_column(name, justify="right")
    for folder, figures in rows.items():
        table.add_row(escape(folder), *(f"{figures[name]:.2f}" for name in NAMES))
    Console().print(table)
    if json_file:
        write_json(json_file, {"data": data.name, "split": data.split, "results": rows})
