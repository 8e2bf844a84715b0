"""Bottom-Up's selection and TSV, DenseCap's localisation: other sizes hold, and what is changed is caught."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.data.formats.tsv import TsvRow, write_tsv
from saccade.interop import verify
from saccade.vision.nms import class_confidence, select


def bottomup_failures(folder: Path) -> list[str]:
    return [stage.stage for case in verify("bottomup", folder) for stage in case.stages if not stage.holds]


def bottomup_case(golden: Path, folder: Path, **changes: np.ndarray) -> Path:
    folder.mkdir()
    (folder / "sample.tsv").write_bytes((golden / "bottomup" / "sample.tsv").read_bytes())
    with np.load(golden / "bottomup" / "sample_decoded.npz") as stored:
        np.savez(folder / "sample_decoded.npz", **{**stored, **changes})
    return folder


def test_a_changed_selection_is_caught(golden: Path, tmp_path: Path) -> None:
    with np.load(golden / "bottomup" / "sample_decoded.npz") as stored:
        kept, scores, boxes = stored["img1_keep_idx"], stored["img0_scores"], stored["img2_boxes"]
    assert "img1_keep_idx" in bottomup_failures(bottomup_case(golden, tmp_path / "order", img1_keep_idx=kept[::-1]))
    assert "img0_keep_idx" in bottomup_failures(bottomup_case(golden, tmp_path / "scores", img0_scores=scores[::-1]))
    assert bottomup_failures(bottomup_case(golden, tmp_path / "boxes", img2_boxes=boxes + 1)) == ["img2_boxes"]
    assert bottomup_failures(bottomup_case(golden, tmp_path / "more", odd=boxes)) == ["odd (stored, never compared)"]


def test_bytes_that_differ_are_counted(golden: Path, tmp_path: Path) -> None:
    folder = bottomup_case(golden, tmp_path / "case")
    text = (folder / "sample.tsv").read_bytes().replace(b"\r\n", b"\n")
    (folder / "sample.tsv").write_bytes(text)
    assert bottomup_failures(folder) == ["bytes of the TSV that differ"]


@pytest.mark.parametrize("stated", [False, True])
def test_other_limits_and_no_pool5(tmp_path: Path, stated: bool) -> None:
    """Made as the second golden is described: limits 4 and 20, one picture below, one between, one above."""
    random = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {"min_boxes": np.array(4), "max_boxes": np.array(20)} if stated else {}
    rows = []
    for n, (boxes, sharpness) in enumerate(((30, 0.1), (12, 4.0), (90, 9.0))):
        low = random.uniform(0, 400, (boxes, 2))
        rois = np.concatenate([np.zeros((boxes, 1)), low, low + random.uniform(20, 150, (boxes, 2))], axis=1)
        logits = torch.from_numpy(sharpness * random.normal(size=(boxes, 9)))
        rois, scores = rois.astype(np.float32), logits.softmax(dim=1).float()
        places = torch.from_numpy(rois[:, 1:] / np.float32(1.5))
        order, real = select(class_confidence(places[None], scores[None], inclusive=True), least=4, most=20)
        kept = order[0][real[0]].numpy()
        features = random.normal(size=(len(kept), 16)).astype(np.float32)
        row = TsvRow(f"{n + 7}", 640, 640, places.numpy()[kept], features)
        rows.append(row)
        values = {"rois": rois, "scores": scores.numpy(), "im_scale": np.float32(1.5), "keep_idx": kept}
        values |= {"boxes": row.boxes, "features": features, "num_boxes": len(kept)}
        values |= {"image_id": n + 7, "image_w": 640, "image_h": 640}
        arrays |= {f"img{n}_{key}": np.asarray(value) for key, value in values.items()}
    assert [len(row.boxes) for row in rows][::2] == [4, 20]
    write_tsv(tmp_path / "b.tsv", rows)
    np.savez(tmp_path / "b_decoded.npz", **arrays)
    assert bottomup_failures(tmp_path) == []


def test_a_case_without_its_arrays(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "sample.tsv").write_bytes((golden / "bottomup" / "sample.tsv").read_bytes())
    with pytest.raises(SaccadeError, match=r"sample_decoded\.npz is missing"):
        bottomup_failures(tmp_path)
    np.savez(tmp_path / "sample_decoded.npz", x=np.zeros(2))
    with pytest.raises(SaccadeError, match="holds no arrays of pictures"):
        bottomup_failures(tmp_path)


def densecap_failures(folder: Path) -> list[str]:
    return [stage.stage for case in verify("densecap", folder) for stage in case.stages if not stage.holds]


def densecap_case(golden: Path, folder: Path, **changes: np.ndarray) -> Path:
    folder.mkdir()
    with np.load(golden / "densecap" / "bilinear_roi.npz") as stored:
        np.savez(folder / "case.npz", **{**stored, **changes})
    return folder


def test_a_changed_localisation_is_caught(golden: Path, tmp_path: Path) -> None:
    with np.load(golden / "densecap" / "bilinear_roi.npz") as file:
        stored = dict(file)
    for key in ("theta", "grid_yx", "boxes_out"):
        assert key in densecap_failures(densecap_case(golden, tmp_path / key, **{key: stored[key] + 0.01}))
    assert "anchors: middles and sides" in densecap_failures(
        densecap_case(golden, tmp_path / "a", anchors=stored["anchors"] + 1)
    )
    assert "nms_pick" in densecap_failures(densecap_case(golden, tmp_path / "n", nms_pick=stored["nms_pick"][::-1]))
    found = densecap_failures(densecap_case(golden, tmp_path / "f", roi_feats=stored["roi_feats"] * 1.01))
    assert found == ["roi_feats", "roi_feats, from boxes in 0..1"]
    assert densecap_failures(densecap_case(golden, tmp_path / "o", odd=stored["theta"])) == [
        "odd (stored, never compared)"
    ]


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
    assert densecap_failures(tmp_path) == []


def read(maps: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Bilinear interpolation with zeros outside, cell by cell; −1 and 1 are the first and last cell's middles."""
    rows, columns = maps.shape[1:]
    y, x = (points[..., 0] + 1) / 2 * (rows - 1), (points[..., 1] + 1) / 2 * (columns - 1)
    weight = [np.clip(1 - np.abs(at[..., None] - np.arange(n)), 0, None) for at, n in ((y, rows), (x, columns))]
    return np.asarray(np.einsum("crs,ijr,ijs->cij", maps, *weight))


def test_a_damaged_case_is_refused(golden: Path, tmp_path: Path) -> None:
    with np.load(golden / "densecap" / "bilinear_roi.npz") as file:
        anchors = file["anchors"]
    for name, changes, sentence in (
        ("size", {"image_hw": np.zeros(3)}, "image_hw must hold 2 numbers"),
        ("map", {"feat": np.zeros((2, 2))}, "feat must have 3 axes"),
        ("anchors", {"anchors": anchors[:-1]}, "cannot stand on 9 × 12 cells"),
    ):
        with pytest.raises(SaccadeError, match=sentence):
            densecap_failures(densecap_case(golden, tmp_path / name, **changes))
    np.savez(tmp_path / "size" / "case.npz", feat=np.zeros((1, 2, 2)), image_hw=[32, 32])
    with pytest.raises(SaccadeError, match='case has no "boxes_xcycwh"'):
        densecap_failures(tmp_path / "size")
