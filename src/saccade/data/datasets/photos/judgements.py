"""What people think of captions: Flickr8k's judgements (Hodosh, Young, Hockenmaier 2013).

Photos were shown with captions of other photos. Three experts said how well each fits, from 1 (not at all) to 4 (it
does); and on the net about three people each said yes or no. `ExpertAnnotations.tsv.gz` has image, caption_id
(photo.jpg#n), score1, score2, score3; `CrowdFlowerAnnotations.tsv.gz` has image, caption_id, frac_yes, n_yes, n_no.
The sentences are in `captions.tsv.gz` beside them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.data.text_files import find_file, need_file, read_table

EXPERTS = "ExpertAnnotations.tsv.gz"
CROWD = "CrowdFlowerAnnotations.tsv.gz"
_SCORES = {"experts": ("score1", "score2", "score3"), "crowd": ("frac_yes", "n_yes", "n_no")}


@dataclass(frozen=True)
class Judgement:
    """A caption beside a photo, the photo's own captions, and what people said."""

    image: str
    caption: str
    references: tuple[str, ...]
    scores: tuple[float, ...]  # of each expert; of the crowd, the share that said yes


@dataclass(frozen=True)
class Judgements:
    kind: str  # experts, crowd
    path: Path
    rows: tuple[Judgement, ...]
    own: int  # left out: the caption is one of the photo's own, so it would be scored against itself
    unknown: int  # left out: the caption, or all captions of the photo, are in no file


def read_judgements(folder: Path, others: Sequence[Path] = ()) -> list[Judgements]:
    """The judgements of a folder, of experts and of the crowd; captions may also lie in other folders."""
    files = {kind: find_file(folder, name) for kind, name in (("experts", EXPERTS), ("crowd", CROWD))}
    if not any(files.values()):
        raise SaccadeError(f"{folder} holds no judgements: {EXPERTS} or {CROWD} was expected")
    captions: dict[str, dict[str, str]] = {}  # photo → number → sentence
    for place in (folder, *others):
        path = need_file(
            place, "captions.tsv.gz", "the judgements name captions by photo and number, and this holds them"
        )
        for _, (image, number, text) in read_table(path, ("image", "n", "caption")):
            captions.setdefault(image, {}).setdefault(number, text)
    return [_read(kind, file, captions) for kind, file in files.items() if file is not None]


def _read(kind: str, path: Path, captions: dict[str, dict[str, str]]) -> Judgements:
    rows: list[Judgement] = []
    own = unknown = 0
    for line, (image, caption_id, *fields) in read_table(path, ("image", "caption_id", *_SCORES[kind])):
        photo, hash_sign, number = caption_id.rpartition("#")
        if not hash_sign or not photo or not number.isdecimal():
            raise SaccadeError(f"{path}, line {line}: the caption is {caption_id[:80]!r}, photo.jpg#n was expected")
        named = zip(_SCORES[kind], fields, strict=True)
        numbers = [_number(f"{path}, line {line}: {name}", text) for name, text in named]
        references, caption = captions.get(image), captions.get(photo, {}).get(number)
        if photo == image:
            own += 1
        elif references is None or caption is None:
            unknown += 1
        else:
            scores = tuple(numbers) if kind == "experts" else (numbers[0],)
            rows.append(Judgement(image, caption, tuple(references.values()), scores))
    if not rows:
        raise SaccadeError(
            f"{path}: none of its {own + unknown} judgements can be used ({own} are of a photo's own captions, and of "
            f"{unknown} the captions are not in captions.tsv.gz)"
        )
    return Judgements(kind, path, tuple(rows), own, unknown)


def _number(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SaccadeError(f"{where} is {text[:40]!r}, a number was expected")
    return value
