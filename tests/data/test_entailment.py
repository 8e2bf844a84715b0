"""Sentences that a photo entails or contradicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from photo_samples import write

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.entailment import FILE, EntailmentPair, read_entailment

LINE = {"image": "a.jpg", "split": "dev", "pair": "a.jpg#1", "hypothesis": "A dog.", "label": "entailment"}


def test_pairs_come_one_by_one(tmp_path: Path) -> None:
    path = write(tmp_path / FILE, json.dumps(LINE) + "\nthis is no JSON\n")
    pairs = read_entailment(path)
    assert next(pairs) == EntailmentPair("a.jpg", "dev", "A dog.", "entailment")
    with pytest.raises(SaccadeError, match="line 2"):
        next(pairs)


@pytest.mark.parametrize(
    ("change", "told"), [({"label": "maybe"}, "one of entailment, neutral"), ({"image": None}, '"image" is missing')]
)
def test_a_broken_line_is_named(tmp_path: Path, change: dict[str, object], told: str) -> None:
    path = write(tmp_path / FILE, json.dumps(LINE | change) + "\n")
    with pytest.raises(SaccadeError, match=f"line 1.*{told}"):
        list(read_entailment(path))
