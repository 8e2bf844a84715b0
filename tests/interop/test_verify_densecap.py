"""The reference's localisation layer: every stage holds, for other sizes too, and what is changed is caught."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from saccade.core.errors import SaccadeError
from saccade.interop import verify


def failures(folder: Path) -> list[str]:
    return [stage.stage for case in verify("densecap", folder) for stage in case.stages if not stage.holds]


def changed(golden: Path, folder: Path, **changes: np.ndarray) -> Path:
    folder.mkdir()
    with np.load(golden / "densecap" / "bilinear_roi.npz") as stored:
        np.savez(folder / "case.npz", **{**stored, **changes})
    return folder


def test_what_is_changed_is_caught(golden: Path, tmp_path: Path) -> None:
    with np.load(golden / "densecap" / "bilinear_roi.npz") as file:
        stored = dict(file)
    for key in ("theta", "grid_yx", "boxes_out"):
        assert key in failures(changed(golden, tmp_path / key, **{key: stored[key] + 0.01}))
    assert "anchors: middles and sides" in failures(changed(golden, tmp_path / "a", anchors=stored["anchors"] + 1))
    assert "nms_pick" in failures(changed(golden, tmp_path / "n", nms_pick=stored["nms_pick"][::-1]))
    found = failures(changed(golden, tmp_path / "f", roi_feats=stored["roi_feats"] * 1.01))
    assert found == ["roi_feats", "roi_feats, from boxes in 0..1"]
    assert failures(changed(golden, tmp_path / "o", odd=stored["theta"])) == ["odd (stored, never compared)"]


def test_other_sizes_hold(tmp_path: Path) -> None:
    """Made after the reference's formulas in NumPy: 5 anchors, a map of 4 × 6, a picture that is no multiple of 16."""
    draw = np.random.default_rng(0)
    height, width, rows, columns = 75, 100, 4, 6
    sides = draw.uniform(10, 80, (5, 2))
    y, x = 8.5 + 16 * np.arange(rows), 8.5 + 16 * np.arange(columns)
    anchors = np.array([[cx, cy, *side] for side in sides for cy in y for cx in x])
    change = draw.normal(size=(len(anchors), 4))
    middle = anchors[:, :2] + change[:, :2] * anchors[:, 2:]
    boxes = np.concatenate([middle, anchors[:, 2:] * np.exp(change[:, 2:])], axis=1)
    half = (boxes[:, 2:] - 1) / 2
    corners = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    scores = draw.normal(size=len(anchors))
    picked: list[int] = []
    for i in np.argsort(-scores):
        shared = [
            np.minimum(corners[i, 2:], corners[j, 2:]) - np.maximum(corners[i, :2], corners[j, :2]) + 1 for j in picked
        ]
        areas = [(corners[k, 2:] - corners[k, :2] + 1).prod() for k in (i, *picked)]
        both = [np.clip(s, 0, None).prod() for s in shared]
        if all(b / (areas[0] + a - b) <= 0.5 for a, b in zip(areas[1:], both, strict=True)):
            picked.append(int(i))
    maps, regions = draw.normal(size=(2, rows, columns)), draw.uniform(10, 60, (3, 4))
    theta = np.zeros((3, 2, 3))
    theta[:, 0, 0], theta[:, 0, 2] = regions[:, 3] / height, (2 * regions[:, 1] - height - 1) / (height - 1)
    theta[:, 1, 1], theta[:, 1, 2] = regions[:, 2] / width, (2 * regions[:, 0] - width - 1) / (width - 1)
    steps = np.linspace(-1, 1, 5)
    rows_at = theta[:, 0, 0, None] * steps + theta[:, 0, 2, None]  # [region, step]
    columns_at = theta[:, 1, 1, None] * steps + theta[:, 1, 2, None]
    grid = np.stack(np.broadcast_arrays(rows_at[:, :, None], columns_at[:, None, :]), axis=-1)
    np.savez(
        tmp_path / "other.npz", feat=maps, image_hw=[height, width], boxes_xcycwh=regions, theta=theta, grid_yx=grid,
        roi_feats=np.stack([read(maps, points) for points in grid]), anchors=anchors.astype(np.float32),
        transforms=change, boxes_out=boxes.astype(np.float32), x1y1x2y2=corners, scores=scores,
        nms_thresh=0.5, nms_max=7, nms_pick=picked[:7],
    )  # fmt: skip
    assert failures(tmp_path) == []


def read(maps: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Bilinear interpolation with zeros outside, cell by cell; −1 and 1 are the first and last cell's middles."""
    rows, columns = maps.shape[1:]
    y, x = (points[..., 0] + 1) / 2 * (rows - 1), (points[..., 1] + 1) / 2 * (columns - 1)
    weight = [np.clip(1 - np.abs(at[..., None] - np.arange(n)), 0, None) for at, n in ((y, rows), (x, columns))]
    return np.asarray(np.einsum("crs,ijr,ijs->cij", maps, *weight))


def test_a_damaged_case_gets_a_sentence(golden: Path, tmp_path: Path) -> None:
    with np.load(golden / "densecap" / "bilinear_roi.npz") as file:
        anchors = file["anchors"]
    for name, changes, sentence in (
        ("size", {"image_hw": np.zeros(3)}, "image_hw must hold 2 numbers"),
        ("map", {"feat": np.zeros((2, 2))}, "feat must have 3 axes"),
        ("anchors", {"anchors": anchors[:-1]}, "cannot stand on 9 × 12 cells"),
    ):
        with pytest.raises(SaccadeError, match=sentence):
            failures(changed(golden, tmp_path / name, **changes))
    np.savez(tmp_path / "size" / "case.npz", feat=np.zeros((1, 2, 2)), image_hw=[32, 32])
    with pytest.raises(SaccadeError, match='case has no "boxes_xcycwh"'):
        failures(tmp_path / "size")
