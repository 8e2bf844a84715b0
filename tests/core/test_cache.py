"""Nothing in the cache is believed that somebody else could have written: weights, worlds, features, pixels, cuts."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.core import pretrained
from saccade.core.cache import Untrusted, cached, close_to_others, read_cached, trusted
from saccade.core.errors import SaccadeError
from saccade.core.pretrained import PRETRAINED, Pretrained, WheelFile, fetch_pretrained, find_pretrained
from saccade.core.weights import write_weights
from saccade.data.records import CaptionedPhotos
from saccade.features.splits import extract_split, open_pixels
from saccade.ops.cuda import epilogue
from saccade.world.store import WorldConfig, make_world

Spoil = Callable[[Path], None]
WORLD = WorldConfig(pictures=10, size=32, hard_groups=1, novel=1)


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=["another's", "group", "world", "link"])
def spoil(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Spoil:
    """What makes a file or folder one that somebody else could have written."""

    def apply(path: Path) -> None:
        mode = stat.S_IMODE(path.stat().st_mode)
        if request.param == "group":
            path.chmod(mode | 0o020)
        elif request.param == "world":
            path.chmod(mode | 0o002)
        elif request.param == "link":
            aside = path.rename(tmp_path / "aside")
            path.symlink_to(aside)
        elif os.geteuid() == 0:
            os.chown(path, 12345, -1)
        else:  # only root gives files away: then it is another user who looks
            owner = os.geteuid()
            monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    return apply


def outside(path: Path, root: Path) -> bool:
    return root not in path.parents


def test_an_untouched_cache_is_used_in_silence(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = cached("worlds", "one")
    assert place == root / "worlds" / "one"
    place.write_text("kept")
    assert cached("worlds", "one") == place
    assert read_cached("worlds", "one") == b"kept"
    assert stat.S_IMODE(root.stat().st_mode) == stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("which", [".", "worlds", "worlds/one", "worlds/one/inner", "worlds/one/inner/file"])
def test_what_others_could_write_is_made_anew_elsewhere(
    root: Path, spoil: Spoil, which: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = cached("worlds", "one")
    (place / "inner").mkdir(parents=True)
    (place / "inner" / "file").write_text("theirs")
    spoil(root / which)
    if which == "." and root.is_symlink():  # the user says where the cache is, by a link if need be
        assert cached("worlds", "one") == place
        return
    other = cached("worlds", "one")
    assert outside(other, root)
    assert not other.exists()
    assert stat.S_IMODE(other.parents[1].stat().st_mode) == 0o700
    said = capsys.readouterr().err
    assert said.startswith("note: ")
    assert said.endswith(": one is made anew for this run alone\n")
    assert cached("worlds", "one") == other
    assert capsys.readouterr().err == "", "it is said once"
    with pytest.raises(Untrusted):
        trusted("worlds", "one")


def test_a_folder_above_the_cache_that_anyone_can_write_could_hold_another_cache(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cached("worlds", "one") == root / "worlds" / "one"
    root.parent.chmod(0o777)
    assert outside(cached("worlds", "one"), root)
    assert "above the cache, can be written by others" in capsys.readouterr().err
    root.parent.chmod(0o1777)  # as /tmp is: each may rename what is theirs
    assert cached("worlds", "one") == root / "worlds" / "one"


def test_the_umask_decides_nothing_in_the_cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        place = cached("worlds", "one")
        (place / "inner").mkdir(parents=True)
        (place / "inner" / "file").write_text("ours")
        close_to_others(place)
    finally:
        os.umask(before)
    assert trusted("worlds", "one") == place


@pytest.fixture
def toy_weights(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Converted weights in the cache, whose only proof is what they say of themselves."""
    entry = Pretrained("toy", "", "", "toy-eyes", "1", 1, "toy_eyes/data", (WheelFile("eyes.pth", "0" * 64, 8),))
    monkeypatch.setitem(PRETRAINED, "toy", entry)
    file = cached("weights", "toy") / "eyes.safetensors"
    write_weights(file, {"w": torch.ones(2)}, metadata={pretrained.SOURCE: "0" * 64})
    assert find_pretrained("toy") == (file,)
    return file


@pytest.mark.parametrize("up", [0, 1])
def test_weights_that_others_could_write_are_not_loaded(
    toy_weights: Path, spoil: Spoil, up: int, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil([toy_weights, toy_weights.parent][up])
    with pytest.raises(SaccadeError, match="the weights toy are not here"):
        find_pretrained("toy")
    assert "the weights toy in it are not used" in capsys.readouterr().err
    with pytest.raises(SaccadeError, match="let SACCADE_CACHE name a folder of your own"):
        fetch_pretrained("toy")


def test_a_world_that_others_could_write_is_made_anew(root: Path, spoil: Spoil) -> None:
    made = make_world(WORLD, workers=1)
    assert made.folder == WORLD.folder() == root / "world" / WORLD.digest()
    spoil(made.folder / "train.arrow")
    anew = make_world(WORLD, workers=1)
    assert outside(anew.folder, root)
    assert anew.split("train").ids == made.split("train").ids


def test_features_and_pixels_that_others_could_write_are_made_anew(root: Path, spoil: Spoil, tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    Image.new("RGB", (32, 32), "red").save(photo)
    photos = CaptionedPhotos("toy", "all", ("photo",), (photo,), ("a red square",), np.zeros(1, dtype=np.int64))
    extract_split(photos, "grid:world")
    open_pixels(("photo",), [photo], 8)
    (manifest,), (pixels,) = root.glob("features/*/manifest.json"), root.glob("pixels/*.npy")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"metadata": {"planted": True}}))
    planted = np.load(pixels)
    planted[:] = 0
    np.save(pixels, planted)
    spoil(manifest)
    spoil(pixels)
    features, found = extract_split(photos, "grid:world"), open_pixels(("photo",), [photo], 8)
    assert isinstance(found.pictures, np.ndarray)
    assert found.pictures[0, 0, 0].tolist() == [255, 0, 0]
    assert len(features.images) == 1


def test_cuts_that_others_could_write_or_nobody_tried_are_not_taken(root: Path, spoil: Spoil) -> None:
    file, good = cached(*epilogue.CUTS_FILE), epilogue.TRIED_CUTS[0]
    cuts = {"good": {"tiles": good.tiles, "rows": good.rows}, "huge": {"tiles": 10, "rows": 1 << 60}}
    file.write_text(json.dumps(cuts))
    epilogue._known_cuts.cache_clear()
    assert epilogue._known_cuts() == {"good": good}
    spoil(file)
    epilogue._known_cuts.cache_clear()
    assert epilogue._known_cuts() == {}
    epilogue._known_cuts.cache_clear()
