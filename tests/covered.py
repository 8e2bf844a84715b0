"""What a run of the tests covered, said at its end: tests by room, and whatever tests say of themselves.

A test says it with `record_property("goldens verified", "scan")`: the kind of thing, and which. Reports travel from the
processes of pytest-xdist with it, so this is printed once, by the process that the user started.
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath
from typing import Any


def room(test: str) -> str:
    """The folder of tests/ in which a test lies; what lies in none is about the repository as a whole."""
    parts = PurePosixPath(test.split("::")[0]).parts
    return parts[1] if len(parts) > 2 else "repository"


def summary(reports: list[Any]) -> list[str]:
    rooms = Counter(room(report.nodeid) for report in reports)
    things: dict[str, set[str]] = {}
    for report in reports:
        for kind, thing in report.user_properties:
            things.setdefault(kind, set()).add(str(thing))
    lines = [f"{len(reports):,} passed: {', '.join(f'{name} {count:,}' for name, count in sorted(rooms.items()))}"]
    return lines + [f"{kind}: {len(names)} ({', '.join(sorted(names))})" for kind, names in sorted(things.items())]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    passed = [report for report in terminalreporter.getreports("passed") if report.when == "call"]
    if passed:
        terminalreporter.section("what was covered")
        for line in summary(passed):
            terminalreporter.write_line(line)
