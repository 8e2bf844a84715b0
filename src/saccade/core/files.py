"""Files that are either whole or absent: everything Saccade writes goes through here.

Pickles of others are read without running anything in them: a list of names is known, all else is refused.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import pickle
import secrets
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from saccade.core.cache import cache_folder
from saccade.core.errors import SaccadeError, explain_os_errors

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


_unfinished: set[Path] = set()  # temporary files and folders under way
_last_written: Path | None = None


def last_written() -> Path | None:
    """The file or folder that this process finished last, the cache aside."""
    return _last_written


def remove_unfinished() -> None:
    """For a process that ends without unwinding."""
    for path in list(_unfinished):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _finish(path: Path) -> None:
    global _last_written
    if not any(path.is_relative_to(part) for part in (*_unfinished, cache_folder())):
        _last_written = path


@contextmanager
def atomic_file(path: Path | str) -> Iterator[Path]:
    """Write to the yielded temporary path; it takes the place of `path` only if the block ends well."""
    path = Path(path)
    with explain_os_errors(path, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary(path)
        temporary.touch(exist_ok=False)
        rights = temporary.stat().st_mode
        _unfinished.add(temporary)
        try:
            yield temporary
            temporary.chmod(rights)  # a library may have put a file of its own in its place
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            _finish(path)
        finally:
            temporary.unlink(missing_ok=True)
            _unfinished.discard(temporary)


def _temporary(path: Path) -> Path:
    """A name beside a path for what is not whole yet; who makes it leaves its rights to the user's umask."""
    return path.parent / f".{path.name}.{secrets.token_hex(4)}.part"


def check_distinct(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raises: SaccadeError if a file to be written is one that is read, by whatever name or link."""
    written = {(found.st_dev, found.st_ino): path for path in outputs if (found := _stat(path)) is not None}
    for path in inputs if written else ():
        found = _stat(path)
        if found is not None and (found.st_dev, found.st_ino) in written:
            raise SaccadeError(f"{written[found.st_dev, found.st_ino]} is read, so it cannot be written: name another")


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def check_writable(*paths: Path | str | None) -> None:
    """Ask before hours of work whether files can be written after it; what is there stays as it is.

    Raises: SaccadeError if one of them could not.
    """
    for path in [Path(path) for path in paths if path is not None]:
        if path.is_dir():
            raise SaccadeError(f"{path} is a folder, a file was expected")
        there = next(parent for parent in path.absolute().parents if parent.exists())
        with explain_os_errors(path, "write"), tempfile.TemporaryFile(dir=there, suffix=".part"):
            pass


@contextmanager
def atomic_folder(path: Path | str) -> Iterator[Path]:
    """Fill the yielded temporary folder; it takes the place of the folder `path` only if the block ends well."""
    path = Path(path)
    with explain_os_errors(path, "write"):
        if path.exists() and not path.is_dir():
            raise SaccadeError(f"{path} is a file, a folder was expected")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary(path)
        temporary.mkdir()
        _unfinished.add(temporary)
        try:
            yield temporary
            if path.exists():
                _swap(temporary, path)
            else:
                temporary.rename(path)
            _finish(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            _unfinished.discard(temporary)


def _swap(new: Path, path: Path) -> None:
    """Put the folder `new` where the folder `path` is; if that fails, what was there stays."""
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
    old = aside / path.name
    try:
        path.rename(old)
        new.rename(path)
    except BaseException:
        if old.exists():
            old.rename(path)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def only_one(folder: Path | str, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Let one process at a time work on a folder; the others wait, and `waiting` is called if this one must: what it
    raises is raised, and nobody waits."""
    folder = Path(folder)
    path = _lock_file(folder)
    if fcntl is None:
        yield
        return
    with explain_os_errors(folder, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _lock(path, waiting)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still ours
        os.close(handle)  # which lets go of it, as a kill does


def sweep_lock(folder: Path | str) -> None:
    """Remove the lock file that a killed process left beside a folder, if nobody holds it and we may."""
    if fcntl is None:
        return
    path = _lock_file(Path(folder))
    with suppress(OSError, SaccadeError):  # there is none, it is held, or the place is not ours to write
        handle = _open_lock(path, 0)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), path.lstat()):
                path.unlink()
        finally:
            os.close(handle)


def _lock_file(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


def _open_lock(path: Path, flags: int) -> int:
    """A lock file of our own. Raises: SaccadeError if a link, another kind of file or another user's is there."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise SaccadeError(f"{path} is a link, a lock file was expected: remove it") from error
        raise
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(handle)
        raise SaccadeError(f"{path} is no lock file of this user: wait until its owner is done, or remove it")
    return handle


def _lock(path: Path, waiting: Callable[[], None] | None) -> int:
    while True:
        handle = _open_lock(path, os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            try:
                if waiting is not None:
                    waiting()
                    waiting = None
                fcntl.flock(handle, fcntl.LOCK_EX)
            except BaseException:  # who does not want to wait raises
                os.close(handle)
                raise
        try:
            if os.path.samestat(os.fstat(handle), path.lstat()):
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)  # whoever had it has removed the file we waited for: another may hold a new one


def write_text(path: Path | str, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_text(path: Path | str) -> str:
    path = Path(path)
    with explain_os_errors(path, "read"):
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise SaccadeError(f"{path} is not UTF-8 text (byte {error.start})") from error


def read_json(path: Path | str) -> Any:
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise SaccadeError(f"{path} is not valid JSON: {error.msg} at line {error.lineno}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists in lists without end
        raise SaccadeError(f"{path} is not usable JSON: {str(error).splitlines()[0]}") from error


def sha256(path: Path | str) -> str:
    digest = hashlib.sha256()  # Python 3.10 has no file_digest
    with explain_os_errors(Path(path), "read"), Path(path).open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


UNPACKED_BYTES, UNPACKED_TIMES = 1 << 26, 32  # what a packed file may become: so many bytes, or times its own


def max_unpacked(packed: int) -> int:
    """How many bytes a packed file of this size may become: text shrinks to a tenth, zeros to a thousandth."""
    return max(UNPACKED_BYTES, UNPACKED_TIMES * packed)


def check_archive(archive: zipfile.ZipFile, path: Path | str) -> None:
    """Raises: SaccadeError if what is in it would become too large. `zipfile` unpacks no more than an entry says."""
    size = sum(entry.file_size for entry in archive.infolist())
    if archive.fp is not None and size > max_unpacked(archive.fp.seek(0, os.SEEK_END)):
        raise SaccadeError(f"{path} would unpack to {size:,} bytes, which is too much for a file of its size")


class Bounded(io.RawIOBase):
    """What a packed stream unpacks to. Raises: SaccadeError once that is too much for a file of its size."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self.stream, self.path = stream, path
        self.left = max_unpacked(path.stat().st_size)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.stream.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        found = self.stream.read(min(len(buffer), self.left + 1))
        if len(found) > self.left:
            raise SaccadeError(f"{self.path} unpacks to too much for a file of its size")
        self.left -= len(found)
        buffer[: len(found)] = found
        return len(found)


Allowed = Mapping[tuple[str, str], Any]  # (module, name) as pickled → what it becomes here


class _PlainReader(pickle.Unpickler):
    allowed: Allowed

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise SaccadeError(f"it wants to run {module}.{name}, which is not plain data")
        return self.allowed[module, name]


def read_pickle(path: Path | str, allowed: Allowed, what: str, encoding: str = "ASCII") -> Any:
    """What a pickle holds; `what` says what it should have been.

    Raises: SaccadeError if it is missing or damaged, or names anything beyond `allowed`.
    """
    path = Path(path)
    with explain_os_errors(path, "read"), path.open("rb") as file:
        reader = _PlainReader(file, encoding=encoding)
        reader.allowed = allowed
        try:
            return reader.load()
        except SaccadeError as error:
            raise SaccadeError(f"{path} is refused: {error}") from error
        except Exception as error:  # a damaged pickle may fail in any way
            raise SaccadeError(f"{path} is no {what}, or it is damaged") from error
