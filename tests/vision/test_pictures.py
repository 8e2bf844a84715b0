"""Opening pictures: every mode becomes RGB, cameras' rotation is honoured, and bad files get a sentence."""

from __future__ import annotations

import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.vision.pictures import as_array, find_pictures, open_picture


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "I;16", "I", "F"])
def test_every_mode_becomes_rgb(mode: str, tmp_path: Path) -> None:
    if mode == "I;16":
        image = Image.fromarray(np.full((6, 8), 32768, dtype=np.uint16))
    elif mode in ("I", "F"):
        image = Image.fromarray(
            np.full((6, 8), 32768 if mode == "I" else 0.5, dtype=np.int32 if mode == "I" else np.float32)
        )
    else:
        image = Image.new("RGB", (8, 6), (200, 100, 50)).convert(mode)
    name = tmp_path / ("picture.tif" if mode in ("CMYK", "F", "I", "LA") else "picture.png")
    image.save(name)
    array = as_array(name)
    assert array.shape == (6, 8, 3)
    assert array.dtype == np.uint8
    if mode in ("RGB", "RGBA"):
        assert array[0, 0].tolist() == [200, 100, 50]
    if mode in ("I", "I;16"):
        assert array[0, 0].tolist() == [127, 127, 127]


def test_transparent_pixels_lie_on_white() -> None:
    assert as_array(Image.new("RGBA", (2, 2), (255, 0, 0, 0)))[0, 0].tolist() == [255, 255, 255]
    assert as_array(np.zeros((2, 2, 4), dtype=np.uint8))[0, 0].tolist() == [255, 255, 255]


def test_a_turned_camera_gives_an_upright_picture(tmp_path: Path) -> None:
    image = Image.new("RGB", (30, 10), "black")
    image.paste((255, 255, 255), (0, 0, 15, 10))  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90° clockwise to view
    image.save(tmp_path / "turned.png", exif=exif)
    upright = as_array(tmp_path / "turned.png")
    assert upright.shape == (30, 10, 3)
    assert upright[0, 0, 0] == 255
    assert upright[-1, 0, 0] == 0


def test_arrays_of_floats_and_greys_are_understood() -> None:
    assert as_array(np.full((4, 4), 0.5))[0, 0].tolist() == [128, 128, 128]
    assert as_array(np.full((4, 4, 1), 7, dtype=np.uint8))[0, 0].tolist() == [7, 7, 7]
    assert as_array(np.zeros((20, 40, 3), dtype=np.uint8), size=16).shape == (16, 16, 3)


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.zeros((4, 4, 2), dtype=np.uint8), r"\[height, width, 3\]"),
        (np.zeros((0, 4, 3), dtype=np.uint8), r"\[height, width, 3\]"),
        (np.full((4, 4, 3), 30.0), "must lie in 0..1"),
        (np.full((4, 4, 3), np.nan), "NaN"),
        (np.zeros((4, 4, 3), dtype=np.int64), "int64"),
    ],
)
def test_arrays_that_are_no_pictures_are_refused(array: np.ndarray, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        as_array(array, "picture 3")


def test_missing_empty_and_foreign_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"gone\.png does not exist"):
        open_picture(tmp_path / "gone.png")
    with pytest.raises(SaccadeError, match="is a folder"):
        open_picture(tmp_path)
    (tmp_path / "empty.png").touch()
    with pytest.raises(SaccadeError, match=r"empty\.png is empty"):
        open_picture(tmp_path / "empty.png")
    (tmp_path / "words.jpg").write_text("not a picture")
    with pytest.raises(SaccadeError, match=r"words\.jpg is not a picture"):
        open_picture(tmp_path / "words.jpg")


@pytest.mark.parametrize("kind", ["png", "jpg"])
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_file_cut_short_is_named(kind: str, share: float, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    path = tmp_path / f"cut.{kind}"
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(SaccadeError, match=r"cut\.(png|jpg) is a damaged or cut-off picture"):
        open_picture(path)


def test_damaged_bytes_inside_a_png_are_named(tmp_path: Path) -> None:
    path = tmp_path / "hurt.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(path)
    data = bytearray(path.read_bytes())
    data[200:240] = bytes(40)
    path.write_bytes(bytes(data))
    with pytest.raises(SaccadeError, match=r"hurt\.png is a damaged"):
        open_picture(path)


def write_bomb(path: Path, side: int) -> Path:
    """A PNG of a few bytes that says it has side × side pixels."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    )
    return path


@pytest.mark.parametrize("side", [10_000, 60_000])  # Pillow only warns of the first
def test_a_decompression_bomb_is_refused_before_it_unpacks(side: int, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"bomb\.png unpacks to more than \d+ million pixels"):
        open_picture(write_bomb(tmp_path / "bomb.png", side))


def test_a_bomb_is_refused_in_every_thread(tmp_path: Path) -> None:
    """The filters of warnings belong to all threads: they must come out as they were."""
    bomb, good, filters = write_bomb(tmp_path / "bomb.png", 10_000), tmp_path / "good.png", list(warnings.filters)
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8)).save(good)

    def refused(number: int) -> bool:
        try:
            return open_picture(bomb if number % 2 else good).size == (10_000, 10_000)
        except SaccadeError as error:
            return "unpacks to more than" in str(error)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(refused, range(400))) == [False, True] * 200
    assert warnings.filters == filters


def test_a_folder_is_searched_in_name_order(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("b.png", "a.JPG", "sub/c.webp"):
        Image.new("RGB", (2, 2)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "folder.jpg").mkdir()
    assert [p.name for p in find_pictures(tmp_path)] == ["a.JPG", "b.png", "c.webp"]
    (tmp_path / "lost.png").symlink_to("nowhere.png")  # a picture that cannot be opened must not vanish from the list
    assert [p.name for p in find_pictures(tmp_path)] == ["a.JPG", "b.png", "lost.png", "c.webp"]
    with pytest.raises(SaccadeError, match="is not a folder"):
        find_pictures(tmp_path / "none")
    (tmp_path / "none").mkdir()
    with pytest.raises(SaccadeError, match="holds no picture"):
        find_pictures(tmp_path / "none")
