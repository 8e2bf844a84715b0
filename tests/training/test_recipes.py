"""What holds for every recipe of the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from saccade.training.run import recipe, run_config

RECIPES = Path(str(resources.files("saccade"))) / "recipes"
COUPLED = 1e-3  # more of it, and Adam's own decay, which its step sizes multiply, leaves weights no way to grow


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.yaml")))
def test_a_decay_made_for_adamw_is_not_left_to_adam(name: str) -> None:
    """A recipe for data goes over the paper's: Pixel-BERT's decay of 0.01 with Adam learned nothing on the world."""
    system, _, data = name.partition("-")
    trainer = run_config(system, [f"data={data}"] if data else []).trainer
    assert trainer.optimiser not in ("adam", "adamax") or trainer.weight_decay <= COUPLED


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.yaml") if "-" not in path.stem))
def test_a_papers_recipe_says_how_the_rate_falls_and_where_gradients_are_cut(name: str) -> None:
    """What it does not say would be SCAN's, the trainer's defaults: a tenth of the rate after 15 epochs, cut at 2."""
    own = recipe(name).get("trainer", {})
    assert not own or {"schedule", "clip_norm"} <= own.keys()
