"""Run folders as training leaves them, without the training: fresh models on a data set of a few random features."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.cli import main
from saccade.core.config import save_yaml
from saccade.language import Vocabulary
from saccade.models import Fusion, entry
from saccade.training.run import run_config
from saccade.training.seeds import seed_everything

IMAGES, DIM = 6, 8
SENTENCES = [
    f"a {colour} {thing} {place}"
    for colour, thing, place in product(
        ("red", "blue", "green"), ("cube", "ball"), ("here", "there", "left", "up", "on")
    )
]
TRANSFORMER = {
    "heads": 2,
    "image_heads": 2,
    "hidden": 16,
    "image_hidden": 16,
    "pooled_dim": 16,
    "max_words": 64,
    "layers": 1,
    "text_layers": 1,
    "image_layers": 1,
    "initial_spread": 0.2,
}  # of models that read a picture and a text together, beside their `dim`
TINY = {
    **TRANSFORMER,
    "image_heads": 5,
    "image_hidden": 12,
    "pooled_dim": 32,
    "max_words": 30,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}  # for sweeps, whose `dim` is 10
IMAGE_LAYERS = ("image_heads", "image_hidden", "text_layers", "image_layers")  # of one with two streams
SMALL_TRANSFORMER = {
    "region_dim": 12,
    "dim": 8,
    "heads": 2,
    "image_heads": 4,
    "hidden": 12,
    "image_hidden": 10,
    "pooled_dim": 6,
    "layers": 1,
    "text_layers": 1,
    "image_layers": 1,
    "max_words": 20,
}
SIZES = {"dim": 16, "word_dim": 6, "region_dim": DIM, "attention_dim": 8, "entries": 9}


def transformer_sizes(config: object) -> dict[str, Any]:
    """Those of TRANSFORMER that a model's settings, or their class, have."""
    return {name: size for name, size in TRANSFORMER.items() if hasattr(config, name)}


def make_features(root: Path, splits: tuple[str, ...] = ("dev", "test"), dim: int = DIM) -> Path:
    """Pictures of three regions in the layout that `data=precomp` reads, five captions each."""
    root.mkdir(parents=True)
    for seed, split in enumerate(splits):
        draw = np.random.default_rng(seed)
        np.save(root / f"{split}_ims.npy", draw.normal(size=(IMAGES, 3, dim)).astype(np.float32))
        (root / f"{split}_caps.txt").write_text("\n".join(SENTENCES) + "\n")
    return root


def make_run(folder: Path, features: Path, system: str = "scan", words: tuple[str, ...] = (), seed: int = 0) -> Path:
    """config.yaml, best/ and last/ of a finished run."""
    config = run_config(system, [f"root={features}", f"trainer.seed={seed}", *words, "data=precomp"])
    sizes = {name: size for name, size in SIZES.items() if name in {field.name for field in fields(config.model)}}
    if issubclass(entry(system).model, Fusion):
        sizes |= transformer_sizes(config.model)
    config = replace(config, model=replace(config.model, **sizes))
    seed_everything(seed)
    model = entry(system).model(config.model, Vocabulary.build(SENTENCES, 1), None)
    save_yaml(config, folder / "config.yaml")
    for name in ("best", "last"):
        model.save_pretrained(folder / name)
    return folder


def saccade_command(*words: object) -> int:
    """The exit code of `saccade WORD …`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["saccade", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
    return int(end.value.code or 0)
