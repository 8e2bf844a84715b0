"""A data set of tiny photos in the layout that `data=coco_mini` reads: coloured halves, one to three captions each."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

from PIL import Image

COLOURS = ("red", "green", "blue", "white", "black")
SIZE = (24, 20)


def make_photos(root: Path, train: int = 12, dev: int = 6) -> Path:
    (root / "images").mkdir(parents=True)
    pairs = list(permutations(COLOURS, 2))[: train + dev]
    lines = []
    for number, (left, right) in enumerate(pairs):
        name = f"{number}.png"
        picture = Image.new("RGB", SIZE, left)
        picture.paste(right, (SIZE[0] // 2, 0, *SIZE))
        picture.save(root / "images" / name)
        captions = (f"{left} left and {right} right", f"some {right} beside {left}", f"two halves , {left} and {right}")
        split = "train2017" if number < train else "val2017"
        facts = {"image": name, "coco_split": split, "width": SIZE[0], "height": SIZE[1], "objects": []}
        lines.append(json.dumps({**facts, "captions": captions[: 1 + number % 3]}))
    (root / "annotations.jsonl").write_text("\n".join(lines) + "\n")
    return root
