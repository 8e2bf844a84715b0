"""Write docs/cli.md from the commands themselves, so that the page never says what the program does not do.

python scripts/cli_docs.py            write the page
python scripts/cli_docs.py --check    only say whether it is up to date (exit code 1 if not)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer.main

from saccade.cli import VERBS, app, load_verb
from saccade.core.files import write_text

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """# Command line

*This page is written by `scripts/cli_docs.py` from the program's own help; `make docs` renews it.*

Every command says more with `--help`. A user's mistake ends with one clear line, `error: …`, and exit code 2;
a check that fails (`saccade verify`, `saccade data check`) also ends with an exit code other than 0.
Ctrl-C ends any command at once: one line, `stopped; …`, says how to go on, and the exit code is 130.
`saccade --install-completion` teaches the shell the commands.

"""


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The command and all below it, in the order of the help."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from commands(below, f"{path} {name}")


def page() -> str:
    saccade: Any = typer.main.get_command(app)
    saccade.commands.update((name, load_verb(name)) for name in VERBS)
    return HEAD + "\n".join(section(path, command) for path, command in commands(saccade, "saccade"))


def section(path: str, command: Any) -> str:
    """One command: usage, what it does, what it takes."""
    shown = [p for p in command.params if not getattr(p, "hidden", False) and "completion" not in p.name]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    options = [p for p in shown if p.param_type_name == "option"]
    below = [(n, c) for n, c in getattr(command, "commands", {}).items() if not c.hidden]
    usage = [
        path,
        *(["COMMAND"] if below else []),
        *map(argument_usage, arguments),
        *(["[OPTIONS]"] if options else []),
    ]
    parts = [f"{'#' * min(path.count(' ') + 2, 3)} {path}", f"```\n{' '.join(usage)}\n```", prose(command.help or "")]
    if below:
        rows = [[f"[`{path} {n}`](#{slug(f'{path} {n}')})", first_sentence(c.help or "")] for n, c in below]
        parts.append(table(["command", "what it does"], rows))
    if arguments:
        parts.append(table(["argument", "meaning"], [[f"`{metavar(p)}`", meaning(p)] for p in arguments]))
    if options:
        rows = [[", ".join(f"`{o}`" for o in [*p.opts, *p.secondary_opts]), meaning(p), default(p)] for p in options]
        parts.append(table(["option", "meaning", "default"], rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def prose(text: str) -> str:
    """A docstring as Markdown: examples and blocks kept as they are (\\b) become code."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", text.split("\f")[0].strip()):
        label, found, code = paragraph.partition("Example")
        if paragraph.startswith("\b"):
            parts.append(f"```\n{paragraph[1:].strip(chr(10))}\n```")
        elif found and not label:
            lines = code.lstrip("s").lstrip(":").strip().splitlines()
            parts.append("```console\n" + "\n".join(f"$ {line.strip().removeprefix('$ ')}" for line in lines) + "\n```")
        else:
            parts.append(paragraph.replace("\b\n", ""))
    return "\n\n".join(parts)


def first_sentence(text: str) -> str:
    return " ".join(re.split(r"\n\s*\n", text.strip())[0].split())


def metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def argument_usage(parameter: Any) -> str:
    name = metavar(parameter) + (" …" if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def meaning(parameter: Any) -> str:
    text = " ".join((parameter.help or "").replace("\\[", "[").split())
    if isinstance(parameter.default, Enum):
        text += f" One of {', '.join(f'`{option.value}`' for option in type(parameter.default))}."
    return text


def default(parameter: Any) -> str:
    """The default, unless it says nothing or depends on the machine."""
    value = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    if parameter.required:
        return "*required*"
    if callable(value) or value in (None, "", (), []) or (isinstance(value, bool) and not parameter.secondary_opts):
        return ""
    if isinstance(value, bool):
        return f"`{(parameter.opts if value else parameter.secondary_opts)[0]}`"
    return "" if str(value).startswith(("/", "~")) else f"`{value}`"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def slug(title: str) -> str:
    return title.replace(" ", "-")


if __name__ == "__main__":
    wanted = page()
    if "--check" not in sys.argv[1:]:
        write_text(PAGE, wanted)
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != wanted:
        sys.exit("docs/cli.md is out of date: run `make docs`")
