"""Every command that the program prints (next steps, help, advice in errors) is one that it understands."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from saccade.cli import OPTIONS, VERBS, app, load_verb
from saccade.tasks import find_task, task_names

SOURCE = Path(__file__).parents[2] / "src" / "saccade"
PLACES = {  # what stands in for a name that is only known when it is printed
    "{name}": "dinov2-s",
    "{kind}": "bottomup",
    "{run}": "runs/x",
    "{split}": "",
}


def printed() -> Iterator[str]:
    """What stands in backticks or after Example: in any text of the source, and the tasks' next steps."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                text = "".join(
                    f"{{{ast.unparse(part.value)}}}" if isinstance(part, ast.FormattedValue) else ast.literal_eval(part)
                    for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            yield from re.findall(r"`(saccade [^`]*)`", " ".join(text.split()))
            yield from re.findall(r"Example: (saccade .*)", text)
    for task in task_names():
        yield from find_task(task).next_steps
    yield "saccade claims scan-attention"


def filled(command: str) -> str | None:
    """With names in the places for names; None for the mere name of a verb or an option, or a part of a command."""
    for place, name in PLACES.items():
        command = command.replace(place, name)
    mention = re.fullmatch(r"saccade \S+( --[a-z-]+)?", command)
    return None if mention or re.search(r"[{}…|]", command) else command


COMMANDS = sorted({command for found in printed() if (command := filled(found)) is not None})


def test_there_are_many() -> None:
    assert len(COMMANDS) > 40


@pytest.mark.parametrize("command", COMMANDS)
def test_the_program_understands_what_it_prints(command: str) -> None:
    _, verb, *words = shlex.split(command)
    if verb.startswith("-"):
        assert verb in {"--help", "--version", "--install-completion"}
        return
    assert verb in VERBS
    understand(load_verb(verb), words)


def understand(command: Any, words: list[str]) -> None:
    """Parse the words as the command line does, without doing anything."""
    below = getattr(command, "commands", None)
    if below is not None:
        if words[0] not in below:  # some have a command that need not be named
            words = [getattr(command, "default", "none"), *words]
        assert words[0] in below
        command, words = below[words[0]], words[1:]
    command.make_context("saccade", words)


def test_the_list_of_verbs_is_that_of_the_program() -> None:
    assert set(VERBS) == set(typer.main.get_group(app).commands)


def test_every_option_that_says_how_many_takes_0_for_all() -> None:
    many = {"top", "top_k", "most", "limit", "count"}
    asked = {
        (command, name): said
        for command, own in OPTIONS.items()
        for name, said in own.items()
        if name in many and "KEY=VALUE" not in said[0]
    }
    assert len(asked) >= 6
    for (command, name), (words, help) in asked.items():
        assert "0.." in words, f"{command} --{name}"
        assert "0 is all" in help or "0 lists all" in help, f"{command} --{name}"
