"""`saccade extract` as a user meets it: a line at the end, a store to train on, and a kill that does no harm."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from saccade.data import Caption, DataConfig, FeatureStore, write_captions
from saccade.features import open_split

Saccade = Callable[..., tuple[int, str, str]]

DIES_AT_THE_THIRD_BATCH = """
import itertools, os, pathlib, signal, sys, time
import saccade.features.extraction
from saccade.cli import main
from saccade.vision.detectors.world import WorldExtractor

saccade.features.extraction.FLUSH_SECONDS = saccade.features.extraction.FLUSH_PATIENCE = 0  # write after every batch
regions, calls = WorldExtractor.regions, itertools.count(1)
def die_later(*words, **options):
    if next(calls) == 3:
        while '"rows"' not in (pathlib.Path(sys.argv[-1]) / "manifest.json").read_text():  # the first is being written
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    return regions(*words, **options)
WorldExtractor.regions = die_later
main()
"""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder, draw = tmp_path / "photos", np.random.default_rng(0)
    folder.mkdir()
    for n in range(12):
        pixels = draw.integers(0, 255, (4, 4, 3), np.uint8)
        Image.fromarray(pixels).resize((50 + n, 40)).save(folder / f"{n:02d}.jpg")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_photos_become_a_store_that_a_model_can_be_trained_on(tmp_path: Path, photos: Path, saccade: Saccade) -> None:
    (photos / "03.jpg").write_text("hello")
    sentences = [Caption(f"{n:02d}.jpg", "a red cube", "train" if n % 2 else "dev") for n in range(12)]
    write_captions(tmp_path / "captions.jsonl", [*sentences, Caption("elsewhere.jpg", "no")])
    store = tmp_path / "store"
    words = ["extract", photos, "-o", store, "--regions", "world", "--captions", tmp_path / "captions.jsonl"]
    (photos / "notes.md").touch()
    code, out, err = saccade(*words)
    assert code == 2
    assert f"{store}: 11 pictures in " in out
    assert "pictures a second), 1 broken (listed in " in out
    assert "03.jpg is not a picture" in err
    assert "note: passed over 1 file that is no picture: .md 1\n" in err
    data = open_split(DataConfig("store", store), "train")
    assert (len(data.images), len(data.texts), data.extractor) == (5, 5, "world")
    assert FeatureStore.open(store).get(0).width == 50
    assert saccade("data", "check", store)[0] == 0
    before = contents(store)
    code, out, _ = saccade(*words)
    assert "0 pictures in " in out
    assert "11 were there" in out
    assert contents(store) == before
    assert saccade("data", "convert", store, tmp_path / "f.tsv", "--to", "tsv")[0] == 0
    assert len((tmp_path / "f.tsv").read_text().splitlines()) == 11
    settings = ["epochs=1", "batch_size=4", "dim=8", "word_dim=4", "min_count=1", "accelerator=cpu", "dev_split=dev"]
    assert saccade("train", "scan", "data=store", f"root={store}", "-o", tmp_path / "run", *settings)[0] == 0


def test_killed_and_given_again_the_command_ends_with_the_same_bytes(
    tmp_path: Path, photos: Path, saccade: Saccade
) -> None:
    words = ["extract", str(photos), "--regions", "world", "--batch-size", "2"]
    assert saccade(*words, "-o", tmp_path / "whole")[0] == 0
    killed = tmp_path / "killed"
    process = [sys.executable, "-c", DIES_AT_THE_THIRD_BATCH, *words, "-o", str(killed)]
    assert subprocess.run(process, capture_output=True, check=False).returncode == -signal.SIGKILL
    there = len(FeatureStore.open(killed))
    assert there in (2, 4)  # the second batch is written while the third is seen
    code, out, _ = saccade(*words, "-o", tmp_path / "killed")
    assert (code, f"{12 - there} pictures in " in out, f"{there} were there" in out) == (0, True, True)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_own_boxes(tmp_path: Path, photos: Path, saccade: Saccade) -> None:
    boxes = tmp_path / "boxes.json"
    boxes.write_text(json.dumps({f"{n:02d}.jpg": [[0, 0, 25, 20], [10, 10, 50 + n, 40]] for n in range(11)}))
    code, out, err = saccade("extract", photos, "-o", tmp_path / "s", "--regions", boxes, "--extractor", "world")
    assert (code, "1 broken" in out, "11.jpg has no boxes" in err) == (2, True, True)
    picture = FeatureStore.open(tmp_path / "s").get(10)
    np.testing.assert_allclose(picture.boxes, [[0, 0, 25 / 60, 0.5], [10 / 60, 0.25, 1, 1]], atol=1e-6)


def test_originals_may_have_been_larger(tmp_path: Path, photos: Path, saccade: Saccade) -> None:
    (tmp_path / "sizes.tsv").write_text("image\torig_width\torig_height\n00.jpg\t500\t400\n")
    words = ["extract", photos, "-o", tmp_path / "s", "--regions", "world", "--sizes", tmp_path / "sizes.tsv"]
    assert saccade(*words, "--limit", 2)[0] == 0
    assert [(p.width, p.height) for p in FeatureStore.open(tmp_path / "s")] == [(500, 400), (51, 40)]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["photos", "--regions", "wrold"], 'there is no extractor "wrold"; did you mean "world"?'),
        (["photos", "--regions", "world", "--extractor", "grid"], "--extractor grid goes with a file of boxes"),
        (["photos", "--regions", "boxes.json"], "boxes.json does not exist"),
        (["photos", "--regions", "grid", "--model", "scan-flickr8k"], "both say where regions come from"),
        (["photos", "--model", "nothing"], "nothing is no model folder"),
        (["photos", "--regions", "world", "--captions", "none.jsonl"], "none.jsonl does not exist"),
        (["photos", "--regions", "world", "--device", "cdua"], 'no device "cdua"'),
        (["photos", "--regions", "world", "-o", "photos"], "photos is in the way"),
        (["empty.jpg", "--regions", "world"], "none of the 1 pictures could be read"),
        (["photos", "photos/00.jpg", "other", "--regions", "world"], 'two pictures have the name "00.jpg"'),
    ],
)
def test_what_a_user_can_get_wrong(
    photos: Path, saccade: Saccade, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(photos.parent)
    Path("empty.jpg").touch()
    Path("other").mkdir()
    Path("other/00.jpg").write_bytes(b"")
    code, _, err = saccade("extract", *words)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("error: ")
    assert sentence in err


def test_other_settings_are_refused(tmp_path: Path, photos: Path, saccade: Saccade) -> None:
    words = ["extract", photos, "-o", tmp_path / "s", "--regions", "world"]
    saccade(*words, "--limit", 2)
    before = contents(tmp_path / "s")
    code, _, err = saccade(*words, "--dtype", "float32")
    assert (code, "was begun with float16, not float32" in err) == (2, True)
    assert contents(tmp_path / "s") == before
