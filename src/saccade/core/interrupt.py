"""Ctrl-C: the work ends at once, with one line on standard error that says how to go on, and exit code 130.

The main thread unwinds as after any exception: temporary files are removed and processes ended. A native call of
minutes, or a thread that works on, must not keep a user waiting for that: after `GRACE` seconds, or at a second Ctrl-C,
a thread that waits for the signal ends the process itself. Nothing is lost by it, since files are whole or absent.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from saccade.core.files import last_written, remove_unfinished

GRACE = 2.0  # seconds in which the work may end by itself
CODE = 128 + signal.SIGINT


def _default_advice() -> str:
    written = last_written()
    so_far = "nothing was written" if written is None else f"what was written is whole, last {written}"
    return f"{so_far}; the same command begins again"


class _Stop:
    """Of this process: what to say, whether Ctrl-C was pressed, whether it was said."""

    advice: Callable[[], str] = staticmethod(_default_advice)
    pressed = said = False
    lock = threading.Lock()


def advise(advice: str | Callable[[], str]) -> None:
    """What the line after Ctrl-C says about going on; a function is asked when it comes to that."""
    _Stop.advice = staticmethod(advice if callable(advice) else lambda: advice)


def _say() -> None:
    """The line, once, and of the processes that train on several devices by the first alone."""
    with _Stop.lock:
        if not _Stop.said and os.environ.get("LOCAL_RANK", "0") == "0":
            start = "\n" if os.isatty(2) else ""  # the terminal has written ^C
            with suppress(OSError):
                os.write(2, f"{start}stopped; {_Stop.advice()}\n".encode(errors="backslashreplace"))
        _Stop.said = True


def _press(number: int, frame: FrameType | None) -> None:
    if not _Stop.pressed:  # a second time is for the thread that watches
        _Stop.pressed = True
        raise KeyboardInterrupt


def _watch(wake: socket.socket) -> None:
    """Wait for the signal, give the work its time, and end the process if that has not ended by itself."""
    with suppress(OSError):
        while (caught := wake.recv(1)) and caught[0] != signal.SIGINT:
            pass
        again, _, _ = select.select([wake], [], [], GRACE) if caught else ([], [], [])
        if caught and (not again or wake.recv(1)):
            _say()
            remove_unfinished()
            os._exit(CODE)


def _quiet(event: Any) -> None:
    """A KeyboardInterrupt that met a destructor or a callback is none for the user to read."""
    if not isinstance(event.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(event)


@contextmanager
def interruptible() -> Iterator[None]:
    """Around all that a command does. Where Ctrl-C is ignored (nohup) or is not ours to catch, it stays so."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    wake, wakes = socket.socketpair()
    wakes.setblocking(False)
    _Stop.advice = staticmethod(_default_advice)
    signal.signal(signal.SIGINT, _press)
    before = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    sys.unraisablehook = _quiet
    threading.Thread(target=_watch, args=(wake,), name="ctrl-c", daemon=True).start()
    try:
        yield
    except BaseException as error:  # whatever a library made of it
        if not _Stop.pressed or (isinstance(error, SystemExit) and not error.code):
            raise
        _say()
        raise SystemExit(CODE) from None
    finally:
        if not _Stop.pressed:  # otherwise what still ends is watched
            signal.set_wakeup_fd(before)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = sys.__unraisablehook__
            wakes.close()  # which ends the thread
            wake.close()


@contextmanager
def without_interrupts() -> Iterator[None]:
    """A process that is started here never hears of Ctrl-C, which a terminal sends to all: its parent ends it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Called in a worker process: it ends when its parent does, even one that was killed."""
    threading.Thread(target=_await_parent, name="parent", daemon=True).start()


def _await_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # nothing is lost: all files are whole or absent
