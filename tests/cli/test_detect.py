"""`saccade detect`: a picture, a table or JSON of what an extractor finds, and one sentence when a photo is none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from saccade.batch import RegionBatch
from saccade.cli import app
from saccade.core.errors import SaccadeError
from saccade.vision import extractors as extractors
from saccade.vision.extractors import RegionDescription, RegionExtractor
from saccade.vision.pictures import Picture, as_array


class HalfExtractor(RegionExtractor):
    """Sees a left half, a right half and the whole, whatever it is shown."""

    name, digest, dim = "half", "", 3
    boxes = np.array([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]], dtype=np.float32)

    def __init__(self) -> None:
        self.network = nn.Linear(1, 1)

    def extract(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> RegionBatch:
        bright = [np.repeat(as_array(image).mean(), 9).reshape(3, 3).astype(np.float32) for image in images]
        return RegionBatch.of(bright, [self.boxes[:2] for _ in images] if boxes else [self.boxes for _ in images])


class NamingExtractor(HalfExtractor):
    def describe(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> list[list[RegionDescription]]:
        names = ({"kind": "left", "attribute": "[dark]"}, {"kind": "right"}, {"scene": "beach"})
        scores = (0.25, 0.75, 1.0)
        rows = list(zip(self.boxes.tolist(), scores, names, strict=True))
        return [[RegionDescription(tuple(b), s, n, {}) for b, s, n in rows] for _ in images]


@pytest.fixture(autouse=True)
def _extractors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = extractors.load_extractor
    fakes = {"half": HalfExtractor, "naming": NamingExtractor}
    monkeypatch.setattr(
        "saccade.vision.load_extractor", lambda name, device: fakes[name]() if name in fakes else real(name)
    )
    monkeypatch.chdir(tmp_path)


def run(*words: object) -> str:
    result = CliRunner().invoke(app, ["detect", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_one_photo_is_drawn_and_listed_surest_first_in_its_own_pixels(photos: list[Path]) -> None:
    printed = run(photos[0], "--extractor", "naming", "-o", "found.png")
    with Image.open(photos[0]) as photo, Image.open("found.png") as drawn:
        assert drawn.width / drawn.height == pytest.approx(photo.width / photo.height, rel=0.01)
        width, height = photo.size
    assert printed.index("right") < printed.index("[dark] left") < printed.index("beach")
    assert f"{width / 2:.0f}, 0, {width}, {height}" in printed
    assert "found.png" in printed


def test_json_has_every_region_with_its_box_in_pixels(photos: list[Path]) -> None:
    found = json.loads(run(*photos[:2], "--extractor", "naming", "--json"))
    assert [one["photo"] for one in found] == [str(path) for path in photos[:2]]
    for one in found:
        assert [r["label"] for r in one["regions"]] == ["right", "[dark] left", "beach"]
        assert one["regions"][2]["box"] == [0, 0, one["width"], one["height"]]
        assert one["regions"][0]["score"] == 0.75
    assert not Path("regions.png").exists()  # no picture that nobody asked for
    best = json.loads(run(photos[0], "--extractor", "naming", "--json", "--top", 1))[0]["regions"]
    assert [r["region"] for r in best] == [2, 3]


def test_an_extractor_without_names_numbers_its_regions(photos: list[Path]) -> None:
    printed = run(photos[0], "--extractor", "half")
    assert "label" not in printed
    assert "score" not in printed
    assert Path("regions.png").exists()
    assert [r["label"] for r in json.loads(run(photos[0], "--extractor", "half", "--json"))[0]["regions"]] == [None] * 3


def test_a_folder_becomes_one_sheet(photos: list[Path]) -> None:
    printed = run(photos[0].parent, "--extractor", "naming", "-o", "sheet.jpg")
    assert all(path.name in printed for path in photos)
    with Image.open("sheet.jpg") as sheet:
        assert sheet.width > 2000


def test_a_large_photo_turned_by_its_camera_is_measured_upright() -> None:
    photo = Image.new("RGB", (3000, 2000), "navy")
    exif = photo.getexif()
    exif[0x0112] = 6
    photo.save("turned.jpg", exif=exif)
    found = json.loads(run("turned.jpg", "--extractor", "naming", "--json"))[0]
    assert (found["width"], found["height"]) == (2000, 3000)


def test_a_mistake_gets_one_sentence(photos: list[Path]) -> None:
    for words, sentence in (
        (["gone.jpg"], "gone.jpg does not exist"),
        ([photos[0], "-o", "found.bmp"], r"found.bmp: a picture of regions is saved as one of \.png"),
        ([photos[0], "--extractor", "naming", "-o", "gone/"], "gone: a picture of regions is saved as"),
        ([photos[0], "--extractor", "bottum"], 'there is no extractor "bottum"; did you mean "bottomup"'),
    ):
        extractor = [] if "--extractor" in words else ["--extractor", "half"]
        with pytest.raises(SaccadeError, match=sentence):
            CliRunner().invoke(app, ["detect", *map(str, words), *extractor], catch_exceptions=False)
