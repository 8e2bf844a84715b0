"""A toy match: a noisy picture with two patches, and words that look at one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from saccade.explain import Explanation

LEFT, RIGHT = (0.1, 0.3, 0.4, 0.7), (0.6, 0.3, 0.9, 0.7)
SENTENCE = ("a", "red", "cube", "left", "of", "a", "blue", "ball", ".")


def make_explanation(
    words: tuple[str, ...] = SENTENCE, height: int = 128, width: int = 128, regions: int = 36, seed: int = 0
) -> Explanation:
    """Words before the middle look at the left patch, words after it at the right one; other regions get a little."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 255, (height, width, 3), dtype=np.uint8)
    corner = rng.uniform(0, 0.7, (regions, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0.05, 0.3, (regions, 2))], axis=1)
    boxes[:2] = np.array([LEFT, RIGHT])[:regions]
    weights = rng.uniform(0, 0.01, (len(words), regions))
    for i in range(len(words)):
        weights[i, 0 if i < len(words) / 2 or regions == 1 else 1] = 1.0
    return Explanation(image, words, weights, boxes, 0.5, rng.uniform(0, 1, len(words)))


def tell_all(explanation: Explanation, steps: int = 3, seed: int = 0) -> Explanation:
    """The same match with all that a model may tell, at random."""
    rng = np.random.default_rng(seed)
    words, regions = explanation.weights.shape
    return replace(
        explanation,
        region_score=rng.uniform(0, 1, (regions,)),
        steps=rng.uniform(0, 1, (steps, words, regions)),
        word_gate=rng.uniform(0, 1, (words,)),
        region_gate=rng.uniform(0, 1, (regions,)),
        word_links=rng.uniform(0, 1, (words, words)),
        region_links=rng.normal(0, 1, (regions, regions)),
    )


@pytest.fixture
def full() -> Callable[..., Explanation]:
    return tell_all


@pytest.fixture
def make() -> Callable[..., Explanation]:
    return make_explanation
