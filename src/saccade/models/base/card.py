"""The card of a model folder, README.md: what it is, what it learned from, how good it is, and its terms and use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FEW = 20  # entries of a list that a card shows


@dataclass(frozen=True)
class Trained:
    """How a model was trained; its folder keeps it."""

    data: str = ""  # the data set's name
    split: str = ""
    pictures: int | None = None  # that were learned from
    texts: int | None = None
    licence: str = ""  # of the data
    command: str = ""
    measured_on: str = ""  # the split, or what else the figures are of
    figures: tuple[tuple[str, float], ...] = ()


def model_card(
    name: str,
    task: str,
    about: str,
    trained: Trained | None,
    intended_use: str,
    settings: Mapping[str, Any],
) -> str:
    table = "\n".join(f"| {key} | {_shown(value)} |" for key, value in settings.items())
    return f"""---
library_name: saccade
tags: [vision-language, {task}]
---

# {name}

{about}

```python
import saccade

model = saccade.load("this folder")
```

{_origin(trained)}

## Intended use

{intended_use} It knows the things, words and language of its training data and no others, and repeats their prejudices:
it is not for decisions about people.

## Settings

| setting | value |
|---|---|
{table}
"""


def _shown(value: Any) -> str:
    """A setting; of a long list, such as all answers or triplets, the first few."""
    if not isinstance(value, list | tuple) or len(value) <= FEW:
        return str(value)
    return f"{str(list(value[:FEW]))[:-1]}, … {len(value):,} in all]"


def _origin(trained: Trained | None) -> str:
    if trained is None:
        return """## Data, figures and licence

Not known: these weights were not made by `saccade train`. Whoever made them says what they learned from, how good they
are and on what terms they may be used."""
    counts = [
        f"{n:,} {what}" for n, what in ((trained.pictures, "pictures"), (trained.texts, "texts")) if n is not None
    ]
    figures = "\n".join(f"| {name} | {value:.4g} |" for name, value in trained.figures)
    return f"""## Data

Trained on the split {trained.split} of {trained.data}{f" ({', '.join(counts)})" if counts else ""} by

```bash
{trained.command}
```

## Figures

Of {trained.measured_on}, which also chose the step that was best; the command above measures them.

| figure | value |
|---|---|
{figures}

## Licence

The code is Apache-2.0. The weights belong to whoever trained them, and the terms of the data bind them:
{trained.licence or "those of whoever gave the data"}."""
