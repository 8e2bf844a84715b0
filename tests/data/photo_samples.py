"""Small photo data sets in their official layouts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from saccade.core.files import write_json
from saccade.data.datasets.photos.karpathy import KarpathyImage, KarpathySentence

SENTENCES = (
    "A small dog chases a red ball .",
    "Two children in striped shirts sit on a wooden bench .",
    'A man holds up a sign that says " stop " .',
    "The woman 's yellow kite flies over the beach .",
    "Several horses drink at a pond .",
)


def make_photo(path: Path, width: int = 40, height: int = 30) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = sum(map(ord, path.name))
    Image.fromarray(np.full((height, width, 3), seed % 256, dtype=np.uint8)).save(path)
    return path


def write(path: Path, text: str) -> Path:
    """Text to a file, gzipped where its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def write_rows(path: Path, *rows: Sequence[object]) -> Path:
    return write(path, "".join("\t".join(map(str, row)) + "\n" for row in rows))


def write_value(path: Path, value: Any) -> Path:
    return write(path, json.dumps(value))


def flickr8k_tables(root: Path, captions_of_test: bool = False) -> Path:
    """Four photos, one a split; the test photo's captions only where asked for."""
    splits = {"a.jpg": "train", "b.jpg": "dev", "c.jpg": "test", "d.jpg": "extra"}
    for name in splits:
        make_photo(root / "images" / name, 8, 8)
    rows = [(name, split, 40, 30) for name, split in splits.items()]
    write_rows(root / "images.tsv.gz", ("image", "split", "orig_width", "orig_height"), *rows)
    spoken = [name for name in splits if captions_of_test or name != "c.jpg"]
    captions = [(name, n, f"{text[:-1]}{name[0]} .") for name in spoken for n, text in enumerate(SENTENCES)]
    write_rows(root / "captions.tsv.gz", ("image", "n", "caption"), *captions)
    return root


def entailment_line(root: Path) -> Path:
    """One sentence about the first photo."""
    line = {"image": "a.jpg", "split": "train", "hypothesis": "a dog runs", "label": "neutral"}
    (root / "entailment.jsonl.gz").write_bytes(gzip.compress(json.dumps(line).encode()))
    return root


ENTITY_LINE: dict[str, Any] = {
    "image": "a.jpg",
    "width": 40,
    "height": 30,
    "split": "train",
    "boxes": {"1": [[1, 1, 20, 30]], "2": [[11, 7, 20, 12], [31, 7, 40, 12]]},
    "scene": ["3"],
    "nobox": ["4"],
    "sentences": [
        {
            "text": "A small brown dog chases two red balls in a park .",
            "phrases": [
                {"first_word": 0, "n_words": 4, "phrase": "A small brown dog", "chain": "1", "types": ["animals"]},
                {"first_word": 5, "n_words": 3, "phrase": "two red balls", "chain": "2", "types": ["other"]},
                {"first_word": 9, "n_words": 2, "phrase": "a park", "chain": "3", "types": ["scene"]},
            ],
        },
        {
            "text": "The wet dog runs .",
            "phrases": [{"first_word": 0, "n_words": 3, "phrase": "The wet dog", "chain": "1", "types": ["animals"]}],
        },
    ],
}

ENTITY_XML = """<annotation>
  <filename>a.jpg</filename>
  <size><width>40</width><height>30</height><depth>3</depth></size>
  <object><name>1</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>20</xmax><ymax>30</ymax></bndbox></object>
  <object><name>2</name><bndbox><xmin>11</xmin><ymin>7</ymin><xmax>20</xmax><ymax>12</ymax></bndbox></object>
  <object><name>2</name><bndbox><xmin>31</xmin><ymin>7</ymin><xmax>40</xmax><ymax>12</ymax></bndbox></object>
  <object><name>3</name><scene>1</scene><nobndbox>0</nobndbox></object>
  <object><name>4</name><scene>0</scene><nobndbox>1</nobndbox></object>
</annotation>
"""
ENTITY_SENTENCES = """[/EN#1/animals A small brown dog] chases [/EN#2/other two red balls] in [/EN#3/scene a park] .
[/EN#1/animals The wet dog] runs .
"""


def entities_published(root: Path) -> Path:
    write(root / "Annotations" / "a.xml", ENTITY_XML)
    write(root / "Sentences" / "a.txt", ENTITY_SENTENCES)
    write(root / "train.txt", "a\n")
    make_photo(root / "flickr30k-images" / "a.jpg")
    return root


def coco_values() -> dict[str, Any]:
    """Captions and boxes in one file: COCO's two kinds of annotations have the same frame."""
    return {
        "info": {"year": 2017},
        "licenses": [],
        "images": [{"id": 7, "file_name": "000000000007.jpg", "width": 40, "height": 30}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 18, "bbox": [4, 3, 20, 15], "iscrowd": 0, "caption": SENTENCES[0]},
            {"id": 2, "image_id": 7, "category_id": 37, "bbox": [0, 0, 40, 30], "iscrowd": 1, "caption": SENTENCES[1]},
            {"id": 3, "image_id": 7, "category_id": 37, "bbox": [4, 3, 0, 15], "iscrowd": 0, "caption": SENTENCES[2]},
            {"id": 4, "image_id": 7, "category_id": 37, "bbox": [30.5, 20, 9.5, 10.2], "caption": SENTENCES[3]},
        ],
        "categories": [{"id": 18, "name": "dog"}, {"id": 37, "name": "sports ball"}],
    }


def coco_folder(root: Path) -> Path:
    for kind in ("captions", "instances"):
        write_value(root / "annotations" / f"{kind}_train2017.json", coco_values())
    make_photo(root / "images" / "train2017" / "000000000007.jpg")
    return root


COCO_LINE: dict[str, Any] = {
    "image": "1.jpg",
    "coco_split": "val2017",
    "width": 40,
    "height": 30,
    "license_id": 4,
    "captions": list(SENTENCES),
    "objects": [
        {"category": "dog", "bbox_xywh": [4, 3, 20, 15], "iscrowd": 0},
        {"category": "person", "bbox_xywh": [0, 0, 40, 30], "iscrowd": 1},
    ],
}

GENOME: dict[str, list[dict[str, Any]]] = {
    "image_data": [{"image_id": n, "width": 40, "height": 30, "url": "x", "coco_id": None} for n in (1, 20)],
    "attributes": [
        {
            "image_id": n,
            "attributes": [
                {"object_id": 5, "x": 4, "y": 3, "w": 20, "h": 15, "names": ["Dog"], "attributes": ["Wet", "wet "]},
                {"object_id": 6, "x": 30, "y": 20, "w": 100, "h": 15, "names": ["ball"]},
                {"object_id": 7, "x": 90, "y": 20, "w": 10, "h": 15, "names": ["ghost"]},
            ],
        }
        for n in (1, 20)
    ],
    "region_descriptions": [
        {"id": 1, "regions": [{"region_id": 2, "x": 0, "y": 0, "width": 20, "height": 30, "phrase": "a wet dog"}]}
    ],
    "relationships": [
        {
            "image_id": 1,
            "relationships": [
                {
                    "predicate": "CHASES",
                    "subject": {"name": "dog", "x": 4, "y": 3, "w": 20, "h": 15},
                    "object": {"names": ["ball"], "x": 30, "y": 20, "w": 5, "h": 5},
                }
            ],
        }
    ],
}


def genome_folder(root: Path) -> Path:
    for name, value in GENOME.items():
        write_value(root / f"{name}.json", value)
    make_photo(root / "VG_100K" / "1.jpg")
    make_photo(root / "VG_100K_2" / "20.jpg")
    return root


def write_karpathy(path: Path | str, images: Sequence[KarpathyImage], dataset: str = "saccade") -> None:
    """Sentence ids are counted through the file, as in the originals."""
    entries, sentid = [], 0
    for n, image in enumerate(images):
        imgid = n if image.imgid is None else image.imgid
        ids = list(range(sentid, sentid + len(image.sentences)))
        sentid += len(ids)
        sentences = [
            {"tokens": list(s.tokens), "raw": s.raw, "imgid": imgid, "sentid": i}
            for s, i in zip(image.sentences, ids, strict=True)
        ]
        entry: dict[str, Any] = {"filepath": image.filepath, "sentids": ids, "filename": image.filename, "imgid": imgid}
        entry |= {"split": image.split, "sentences": sentences, "cocoid": image.cocoid}
        entries.append({key: value for key, value in entry.items() if value is not None})
    write_json(path, {"images": entries, "dataset": dataset})


def entity_lines(root: Path, *values: Any) -> Path:
    make_photo(root / "images" / "a.jpg", 8, 8)
    write(root / "entities.jsonl.gz", "".join(json.dumps(value) + "\n" for value in values))
    return root


def coco_line_folder(root: Path, line: Any = COCO_LINE, name: str = "annotations.jsonl.gz") -> Path:
    make_photo(root / "images" / "1.jpg", 8, 6)
    write(root / name, json.dumps(line) + "\n")
    return root


KARPATHY_IMAGES = [
    KarpathyImage(f"{name}.jpg", split, tuple(KarpathySentence(f" {text} ") for text in SENTENCES), imgid=n)
    for n, (name, split) in enumerate({"1": "train", "2": "val", "3": "test"}.items())
]


def karpathy_folder(root: Path) -> Path:
    write_karpathy(root / "dataset_flickr30k.json", KARPATHY_IMAGES)
    for image in KARPATHY_IMAGES:
        make_photo(root / "flickr30k-images" / image.filename)
    return root
