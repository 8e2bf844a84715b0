"""The same few pictures in the layouts of other tools; written here as those tools write them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

DIM = 8
SIZES = {"391895": (640, 480), "522418": (480, 640), "184613": (500, 333)}
COUNTS = {"391895": 3, "522418": 5, "184613": 2}
IDS = tuple(sorted(SIZES))


def features(id: str) -> np.ndarray:
    return np.random.default_rng(int(id)).standard_normal((COUNTS[id], DIM)).astype(np.float32)


def unit_boxes(id: str) -> np.ndarray:
    random = np.random.default_rng(int(id) + 1)
    return np.sort(random.random((COUNTS[id], 2, 2)), axis=1).reshape(-1, 4).astype(np.float32)


def pixel_boxes(id: str) -> np.ndarray:
    return unit_boxes(id) * np.array(SIZES[id] * 2, dtype=np.float32)


def npz_bytes(**arrays: object) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def npy_bytes(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def write_sizes(path: Path) -> Path:
    path.write_text("image\twidth\theight\n" + "".join(f"{id}.jpg\t{w}\t{h}\n" for id, (w, h) in SIZES.items()))
    return path


def write_cocobu(folder: Path) -> Path:
    """ImageCaptioning.pytorch: cocobu_att, cocobu_fc and cocobu_box; the first is the one to open."""
    for end in ("att", "fc", "box"):
        (folder / f"cocobu_{end}").mkdir(parents=True)
    for id in IDS:
        (folder / "cocobu_att" / f"{id}.npz").write_bytes(npz_bytes(feat=features(id)))
        np.save(folder / "cocobu_fc" / f"{id}.npy", features(id).mean(0))
        np.save(folder / "cocobu_box" / f"{id}.npy", pixel_boxes(id))
    return folder / "cocobu_att"
