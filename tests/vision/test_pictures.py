"""Opening pictures: every mode becomes RGB, cameras' rotation is honoured, and bad files get a sentence."""

from __future__ import annotations

import os
import struct
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from saccade.core.errors import SaccadeError
from saccade.vision import pictures
from saccade.vision.pictures import as_array, find_pictures, open_picture, open_sized, picture_formats


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


@pytest.mark.parametrize("side", [12_000, 20_000, 60_000])  # Pillow warns of the second and refuses the third
def test_a_decompression_bomb_is_refused_before_it_unpacks(side: int, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"bomb\.png unpacks to more than \d+ million pixels"):
        open_picture(write_bomb(tmp_path / "bomb.png", side))


def test_a_bomb_is_refused_in_every_thread(tmp_path: Path) -> None:
    """The filters of warnings and Pillow's limit belong to all threads: they must come out as they were."""
    bomb, good, filters = write_bomb(tmp_path / "bomb.png", 20_000), tmp_path / "good.png", list(warnings.filters)
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8)).save(good)
    limit = Image.MAX_IMAGE_PIXELS

    def refused(number: int) -> bool:
        try:
            return open_picture(bomb if number % 2 else good).size == (20_000, 20_000)
        except SaccadeError as error:
            return "unpacks to more than" in str(error)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(refused, range(400))) == [False, True] * 200
    assert warnings.filters == filters
    assert limit == Image.MAX_IMAGE_PIXELS


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


ENDINGS = [".jfif", ".jpe", ".avif", ".jp2", ".tga", ".ico", ".qoi"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_pillow_opens_is_found_and_opened(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"picture{ending.upper()}"
    Image.new("RGB", (32, 32), (200, 100, 50)).save(path)
    assert find_pictures(tmp_path) == [path]
    assert np.abs(as_array(path)[16, 16].astype(int) - (200, 100, 50)).max() < 12


@pytest.mark.parametrize("ending", [".heic", ".heif"])
def test_phones_photos_are_opened(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"photo{ending}"
    picture_formats()  # registers HEIC
    Image.new("RGB", (64, 48), (200, 100, 50)).save(path, format="HEIF")
    assert find_pictures(tmp_path) == [path]
    assert as_array(path).shape == (48, 64, 3)
    assert np.abs(as_array(path)[16, 16].astype(int) - (200, 100, 50)).max() < 12


@pytest.fixture
def old_pillow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pillow before AVIF, without pillow-heif."""
    picture_formats()
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr(Image, "ID", [name for name in Image.ID if name not in ("AVIF", "HEIF")])
    picture_formats.cache_clear()
    yield
    picture_formats.cache_clear()


def test_what_is_missing_for_phones_photos_is_said(tmp_path: Path, old_pillow: None) -> None:
    heic, avif = tmp_path / "a.heic", tmp_path / "b.jpg"  # some apps call either what they like
    heic.write_bytes(b"\0\0\0\x1cftypheic" + bytes(40))
    avif.write_bytes(b"\0\0\0\x20ftypavif" + bytes(40))
    assert find_pictures(tmp_path) == [heic, avif]
    with pytest.raises(SaccadeError, match=r'a\.heic is a HEIC photo.*: pip install "saccade\[heic\]"'):
        open_picture(heic)
    with pytest.raises(SaccadeError, match=r'b\.jpg is an AVIF photo.*: pip install "pillow>=11\.3"'):
        open_picture(avif)


def test_no_program_is_run_to_open_a_file(tmp_path: Path) -> None:
    """Pillow hands PostScript to Ghostscript."""
    path = tmp_path / "picture.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(SaccadeError, match=r"picture\.jpg is not a picture"):
        open_picture(path)


def test_what_is_passed_over_is_counted_by_ending(tmp_path: Path) -> None:
    for name in ("a.txt", "b.TXT", "c.mov", "film.mpg", "Makefile"):
        (tmp_path / name).touch()
    with pytest.raises(SaccadeError, match=r"holds no picture \(passed over 5 files that are no pictures: \.txt 2, "):
        find_pictures(tmp_path)
    Image.new("RGB", (2, 2)).save(tmp_path / "x.png")
    passed_over = Counter[str]()
    find_pictures(tmp_path, passed_over)
    assert passed_over == {".txt": 2, ".mov": 1, ".mpg": 1, "no ending": 1}
    os.mkfifo(tmp_path / "pipe.png")  # would be waited for
    assert [path.name for path in find_pictures(tmp_path)] == ["x.png"]


def test_linked_folders_are_searched_once_and_circles_end(tmp_path: Path) -> None:
    album, elsewhere = tmp_path / "album", tmp_path / "elsewhere"
    for name in ("album/own/a.png", "elsewhere/deep/b.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        Image.new("RGB", (2, 2)).save(tmp_path / name)
    (album / "0-inside").symlink_to(album / "own")  # before it in the alphabet, but its own path is the one that counts
    (album / "linked").symlink_to(elsewhere)
    (album / "linked-again").symlink_to(elsewhere / "deep")
    (album / "own" / "up").symlink_to(album)
    (elsewhere / "deep" / "round").symlink_to(elsewhere)
    (elsewhere / "self").symlink_to(elsewhere / "self")
    assert [str(path.relative_to(album)) for path in find_pictures(album)] == ["linked/deep/b.png", "own/a.png"]
    assert find_pictures(album / "linked") == [album / "linked" / "deep" / "b.png"]


def test_a_folder_that_cannot_be_read_is_not_passed_over_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (2, 2)).save(tmp_path / "x.png")
    (tmp_path / "locked").mkdir()
    real = os.scandir

    def scandir(place: str) -> object:
        if str(place).endswith("locked"):
            raise PermissionError(13, "Permission denied", place)
        return real(place)

    monkeypatch.setattr(os, "scandir", scandir)
    passed_over = Counter[str]()
    assert [path.name for path in find_pictures(tmp_path, passed_over)] == ["x.png"]
    assert passed_over == {"unreadable folder": 1}


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_PIXELS", 5000)
    monkeypatch.setattr(pictures, "MAX_JPEG_PIXELS", 10_000)


def test_the_bound_is_one_of_memory_and_above_todays_phones() -> None:
    assert pictures.MAX_PIXELS * 4 == pictures.MAX_DECODED_BYTES == 512 << 20
    assert pictures.MAX_JPEG_PIXELS > 200_000_000 > pictures.MAX_PIXELS > 108_000_000


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("kind", ["JPEG", "MPO"])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_jpeg_is_decoded_at_half_its_scale_and_upright(
    mode: str, kind: str, progressive: bool, orientation: int, tmp_path: Path, small_memory: None
) -> None:
    shades = np.zeros((81, 121, 3), np.uint8)
    shades[:, :60] = 255  # the left half, which is the upper half once it is turned
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "large.jpg"
    Image.fromarray(shades).convert(mode).save(path, format=kind, exif=exif, progressive=progressive, quality=95)
    picture, size = open_sized(path)
    assert picture.mode == "RGB"
    if orientation == 6:
        assert (picture.size, size) == ((41, 61), (81, 121))
        light, dark = picture.getpixel((20, 10)), picture.getpixel((20, 50))
    else:
        assert (picture.size, size) == ((61, 41), (121, 81))
        light, dark = picture.getpixel((10, 20)), picture.getpixel((50, 20))
    assert min(light) > 240
    assert max(dark) < 40


def test_up_to_the_bound_nothing_is_reduced(tmp_path: Path, small_memory: None) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (50, 100, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.jpg")
    assert open_sized(tmp_path / "a.jpg")[0].size == open_sized(tmp_path / "a.jpg")[1] == (100, 50)


@pytest.mark.parametrize(("name", "limit"), [("a.png", 5000), ("a.webp", 5000), ("a.gif", 5000), ("b.jpg", 10_000)])
def test_more_than_the_bound_is_refused_before_it_is_decoded(
    name: str, limit: int, tmp_path: Path, small_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    height = limit // 100 + 1
    Image.new("RGB", (100, height)).save(tmp_path / name)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail("decoded"))
    with pytest.raises(SaccadeError, match=r"unpacks to more than \d+ million pixels, too many to open safely"):
        open_picture(tmp_path / name)
