"""A photo with its regions must be readable: labels apart, inside the picture, the surest ones first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.explain.draw import rgb
from saccade.explain.panels import regions
from saccade.explain.panels.regions import MAX_SHEET_PHOTOS, RegionPicture, draw_regions, draw_sheet, save_sheet
from saccade.vision import open_picture

WHOLE = [0.0, 0.0, 1.0, 1.0]


def photo_with(count: int, seed: int = 0, size: tuple[int, int] = (120, 160), **changes: object) -> RegionPicture:
    draw = np.random.default_rng(seed)
    corners = draw.random((count, 2)) * 0.9
    boxes = np.concatenate([corners, np.minimum(corners + 0.02 + 0.5 * draw.random((count, 2)), 1)], axis=1)
    labels = tuple(("dog", "large brown wooden table", "man", "snow")[i % 4] for i in range(count))
    image = np.full((*size, 3), 90, dtype=np.uint8)
    return RegionPicture(image, **{"boxes": boxes, "labels": labels, "scores": draw.random(count), **changes})  # type: ignore[arg-type]


def laid(photo: RegionPicture, monkeypatch: pytest.MonkeyPatch, top: int | None = None) -> tuple[list, Image.Image]:  # type: ignore[type-arg]
    """The labels as they were placed, and the drawing."""
    seen = []
    place = regions._lay

    def keep(labels: list, *rest: object, **more: object) -> None:  # type: ignore[type-arg]
        place(labels, *rest, **more)  # type: ignore[arg-type]
        seen.extend(labels)

    with monkeypatch.context() as patch:
        patch.setattr(regions, "_lay", keep)
        drawn = draw_regions(photo, top)
    return seen, drawn


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(0, 10_000), st.sampled_from([(120, 160), (30, 300), (400, 50)]))
def test_no_label_hides_another_or_leaves_the_picture(count: int, seed: int, size: tuple[int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        labels, drawn = laid(photo_with(count, seed, size), patch, top=0)
    plates = [
        (*label.spot, label.spot[0] + label.plate[0], label.spot[1] + label.plate[1]) for label in labels if label.spot
    ]
    assert plates
    for i, (left, top, right, bottom) in enumerate(plates):
        assert left >= 0
        assert top >= 0
        assert right <= drawn.width
        assert bottom <= drawn.height
        for other in plates[:i]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_the_surest_regions_are_named_and_the_whole_picture_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    photo = photo_with(
        5,
        boxes=np.array([WHOLE, *photo_with(4).boxes]),
        labels=tuple("vwxyz"),
        scores=np.array([1, 0.2, 0.9, 0.4, 0.8]),
    )
    assert photo.best(2) == [2, 4, 0]
    labels, _ = laid(photo, monkeypatch, top=2)
    assert [(label.text, label.note) for label in labels] == [("x", "0.90"), ("z", "0.80"), ("v", "")]
    assert len(photo.best(0)) == 5
    nameless = photo_with(5, boxes=photo.boxes, labels=("", *"wxyz"), scores=photo.scores)
    assert [label.text for label in laid(nameless, monkeypatch, top=2)[0]] == ["x", "z"]


def test_doubtful_regions_are_not_named_unless_asked_for() -> None:
    boxes = np.array([WHOLE, *photo_with(4).boxes])
    doubtful = photo_with(5, boxes=boxes, labels=tuple("vwxyz"), scores=np.array([1, 0.2, 0.05, 0.4, 0.09]))
    assert doubtful.best() == [3, 1, 0]
    assert doubtful.best(3) == [3, 1, 4, 0]
    nothing_sure = photo_with(5, boxes=boxes, labels=tuple("vwxyz"), scores=np.array([1, 0.02, 0.05, 0.04, 0.01]))
    assert nothing_sure.best() == [2, 0]


def test_a_named_box_is_drawn_where_it_is_in_its_own_colour() -> None:
    photo = photo_with(2, boxes=np.array([[0.2, 0.4, 0.5, 0.8], [0.6, 0.5, 0.9, 0.9]]), scores=np.array([0.9, 0.3]))
    drawn = np.asarray(draw_regions(photo, 2, size=(1000, 1000))).astype(int)
    for x, colour in ((202, regions.COLOURS[0]), (602, regions.COLOURS[1])):
        assert np.abs(drawn[700, x] - rgb(colour)).max() < 30
    thin = np.asarray(draw_regions(photo, 1, size=(1000, 1000))).astype(int)
    assert np.ptp(thin[700, 600:605], axis=1).max() < 10  # the rest are grey lines …
    assert np.abs(thin[700, 600:605] - 90).max() > 30  # … that can be seen


def test_regions_without_names_get_their_numbers_inside_their_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = np.array([[x / 3, y / 3, (x + 1) / 3, (y + 1) / 3] for y in range(3) for x in range(3)])
    labels, drawn = laid(photo_with(9, boxes=cells, labels=(), scores=None), monkeypatch)
    assert [label.text for label in labels] == [str(n) for n in range(1, 10)]
    for cell, label in zip(cells, labels, strict=True):
        assert cell[0] - 0.01 <= label.spot[0] / drawn.width < cell[2]
        assert cell[1] - 0.01 <= label.spot[1] / drawn.height < cell[3]


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_it_is_saved_in_the_format_its_name_asks_for(suffix: str, tmp_path: Path) -> None:
    saved = photo_with(3).save(tmp_path / f"regions{suffix}")
    with Image.open(saved) as read:
        assert read.format == {".png": "PNG", ".jpg": "JPEG", ".webp": "WEBP"}[suffix]
    with pytest.raises(SaccadeError, match=r"regions\.gif: a picture of regions is saved as one of \.png"):
        photo_with(3).save(tmp_path / "regions.gif")


def test_wrong_regions_get_a_sentence() -> None:
    for changes, sentence in (
        ({"labels": ("dog",)}, "3 boxes but 1 labels"),
        ({"scores": np.array([0.1, np.nan, 0.2])}, "3 finite scores"),
        ({"boxes": np.zeros((3, 5))}, "finite boxes"),
    ):
        with pytest.raises(SaccadeError, match=sentence):
            photo_with(3, **changes)


def test_a_photo_in_which_nothing_was_found_is_drawn_as_it_is() -> None:
    for scores in (None, np.zeros(0)):
        empty = photo_with(0, boxes=np.zeros((0, 4)), labels=(), scores=scores)
        assert np.asarray(draw_regions(empty)).std() == 0


def test_a_sheet_shows_every_photo_in_rows_of_one_width(photos: list[Path], tmp_path: Path) -> None:
    shown = [
        RegionPicture(
            np.asarray(open_picture(path)), np.array([[0.1, 0.1, 0.6, 0.9]]), ("thing",), np.array([0.5]), path.name
        )
        for path in photos
    ]
    sheet = draw_sheet(shown)
    assert 2000 < sheet.width < 2500
    assert sheet.height < 2 * sheet.width
    grey = np.asarray(sheet.convert("L"))
    assert grey[48:-80, -60:-50].min() < 200  # some row reaches the right margin
    alone = draw_sheet(shown[:1])
    assert alone.width < sheet.width  # one photo is not blown up to fill it
    assert save_sheet(shown[:2], tmp_path / "two.jpg").stat().st_size > 10_000
    with pytest.raises(SaccadeError, match="at least one photo"):
        draw_sheet([])
    assert len(photos) < MAX_SHEET_PHOTOS
