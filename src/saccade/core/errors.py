"""The one kind of error a user is meant to read: a sentence that names the file or field and says what was expected."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_SENTENCE = 1000  # characters; what a file says of itself may be endless
NEAR_ENGLISH = 0.7  # how alike English words must be to be meant: "zebra" and "member" are 0.55


class SaccadeError(Exception):
    """Bad input or a bad environment. The command line prints it as one line and exits with code 2.

    Whatever a file's name or content brings into the sentence, it is one line that can be printed.
    """

    def __init__(self, sentence: str = "") -> None:
        line = str(sentence).encode("utf-8", "backslashreplace").decode().replace("\n", "\\n")
        super().__init__(line if len(line) <= MAX_SENTENCE else f"{line[: MAX_SENTENCE - 1]}…")


def did_you_mean(word: str, options: Iterable[str], cutoff: float = 0.5) -> str:
    """The clause `; did you mean "scan"?`, or nothing when no option is near (0..1: how alike the letters must be)."""
    near = difflib.get_close_matches(word, list(options), n=1, cutoff=cutoff)
    return f'; did you mean "{near[0]}"?' if near else ""


def not_among(word: str, options: Iterable[str]) -> str:
    """What ends a refusal of a name: `"scna"; did you mean "scan"? (there are: scan, vsrn)`."""
    options = list(options)
    return f'"{word}"{did_you_mean(word, options)} (there are: {", ".join(options)})'


@contextmanager
def explain_os_errors(path: Path, action: str) -> Iterator[None]:
    """Turn what the operating system refuses while we `action` (read, write) `path` into a SaccadeError."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise SaccadeError(f"the disk is full: could not {action} {path}") from error
        if isinstance(error, FileNotFoundError) and str(error.filename or "").endswith(".part"):  # our temporary file
            raise SaccadeError(f"could not {action} {path}: its folder takes no files") from error
        if isinstance(error, FileNotFoundError):
            raise SaccadeError(f"{error.filename or path} does not exist") from error
        if isinstance(error, IsADirectoryError):
            raise SaccadeError(f"{path} is a folder, a file was expected") from error
        raise SaccadeError(f"could not {action} {path}: {error.strerror or error}") from error


@contextmanager
def surfaced_os_errors() -> Iterator[None]:
    """Raise the operating system's error (disk full, …) where PyTorch or safetensors wrapped it in one of their own."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OSError):
                raise cause from error
            found = re.search(r"\(os error (\d+)\)", str(cause))
            if found:
                code = int(found[1])
                raise OSError(code, os.strerror(code)) from error
            cause = cause.__cause__ or cause.__context__
        raise
