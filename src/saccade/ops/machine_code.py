"""Machine code that was compiled here, kept in Saccade's cache and taken from there only if nobody else could write it.

Whoever can write a file that a process loads, runs that process. So the cache folder, the folders in it and the file
must belong to this user and be writable by nobody else. They are opened one below the other, no link is followed, and
what is checked is the open file, from which the code is then read: a name may mean another file a moment later.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress

from saccade.core.errors import SaccadeError
from saccade.core.files import atomic_file, cache_folder

_SEAL = hashlib.sha256().digest_size  # bytes behind the code, the digest of those before: a broken file is seen


class _Untrusted(Exception):
    """Somebody else may have written what is in the cache."""


def machine_code(folder: str, name: str, build: Callable[[], bytes]) -> bytes:
    """The file `name` in a folder of the cache, or what `build` gives, which is kept there for the next time.

    What others could have written is neither read nor replaced: then it is built for this process alone, and a line on
    stderr says so. Raises: what `build` raises.
    """
    trusted = True
    try:
        sealed = _read_owned(folder, name)
        if hashlib.sha256(sealed[:-_SEAL]).digest() == sealed[-_SEAL:]:
            return sealed[:-_SEAL]
    except _Untrusted as reason:
        trusted = False
        print(f"note: {reason}: {name} is compiled for this run alone", file=sys.stderr)
    except OSError:
        pass  # there is none yet, or it cannot be read
    code = build()
    if trusted:
        with suppress(OSError, SaccadeError):  # a cache that cannot be written costs time, nothing else
            for place in (cache_folder(), cache_folder() / folder):
                place.mkdir(mode=0o755, parents=True, exist_ok=True)  # not the group's, whatever the umask
            with atomic_file(cache_folder() / folder / name) as temporary:
                temporary.write_bytes(code + hashlib.sha256(code).digest())
    return code


def _read_owned(folder: str, name: str) -> bytes:
    """Raises: _Untrusted if others may write it, OSError if it is not there or cannot be read."""
    if not hasattr(os, "getuid"):
        raise _Untrusted("on this system nobody can tell who wrote a file")
    path = cache_folder()
    opened = [os.open(path, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        _check(opened[0], str(path))
        for part, kind in ((folder, os.O_DIRECTORY), (name, 0)):
            path /= part
            try:
                opened.append(os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | kind, dir_fd=opened[-1]))
            except OSError:
                if path.is_symlink():
                    raise _Untrusted(f"{path} is a link") from None
                raise
            _check(opened[-1], str(path))
        with open(opened.pop(), "rb") as file:  # closes it
            return file.read()
    finally:
        for handle in opened:
            os.close(handle)


def _check(handle: int, path: str) -> None:
    found = os.fstat(handle)
    if found.st_uid != os.getuid():
        raise _Untrusted(f"{path} belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _Untrusted(f"{path} can be written by others (`chmod go-w` it)")
    if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
        raise _Untrusted(f"{path} is no file")
