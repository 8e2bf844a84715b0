"""Recall@K: from ranks counted by hand, for any number of captions, with folds, ties and chance."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.core.errors import SaccadeError
from saccade.metrics import chance, ranks, recall, summary


def test_ranks_counted_by_hand() -> None:
    """Picture 0 owns texts 0 and 1, picture 1 owns text 2."""
    similarity = np.array([[0.1, 0.5, 0.9], [0.3, 0.6, 0.2]])
    found = ranks(similarity, np.array([0, 0, 1]))
    assert found.image_to_text.tolist() == [1, 2]  # 0.9 stands above 0.5; 0.6 and 0.3 above 0.2
    assert found.text_to_image.tolist() == [1, 1, 1]
    assert found.top_text.tolist() == [2, 1]
    assert found.top_image.tolist() == [1, 1, 0]


def test_constant_scores_earn_nothing() -> None:
    report = recall(np.zeros((20, 40)), np.arange(40) // 2)
    assert report["i2t_r10"] == 0
    assert report["t2i_r10"] == 0


def test_a_perfect_table_earns_everything() -> None:
    owner = np.array([0, 1, 1, 2, 2, 2])
    report = recall((owner[None] == np.arange(3)[:, None]).astype(float), owner)
    assert report["rsum"] == 600
    assert report["i2t_medr"] == report["t2i_meanr"] == 1


def test_folds_are_averaged() -> None:
    rng = np.random.default_rng(0)
    similarity, owner = rng.normal(size=(12, 36)), np.repeat(np.arange(12), 3)
    parts = [recall(similarity[i : i + 4, 3 * i : 3 * i + 12], np.repeat(np.arange(4), 3)) for i in (0, 4, 8)]
    whole = recall(similarity, owner, folds=3)
    for key, value in whole.items():
        assert value == pytest.approx(np.mean([p[key] for p in parts]))


def test_median_and_mean_count_from_one() -> None:
    assert summary(np.array([0, 1, 2, 5])) == {"r1": 25.0, "r5": 75.0, "r10": 100.0, "medr": 2.0, "meanr": 3.0}


def test_chance_is_what_random_scores_earn() -> None:
    rng = np.random.default_rng(1)
    owner = np.repeat(np.arange(30), rng.integers(1, 6, size=30))
    runs = [recall(rng.normal(size=(30, len(owner))), owner) for _ in range(400)]
    for key, value in chance(owner, 30).items():
        assert np.mean([r[key] for r in runs]) == pytest.approx(value, abs=1.5 if key != "rsum" else 5)


@pytest.mark.parametrize(
    ("similarity", "owner", "folds", "sentence"),
    [
        (np.zeros((2, 3)), np.array([0, 1]), 1, "as many columns"),
        (np.full((2, 2), np.nan), np.array([0, 1]), 1, "not finite"),
        (np.zeros((3, 2)), np.array([0, 1]), 1, "picture 2 has no caption"),
        (np.zeros((3, 3)), np.array([0, 1, 2]), 2, "cannot be cut into 2 folds"),
    ],
)
def test_bad_tables_get_a_sentence(similarity: np.ndarray, owner: np.ndarray, folds: int, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        recall(similarity, owner, folds)
