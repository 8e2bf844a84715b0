"""Machine code that was compiled here, kept in the cache and taken from there only if nobody else could write it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress

from saccade.core.cache import Untrusted, cached, close_to_others, read_cached
from saccade.core.errors import SaccadeError
from saccade.core.files import atomic_file
from saccade.core.progress import note_once

_SEAL = hashlib.sha256().digest_size  # bytes behind the code, the digest of those before: a broken file is seen


def machine_code(folder: str, name: str, build: Callable[[], bytes]) -> bytes:
    """The file `name` in a folder of the cache, or what `build` gives, which is kept there for the next time.

    What others could have written is neither read nor replaced: then it is built for this process alone, and a line on
    stderr says so. Raises: what `build` raises.
    """
    trusted = True
    try:
        sealed = read_cached(folder, name)
        if hashlib.sha256(sealed[:-_SEAL]).digest() == sealed[-_SEAL:]:
            return sealed[:-_SEAL]
    except Untrusted as reason:
        trusted = False
        note_once(f"{reason}: {name} is compiled for this run alone")
    except OSError:
        pass  # there is none yet, or it cannot be read
    code = build()
    if trusted:
        with suppress(OSError, SaccadeError):  # a cache that cannot be written costs time, nothing else
            path = cached(folder, name)
            with atomic_file(path) as temporary:
                temporary.write_bytes(code + hashlib.sha256(code).digest())
            close_to_others(path)
    return code
