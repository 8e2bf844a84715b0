"""e-SNLI-VE (Kayser et al., ICCV 2021): sentences that a photo entails, contradicts, or leaves open.

`entailment.jsonl.gz` beside Flickr8k's or Flickr30k's photos has one sentence a line: image, split, hypothesis, label.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from saccade.core.errors import SaccadeError
from saccade.data.text_files import JsonEntry, read_json_lines

FILE = "entailment.jsonl.gz"
EntailmentLabel: TypeAlias = Literal["entailment", "neutral", "contradiction"]


@dataclass(frozen=True)
class EntailmentPair:
    image: str  # the photo's file name
    split: str
    hypothesis: str
    label: EntailmentLabel


def read_entailment(path: Path) -> Iterator[EntailmentPair]:
    """The pairs of a file, one at a time. Raises: SaccadeError if a line is none."""
    labels = get_args(EntailmentLabel)
    for line, value in read_json_lines(path):
        entry = JsonEntry.of(value, f"{path}, line {line}")
        label = entry.text("label")
        if label not in labels:
            raise SaccadeError(f"{entry.where}: the label is {label[:40]!r}, one of {', '.join(labels)} was expected")
        yield EntailmentPair(
            entry.text("image"), entry.text("split"), entry.text("hypothesis"), cast("EntailmentLabel", label)
        )
