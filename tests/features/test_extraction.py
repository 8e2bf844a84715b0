"""Extraction: killed anywhere and started again, the store has the bytes of an unbroken run; nothing bad ends a run."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from company_extractor import CompanyExtractor, save_photos, spoil
from PIL import Image
from toy_pictures import folder_bytes

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.core.threads import ahead
from saccade.data import FeatureStore
from saccade.data.store.arrow import StoreWriter
from saccade.data.store.manifest import write_broken
from saccade.features import decoding
from saccade.features.extraction import extract
from saccade.vision import Picture, load_extractor

Photos = list[tuple[str, Path]]


@pytest.fixture
def photos(tmp_path: Path) -> Photos:
    return save_photos(tmp_path / "photos", 40)


@pytest.fixture(autouse=True, params=["threads", "processes"])
def _small_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small shards, written after every batch, so that a kill finds everything in between; decoded in either way."""
    monkeypatch.setattr(decoding, "MIN_FILES_FOR_PROCESSES", 1 if request.param == "processes" else 10**9)
    monkeypatch.setattr(decoding, "CHUNK", 3)
    monkeypatch.setattr("saccade.features.extraction.SHARD_ROWS", 8)
    monkeypatch.setattr("saccade.features.extraction.FLUSH_SECONDS", 0.0)
    monkeypatch.setattr("saccade.features.extraction.FLUSH_PATIENCE", 0)


def child(action: Callable[[], Any]) -> int:
    """Run `action` in another process; its id."""
    process = os.fork()
    if process == 0:
        try:
            action()
            os._exit(0)
        except SaccadeError:
            os._exit(2)
        finally:
            os._exit(1)
    return process


def ended(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_killed_at_random_moments_it_ends_with_the_bytes_of_an_unbroken_run(
    tmp_path: Path, photos: Photos, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n, how in ((3, "cut"), (4, "empty"), (20, "text"), (39, "gone")):
        spoil(photos[n][1], how)

    def run(folder: Path, dies_after: int | None = None) -> None:
        """Extract; with `dies_after`, end without a word after so many writings, the first of an empty store."""
        flush, flushes = StoreWriter.flush, 0

        def flush_and_die(writer: StoreWriter) -> None:
            nonlocal flushes
            flush(writer)
            flushes += 1
            if flushes == dies_after:
                os.kill(os.getpid(), signal.SIGKILL)

        if dies_after is not None:  # in a process of its own: nobody else sees it
            monkeypatch.setattr(StoreWriter, "flush", flush_and_die)
        extract(photos, CompanyExtractor(pause=0.004), folder, batch_size=7)

    def look(folder: Path) -> None:
        if (folder / "manifest.json").exists():
            store = FeatureStore.open(folder)
            store.verify()
            states.add(len(store))

    begun = time.perf_counter()
    run(tmp_path / "whole")
    length = time.perf_counter() - begun
    expected = folder_bytes(tmp_path / "whole")
    assert set(expected) > {"manifest.json", "broken.json", "shard-00000.arrow"}
    dice, kills, states = random.Random(5), 0, set()
    for writings in (1, 2, 3, 4, 5):  # at places that no clock chooses
        folder = tmp_path / f"killed-after-{writings}"
        assert ended(child(partial(run, folder, writings))) == -signal.SIGKILL
        look(folder)
        run(folder)
        assert folder_bytes(folder) == expected
    assert len(states) == 5
    for attempt in range(40):  # at random moments; a busy machine needs more of them
        if attempt >= 8 and kills >= 8:
            break
        folder = tmp_path / f"killed-{attempt}"
        for _ in range(4):
            process = child(partial(run, folder))
            time.sleep(dice.uniform(0, length if attempt % 2 else length / 2))
            os.kill(process, signal.SIGKILL)
            kills += ended(process) == -signal.SIGKILL
            look(folder)
        run(folder)
        assert folder_bytes(folder) == expected
    assert kills >= 8
    assert not list(tmp_path.glob(".*"))  # no lock stays behind


def test_batches_are_cut_by_place_so_broken_pictures_leave_gaps(tmp_path: Path, photos: Photos) -> None:
    spoil(photos[1][1], "empty")
    sizes: list[int] = []
    extract(photos[:10], CompanyExtractor(told=sizes.append), tmp_path / "s", batch_size=4)
    assert sizes == [3, 4, 2]


def test_a_row_is_what_the_extractor_sees_of_the_file(tmp_path: Path) -> None:
    extractor, folder = load_extractor("world"), tmp_path / "photos"
    folder.mkdir()
    noise = np.random.default_rng(0).integers(0, 255, (40, 90, 3), np.uint8)
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(noise).save(folder / "turned.jpg", exif=turned)
    Image.fromarray(noise[:, :, 0]).save(folder / "grey.png")
    Image.fromarray(noise).convert("P").save(folder / "palette.gif")
    Image.fromarray(np.dstack([noise, noise[:, :, 0]])).save(folder / "clear.webp")
    paths = sorted(folder.iterdir())
    done = extract([(p.name, p) for p in paths], extractor, tmp_path / "s", dtype="float32")
    seen = extractor.extract(paths)
    assert seen.scores is not None
    for row, picture in enumerate(done.store):
        real = seen.mask[row]
        np.testing.assert_array_equal(picture.features, seen.features[row, real].numpy())
        np.testing.assert_array_equal(picture.boxes, seen.boxes[row, real].numpy())
        np.testing.assert_array_equal(picture.scores, seen.scores[row, real].numpy())
    assert (done.store.extractor, done.store.dim) == ("world", extractor.dim)
    size = {p.id: (p.width, p.height) for p in done.store}
    assert size == {"turned.jpg": (40, 90), "grey.png": (90, 40), "palette.gif": (90, 40), "clear.webp": (90, 40)}


def test_a_finished_store_is_only_opened(tmp_path: Path, photos: Photos) -> None:
    first = extract(photos, CompanyExtractor(), tmp_path / "s")
    assert (first.written, first.already, first.broken) == (40, 0, ())
    times = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "s").iterdir()}
    calls: list[int] = []
    told: list[tuple[int, int]] = []
    again = extract(photos, CompanyExtractor(told=calls.append), tmp_path / "s", progress=lambda *n: told.append(n))
    assert (again.written, again.already, calls, told) == (0, 40, [], [])
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "s").iterdir()} == times
    more = extract([*photos, *save_photos(tmp_path / "more", 41)[40:]], CompanyExtractor(), tmp_path / "s")
    assert (more.written, more.already) == (1, 40)


def test_killed_after_its_last_file_it_leaves_no_lock_for_good(tmp_path: Path, photos: Photos) -> None:
    def run() -> None:
        extract(photos, CompanyExtractor(), tmp_path / "s")

    def write_and_die(*facts: Any) -> None:
        write_broken(*facts)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saccade.features.extraction.write_broken", write_and_die)
        assert ended(child(run)) == -signal.SIGKILL
    assert (tmp_path / ".s.lock").exists()
    run()
    assert not (tmp_path / ".s.lock").exists()


def test_progress_counts_what_is_settled(tmp_path: Path, photos: Photos) -> None:
    spoil(photos[0][1], "cut")
    told: list[tuple[int, int]] = []
    extract(photos[:16], CompanyExtractor(), tmp_path / "s", batch_size=8)
    extract(photos, CompanyExtractor(), tmp_path / "s", batch_size=8, progress=lambda *n: told.append(n))
    assert told == [(16, 40), (24, 40), (32, 40), (40, 40)]


def test_broken_pictures_are_listed_with_reasons_and_tried_again_on_request(tmp_path: Path, photos: Photos) -> None:
    good = {n: photos[n][1].read_bytes() for n in (2, 5)}
    for n, how in ((2, "cut"), (5, "text"), (9, "empty"), (30, "gone")):
        spoil(photos[n][1], how)
    done = extract(photos, CompanyExtractor(), tmp_path / "s", batch_size=8)
    listed = json.loads((tmp_path / "s" / "broken.json").read_text())
    assert [b["id"] for b in listed] == [b.id for b in done.broken] == [f"photo-{n:03d}.jpg" for n in (2, 5, 9, 30)]
    for broken, words in zip(
        listed, ("damaged or cut-off", "not a picture", "is empty", "does not exist"), strict=True
    ):
        assert words in broken["reason"]
        assert broken["path"].endswith(broken["id"])
    assert (done.written, len(done.store)) == (36, 36)

    for n, content in good.items():
        photos[n][1].write_bytes(content)
    before = folder_bytes(tmp_path / "s")
    assert len(extract(photos, CompanyExtractor(), tmp_path / "s", batch_size=8).broken) == 4  # not tried unasked
    assert folder_bytes(tmp_path / "s") == before
    mended = extract(photos, CompanyExtractor(), tmp_path / "s", batch_size=8, retry=True)
    assert (mended.written, len(mended.broken)) == (2, 2)
    assert list(mended.store.ids[-2:]) == ["photo-002.jpg", "photo-005.jpg"]  # rows are only ever added
    assert list(mended.images.ids) == [id for n, (id, _) in enumerate(photos) if n not in (9, 30)]  # but asked in order
    photos[9][1].write_bytes(good[2])
    save_photos(photos[0][1].parent, 40)
    assert not extract(photos, CompanyExtractor(), tmp_path / "s", retry=True).broken
    assert not (tmp_path / "s" / "broken.json").exists()


def test_when_all_are_broken_it_is_an_error(tmp_path: Path, photos: Photos) -> None:
    for _, path in photos[:3]:
        spoil(path, "empty")
    for _ in range(2):
        with pytest.raises(SaccadeError, match=r"none of the 3 pictures .*, for one: .*photo-000\.jpg is empty"):
            extract(photos[:3], CompanyExtractor(), tmp_path / "s")


def test_a_decoder_that_fails_in_its_own_way_ends_nothing(
    tmp_path: Path, photos: Photos, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = decoding.open_sized

    def fail(path: Path) -> tuple[Image.Image, tuple[int, int]]:
        if path.name == "photo-001.jpg":
            raise ZeroDivisionError
        return real(path)

    monkeypatch.setattr(decoding, "open_sized", fail)
    done = extract(photos[:4], CompanyExtractor(), tmp_path / "s")
    assert [b.reason.endswith("could not be decoded (ZeroDivisionError)") for b in done.broken] == [True]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [(1e5, "the feature value 100000 does not fit into float16"), (np.nan, "the features hold NaN or infinity")],
)
def test_features_that_no_store_can_keep_are_refused_by_name_and_those_before_are_kept(
    tmp_path: Path, photos: Photos, monkeypatch: pytest.MonkeyPatch, value: float, sentence: str
) -> None:
    extractor, regular = CompanyExtractor(), CompanyExtractor.extract

    def spoilt(self: CompanyExtractor, images: Sequence[Picture], **others: Any) -> RegionBatch:
        regions = regular(self, images, **others)
        regions.features[3:, 1, 2] = value
        return regions

    monkeypatch.setattr(CompanyExtractor, "extract", spoilt)
    with pytest.raises(SaccadeError, match=rf'picture "photo-003\.jpg": {sentence}'):
        extract(photos, extractor, tmp_path / "s", batch_size=7)
    assert list(FeatureStore.open(tmp_path / "s").ids) == [id for id, _ in photos[:3]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"extractor": CompanyExtractor("other")}, 'begun with the extractor "company", not "other"'),
        ({"extractor": CompanyExtractor(digest="2")}, 'begun with other weights of the extractor "company"'),
        ({"dtype": "float32"}, "begun with float16, not float32"),
        ({"extractor": CompanyExtractor(precision="bf16")}, "begun with fp32, not bf16"),
        ({"boxes": {"photo-000.jpg": np.array([[0, 0, 1, 1]])}}, "begun with other boxes"),
    ],
)
def test_other_settings_are_refused_and_change_nothing(
    tmp_path: Path, photos: Photos, change: dict[str, Any], sentence: str
) -> None:
    extract(photos[:10], CompanyExtractor(), tmp_path / "s")
    before = folder_bytes(tmp_path / "s")
    with pytest.raises(SaccadeError, match=sentence):
        extract(photos, **{"extractor": CompanyExtractor(), "folder": tmp_path / "s", **change})
    assert folder_bytes(tmp_path / "s") == before


def test_what_cannot_be_begun(tmp_path: Path, photos: Photos) -> None:
    with pytest.raises(SaccadeError, match="is in the way"):
        extract(photos, CompanyExtractor(), photos[0][1].parent)
    with pytest.raises(SaccadeError, match="is a file"):
        extract(photos, CompanyExtractor(), photos[0][1])
    with pytest.raises(SaccadeError, match=r'two pictures have the name "photo-000\.jpg"'):
        extract([photos[0], photos[0]], CompanyExtractor(), tmp_path / "s")
    with pytest.raises(SaccadeError, match="no pictures"):
        extract([], CompanyExtractor(), tmp_path / "s")
    with pytest.raises(SaccadeError, match="must be at least 1"):
        extract(photos, CompanyExtractor(), tmp_path / "s", batch_size=0)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("after", [2, 5, 8])
def test_a_full_disk_is_said_and_the_next_run_goes_on(
    tmp_path: Path, photos: Photos, full_disk: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    extract(photos, CompanyExtractor(), tmp_path / "whole", batch_size=7)
    full_disk(after)
    with pytest.raises(SaccadeError, match="the disk is full"):
        extract(photos, CompanyExtractor(), tmp_path / "s", batch_size=7)
    monkeypatch.undo()  # there is room again
    monkeypatch.setattr("saccade.features.extraction.SHARD_ROWS", 8)
    extract(photos, CompanyExtractor(), tmp_path / "s", batch_size=7)
    assert folder_bytes(tmp_path / "s") == folder_bytes(tmp_path / "whole")


def test_of_two_processes_one_sees_and_the_other_waits(tmp_path: Path, photos: Photos) -> None:
    told = tmp_path / "told.txt"

    def run() -> None:
        def note(count: int) -> None:
            with told.open("a") as file:
                file.write(f"{count}\n")

        extract(photos, CompanyExtractor(pause=0.01, told=note), tmp_path / "s", batch_size=8)

    processes = [child(run) for _ in range(3)]
    assert [ended(p) for p in processes] == [0, 0, 0]
    assert told.read_text().split() == ["8"] * 5
    store = FeatureStore.open(tmp_path / "s")
    store.verify()
    assert list(store.ids) == [id for id, _ in photos]


def test_given_boxes_are_seen_in_pixels_and_in_fractions(tmp_path: Path, photos: Photos) -> None:
    pixels, fractions = {}, {}
    for id, path in photos:
        with Image.open(path) as image:
            side = np.array([*image.size, *image.size], np.float32)
        fractions[id] = np.array([[0, 0, 1, 1], [0.25, 0.25, 0.5, 1]], np.float32)
        pixels[id] = fractions[id] * side
    pixels["photo-000.jpg"][0, 2] += 1.5  # rounding of whoever made them
    one = extract(photos, CompanyExtractor(), tmp_path / "pixels", boxes=pixels, unit="pixel").store
    two = extract(photos, CompanyExtractor(), tmp_path / "fractions", boxes=fractions).store
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a.boxes, b.boxes, atol=1e-6)
        np.testing.assert_allclose(a.boxes, fractions[a.id], atol=1e-6)
    assert "boxes" in one.metadata


def test_pictures_with_bad_boxes_or_none_are_listed(tmp_path: Path, photos: Photos) -> None:
    boxes = {id: np.array([[0, 0, 10, 10]]) for id, _ in photos[:6]}
    boxes["photo-001.jpg"] = np.array([[0, 0, 1000, 10]])
    boxes["photo-002.jpg"] = np.array([[5, 5, 5, 9]])
    boxes["photo-003.jpg"] = np.zeros((0, 4))
    del boxes["photo-004.jpg"]
    done = extract(photos[:6], CompanyExtractor(), tmp_path / "s", boxes=boxes, unit="pixel")
    assert done.store.ids == ("photo-000.jpg", "photo-005.jpg")
    for broken, words in zip(done.broken, ("leaves the picture", "x1 < x2", "no boxes", "no boxes"), strict=True):
        assert words in broken.reason


def test_the_original_size_may_be_told(tmp_path: Path, photos: Photos) -> None:
    done = extract(photos[:2], CompanyExtractor(), tmp_path / "s", sizes={"photo-001.jpg": (640, 480)})
    assert (done.store.get(1).width, done.store.get(1).height) == (640, 480)
    assert done.store.get(0).width < 100


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="processes decode on Linux alone")


@linux_only
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_the_extraction(
    tmp_path: Path, photos: Photos, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(decoding, "MIN_FILES_FOR_PROCESSES", 1)

    def run() -> None:
        os.setpgid(0, 0)  # what it starts is of its group
        signal.signal(signal.SIGINT, signal.default_int_handler)
        extract(photos, CompanyExtractor(pause=0.3), tmp_path / "s", batch_size=4, workers=3)

    leader = child(run)
    while not list((tmp_path / "s").glob("shard-*.arrow")):
        time.sleep(0.01)
    (os.killpg if number == signal.SIGINT else os.kill)(leader, number)  # a terminal sends Ctrl-C to all
    assert ended(leader) != 0
    for _ in range(1000):
        try:
            os.killpg(leader, 0)
        except ProcessLookupError:
            break
        time.sleep(0.01)
    else:
        pytest.fail("a process that decodes is left")


@linux_only
def test_a_process_that_ends_is_named_with_what_it_opened(
    tmp_path: Path, photos: Photos, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "MIN_FILES_FOR_PROCESSES", 1)
    real = decoding.open_sized
    monkeypatch.setattr(decoding, "open_sized", lambda path: os._exit(1) if "004" in path.name else real(path))
    with pytest.raises(SaccadeError, match=r"was ended while it opened .*photo-004\.jpg"):
        extract(photos, CompanyExtractor(), tmp_path / "s", workers=2)
    monkeypatch.undo()
    assert len(extract(photos, CompanyExtractor(), tmp_path / "s").store) == 40


@linux_only
@pytest.mark.parametrize("slot", [1, 4000, 1 << 20])
def test_processes_give_what_one_thread_gives(photos: Photos, monkeypatch: pytest.MonkeyPatch, slot: int) -> None:
    """In order, and whole where pictures keep their shape and some are larger than the memory for them."""
    spoil(photos[5][1], "cut")
    extractor = CompanyExtractor()
    extractor.picture_size = None
    opener = decoding.Opener(extractor, None, "fraction", {"photo-007.jpg": (640, 480)})
    monkeypatch.setattr(decoding, "SLOT_BYTES", slot)
    with closing(decoding.ProcessesAhead(opener, photos, 3)) as found:
        for one, other in zip(found, map(opener, photos), strict=True):
            assert type(one) is type(other)
            assert one.id == other.id
            if isinstance(one, decoding.Opened) and isinstance(other, decoding.Opened):
                assert (one.width, one.height) == (other.width, other.height)
                np.testing.assert_array_equal(one.pixels, other.pixels)


def test_results_come_in_order_and_never_too_many_ahead() -> None:
    begun: list[int] = []

    def work(n: int) -> int:
        begun.append(n)
        time.sleep(0.002 * (n % 3))
        return n * n

    results = ahead(work, range(40), workers=4, most=5)
    for n in range(40):
        assert next(results) == n * n
        assert len(begun) <= n + 1 + 5
    assert list(results) == []


def test_leaving_early_drops_what_has_not_begun() -> None:
    begun: list[int] = []
    results = ahead(lambda n: begun.append(n) or time.sleep(0.01), range(1000), workers=2, most=50)  # type: ignore[func-returns-value]
    next(results)
    results.close()
    assert len(begun) < 20
