"""DenseCap's localisation layer: the reference kernel's bilinear sampling, and anchors, changed boxes and suppression.

A case is an .npz with a map (`feat`), the picture's size (`image_hw`), boxes in 1-based pixels (`boxes_xcycwh`) and
what the reference read in them (`theta`, `grid_yx`, `roi_feats`); and the proposals of that map: `anchors`,
`transforms`, `boxes_out`, `x1y1x2y2`, `scores`, `nms_thresh`, `nms_max`, `nms_pick`. All of it runs through the code
that DenseCap uses, whose boxes are fractions of the picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import load_arrays
from saccade.interop.harness import Case, Difference, Golden
from saccade.models.densecap import DenseCapConfig
from saccade.vision.detectors.rpn import anchor_boxes, decode
from saccade.vision.nms import best, nms
from saccade.vision.roi import densecap_boxes, densecap_points, densecap_theta, roi_bilinear, sample

STRIDE = 16  # of VGG-16's conv5_3, in pixels
LONGER_SIDE = 720  # of a picture, in pixels: what the anchors of the config are fractions of
ROUNDED = 2.0  # pixels by which the reference's anchors may be off those of the config: 45 × 90 has not the area of 64²
GRID, READ = 1e-6, 1e-5  # float32 places and what was read there


class DenseCapCase:
    def __init__(self, case: Case) -> None:
        self.case = case
        height, width = self._numbers("image_hw", 2)
        self.size = int(height), int(width)
        self.maps, self.boxes = self.floats("feat", 3), self.floats("boxes_xcycwh", 2)
        self.theta = densecap_theta(self.boxes, self.size)
        self.points = densecap_points(self.theta, case.take("roi_feats").shape[-1])

    def floats(self, key: str, axes: int) -> Tensor:
        values = np.asarray(self.case.take(key))
        if values.ndim != axes or values.dtype.kind not in "fiu":
            shape = f"{list(values.shape)} {values.dtype}"
            raise SaccadeError(f"{self.case.name}: {key} must have {axes} axes of numbers, not {shape}")
        return torch.from_numpy(values.astype(np.float64))

    def _numbers(self, key: str, count: int) -> list[float]:
        values = np.asarray(self.case.take(key)).ravel()
        if len(values) != count:
            raise SaccadeError(f"{self.case.name}: {key} must hold {count} numbers, not {len(values)}")
        return [float(value) for value in values]

    def read(self) -> dict[str, Tensor]:
        """From the reference's points, and from the boxes as fractions: the inverse of `densecap_boxes`."""
        none = torch.zeros(len(self.boxes), dtype=torch.long)
        scale = self.boxes.new_tensor(self.size[::-1])
        middle, half = self.boxes[:, :2] - 0.5, self.boxes[:, 2:] / 2
        fractions = torch.cat([(middle - half) / scale, (middle + half) / scale], dim=1)
        sides = self.points.shape[1]
        return {
            "roi_feats": sample(self.maps[None], self.points.flip(-1), none, "zeros", align_corners=True),
            "roi_feats, from boxes in 0..1": roi_bilinear(
                self.maps[None], fractions, none, sides, "densecap", self.size
            ),
        }

    @cached_property
    def proposals(self) -> dict[str, Any]:
        """Anchors stand by kind, row and column in the reference, by row, column and kind here."""
        rows, columns = self.maps.shape[1:]
        (height, width), take = self.size, self.case.tensor
        stride = STRIDE if (height // STRIDE, width // STRIDE) == (rows, columns) else round(height / rows)
        extent = rows * stride, columns * stride  # of the map, which may end before the picture does
        stored = self.floats("anchors", 2)
        kinds = len(stored) // (rows * columns)
        if not kinds or len(stored) != rows * columns * kinds:
            raise SaccadeError(f"{self.case.name}: {len(stored)} anchors cannot stand on {rows} × {columns} cells")
        sides = stored.view(kinds, rows * columns, 4)[:, 0, 2:]
        anchors = anchor_boxes(rows, columns, sides / sides.new_tensor(extent[::-1]))
        anchors = anchors.view(rows, columns, kinds, 4).permute(2, 0, 1, 3).reshape(-1, 4)
        boxes = decode(self.floats("transforms", 2), anchors, max_log_growth=math.inf)
        scale = boxes.new_tensor([extent[1], extent[0]] * 2)
        compared: dict[str, Any] = {"anchors: middles and sides": densecap_boxes(anchors, extent)}
        own = [(s * r**0.5, s / r**0.5) for s in DenseCapConfig.scales for r in DenseCapConfig.ratios]
        if kinds == len(own) and (off := (sides - LONGER_SIDE * sides.new_tensor(own)).abs()).max() < sides.min() / 2:
            compared["sides of the config's anchors, in pixels"] = Difference(float(off.max()), ROUNDED)
        picks = [
            self._pick(take("x1y1x2y2").to(kind), take("scores").to(kind)) for kind in (torch.float32, torch.float64)
        ]
        return {
            "anchors": compared,
            "boxes_out": densecap_boxes(boxes, extent),
            "x1y1x2y2": boxes * scale + boxes.new_tensor([1.0, 1.0, 0.0, 0.0]),  # from 1, the last one included
            "nms_pick": next(  # in either precision: an overlap may be the threshold itself
                (pick for pick in picks if np.array_equal(pick, self.case.stored["nms_pick"])), picks[0]
            ),
        }

    def _pick(self, boxes: Float[Tensor, "box 4"], scores: Float[Tensor, " box"]) -> np.ndarray:
        kept = nms(boxes, scores, float(self.case.take("nms_thresh")), inclusive=True)
        return best(scores, kept, int(self.case.take("nms_max"))).numpy()


def of_pixels(stored: np.ndarray) -> float:
    """What single precision allows for numbers of this size."""
    return 1e-6 * max(1.0, float(np.abs(stored).max(initial=0.0)))


def opens(folder: Path) -> Iterator[DenseCapCase]:
    for path in sorted(folder.glob("*.npz")):
        yield DenseCapCase(Case(path.stem, load_arrays(path)))


PROPOSALS = ("transforms", "boxes_out", "x1y1x2y2", "scores", "nms_thresh", "nms_max", "nms_pick")
GOLDEN = Golden(
    "densecap",
    opens,
    {
        "theta": (lambda c: c.theta, GRID),
        "grid_yx": (lambda c: c.points, GRID),
        "roi_feats": (DenseCapCase.read, READ),
        "(anchors|boxes_out|x1y1x2y2)": (lambda c, key: c.proposals[key], of_pixels),
        "(nms_pick)": (lambda c, key: c.proposals[key], 0.0),
    },
    required=lambda case: ("theta", "grid_yx", *(PROPOSALS if "anchors" in case.stored else ())),
)
