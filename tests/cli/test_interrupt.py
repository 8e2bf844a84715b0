"""Ctrl-C as a terminal sends it, to the whole group of processes, while verbs are at their work."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from saccade.core.interrupt import interruptible
from toy_runs import make_features, saccade_command

GUARD = 120  # seconds, against a hang
PROGRAM = """
import functools, importlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
module, _, name = sys.argv.pop(1).partition(":")
if name:
    *path, name = name.split(".")
    owner = functools.reduce(getattr, path, importlib.import_module(module))
    work = getattr(owner, name)
    @functools.wraps(work)
    def say_so_first(*given, **named):
        print("at work", flush=True)
        return work(*given, **named)
    setattr(owner, name, say_so_first)
if module == "saccade.lab.claims.run":
    importlib.import_module(module).fill_caches = lambda *given: None
from saccade.cli import main
main()
"""


class Stopped(NamedTuple):
    code: int
    said: list[str]  # on standard error
    left: int  # processes
    folder: Path


VERBS = {  # where the work is when Ctrl-C is pressed, and the command
    "train": (
        "saccade.training.trainer:Loop._update",
        "train scan data=precomp root=features dim=8 word_dim=8 min_count=1 batch_size=8 epochs=100000 "
        "checkpoint_every=1 -o 'my runs/scan'",
    ),
    "extract": ("saccade.features.extraction:_append", "extract {photos} -o store -r grid --batch-size 1"),
    "claims": ("saccade.lab.claims.run:_Display.started", "claims scan-attention --jobs 2 --runs runs -o pages"),
    "score": ("saccade.tasks.predict:load", "score {photos} -t 'a dog' -m scan-flickr8k"),
    "world": ("saccade.world.store:make_rows", "world make pictures=20000 --workers 2 -o world"),
    "demo": ("saccade.world.store:make_rows", "demo --pictures 20000 -o demo"),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, photos: list[Path]) -> dict[str, Stopped]:
    """All verbs at once, as most of their time is PyTorch's import."""
    folders = {verb: tmp_path_factory.mktemp(verb) for verb in VERBS}
    with ThreadPoolExecutor(len(VERBS)) as pool:
        return dict(zip(VERBS, pool.map(lambda verb: _stop(verb, folders[verb], photos[0].parent), VERBS), strict=True))


def _stop(verb: str, folder: Path, photos: Path) -> Stopped:
    """Begin the verb in a folder of its own, press Ctrl-C when it is at work, and wait for it to end."""
    place, command = VERBS[verb]
    make_features(folder / "features", ("train", "dev"))
    environment = os.environ | {"SACCADE_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, place, *shlex.split(command.format(photos=shlex.quote(str(photos))))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=folder,
        env=environment,
    )
    try:
        assert process.stdout is not None
        assert "at work\n" in process.stdout  # reads as far as that line
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=GUARD)
        lines = [
            line for line in said.splitlines() if not line.startswith("note: ")
        ]  # of what a folder holds beside photos
        return Stopped(process.returncode, lines, _left_at_last(process.pid), folder)
    finally:
        if _left(process.pid):
            os.killpg(process.pid, signal.SIGKILL)


def _left(group: int) -> int:
    """The live processes of a group: its leader has ended and been waited for."""
    states = (
        path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()
    )
    return sum(state[2] == str(group) and state[0] != "Z" for state in states)


def _left_at_last(group: int) -> int:
    """What does not end by itself: helpers of the leader may outlive it by a moment on a busy machine."""
    until = time.monotonic() + GUARD
    while (left := _left(group)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


@pytest.mark.parametrize("verb", VERBS)
def test_ctrl_c_ends_all_with_one_line(stopped: dict[str, Stopped], verb: str) -> None:
    code, said, left, folder = stopped[verb]
    assert code == 130, said
    assert len(said) == 1
    assert said[0].startswith("stopped; ")
    assert left == 0
    assert not list(folder.rglob("*.part"))


def test_the_line_says_how_to_go_on(stopped: dict[str, Stopped]) -> None:
    said = {verb: one.said[0].removeprefix("stopped; ") for verb, one in stopped.items()}
    assert said == {
        "train": "`saccade train --resume 'my runs/scan'` goes on",
        "extract": "the same command goes on with store",
        "claims": "the same command goes on, with unfinished runs too",
        "score": "nothing was written; the same command begins again",
        "world": "nothing was written; the same command begins again",
        "demo": "the same command begins the demo again, and finds in the cache what was made",
    }
    assert not (stopped["world"].folder / "world").exists()


def test_the_command_of_a_stopped_training_knows_its_run(
    stopped: dict[str, Stopped], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(stopped["train"].folder)
    command = shlex.split(stopped["train"].said[0].split("`")[1])
    assert command[0] == "saccade"
    assert saccade_command(*command[1:], "--show") == 0
    assert "epochs: 100000" in capsys.readouterr().out


NATIVE = """
import hashlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from saccade.core import interrupt
from saccade.core.files import atomic_file
interrupt.GRACE = 0.05
with interrupt.interruptible(), atomic_file("half.txt") as file:
    file.write_text("half")
    print("at work", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 2**31 - 1)  # minutes, without a look at signals
"""


def test_a_long_native_call_ends_too(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", NATIVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "at work\n"
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=GUARD)
    assert (child.returncode, said) == (130, "stopped; nothing was written; the same command begins again\n")
    assert not list(tmp_path.iterdir())


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
