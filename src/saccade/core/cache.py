"""The cache, and the one rule by which anything in it is believed: nobody else could have written it.

Whoever can write a file that a process loads, steers that process. So the cache folder, the folders in it and the file
must belong to this user (or to root, who can write everything anyway) and be writable by nobody else, and nobody else
may put another folder in the cache's place. They are opened one below the other, no link in the cache is followed, and
what is looked at is the open file: a name may mean another file a moment later. Code is then read from that very file
(`read_cached`); other files are opened by name, in folders that only this user can change.

What fails the look is neither read nor replaced: it is made anew in a folder of this process alone, and a line on
stderr says so.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.core.progress import note_once

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Untrusted(SaccadeError):
    """Somebody else may have written what is in the cache."""


def cache_folder() -> Path:
    """Where what was made once is kept: $SACCADE_CACHE, else the user's cache folder."""
    given = os.environ.get("SACCADE_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saccade"


def cached(*parts: str) -> Path:
    """Where a file or folder of the cache is, or is to be made: there, or in a folder of this process if others could
    have written what is there. Folders above it are made, for this user alone.
    """
    try:
        path = trusted(*parts)
    except Untrusted as reason:
        note_once(f"{reason}: {parts[-1]} is made anew for this run alone")
        path = _private_folder().joinpath(*parts)
    with suppress(OSError):  # whoever writes there says why not
        for above in reversed(path.absolute().parents):
            if not above.exists():
                above.mkdir(mode=0o700, exist_ok=True)
    return path


def trusted(*parts: str) -> Path:
    """The path of a file or folder in the cache, which may not be there, once all that is there of it was looked at.

    Raises: Untrusted if others may have written a part of it.
    """
    if hasattr(os, "geteuid"):  # else nobody can tell who wrote a file
        with suppress(FileNotFoundError, NotADirectoryError), ExitStack() as opened:
            handle, path = _open(parts, opened)
            if stat.S_ISDIR(os.fstat(handle).st_mode):
                _check_below(handle, path)
    return cache_folder().joinpath(*parts)


def read_cached(*parts: str) -> bytes:
    """What a file in the cache holds, from the descriptor that was looked at.

    Raises: Untrusted if others may have written it, OSError if it is not there or cannot be read.
    """
    if not hasattr(os, "geteuid"):
        raise Untrusted("on this system nobody can tell who wrote a file")
    with ExitStack() as opened:
        handle, _ = _open(parts, opened)
        with open(handle, "rb", closefd=False) as file:
            return file.read()


def close_to_others(path: Path) -> None:
    """Take from all others the right to write a file or a folder and what is in it, whatever the umask."""
    for place in [path, *(path.rglob("*") if path.is_dir() else ())]:
        with suppress(FileNotFoundError):  # a temporary file of another process of this user
            mode = stat.S_IMODE(place.lstat().st_mode)
            if mode & OTHERS_WRITE and not place.is_symlink():
                place.chmod(mode & ~OTHERS_WRITE)


def _open(parts: tuple[str, ...], opened: ExitStack) -> tuple[int, Path]:
    """The descriptor and the path of a file or folder in the cache, all above it looked at; closed with `opened`."""
    path = cache_folder()
    _check_above(path)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    opened.callback(os.close, handle)
    _check(os.fstat(handle), path)
    for number, part in enumerate(parts, start=1):
        path /= part
        kind = os.O_DIRECTORY if number < len(parts) else 0
        try:
            handle = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | kind, dir_fd=handle)
        except OSError as error:
            if path.is_symlink():
                raise Untrusted(f"{path} is a link") from error
            raise
        opened.callback(os.close, handle)
        _check(os.fstat(handle), path)
    return handle, path


def _check(found: os.stat_result, path: Path) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise Untrusted(f"{path} belongs to another user")
    if stat.S_ISLNK(found.st_mode):
        raise Untrusted(f"{path} is a link")
    if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
        raise Untrusted(f"{path} is no file")
    if found.st_mode & OTHERS_WRITE:
        raise Untrusted(f"{path} can be written by others (`chmod go-w` it)")


def _check_above(cache: Path) -> None:
    """Whether somebody else could put another folder in the cache's place.

    A group that may write there is let pass, since many systems give each user a group of their own and let it.
    """
    for path in sorted({*cache.absolute().parents, *cache.resolve().parents}):
        found = path.stat()
        if found.st_uid not in (os.geteuid(), 0):
            raise Untrusted(f"{path}, above the cache, belongs to another user")
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise Untrusted(f"{path}, above the cache, can be written by others")


def _check_below(folder: int, path: Path) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # a temporary file of another process of this user
                continue
            _check(found, path / entry.name)
            if stat.S_ISDIR(found.st_mode):
                handle = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=folder)
                try:
                    _check_below(handle, path / entry.name)
                finally:
                    os.close(handle)


@cache
def _private_folder() -> Path:
    """Of this process alone, and gone with it."""
    folder, owner = Path(tempfile.mkdtemp(prefix="saccade-")), os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return folder
