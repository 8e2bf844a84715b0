"""`saccade eval` of captioners: what they say of a split, and how near it is to what people said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.cli.decoding_options import chosen_decoding, describe_decoding

if TYPE_CHECKING:
    from saccade.data import DataConfig
    from saccade.decoding import DecodingConfig

LANGUAGE = {
    "distinct_1": "different words / words",
    "distinct_2": "different pairs / pairs",
    "vocabulary": "words used",
    "captions": "different captions",
    "length": "words a caption",
    "self_bleu": "self-BLEU-4",
}


def evaluate_captioners(
    folders: Sequence[str],
    config: DataConfig,
    split: str,
    options: Mapping[str, Any],
    device: str,
    captions: Path | None,
    json_file: Path | None,
) -> None:
    """Caption metrics of each model on one split, as a table and as JSON."""
    from saccade.cli.captioned import coco_id
    from saccade.cli.metrics import describe_stages, meteor_tables
    from saccade.core.config import to_dict
    from saccade.core.files import check_writable, write_json
    from saccade.core.progress import progress_bar
    from saccade.metrics import CAPTION_METRICS, caption_scores, diversity
    from saccade.metrics.captions.report import caption_words
    from saccade.models import Captioner, load_model
    from saccade.tasks import SplitForModels, caption_all, references_of

    ways = {folder: chosen_decoding(run_decoding(folder), **options) for folder in folders}
    seen = SplitForModels(config, split)
    tables = meteor_tables("auto")
    results: dict[str, dict[str, Any]] = {}
    kept = captions_files(captions, folders)
    check_writable(json_file, *kept.values())
    for folder in folders:
        model = load_model(folder, Captioner).to(device)
        data = seen.regions_for(model, folder)
        with progress_bar(f"captioning ({folder})") as tell:
            said = caption_all(model, data, ways[folder], batch_size=64, tell=tell)
        with progress_bar("scoring") as tell:
            scores = caption_scores(said, references_of(data), None, tables, tell=tell)
        language = asdict(diversity([caption_words(text) for text in said]))
        results[folder] = {
            **{name: 100 * scores[name].corpus for name in CAPTION_METRICS},
            "language": {name: language[name] for name in LANGUAGE},
            "decoding": to_dict(ways[folder]),
        }
        if folder in kept:
            rows = zip(data.images.ids, said, strict=True)
            write_json(kept[folder], [{"image_id": coco_id(id), "caption": text} for id, text in rows])
    title = f"{data.name}/{data.split}: {len(data.images):,} pictures, {len(data.texts):,} texts"
    Console().print(_table(title, results, ways))
    typer.echo(describe_stages(tables))
    for file in kept.values():
        typer.echo(f"the captions are in {file}")
    if json_file is not None:
        told = {"data": data.name, "split": data.split, "pictures": len(data.images), "meteor_stages": tables.stages}
        write_json(json_file, {**told, "results": results})


def run_decoding(folder: str) -> DecodingConfig:
    """How the run's own evaluations found captions; of a model that is no run, greedily."""
    from saccade.decoding import DecodingConfig
    from saccade.training.run import CONFIG, load_run_config

    if (Path(folder) / CONFIG).exists():
        found = getattr(load_run_config(folder).task, "decoding", None)
        if isinstance(found, DecodingConfig):
            return found
    return replace(DecodingConfig(), how="greedy")


def captions_files(captions: Path | None, folders: Sequence[str]) -> dict[str, Path]:
    """The file of each model: the one that was named, or one beside it for each of several."""
    if captions is None:
        return {}
    if len(folders) == 1:
        return {folders[0]: captions}
    names = [Path(folder).resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(number) for number in range(1, len(folders) + 1)]
    files = [captions.with_name(f"{captions.stem}-{name}{captions.suffix}") for name in names]
    return dict(zip(folders, files, strict=True))


def _table(title: str, results: Mapping[str, Mapping[str, Any]], ways: Mapping[str, DecodingConfig]) -> Table:
    """A row for each figure, a column for each model: there are more figures than a terminal is wide."""
    from saccade.metrics import CAPTION_METRICS

    table = Table(title=escape(title), title_justify="left")
    table.add_column("")
    for folder, way in ways.items():
        table.add_column(f"{escape(folder)}\n{describe_decoding(way)}", justify="right", overflow="fold")
    for name, label in CAPTION_METRICS.items():
        table.add_row(label, *(f"{figures[name]:.1f}" for figures in results.values()))
    table.add_section()
    for name, label in LANGUAGE.items():
        found = [figures["language"][name] for figures in results.values()]
        table.add_row(label, *(f"{v:,}" if isinstance(v, int) else f"{v:.2f}" for v in found))
    return table
