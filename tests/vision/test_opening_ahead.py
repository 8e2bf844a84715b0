"""Files opened by threads ahead of the network: the same regions as from memory, in order, and the first fault told."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_detector import tiny_detector

from saccade.core.errors import SaccadeError
from saccade.core.threads import MAX_OPENERS, MIN_OPENERS, ahead, openers
from saccade.vision.detectors.bottomup import BottomUpExtractor


@pytest.fixture(scope="module")
def extractor() -> BottomUpExtractor:
    return BottomUpExtractor(tiny_detector())


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    random = np.random.default_rng(0)
    paths = [tmp_path / f"{i}.png" for i in range(11)]
    for path in paths:
        Image.fromarray(random.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)
    return paths


def test_files_are_seen_as_the_same_pictures_in_memory_are(extractor: BottomUpExtractor, files: list[Path]) -> None:
    arrays = [np.asarray(Image.open(path)) for path in files]
    seen, wanted = extractor.extract(files, batch_size=4), extractor.extract(arrays, batch_size=4)
    assert seen.ids == tuple(map(str, files))
    for name in ("features", "boxes", "mask", "scores"):
        assert torch.equal(getattr(seen, name), getattr(wanted, name))
    assert not seen.features[~seen.mask].any()
    assert not seen.boxes[~seen.mask].any()
    assert [len(p) for p in extractor.describe(files)] == seen.mask.sum(dim=1).tolist()


def test_the_first_broken_file_is_the_one_named(extractor: BottomUpExtractor, files: list[Path]) -> None:
    for broken in (files[9], files[6]):
        broken.write_bytes(b"no picture")
    with pytest.raises(SaccadeError, match=r"6\.png is not a picture"):
        extractor.extract(files, batch_size=2)
    assert not [t for t in threading.enumerate() if t.name.startswith("ahead")]


def test_pictures_in_memory_wait_for_no_thread(extractor: BottomUpExtractor, files: list[Path]) -> None:
    """A Pillow image is read when it is first asked for: two threads at one would disturb each other."""
    image = Image.open(files[0])
    seen = extractor.extract([image] * 5, batch_size=2)
    torch.testing.assert_close(seen.features, seen.features[:1].expand_as(seen.features))
    assert (
        list(ahead(lambda n: threading.current_thread().name, range(2), workers=0, most=1))
        == [threading.current_thread().name] * 2
    )


def test_nothing_to_see_is_no_region(extractor: BottomUpExtractor) -> None:
    assert len(extractor.extract([])) == 0
    assert extractor.describe([]) == []


def test_a_few_openers_whatever_the_machine() -> None:
    assert MIN_OPENERS <= openers() <= MAX_OPENERS
