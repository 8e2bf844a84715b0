"""e-SNLI-VE (Kayser et al., ICCV 2021): sentences that a photo entails, contradicts, or leaves open.

`entailment.jsonl.gz` beside Flickr8k's or Flickr30k's photos has one sentence a line: image, split, hypothesis, label.
Further files beside it (`entailment_test.jsonl.gz`) are read as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.folder import PhotoFolder, first_folder
from saccade.data.datasets.questions.rows import QuestionRow, questions_about
from saccade.data.records import CaptionedPhotos, Questions
from saccade.data.registry import chosen_splits, need_root
from saccade.data.text_files import JsonEntry, read_json_lines

FILE = "entailment.jsonl.gz"
FILES = "entailment*.jsonl*"
FOLDER_HOLDS = "entailment.jsonl.gz and the folder of the photos"
PHOTO_FOLDERS = ("images", "flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset", "Images")
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


def open_entailment(split: str, root: Path | None) -> Questions[CaptionedPhotos]:
    """The sentences of one split (train, dev, test, extra) or a sum of them; what each is to its photo is its answer.

    Raises: SaccadeError if there are none, or a photo is missing.
    """
    folder = need_root(root, "flickr8k", FOLDER_HOLDS)
    files = sorted(path for path in folder.glob(FILES) if path.is_file())
    if not files:
        raise SaccadeError(f"{folder} has no {FILE}: e-SNLI-VE's sentences lie beside the photos that they are about")
    pairs = [pair for path in files for pair in read_entailment(path)]
    wanted = chosen_splits(split, {pair.split for pair in pairs}, files[0])
    seen, rows = Counter[str](), list[QuestionRow]()
    for pair in pairs:
        seen[pair.image] += 1
        if pair.split in wanted:
            id = f"{pair.image}#{seen[pair.image]}"
            rows.append(QuestionRow(id, pair.image, pair.hypothesis, (pair.label,), pair.label))
    return questions_about("e-snli-ve", split, rows, PhotoFolder(first_folder(folder, PHOTO_FOLDERS)), files[0])
