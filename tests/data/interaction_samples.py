"""Small folders of HICO-DET's JSON form and of VRD."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image

from saccade.data import DataConfig

HICO = {
    "file_name": "a.jpg",
    "annotations": [
        {"bbox": [0, 0, 50, 40], "category_id": 1},
        {"bbox": [50, 40, 130, 80], "category_id": "21"},
        {"bbox": [5, 5, 5, 9], "category_id": 3},
    ],
    "hoi_annotation": [
        {"subject_id": 0, "object_id": 1, "category_id": 77, "hoi_category_id": 1},
        {"subject_id": 0, "object_id": 1, "category_id": 58, "hoi_category_id": 2},
        {"subject_id": 0, "object_id": 2, "category_id": 77, "hoi_category_id": 3},
        {"subject_id": 0, "object_id": 1, "category_id": 69, "hoi_category_id": 4},
    ],
}
VRD = {
    "a.jpg": [
        {
            "subject": {"category": 0, "bbox": [0, 40, 0, 50]},
            "predicate": 1,
            "object": {"category": 1, "bbox": [40, 80, 50, 100]},
        },
        {
            "subject": {"category": 1, "bbox": [40, 80, 50, 100]},
            "predicate": 0,
            "object": {"category": 0, "bbox": [0, 40, 0, 50]},
        },
    ],
    "never-given.jpg": [],
}


def photo(folder: Path) -> None:
    folder.mkdir(parents=True)
    Image.new("RGB", (100, 80)).save(folder / "a.jpg")


def hico(root: Path, content: Any = None) -> DataConfig:
    photo(root / "images" / "train2015")
    (root / "trainval_hico.json").write_text(json.dumps([HICO] if content is None else content))
    return DataConfig("hico", root=root)


def vrd(root: Path, content: Any = None) -> DataConfig:
    photo(root / "sg_train_images")
    (root / "annotations_train.json").write_text(json.dumps(VRD if content is None else content))
    (root / "objects.json").write_text('["person", "horse"]')
    (root / "predicates.json").write_text('["next to", "on"]')
    return DataConfig("vrd", root=root)
