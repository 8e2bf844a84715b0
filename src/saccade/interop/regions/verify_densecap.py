"""DenseCap's localisation layer: the reference kernel's bilinear sampling, and anchors, changed boxes and suppression.

A case is an .npz with a map (`feat`), the picture's size (`image_hw`), boxes in 1-based pixels (`boxes_xcycwh`) and
what the reference read in them (`theta`, `grid_yx`, `roi_feats`); and the proposals of that map: `anchors`,
`transforms`, `boxes_out`, `x1y1x2y2`, `scores`, `nms_thresh`, `nms_max`, `nms_pick`. All of it runs through the code
that DenseCap uses, whose boxes are fractions of the picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.verification import Case, load_arrays, verifier
from saccade.models.densecap import DenseCapConfig
from saccade.vision.detectors.rpn import anchor_boxes, decode
from saccade.vision.nms import best, nms
from saccade.vision.roi import densecap_boxes, densecap_points, densecap_theta, roi_bilinear, sample

STRIDE = 16  # of VGG-16's conv5_3, in pixels
LONGER = 720  # the longer side of a picture, in pixels: what the anchors of the config are fractions of
ROUNDED = 2.0  # pixels by which the reference's anchors may be off those of the config: 45 × 90 has not the area of 64²
PLACES, READ, PIXELS = 1e-6, 1e-5, 1e-6  # allowed differences: grid, features, and pixels as a share of the largest


@verifier("densecap")
def verify_densecap(folder: Path) -> Iterator[Case]:
    for path in sorted(folder.glob("*.npz")):
        case = Case(path.stem, load_arrays(path))
        height, width = _numbers(case, "image_hw", 2)
        size = int(height), int(width)
        _sampler(case, size)
        if "anchors" in case.stored:
            _proposals(case, size)
        yield case


def _sampler(case: Case, size: tuple[int, int]) -> None:
    maps, boxes = _floats(case, "feat", 3), _floats(case, "boxes_xcycwh", 2)
    theta = densecap_theta(boxes, size)
    case.compare("theta", theta, PLACES)
    points = densecap_points(theta, case.take("roi_feats").shape[-1])
    case.compare("grid_yx", points, PLACES)
    none = torch.zeros(len(boxes), dtype=torch.long)
    case.compare("roi_feats", sample(maps[None], points.flip(-1), none, "zeros", align_corners=True), READ)
    read = roi_bilinear(maps[None], _fractions(boxes, size), none, points.shape[1], "densecap", size)
    case.compare("roi_feats", read, READ, "roi_feats, from boxes in 0..1")


def _proposals(case: Case, size: tuple[int, int]) -> None:
    """Anchors stand by kind, row and column in the reference, by row, column and kind here."""
    rows, columns = case.take("feat").shape[1:]
    stride = STRIDE if (size[0] // STRIDE, size[1] // STRIDE) == (rows, columns) else round(size[0] / rows)
    extent = rows * stride, columns * stride  # of the map, which may end before the picture does
    stored = _floats(case, "anchors", 2)
    kinds = len(stored) // (rows * columns)
    if not kinds or len(stored) != rows * columns * kinds:
        raise SaccadeError(f"{case.name}: {len(stored)} anchors cannot stand on {rows} × {columns} cells")
    sides = stored.view(kinds, rows * columns, 4)[:, 0, 2:]
    anchors = anchor_boxes(rows, columns, sides / sides.new_tensor(extent[::-1]))
    anchors = anchors.view(rows, columns, kinds, 4).permute(2, 0, 1, 3).reshape(-1, 4)
    case.compare("anchors", densecap_boxes(anchors, extent), _scale(stored), "anchors: middles and sides")
    own = [(s * r**0.5, s / r**0.5) for s in DenseCapConfig.scales for r in DenseCapConfig.ratios]
    if kinds == len(own) and (off := (sides - LONGER * sides.new_tensor(own)).abs()).max() < sides.min() / 2:
        case.check("sides of the config's anchors, in pixels", float(off.max()), ROUNDED)

    boxes = decode(_floats(case, "transforms", 2), anchors, max_log_growth=math.inf)
    case.compare("boxes_out", densecap_boxes(boxes, extent), _scale(case.take("boxes_out")))
    case.compare("x1y1x2y2", _inclusive(boxes, extent), _scale(case.take("x1y1x2y2")))

    scores, corners = torch.from_numpy(case.take("scores")), torch.from_numpy(case.take("x1y1x2y2"))
    threshold, most = float(case.take("nms_thresh")), int(case.take("nms_max"))
    wanted = case.take("nms_pick")
    picks = [_pick(corners.to(kind), scores.to(kind), threshold, most) for kind in (torch.float32, torch.float64)]
    chosen = next((pick for pick in picks if np.array_equal(pick, wanted)), picks[0])  # an overlap may be the threshold
    case.compare("nms_pick", chosen, 0)


def _pick(boxes: Float[Tensor, "box 4"], scores: Float[Tensor, " box"], threshold: float, most: int) -> np.ndarray:
    return best(scores, nms(boxes, scores, threshold, inclusive=True), most).numpy()


def _fractions(boxes: Float[Tensor, "box 4"], size: tuple[int, int]) -> Float[Tensor, "box 4"]:
    """xc, yc, w, h in 1-based pixels as x1, y1, x2, y2 in 0..1: the inverse of `densecap_boxes`."""
    scale = boxes.new_tensor(size[::-1])
    middle, half = boxes[:, :2] - 0.5, boxes[:, 2:] / 2
    return torch.cat([(middle - half) / scale, (middle + half) / scale], dim=1)


def _inclusive(boxes: Float[Tensor, "box 4"], size: tuple[int, int]) -> Float[Tensor, "box 4"]:
    """x1, y1, x2, y2 in 1-based pixels, the last one included."""
    height, width = size
    return boxes * boxes.new_tensor([width, height, width, height]) + boxes.new_tensor([1.0, 1.0, 0.0, 0.0])


def _scale(values: Tensor | np.ndarray) -> float:
    """What single precision allows for numbers of this size."""
    return PIXELS * max(1.0, float(np.abs(np.asarray(values)).max(initial=0.0)))


def _floats(case: Case, key: str, axes: int) -> Tensor:
    values = np.asarray(case.take(key))
    if values.ndim != axes or values.dtype.kind not in "fiu":
        raise SaccadeError(
            f"{case.name}: {key} must have {axes} axes of numbers, not {list(values.shape)} {values.dtype}"
        )
    return torch.from_numpy(values.astype(np.float64))


def _numbers(case: Case, key: str, count: int) -> list[float]:
    values = np.asarray(case.take(key)).ravel()
    if len(values) != count:
        raise SaccadeError(f"{case.name}: {key} must hold {count} numbers, not {len(values)}")
    return [float(value) for value in values]
