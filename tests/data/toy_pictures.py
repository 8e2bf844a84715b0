"""Small pictures, stores of them, and folders as bytes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from saccade.data.records import PictureRegions
from saccade.data.store.arrow import StoreWriter


def make_pictures(count: int, dim: int = 6, seed: int = 0, regions: int | None = None) -> list[PictureRegions]:
    random = np.random.default_rng(seed)
    pictures = []
    for i in range(count):
        n = int(random.integers(0, 5)) if regions is None else regions
        boxes = np.sort(random.random((n, 2, 2)), axis=1).reshape(n, 4).astype(np.float32)
        features = random.standard_normal((n, dim)).astype(np.float32)
        scores = random.random(n).astype(np.float32) if i % 2 else None
        pictures.append(PictureRegions(f"picture-{i}", features, boxes, 640, 480 + i, scores))
    return pictures


def write_store(folder: Path, pictures: Iterable[PictureRegions], shard_rows: int = 4, dtype: str = "float32") -> Path:
    with StoreWriter(folder, 6, dtype, extractor="test", shard_rows=shard_rows) as writer:
        for p in pictures:
            if p.id not in writer.done:
                writer.append(p.id, p.features, p.boxes, p.width, p.height, p.scores)
    return folder


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
