"""The reference's selection and TSV: every stage holds, for other limits too, and what is changed is caught."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.data.formats.tsv import TsvRow, write_tsv
from saccade.interop import verify
from saccade.vision.nms import class_confidence, select


def failures(folder: Path) -> list[str]:
    return [stage.stage for case in verify("bottomup", folder) for stage in case.stages if not stage.holds]


def copied(golden: Path, folder: Path, **changes: np.ndarray) -> Path:
    folder.mkdir()
    (folder / "sample.tsv").write_bytes((golden / "bottomup" / "sample.tsv").read_bytes())
    with np.load(golden / "bottomup" / "sample_decoded.npz") as stored:
        np.savez(folder / "sample_decoded.npz", **{**stored, **changes})
    return folder


def test_what_is_changed_is_caught(golden: Path, tmp_path: Path) -> None:
    with np.load(golden / "bottomup" / "sample_decoded.npz") as stored:
        kept, scores, boxes = stored["img1_keep_idx"], stored["img0_scores"], stored["img2_boxes"]
    assert "img1_keep_idx" in failures(copied(golden, tmp_path / "order", img1_keep_idx=kept[::-1]))
    assert "img0_keep_idx" in failures(copied(golden, tmp_path / "scores", img0_scores=scores[::-1]))
    assert failures(copied(golden, tmp_path / "boxes", img2_boxes=boxes + 1)) == ["img2_boxes"]
    assert failures(copied(golden, tmp_path / "more", odd=boxes)) == ["odd (stored, never compared)"]


def test_bytes_that_differ_are_counted(golden: Path, tmp_path: Path) -> None:
    folder = copied(golden, tmp_path / "case")
    text = (folder / "sample.tsv").read_bytes().replace(b"\r\n", b"\n")
    (folder / "sample.tsv").write_bytes(text)
    assert failures(folder) == ["bytes of the TSV that differ"]


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
    assert failures(tmp_path) == []


def test_a_case_without_its_arrays(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "sample.tsv").write_bytes((golden / "bottomup" / "sample.tsv").read_bytes())
    with pytest.raises(SaccadeError, match=r"sample_decoded\.npz is missing"):
        failures(tmp_path)
    np.savez(tmp_path / "sample_decoded.npz", x=np.zeros(2))
    with pytest.raises(SaccadeError, match="holds no arrays of pictures"):
        failures(tmp_path)
