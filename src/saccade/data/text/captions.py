"""Sentences beside a feature store: `captions.jsonl`, one {"image": id, "text": …, "split": …} a line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.core.files import write_text
from saccade.data.text.lines import read_json_lines

CAPTIONS = "captions.jsonl"


@dataclass(frozen=True)
class Caption:
    """A sentence and the id of the picture it describes."""

    image: str
    text: str
    split: str | None = None


def read_captions(path: Path | str) -> tuple[Caption, ...]:
    found = []
    for number, values in read_json_lines(Path(path)):
        if not isinstance(values, dict) or not all(isinstance(values.get(key), str) for key in ("image", "text")):
            raise SaccadeError(f'{path}, line {number}: {{"image": id, "text": sentence}} was expected')
        split = values.get("split")
        if split is not None and not isinstance(split, str):
            raise SaccadeError(f'{path}, line {number}: "split" is {split!r}, text was expected')
        found.append(Caption(values["image"], values["text"], split))
    return tuple(found)


def write_captions(path: Path | str, captions: Iterable[Caption]) -> None:
    def line(caption: Caption) -> str:
        values = {"image": caption.image, "text": caption.text}
        if caption.split is not None:
            values["split"] = caption.split
        return json.dumps(values, ensure_ascii=False) + "\n"

    write_text(path, "".join(map(line, captions)))
