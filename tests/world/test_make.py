"""Making, keeping and opening a world."""

from __future__ import annotations

import multiprocessing
import shutil
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
from caption_reader import check_phrases
from small_world import SMALL

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json
from saccade.language import tokenise
from saccade.world import World, WorldConfig, make_world, open_world
from saccade.world.sample import is_novel
from saccade.world.store import in_processes

TINY = WorldConfig(pictures=20, size=32, hard_groups=2, novel=3)


def _bytes(folder: Path) -> dict[str, str]:
    return {name: entry["sha256"] for name, entry in read_json(folder / "manifest.json")["files"].items()}


def _larger_of_each(answers: Connection) -> None:
    answers.send(list(in_processes(max, [(1, 2), (4, 3)], workers=2)))


def test_a_worker_that_may_have_no_children_does_the_work_itself() -> None:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    worker = context.Process(target=_larger_of_each, args=(theirs,), daemon=True)
    worker.start()
    theirs.close()
    assert mine.recv() == [2, 4]
    worker.join()


def test_counts_are_as_asked(world: World) -> None:
    assert world.splits == ("train", "dev", "test", "hard", "novel")
    assert [len(world.split(s)) for s in world.splits] == [120, 15, 15, 32, 30]
    for name in world.splits:
        split = world.split(name)
        assert len(split.ids) == len(set(split.ids)) == len(split.groups) == len(split)


def test_what_is_read_fits_together(world: World) -> None:
    split = world.split("train")
    for i in range(0, len(split), 9):
        scene = split.scene(i)
        assert scene.id == split.ids[i]
        assert split.image(i).shape == (64, 64, 3)
        assert split.boxes(i).shape == (len(scene.things), 4)
        assert split.masks(i).shape == (len(scene.things), 64, 64)
        assert len(split.captions(i)) == 5
        for relation, subject_box, object_box in split.triplets(i):
            assert relation in scene.relations
            np.testing.assert_array_equal(subject_box, split.boxes(i)[relation.subject])
            np.testing.assert_array_equal(object_box, split.boxes(i)[relation.object])
        for caption in split.captions(i):
            check_phrases(caption, scene)


def test_the_number_of_workers_changes_nothing(tmp_path: Path) -> None:
    config = WorldConfig(pictures=80, size=32, hard_groups=2, novel=3)
    one = make_world(config, tmp_path / "one", workers=1)
    two = make_world(config, tmp_path / "two", workers=2)
    assert _bytes(one.folder) == _bytes(two.folder)


def test_another_seed_makes_another_world(tmp_path: Path) -> None:
    one = make_world(TINY, tmp_path / "one", workers=1)
    other = make_world(WorldConfig(**{**vars(TINY), "seed": 1}), tmp_path / "other", workers=1)
    assert not set(_bytes(one.folder).values()) & set(_bytes(other.folder).values())


def test_splits_share_no_scene(world: World) -> None:
    seen: Counter[tuple[object, ...]] = Counter()
    for name in world.splits:
        split = world.split(name)
        seen.update({(s.things, s.background, s.seed) for s in map(split.scene, range(len(split)))})
    assert max(seen.values()) == 1


def test_held_out_compositions_are_in_novel_only(world: World) -> None:
    for name in world.splits:
        split = world.split(name)
        for i in range(len(split)):
            scene = split.scene(i)
            assert is_novel(scene.things, scene.relations) == (name == "novel"), scene


def test_twins_say_the_same_words_and_look_different(world: World) -> None:
    hard = world.split("hard")
    for i in range(0, len(hard), 2):
        assert hard.groups[i] == hard.groups[i + 1]
        assert hard.scene(i).twin == hard.ids[i + 1]
        assert hard.scene(i + 1).twin == hard.ids[i]
        assert np.abs(hard.image(i).astype(int) - hard.image(i + 1)).max() > 30
        for one, other in zip(hard.captions(i), hard.captions(i + 1), strict=True):
            assert one.text != other.text
            assert Counter(tokenise(one.text)) == Counter(tokenise(other.text))
            assert one.distractor == other.text
            assert other.distractor == one.text


def test_twins_differ_in_the_binding_only(world: World) -> None:
    """The same attributes over all, and the same place, light and grain."""
    hard = world.split("hard")
    for i in range(0, len(hard), 2):
        one, other = hard.scene(i), hard.scene(i + 1)
        for name in ("kind", "colour", "size", "material"):
            assert Counter(getattr(t, name) for t in one.things) == Counter(getattr(t, name) for t in other.things)
        assert (one.background, one.lighting, one.seed) == (other.background, other.lighting, other.seed)
        assert one.things != other.things


def test_a_share_of_train_is_twins(world: World) -> None:
    train = world.split("train")
    paired = sum(train.scene(i).twin is not None for i in range(len(train)))
    assert paired == 2 * round(0.3 * len(train) / 2)


def test_a_world_made_before_is_opened_not_made(world: World) -> None:
    told: list[tuple[int, int]] = []
    again = make_world(SMALL, world.folder, progress=lambda done, total: told.append((done, total)))
    assert not told
    assert again.config == SMALL


def test_the_cache_is_keyed_by_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path))
    world = make_world(TINY, workers=1)
    assert world.folder == TINY.folder()
    assert world.folder.parent == tmp_path / "world"
    assert WorldConfig(**{**vars(TINY), "seed": 9}).folder() != TINY.folder()


def test_an_interrupted_make_leaves_nothing(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_world(TINY, tmp_path / "w", workers=2, progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_progress_reaches_the_total(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    make_world(TINY, tmp_path / "w", workers=1, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (27, 27)


def _copy(world: World, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world.folder, tmp_path / "copy"))


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda f: (f / "manifest.json").unlink(), "holds no world"),
        (lambda f: (f / "manifest.json").write_text("{"), "not valid JSON"),
        (lambda f: write_json(f / "manifest.json", {"format": "other"}), "not the manifest of a world"),
        (lambda f: write_json(f / "manifest.json", {"format": "saccade world", "generator": 0}), "generator version 0"),
        (lambda f: (f / "dev.arrow").unlink(), "dev.arrow is missing"),
        (lambda f: (f / "hard.arrow").write_bytes((f / "hard.arrow").read_bytes()[:-100]), "it is corrupt"),
    ],
)
def test_a_broken_folder_gets_one_sentence(world: World, tmp_path: Path, harm, sentence: str) -> None:  # type: ignore[no-untyped-def]
    folder = _copy(world, tmp_path)
    harm(folder)
    with pytest.raises(SaccadeError, match=sentence):
        open_world(folder)


def test_changed_bytes_are_found_by_the_check(world: World, tmp_path: Path) -> None:
    folder = _copy(world, tmp_path)
    data = bytearray((folder / "train.arrow").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "train.arrow").write_bytes(data)
    with pytest.raises(SaccadeError, match="checksum"):
        open_world(folder, check=True)


def test_bad_settings_and_folders_in_the_way(world: World, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match="twins"):
        WorldConfig(twins=2.0)
    with pytest.raises(SaccadeError, match="pictures must be at least 0"):
        WorldConfig(pictures=-1)
    with pytest.raises(SaccadeError, match="other settings"):
        make_world(TINY, world.folder)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SaccadeError, match="in the way"):
        make_world(TINY, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(SaccadeError, match='no split "dve"'):
        world.split("dve")
