"""Write docs/systems/survey.md: every system in one table, from the registry and src/saccade/models/systems.yaml.

python scripts/survey.py            write the page
python scripts/survey.py --check    only say whether it is up to date (exit code 1 if not)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

import saccade.models
from saccade.core.files import write_text
from saccade.models import entries

FACTS = Path(saccade.models.__file__).parent / "systems.yaml"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "systems" / "survey.md"
HEAD = """---
hide: [navigation, toc]
---

# All systems in one table

*This page is written by `scripts/survey.py` from the registry and `src/saccade/models/systems.yaml`; `make docs` renews
it.*

One idea runs through all of them ([Concepts](../concepts.md#attend-fuse-pool)): queries **attend** to a context, a
normaliser makes weights of the scores, what was attended to is **fused** with the query, and the results are **pooled**
into an answer. Read a column to see what the field tried, a row to see what a paper changed. Rows without a number are
baselines and tools.

<div class="survey" markdown>

| # | system | task | what attends to what | normaliser | fusion | pooling | loss | supervision | state |
|---|---|---|---|---|---|---|---|---|---|
"""
COLUMNS = ("attends", "normaliser", "fusion", "pooling", "loss", "supervision")


def page() -> str:
    facts: dict[str, dict[str, Any]] = yaml.safe_load(FACTS.read_text(encoding="utf-8"))
    return HEAD + "".join(row(name, fact) for name, fact in facts.items()) + "\n</div>\n"


def row(name: str, fact: dict[str, Any]) -> str:
    """One system: venue and task are the registry's once it is there."""
    entry = next((entry for entry in entries() if entry.name == name), None)
    title = f"[{fact['title']}]({fact['page']})" if entry else fact["title"]
    venue, task = (entry.venue, entry.task.replace("_", " ")) if entry else (fact["venue"], fact["task"])
    state = "**here**" if entry else "coming"
    cells = [fact.get("number", "–"), f"**{title}**<br>{venue}", task, *(fact[column] for column in COLUMNS), state]
    return f"| {' | '.join(map(str, cells))} |\n"


if __name__ == "__main__":
    wanted = page()
    if "--check" not in sys.argv[1:]:
        write_text(PAGE, wanted)
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != wanted:
        sys.exit("docs/systems/survey.md is out of date: run `make docs`")
