"""Small data sets of expressions and dialogs in their official layouts."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

from photo_samples import make_photo, write, write_value

NAME = "COCO_train2014_000000000042.jpg"
INSTANCES = {
    "images": [{"id": 42, "file_name": NAME, "width": 40, "height": 20}],
    "categories": [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}],
    "annotations": [
        {"id": 7, "image_id": 42, "category_id": 1, "bbox": [0, 0, 20, 10], "iscrowd": 0},
        {"id": 8, "image_id": 42, "category_id": 18, "bbox": [20, 10, 20, 10], "iscrowd": 0},
        {"id": 9, "image_id": 42, "category_id": 18, "bbox": [5, 5, 0, 4], "iscrowd": 0},
    ],
}
REFS = [
    {"ref_id": 0, "ann_id": 7, "image_id": 42, "split": "train", "category_id": 1}
    | {
        "sentences": [
            {"sent": "man on the left", "tokens": []},
            {"sent": "guy", "tokens": []},
            {"sent": " ", "tokens": []},
        ]
    },
    {"ref_id": 1, "ann_id": 8, "image_id": 42, "split": "testA", "category_id": 18}
    | {"sentences": [{"sent": "the dog"}]},
]
DIALOG: dict[str, Any] = {
    "id": 3,
    "status": "success",
    "object_id": 8,
    "image": {"id": 42, "file_name": NAME, "width": 40, "height": 20},
    "objects": [
        {"id": 7, "bbox": [0, 0, 20, 10], "category": "person", "category_id": 1},
        {"id": 8, "bbox": [20, 10, 20, 10], "category": "dog", "category_id": 18},
    ],
    "qas": [
        {"question": "Is it a person?", "answer": "No", "id": 1},
        {"question": "the dog? ", "answer": "Yes", "id": 2},
    ],
}


def refcoco(root: Path, *cuts: str, refs: Any = REFS) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for by in cuts or ("unc",):
        (root / f"refs({by}).p").write_bytes(pickle.dumps(refs, protocol=2))
    write_value(root / "instances.json", INSTANCES)
    make_photo(root / "images" / "train2014" / NAME, 40, 20)
    return root


def guesswhat(root: Path, *changes: dict[str, Any]) -> Path:
    lines = [write_line(DIALOG | change) for change in ({}, *changes)]
    write(root / "guesswhat.valid.jsonl.gz", "".join(lines))
    make_photo(root / "val2014" / NAME, 40, 20)
    return root


def write_line(value: Any) -> str:
    return json.dumps(value) + "\n"
