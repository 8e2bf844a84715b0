"""What must hold for the photographs in the repository: free to share, credited, and described as they are."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

FREE = {4: "CC BY 2.0", 5: "CC BY-SA 2.0"}  # COCO's numbers for the licences that allow altered copies


def test_every_photo_is_free_credited_and_described(photos: list[Path]) -> None:
    folder = photos[0].parent
    credit = (folder / "ATTRIBUTION.md").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in (folder / "annotations.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["image"] for row in rows] == [photo.name for photo in photos]
    for row, photo in zip(rows, photos, strict=True):
        line = next(line for line in credit if f"`{photo.name}`" in line)
        assert row["flickr_url"] in line
        assert line.endswith(f"| {FREE[row['license_id']]} |")
        assert len(row["captions"]) == 5
        with Image.open(photo) as picture:
            assert abs(picture.width / picture.height - row["width"] / row["height"]) < 0.02
        for thing in row["objects"]:
            x, y, width, height = thing["bbox_xywh"]
            assert -1 <= x < x + width <= row["width"] + 1
            assert -1 <= y < y + height <= row["height"] + 1


def test_the_photos_stay_small(photos: list[Path]) -> None:
    assert 12 <= len(photos) <= 20
    assert sum(photo.stat().st_size for photo in photos) < 500_000
