"""Ten thousand damaged files, over all readers: each is read or refused in one sentence, and nothing dies of it."""

from __future__ import annotations

import faulthandler
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from saccade.core.errors import SaccadeError

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import fuzz  # noqa: E402
from fuzz_samples import READERS, Reader  # noqa: E402


def test_ten_thousand_mutations_end_well_or_in_a_sentence(record_property: Callable[[str, object], None]) -> None:
    words = [sys.executable, str(ROOT / "scripts" / "fuzz.py"), "--mutations", "10000"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == [*(reader.name for reader in READERS), "all"]
    assert rows[-1][1] == "10,000"
    for name, _, read, refused, faults in rows[:-1]:
        assert int(read.replace(",", "")) > 0, f"no damage was slight enough for {name}"
        assert int(refused.replace(",", "")) > 0, f"no damage was seen by {name}"
        assert faults == "0"
        record_property("readers fuzzed", name)


def test_the_page_has_the_table_of_these_readers() -> None:
    page = fuzz.PAGE.read_text(encoding="utf-8").partition(fuzz.BEGIN)[2].partition(fuzz.END)[0]
    assert re.findall(r"^\| (.+?) \| [0-9,]+ \|", page, re.MULTILINE) == [*(r.name for r in READERS), "all"]


def raises(error: Exception) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        raise error

    return read


def aborts(folder: Path) -> None:
    faulthandler.disable()  # pytest's, which would print a traceback into the log of the tests
    os.abort()


def grows(folder: Path) -> None:
    np.ones(fuzz.MEMORY // 4, dtype=np.float64)


def hangs(folder: Path) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("read", "fault"),
    [
        (aborts, "the process died of SIGABRT"),
        (hangs, "it hangs"),
        (grows, "it took"),
        (raises(KeyError("a")), "KeyError"),
    ],
    ids=["abort", "hang", "memory", "traceback"],
)
def test_the_fuzzer_sees_and_names_a_fault(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], None], fault: str
) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 1)

    def read_damaged(folder: Path) -> None:
        if folder.name == "1":  # the second mutation of three
            read(folder)
        elif folder.name != "sound":
            raise SaccadeError("it is damaged")

    reader = Reader("toy", lambda folder: (folder / "a.txt").write_text("hello"), read_damaged)
    (outcome,) = fuzz.fuzz([reader], 3, seed=7)
    assert (outcome.read, outcome.sentences) == (0, 2)
    assert len(outcome.faults) == 1
    assert outcome.faults[0].startswith(f"toy, seed 7, mutation 1: {fault}")


def test_a_mutation_is_known_by_its_seed_and_number(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": [1, 2, 3]}')
    first = [fuzz.damaged(fuzz.random.Random(f"0/toy/{n}"), path) for n in range(40)]
    assert first == [fuzz.damaged(fuzz.random.Random(f"0/toy/{n}"), path) for n in range(40)]
    assert len(set(first)) > 20
