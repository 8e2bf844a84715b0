"""What is in a picture, as words with scores: named by the extractor of its regions, or read from a detector's file.

Stores keep an extractor's region vectors, and an extractor names things from them: pictures are not opened again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from saccade.core.errors import SaccadeError
from saccade.core.progress import progress_bar
from saccade.data.records import CaptionedImages
from saccade.data.text_files import read_json_lines
from saccade.vision import load_extractor

NAMING_BATCH = 128  # pictures


def concepts_by_extractor(
    data: CaptionedImages, pictures: Sequence[int], attributes: Sequence[str] = ("kind",), confidence: float = 0.3
) -> list[dict[str, float]]:
    """The names of each picture's regions, surest first; of several regions of one name the surest counts."""
    if data.extractor is None:
        raise SaccadeError(
            f"{data.name} does not say which extractor made its features, so nothing can name what they show: "
            "give concepts=FILE (lines of an image's id and its concepts), or concepts=none"
        )
    extractor = load_extractor(data.extractor, "cuda" if torch.cuda.is_available() else "cpu")
    found: list[dict[str, float]] = []
    known: set[str] = set()  # attributes that this extractor names
    with progress_bar(f"naming what is in {data.name}/{data.split} ({extractor.name})") as progress:
        for start in range(0, len(pictures), NAMING_BATCH):
            part = list(pictures[start : start + NAMING_BATCH])
            for regions in extractor.recognise(data.regions.batch(part)):
                named: dict[str, float] = {}
                for region in regions:
                    for attribute, word in region.labels.items():
                        known.add(attribute)
                        sure = region.confidence[attribute]
                        if attribute in attributes and sure >= confidence:
                            named[word] = max(sure, named.get(word, 0.0))
                found.append(dict(sorted(named.items(), key=lambda item: -item[1])))
            progress(min(start + NAMING_BATCH, len(pictures)), len(pictures))
    missing = [attribute for attribute in attributes if attribute not in known]
    if known and len(missing) == len(attributes):
        raise SaccadeError(
            f"the extractor {extractor.name} names no {' and no '.join(missing)} (it names: {', '.join(sorted(known))})"
        )
    return found


def read_concepts(path: Path | str, ids: Sequence[str]) -> list[dict[str, float]]:
    """From lines `{"image": "12.jpg", "concepts": {"dog": 0.93, "ball": 0.41}}`; a picture not named has none."""
    of_image: dict[str, dict[str, float]] = {}
    for number, line in read_json_lines(Path(path)):
        values = line if isinstance(line, dict) else {}
        image, concepts = values.get("image"), values.get("concepts")
        if not (
            isinstance(image, str)
            and isinstance(concepts, dict)
            and all(type(score) in (int, float) and 0 <= score <= 1 for score in concepts.values())
        ):
            raise SaccadeError(
                f'{path}, line {number}: expected {{"image": ID, "concepts": {{WORD: score between 0 and 1, …}}}}'
            )
        of_image[image] = {str(k): float(v) for k, v in sorted(concepts.items(), key=lambda item: -item[1])}
    if not of_image.keys() & set(ids):
        raise SaccadeError(f"{path} names none of the {len(ids)} pictures, of which the first is {ids[0]!r}")
    return [of_image.get(id, {}) for id in ids]
