"""What answers at once: nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest

from saccade.cli import VERBS, load_verb
from saccade.interop import IMPORTERS
from saccade.models import Model, entries, find_model, load_model, shipped_models
from saccade.training.run import recipe_data

HEAVY = {"torch", "pyarrow", "matplotlib"}
COMPLETION = {"_SACCADE_COMPLETE": "complete_bash", "COMP_WORDS": "saccade tr", "COMP_CWORD": "1"}


def run(*words: str, **environment: str) -> tuple[str, set[str]]:
    """What `saccade WORDS` prints, and which heavy modules it imported."""
    script = (
        "import sys\nfrom saccade.cli import main\n"
        "sys.argv[0] = 'saccade'\n"
        "try:\n    main()\nfinally:\n    print('IMPORTED', *sorted(sys.modules), file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    said, _, imported = done.stderr.rpartition("IMPORTED")
    return done.stdout + said, HEAVY & set(imported.split())


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["models"], ["tarin"], *([verb, "--help"] for verb in VERBS)]
)
def test_nothing_heavy_is_imported(words: list[str]) -> None:
    said, imported = run(*words)
    assert said.strip()
    assert not imported


def test_completion_is_light_and_knows_the_verbs() -> None:
    said, imported = run(**COMPLETION)
    assert said.split() == ["train"]
    assert not imported


def test_a_mistyped_verb_is_put_right() -> None:
    assert "'train'" in run("tarin")[0]


@pytest.mark.parametrize("name", VERBS)
def test_the_list_of_verbs_says_what_each_says_of_itself(name: str) -> None:
    own = load_verb(name).help.split("\n\n")[0]
    assert " ".join(own.split()) == VERBS[name].help


def test_the_list_of_models_is_that_of_the_registry() -> None:
    listed = json.loads(run("models", "--json")[0])
    assert listed["systems"] == [
        {
            "name": entry.name,
            "task": entry.task,
            "title": entry.title,
            "venue": entry.venue,
            "recipes": recipe_data(entry.name),
            "import": entry.name in IMPORTERS,
        }
        for entry in entries()
    ]
    assert [row["name"] for row in listed["trained"]] == shipped_models()
    for row in listed["trained"]:
        model: Model = load_model(row["name"])
        assert row["system"] == model.name
        assert row["task"] == model.task
        assert row["parameters"] == model.parameter_count()
        assert row["words"] == len(model.vocabulary)
        assert row["bytes"] == sum(file.stat().st_size for file in find_model(row["name"])[0].iterdir())


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_ends_without_freeing_what_it_made_and_leaves_nothing_undone(code: int) -> None:
    """Threads end and exit functions are called; what is printed arrives, though the pipe is written in blocks."""
    script = f"""
import atexit, sys, threading
from saccade import cli

class Kept:
    def __del__(self):
        print("freed")

def outlive():
    threading.main_thread().join()
    print("a thread ended")

def main():
    atexit.register(print, "tidied up")
    threading.Thread(target=outlive).start()
    print("done")
    sys.exit({code})

kept, cli.main = Kept(), main
cli.run()
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.splitlines() == ["done", "a thread ended", "tidied up"]


def test_a_closed_output_is_no_trouble_at_the_end() -> None:
    command = f"{shlex.quote(sys.executable)} -m saccade --version >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
