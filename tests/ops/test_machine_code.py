"""Compiled code is taken from the cache only if nobody else could have written it there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from saccade.core import cache as module
from saccade.ops.machine_code import machine_code

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="without users nothing in a cache is trusted")


class Compiler:
    """Counts how often it was asked."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self) -> bytes:
        self.runs += 1
        return b"code"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache that holds a compiled file; the file."""
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    assert machine_code("native", "loops.so", Compiler()) == b"code"
    return tmp_path / "cache" / "native" / "loops.so"


def take() -> int:
    """How often it had to be compiled."""
    compiler = Compiler()
    assert machine_code("native", "loops.so", compiler) == b"code"
    return compiler.runs


def test_it_is_compiled_once(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert take() == 0
    assert capsys.readouterr().err == ""
    assert cache.read_bytes().startswith(b"code")


def test_a_broken_file_is_replaced(cache: Path) -> None:
    cache.write_bytes(b"codf" + cache.read_bytes()[4:])
    assert take() == 1
    assert take() == 0


def test_a_umask_that_lets_the_group_write_does_no_harm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "new" / "cache"))
    before = os.umask(0)
    try:
        assert take() == 1
    finally:
        os.umask(before)
    assert take() == 0


@pytest.mark.parametrize("mode", [0o020, 0o002], ids=["group", "world"])
@pytest.mark.parametrize("up", [0, 1, 2], ids=["file", "folder", "cache"])
def test_what_others_can_write_is_not_read(cache: Path, capsys: pytest.CaptureFixture[str], mode: int, up: int) -> None:
    place = [cache, *cache.parents][up]
    place.chmod(place.stat().st_mode | mode)
    before = cache.read_bytes()
    assert take() == 1
    assert f"note: {place} can be written by others" in capsys.readouterr().err
    assert take() == 1  # nor is it kept there
    assert capsys.readouterr().err == "", "it is said once"
    assert cache.read_bytes() == before


def test_a_folder_that_others_can_write_is_not_filled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path))
    (tmp_path / "native").mkdir()
    (tmp_path / "native").chmod(0o777)
    assert take() == 1
    assert "can be written by others" in capsys.readouterr().err
    assert not list((tmp_path / "native").iterdir())


@pytest.mark.parametrize("up", [0, 1], ids=["file", "folder"])
def test_no_link_is_followed(cache: Path, capsys: pytest.CaptureFixture[str], up: int) -> None:
    place = [cache, *cache.parents][up]
    aside = place.rename(cache.parents[1] / "aside")
    place.symlink_to(aside)
    assert take() == 1
    assert f"note: {place} is a link" in capsys.readouterr().err
    assert place.is_symlink()


@pytest.mark.parametrize("whose", ["file", "folder", "cache"])
def test_what_belongs_to_another_user_is_not_read(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], whose: str
) -> None:
    """Only root could give files away: here it is another user who asks, of whom all but one is."""
    place = {"file": cache, "folder": cache.parent, "cache": cache.parents[1]}[whose]
    theirs, fstat = place.stat().st_ino, os.fstat

    def seen(handle: int) -> os.stat_result:
        found = fstat(handle)
        owner = os.getuid() + 1 if found.st_ino == theirs else found.st_uid
        return os.stat_result((*found[:4], owner, *found[5:]))

    monkeypatch.setattr(module.os, "fstat", seen)
    assert take() == 1
    assert f"note: {place} belongs to another user" in capsys.readouterr().err


def test_a_pipe_in_its_place_is_not_waited_for(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.unlink()
    os.mkfifo(cache)
    assert take() == 1
    assert "is no file" in capsys.readouterr().err


def test_what_is_read_is_what_was_checked(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file that takes its name between the check and the reading is not read."""
    check = module._check

    def exchange(found: os.stat_result, path: Path) -> None:
        check(found, path)
        if path == cache:
            cache.unlink()
            cache.write_bytes(b"other")

    monkeypatch.setattr(module, "_check", exchange)
    assert take() == 0
