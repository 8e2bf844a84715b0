"""Any number of pictures in the memory of a few: what predictors hold of them is counted, not measured."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from saccade.batch import RegionBatch
from saccade.data import FeatureStore, StoreWriter
from saccade.data.store.manifest import Broken
from saccade.features import decoding
from saccade.language import Vocabulary
from saccade.models import Adaptive, AdaptiveConfig, Scan, ScanConfig
from saccade.tasks.captioning import predict as captioning
from saccade.tasks.captioning.predict import PictureCaptioner
from saccade.tasks.detection import task as detection
from saccade.tasks.detection.task import PictureDetector
from saccade.tasks.matching import task as matching
from saccade.tasks.matching.task import PictureMatcher
from saccade.vision.extractors import RegionDescription, RegionExtractor
from saccade.vision.pictures import Picture

SIDE, DIM, COUNT, BATCH = 4, 6, 60, 5


class Living:
    """How many objects of each kind are alive, and how many were at most."""

    def __init__(self) -> None:
        self.now, self.most = Counter[str](), Counter[str]()

    def watch(self, kind: str, thing: Any) -> Any:
        self.now[kind] += 1
        self.most[kind] = max(self.most[kind], self.now[kind])
        weakref.finalize(thing, self.now.subtract, {kind: 1})
        return thing


class WatchedExtractor(RegionExtractor):
    """The mean colour as the features of two regions; every picture and every batch of regions is watched."""

    name, digest, dim, picture_size = "watched", "watched", DIM, SIDE

    def __init__(self, living: Living) -> None:
        self.living, self.network = living, nn.Linear(1, 1)

    def prepare(self, picture: Picture, where: str = "the picture") -> np.ndarray:
        fresh = isinstance(picture, str | Path | Image.Image)
        pixels = super().prepare(picture, where)
        return self.living.watch("picture", pixels.copy()) if fresh else pixels

    def regions(self, pictures: list[np.ndarray], boxes: list[Tensor] | None) -> RegionBatch:
        shade = torch.tensor([float(pixels.mean()) for pixels in pictures])[:, None, None]
        features = torch.cat([shade.cos(), shade.sin()], dim=1) * torch.linspace(0.1, 1, DIM)
        whole = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(len(pictures), 2, 4)
        mask = torch.ones(len(pictures), 2, dtype=torch.bool)
        return self.living.watch("regions", RegionBatch(features, mask, whole))

    def names(self, regions: RegionBatch, has_whole: bool) -> list[list[RegionDescription]]:
        return [[RegionDescription((0, 0, 1, 1), 1.0, {"kind": "thing"}, {})] for _ in range(len(regions))]


@pytest.fixture
def living(monkeypatch: pytest.MonkeyPatch) -> Living:
    for module in (matching, captioning, detection):
        monkeypatch.setattr(module, "BATCH_SIZE", BATCH)
    gc.collect()
    return Living()


@pytest.fixture
def matcher(vocabulary: Vocabulary, living: Living) -> PictureMatcher:
    torch.manual_seed(0)
    model = Scan(ScanConfig(DIM, 8, 16), vocabulary, "watched").eval()
    encode = model.encode_images
    model.encode_images = lambda images: living.watch("codes", encode(images))  # type: ignore[method-assign]
    return PictureMatcher(model, WatchedExtractor(living))


def drawn(living: Living, count: int = COUNT) -> Iterator[np.ndarray]:
    for number in range(count):
        yield living.watch("picture", np.full((SIDE, SIDE, 3), number, np.uint8))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number:02d}.png" for number in range(COUNT)]
    for number, path in enumerate(paths):
        Image.new("RGB", (SIDE, SIDE), (number, number, number)).save(path)
    return paths


def ask_matcher(matcher: PictureMatcher, vocabulary: Vocabulary, living: Living) -> int:
    return len(matcher.rank("a red cube", drawn(living)))


def ask_captioner(matcher: PictureMatcher, vocabulary: Vocabulary, living: Living) -> int:
    model = Adaptive(AdaptiveConfig(DIM, 8, 16, 6), vocabulary, "watched").eval()
    return len(PictureCaptioner(model, matcher.extractor).caption(drawn(living), strategy="greedy", max_length=3))


def ask_detector(matcher: PictureMatcher, vocabulary: Vocabulary, living: Living) -> int:
    detector = PictureDetector(matcher.model)  # type: ignore[arg-type]  # only its extractor is asked
    detector.extractor = matcher.extractor
    return len(detector.detect(drawn(living)))


@pytest.mark.parametrize("ask", [ask_matcher, ask_captioner, ask_detector])
def test_of_an_endless_supply_of_pictures_two_batches_are_held(
    ask: Callable[..., int], matcher: PictureMatcher, vocabulary: Vocabulary, living: Living
) -> None:
    assert ask(matcher, vocabulary, living) == COUNT
    assert living.most["picture"] <= 2 * BATCH
    assert 0 < living.most["regions"] <= 2
    assert living.most["codes"] <= 2


@pytest.mark.parametrize("fewest_for_processes", [1, 1000])
def test_photo_files_are_scored_a_few_at_a_time(
    fewest_for_processes: int,
    matcher: PictureMatcher,
    living: Living,
    files: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding, "MIN_FILES_FOR_PROCESSES", fewest_for_processes)
    files[7].write_bytes(files[7].read_bytes()[:40])
    texts = ["a red cube", "the small ball"]
    found = list(matcher.score_places([(path.name, path) for path in files], [], texts))
    broken = found.pop(7)
    assert isinstance(broken, Broken)
    assert broken.id == "07.png"
    good = [path for path in files if path != files[7]]
    assert [(one[0], one[1]) for one in found if not isinstance(one, Broken)] == [(p.name, p) for p in good]
    scores = np.stack([one[2] for one in found if not isinstance(one, Broken)])
    assert living.most["picture"] <= 4 * BATCH  # a batch, the one before it, and those opened ahead
    assert living.most["codes"] <= 2
    np.testing.assert_allclose(scores, matcher.score(good, texts), atol=1e-6)


def test_a_store_is_read_a_few_pictures_at_a_time(
    matcher: PictureMatcher, living: Living, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = matcher.extractor.extract(files)
    with StoreWriter(tmp_path / "store", DIM, "float32", "watched") as writer:
        for row, path in enumerate(files):
            writer.append(path.name, seen.features[row].numpy(), seen.boxes[row].numpy())
    store = FeatureStore.open(tmp_path / "store")
    batch = store.batch
    monkeypatch.setattr(store, "batch", lambda part: living.watch("read", batch(part)))
    found = matcher.score(store, "a red cube")
    assert living.most["read"] <= 2
    np.testing.assert_allclose(found, matcher.score(files, "a red cube"), atol=1e-6)


def test_no_pictures_have_no_scores(matcher: PictureMatcher) -> None:
    assert matcher.score([], ["a red cube", "a ball"]).shape == (0, 2)


def test_all_are_ranked_with_top_0(matcher: PictureMatcher, living: Living) -> None:
    pictures = list(drawn(living, 7))
    assert matcher.rank("a red cube", pictures, top=0) == matcher.rank("a red cube", pictures)
    assert len(matcher.rank("a red cube", pictures, top=3)) == 3
