"""Files are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

from saccade.core.cache import cache_folder
from saccade.core.errors import SaccadeError
from saccade.core.files import (
    atomic_file,
    atomic_folder,
    check_distinct,
    check_writable,
    only_one,
    read_json,
    read_text,
    sha256,
    sweep_lock,
    write_json,
    write_text,
)
from saccade.core.weights import write_weights


def half_write(writing: AbstractContextManager[Path], failure: BaseException) -> None:
    with writing as temporary:
        (temporary / "config.json" if temporary.is_dir() else temporary).write_text("half")
        raise failure


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_and_json_come_back_and_folders_are_made(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b" / "c.txt", "žluťoučký kůň\n")
    write_json(tmp_path / "d.json", {"größe": [1, 2.5, None]})
    assert read_text(tmp_path / "a" / "b" / "c.txt") == "žluťoučký kůň\n"
    assert read_json(tmp_path / "d.json") == {"größe": [1, 2.5, None]}
    assert names(tmp_path / "a" / "b") == ["c.txt"]


@pytest.mark.parametrize("failure", [RuntimeError("model"), KeyboardInterrupt(), OSError(errno.EIO, "broken")])
def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path: Path, failure: BaseException) -> None:
    path = tmp_path / "weights"
    write_text(path, "old")
    with pytest.raises((type(failure), SaccadeError)):
        half_write(atomic_file(path), failure)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["weights"]


@pytest.mark.parametrize("failure", [RuntimeError("model"), KeyboardInterrupt(), OSError(errno.EIO, "broken")])
def test_a_folder_that_fails_half_way_leaves_the_old_one(tmp_path: Path, failure: BaseException) -> None:
    path = tmp_path / "model"
    with atomic_folder(path) as temporary:
        write_text(temporary / "config.json", "old")
    with pytest.raises((type(failure), SaccadeError)):
        half_write(atomic_folder(path), failure)
    assert (path / "config.json").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_a_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for name in ("first", "second"):
        with atomic_folder(path) as temporary:
            write_text(temporary / name, name)
    assert names(path) == ["second"]
    assert names(tmp_path) == ["model"]


def test_a_folder_that_cannot_be_put_in_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    with atomic_folder(path) as temporary:
        write_text(temporary / "config.json", "old")
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name.endswith(".part"):
            raise OSError(errno.EACCES, "permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(SaccadeError, match="could not write"), atomic_folder(path) as temporary:
        write_text(temporary / "config.json", "new")
    assert (path / "config.json").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_a_process_killed_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    write_text(path, "old")
    program = (
        "import sys, time\nfrom saccade.core.files import atomic_file\n"
        "with atomic_file(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half'); print('ready', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
    assert path.read_text() == "old"


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    write_text(path, "old")
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError) as caught:
        half_write(atomic_file(tmp_path / "features"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert str(caught.value) == f"the disk is full: could not write {tmp_path / 'features'}"
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda p: None, "{path} does not exist"),
        (lambda p: p.mkdir(), "{path} is a folder, a file was expected"),
        (lambda p: p.write_bytes(b"ab\xff"), "{path} is not UTF-8 text (byte 2)"),
        (lambda p: p.write_text('{"a": 1,\n"b" 2}'), "{path} is not valid JSON: Expecting ':' delimiter at line 2"),
        (lambda p: p.write_text(""), "{path} is not valid JSON: Expecting value at line 1"),
    ],
    ids=["missing", "folder", "bytes", "json", "empty"],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, make: object, sentence: str) -> None:
    path = tmp_path / "vocabulary.json"
    make(path)  # type: ignore[operator]
    with pytest.raises(SaccadeError) as caught:
        read_json(path)
    assert str(caught.value) == sentence.format(path=path)


def test_a_folder_and_a_file_are_not_taken_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SaccadeError, match="folder is a folder, a file was expected"):
        write_text(tmp_path / "folder", "x")
    with pytest.raises(SaccadeError, match="file is a file, a folder was expected"), atomic_folder(tmp_path / "file"):
        pass
    with pytest.raises(SaccadeError, match="could not write"):
        write_text(tmp_path / "file" / "below", "x")
    assert (tmp_path / "file").read_text() == "mine"
    assert names(tmp_path) == ["file", "folder"]


def test_what_cannot_be_written_is_told_before_the_work_and_nothing_is_made(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "old")
    check_writable(None, tmp_path / "file", tmp_path / "new" / "deep" / "file")
    with pytest.raises(SaccadeError, match="is a folder, a file was expected"):
        check_writable(tmp_path)
    with pytest.raises(SaccadeError, match="could not write"):
        check_writable(tmp_path / "file" / "below")
    assert names(tmp_path) == ["file"]
    assert read_text(tmp_path / "file") == "old"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002, 0o027])
def test_what_is_written_has_the_rights_that_the_umask_leaves(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        for _ in range(2):  # the second time it is there already
            write_text(tmp_path / "a", "x")
            write_weights(tmp_path / "w", {"a": torch.ones(2)})  # by a library that makes its own file
            with atomic_folder(tmp_path / "b") as folder:
                write_text(folder / "c", "x")
        with only_one(tmp_path / "b"):
            assert (tmp_path / ".b.lock").stat().st_mode & 0o777 == 0o666 & ~mask
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "w", "b", "b/c")] == [
        0o666 & ~mask,
        0o666 & ~mask,
        0o777 & ~mask,
        0o666 & ~mask,
    ]
    assert names(tmp_path) == ["a", "b", "w"]


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    lock, secret = tmp_path / ".store.lock", tmp_path / "secret"
    lock.symlink_to(secret)  # leads nowhere: opening it would make the file
    told = r"store\.lock is a link, a lock file was expected"
    with pytest.raises(SaccadeError, match=told), only_one(tmp_path / "store"):
        pass
    sweep_lock(tmp_path / "store")
    assert not secret.exists()
    assert lock.is_symlink()
    lock.unlink()
    os.mkfifo(lock)  # opening it would wait for a writer
    with pytest.raises(SaccadeError, match="no lock file of this user"), only_one(tmp_path / "store"):
        pass


def test_a_lock_of_another_user_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".store.lock").touch()
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with (
        pytest.raises(SaccadeError, match="no lock file of this user: wait until its owner"),
        only_one(tmp_path / "store"),
    ):
        pass
    sweep_lock(tmp_path / "store")
    assert (tmp_path / ".store.lock").exists()


def test_a_file_that_is_read_is_not_written(tmp_path: Path) -> None:
    photo, link, twin = tmp_path / "a.jpg", tmp_path / "link.jpg", tmp_path / "twin.jpg"
    photo.touch()
    link.symlink_to(photo)
    twin.hardlink_to(photo)
    (tmp_path / "other.jpg").touch()
    check_distinct([tmp_path / "other.jpg", tmp_path / "new.jpg"], [photo, link, tmp_path / "nowhere.jpg"])
    for name in (photo, link, twin, tmp_path / "x" / ".." / "a.jpg"):
        (tmp_path / "x").mkdir(exist_ok=True)
        with pytest.raises(SaccadeError, match="is read, so it cannot be written"):
            check_distinct([name], [photo])


def test_checksums_are_those_of_sha256(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "a").write_bytes(content)
    assert sha256(tmp_path / "a") == hashlib.sha256(content).hexdigest()


def test_the_cache_goes_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("SACCADE_CACHE", "")
    assert cache_folder() == Path("/home/someone/.cache/saccade")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/saccade")
    monkeypatch.setenv("SACCADE_CACHE", "/here")
    assert cache_folder() == Path("/here")


def test_one_at_a_time_works_on_a_folder_and_no_lock_stays(tmp_path: Path) -> None:
    waited: list[bool] = []
    inside, children = tmp_path / "inside", []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                for _ in range(20):
                    with only_one(tmp_path / "new" / "store"):
                        inside.mkdir()  # fails if somebody else is in here
                        inside.rmdir()
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    with only_one(tmp_path / "new" / "store", waiting=lambda: waited.append(True)):
        assert not waited
    assert names(tmp_path / "new") == []


def test_the_lock_of_a_killed_process_is_swept_and_one_that_is_held_is_not(tmp_path: Path) -> None:
    lock = tmp_path / ".store.lock"
    sweep_lock(tmp_path / "store")  # there is nothing to sweep
    lock.touch()
    sweep_lock(tmp_path / "store")
    assert not lock.exists()
    with only_one(tmp_path / "store"):
        sweep_lock(tmp_path / "store")
        assert lock.exists()
    assert not lock.exists()


def test_whoever_must_wait_is_told_and_a_kill_lets_go(tmp_path: Path) -> None:
    told, ready = os.pipe()
    holder = os.fork()
    if holder == 0:
        with only_one(tmp_path / "store"):
            os.write(ready, b"!")
            signal.pause()
    os.read(told, 1)
    with only_one(tmp_path / "store", waiting=lambda: os.kill(holder, signal.SIGKILL)):
        assert os.waitstatus_to_exitcode(os.waitpid(holder, 0)[1]) == -signal.SIGKILL
