"""Train the matcher for photographs that comes with the package: SCAN, text→image, on Flickr8k from raw photos.

    python recipes/scan_flickr8k.py --root data/flickr8k --out src/saccade/models/weights/scan-flickr8k

It is the recipe `saccade train scan data=flickr8k` uses, in half the width, and its weights are kept in bytes: a
quarter of the size. What is measured on the dev split, before and after, is written into the model's card.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from saccade.core.files import write_text
from saccade.core.weights import write_weights
from saccade.data import DataConfig, open_split
from saccade.metrics import recall
from saccade.models import Matcher, load_model
from saccade.tasks.matching.evaluate import similarity_table
from saccade.training.run import run_config, train_run

SETTINGS = ["data=flickr8k", "dim=512"]
FIGURES = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
console = Console()


def measured(folder: Path, root: Path, device: str) -> dict[str, float]:
    model = load_model(folder, Matcher).to(device)
    assert model.backbone is not None
    data = open_split(DataConfig("flickr8k", root), "dev", model.backbone.size)
    return recall(similarity_table(model, data), data.image_of_text)


def card(own: str, rows: dict[str, dict[str, float]], command: str) -> str:
    lines = [f"| {name} | " + " | ".join(f"{found[f]:.1f}" for f in FIGURES) + " |" for name, found in rows.items()]
    return f"""{own}
## What it can do

Trained on Flickr8k's train and extra splits (6,091 photos, five English captions each) by `{command}`, its extractor
(EfficientNet-Lite0) along with it. It knows what those captions speak of: people, dogs, sports, streets, water. The
photos were given for research; mind that if you use the model for anything else.

Recall in per cent on the 1,000 photos and 5,000 captions of the dev split, which also chose the settings:

| weights | picture→text R@1 | R@5 | R@10 | text→picture R@1 | R@5 | R@10 | rsum |
|---|---:|---:|---:|---:|---:|---:|---:|
{chr(10).join(lines)}
"""


def main(
    root: Annotated[Path, typer.Option(help="The folder of Flickr8k.")] = Path("data/flickr8k"),
    out: Annotated[Path, typer.Option(help="Where the model goes.")] = Path("runs/scan-flickr8k"),
    run: Annotated[Path, typer.Option(help="The run folder; a finished one is not trained again.")] = Path(
        "runs/scan-flickr8k-training"
    ),
    seed: Annotated[int, typer.Option(help="Of the weights and the order of the photos.")] = 0,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
) -> None:
    """Train, shrink, measure and write the model with its card."""
    if not (run / "last").exists():
        config = run_config("scan", [*SETTINGS, f"root={root}", f"trainer.seed={seed}", f"accelerator={device}"])
        train_run(config, run, resume=run.exists(), console=console)
    rows = {"as trained": measured(run, root, device)}
    model = load_model(run, Matcher)
    model.config = replace(model.config, budget_mb=256)  # training's is for a GPU alone
    model.save_pretrained(out)
    write_weights(out / "model.safetensors", model.state_dict(), "int8")
    rows["in bytes, as shipped"] = measured(out, root, device)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        own = (Path(folder) / "README.md").read_text(encoding="utf-8")
    command = f"python recipes/scan_flickr8k.py --seed {seed}"
    write_text(out / "README.md", card(own.replace("this folder", out.name), rows, command))
    console.print({name: round(found["rsum"], 1) for name, found in rows.items()})


if __name__ == "__main__":
    typer.run(main)
