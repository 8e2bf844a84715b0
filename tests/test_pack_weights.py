"""The card of a packed model has the figures of its task."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("pack_weights")


@pytest.mark.parametrize(
    ("task", "figures", "said"),
    [
        (
            "referring",
            {"accuracy": 71.26, "accuracy_people": 70.0, "chance": 31.0},
            "| in bytes | 71.3 | 70.0 | 31.0 |",
        ),
        ("relations", {"map": 12.34, "map_seen": 13.0, "map_unseen": 5.0}, "| in bytes | 12.3 | 13.0 | 5.0 |"),
    ],
)
def test_a_card_has_the_figures_that_a_task_measures(
    script: ModuleType, task: str, figures: dict[str, float], said: str
) -> None:
    card = script.card("mine", "# mine\n", {"in bytes": figures}, "saccade train", "grid:dinov2-s@224/8", task, None)
    assert said in card
    assert "saccade eval mine data=flickr8k root=DIR split=dev" in card
    assert "DINOv2" in card


def test_every_task_that_is_packed_says_what_its_model_learned_from(script: ModuleType) -> None:
    assert set(script.FIGURES) == set(script.LEARNED)
