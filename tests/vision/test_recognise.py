"""An extractor names regions from their stored vectors as it names them in the picture."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from tiny_detector import tiny_detector

from saccade.core.errors import SaccadeError
from saccade.vision import RegionExtractor, load_extractor
from saccade.vision.detectors.bottomup import BottomUpExtractor
from saccade.vision.detectors.world import WorldExtractor, WorldNetwork


@pytest.fixture(params=["world", "bottomup"])
def extractor(request: pytest.FixtureRequest, tiny_network: WorldNetwork) -> RegionExtractor:
    if request.param == "bottomup":
        return BottomUpExtractor(tiny_detector())
    torch.nn.init.normal_(tiny_network.proposals.predict.weight, std=0.3)  # untrained, but it proposes something
    assert tiny_network.proposals.predict.bias is not None
    with torch.no_grad():
        tiny_network.proposals.predict.bias[0] = 0.0
    return WorldExtractor(tiny_network)


@pytest.mark.parametrize("given", [False, True], ids=["found", "given"])
def test_names_from_vectors_are_those_from_pictures(extractor: RegionExtractor, rectangles: Any, given: bool) -> None:
    pictures = list(rectangles.pixels[:5])
    boxes = rectangles.found[:5] if given else None
    recognised, described = extractor.recognise(extractor.extract(pictures, boxes)), extractor.describe(pictures, boxes)
    assert [len(regions) for regions in recognised] == [len(regions) for regions in described]
    for one, other in zip(chain(*recognised), chain(*described), strict=True):
        assert one.labels == other.labels
        assert one.confidence.keys() == other.confidence.keys()
        np.testing.assert_allclose([*one.confidence.values()], [*other.confidence.values()], atol=1e-4)
        np.testing.assert_allclose((*one.box, one.score), (*other.box, other.score), atol=1e-4)


def test_padding_names_nothing(extractor: RegionExtractor, rectangles: Any) -> None:
    seen = extractor.extract(list(rectangles.pixels[:3]))
    plain, padded = extractor.recognise(seen), extractor.recognise(seen.pad(4))
    assert [[r.labels for r in regions] for regions in plain] == [[r.labels for r in regions] for regions in padded]
    without_scores = extractor.recognise(replace(seen, scores=None))
    assert {region.score for regions in without_scores for region in regions} == {1.0}


def test_an_extractor_without_names_says_so() -> None:
    extractor = load_extractor("grid:world")
    with pytest.raises(SaccadeError, match="finds regions but has no names for them"):
        extractor.recognise(extractor.extract([np.zeros((32, 32, 3), np.uint8)]))
