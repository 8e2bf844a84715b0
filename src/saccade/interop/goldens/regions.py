"""Regions: the selection and TSV of the official Bottom-Up attention code, and DenseCap's localisation layer.

A case of Bottom-Up is `NAME.tsv` with `NAME_decoded.npz`: per picture what a stub network gave (`rois` in network
pixels, `scores`, `im_scale`, where stored `pool5`) and what the reference made of it (`keep_idx`, `boxes`, `features`).

A case of DenseCap is an .npz with a map (`feat`), the picture's size (`image_hw`), boxes in 1-based pixels
(`boxes_xcycwh`), what the reference sampled in them (`theta`, `grid_yx`, `roi_feats`), and the proposals of that map:
`anchors`, `transforms`, `boxes_out`, `x1y1x2y2`, `scores`, `nms_thresh`, `nms_max`, `nms_pick`. All of it runs through
the code that DenseCap uses, whose boxes are fractions of the picture.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.data.formats.tsv import BottomUpTsv, TsvRow
from saccade.interop.harness import Case, Difference, Golden, difference
from saccade.models.densecap import DenseCapConfig
from saccade.vision.detectors.rpn import anchor_boxes, decode
from saccade.vision.nms import best, class_confidence, nms, select
from saccade.vision.roi import densecap_boxes, densecap_points, densecap_theta, roi_bilinear, sample

LIMITS = ((10, 100), (36, 36))  # the fewest and the most regions: the two that were released


class BottomUpCase:
    """Pictures are numbered as in the stored keys: `img0_rois`, …"""

    def __init__(self, case: Case, tsv: Path) -> None:
        self.case, self.tsv = case, tsv
        numbers = pictures(case)
        if not numbers:
            raise SaccadeError(f"{case.name}_decoded.npz holds no arrays of pictures (img0_rois, img0_scores, …)")
        self.places, self.confidence = dict[str, np.ndarray](), dict[str, Tensor]()
        for n in numbers:
            self.places[n], self.confidence[n] = self._proposals(n)
        self.limits = self._limits()
        rows = list(BottomUpTsv(tsv).rows())
        self.rows = dict(zip(numbers, rows, strict=False))
        case.check("pictures in the TSV", abs(len(rows) - len(numbers)), 0)
        self._check_bytes()

    def _proposals(self, n: str) -> tuple[np.ndarray, Tensor]:
        """Proposals in pixels of the original, on which the rule runs, both ends counted; and their confidence."""
        rois, scale = self.case.take(f"img{n}_rois"), self.case.take(f"img{n}_im_scale")
        boxes = np.asarray((rois[:, 1:] / scale).astype(np.float32))
        scores = torch.from_numpy(np.asarray(self.case.take(f"img{n}_scores"), dtype=np.float32))
        if len(boxes) != len(scores) or boxes.shape[1:] != (4,):
            shapes = f"img{n}_rois {list(rois.shape)} and img{n}_scores {list(scores.shape)}"
            raise SaccadeError(f"{self.case.name}: {shapes} differ")
        return boxes, class_confidence(torch.from_numpy(boxes)[None], scores[None], inclusive=True)[0]

    def _limits(self) -> tuple[int, int]:
        """The limits that a case states (`min_boxes`, `max_boxes`), or else the first that explain how many were kept.

        Cases state none, so beside the two released settings the fewest and the most of the case's pictures are tried.
        """
        if {"min_boxes", "max_boxes"} <= self.case.stored.keys():
            return int(self.case.take("min_boxes")), int(self.case.take("max_boxes"))
        counts = {n: len(self.chosen(n)) for n in self.confidence}
        for least, most in (*LIMITS, (min(counts.values()), max(counts.values()))):
            kept = {n: int(select(c[None], least=least, most=most)[1].sum()) for n, c in self.confidence.items()}
            if kept == counts:
                return least, most
        return LIMITS[0]

    def chosen(self, n: str) -> np.ndarray:
        return self.case.take(f"img{n}_keep_idx")

    def boxes(self, n: str) -> np.ndarray:
        return np.asarray(self.places[n][self.chosen(n)])

    def features(self, n: str) -> np.ndarray | None:
        """Of the chosen proposals, where the network's are stored."""
        known = f"img{n}_pool5" in self.case.stored
        return np.asarray(self.case.take(f"img{n}_pool5")[self.chosen(n)]) if known else None

    def choice(self, n: str) -> Difference:
        """Equal positions; where they differ the confidences must be tied: the reference orders ties by chance."""
        kept, real = select(self.confidence[n][None], least=self.limits[0], most=self.limits[1])
        found, stored, confidence = kept[0][real[0]].numpy(), self.chosen(n), self.confidence[n].numpy()
        if stored.shape != found.shape or len(set(stored.tolist())) != len(stored):
            return Difference(float("inf"))
        return Difference(float(((stored != found) & (confidence[stored] != confidence[found])).sum()))

    def in_tsv(self, n: str, key: str) -> dict[str, Difference] | None:
        """A field of the picture's row in the TSV; a picture that has none there fails."""
        if n not in self.rows:
            return None
        row = self.rows[n]
        value = {"id": row.id, "w": row.width, "h": row.height}[key]
        name = f"img{n}_image_{key}"
        return {f"{name} in the TSV": Difference(float(str(self.case.take(name)) != str(value)))}

    def _check_bytes(self) -> None:
        """The TSV's rows against the arrays, and the file as we would write it."""
        again = b""
        for n, row in self.rows.items():
            boxes, features = self.boxes(n), self.features(n)
            if features is None:
                features = self.case.take(f"img{n}_features")
            self.case.check(f"img{n} boxes in the TSV", difference(row.boxes, boxes), 0)
            self.case.check(f"img{n} features in the TSV", difference(row.features, features), 0)
            again += TsvRow(row.id, row.width, row.height, boxes, features).line()
        stored = self.tsv.read_bytes()
        apart = abs(len(again) - len(stored)) + sum(x != y for x, y in zip(again, stored, strict=False))
        self.case.check("bytes of the TSV that differ", apart, 0)


def pictures(case: Case) -> list[str]:
    return sorted({found[1] for key in case.stored if (found := re.match(r"img(\d+)_", key))}, key=int)


def opens_bottomup(folder: Path) -> Iterator[BottomUpCase]:
    for path in sorted(folder.glob("*.tsv")):
        beside = path.with_name(f"{path.stem}_decoded.npz")
        if not beside.exists():
            raise SaccadeError(f"{beside} is missing: a case is NAME.tsv with NAME_decoded.npz")
        yield BottomUpCase(Case(path.stem, read_npz(beside)), path)


BOTTOMUP = Golden(
    "bottomup",
    opens_bottomup,
    {
        r"img(\d+)_keep_idx": (BottomUpCase.choice, 0.0),
        r"img(\d+)_boxes": (BottomUpCase.boxes, 0.0),
        r"img(\d+)_features": (BottomUpCase.features, 0.0),
        r"img(\d+)_num_boxes": (lambda c, n: len(c.chosen(n)), 0.0),
        r"img(\d+)_image_(id|w|h)": (BottomUpCase.in_tsv, 0.0),
    },
    required=lambda case: (
        f"img{n}_{part}" for n in pictures(case) for part in ("boxes", "features", "image_id", "image_w", "image_h")
    ),
)

STRIDE = 16  # of VGG-16's conv5_3, in pixels
LONGER_SIDE = 720  # of a picture, in pixels: what the anchors of the config are fractions of
ROUNDED = 2.0  # pixels by which the reference's anchors may be off those of the config: 45 × 90 has not the area of 64²
GRID, SAMPLED = 1e-6, 1e-5  # float32 places and what was sampled there


class DenseCapCase:
    def __init__(self, case: Case) -> None:
        self.case = case
        size = np.asarray(case.take("image_hw")).ravel()
        if len(size) != 2:
            raise SaccadeError(f"{case.name}: image_hw must hold 2 numbers, not {len(size)}")
        self.size = int(size[0]), int(size[1])
        self.maps, self.boxes = self.floats("feat", 3), self.floats("boxes_xcycwh", 2)
        self.theta = densecap_theta(self.boxes, self.size)
        self.points = densecap_points(self.theta, case.take("roi_feats").shape[-1])

    def floats(self, key: str, axes: int) -> Tensor:
        values = np.asarray(self.case.take(key))
        if values.ndim != axes or values.dtype.kind not in "fiu":
            shape = f"{list(values.shape)} {values.dtype}"
            raise SaccadeError(f"{self.case.name}: {key} must have {axes} axes of numbers, not {shape}")
        return torch.from_numpy(values.astype(np.float64))

    def sampled(self) -> dict[str, Tensor]:
        """From the reference's points, and from the boxes as fractions: the inverse of `densecap_boxes`."""
        maps, first = self.maps[None], torch.zeros(len(self.boxes), dtype=torch.long)
        scale = self.boxes.new_tensor(self.size[::-1])
        middle, half = self.boxes[:, :2] - 0.5, self.boxes[:, 2:] / 2
        fractions = torch.cat([(middle - half) / scale, (middle + half) / scale], dim=1)
        from_boxes = roi_bilinear(maps, fractions, first, self.points.shape[1], "densecap", self.size)
        return {
            "roi_feats": sample(maps, self.points.flip(-1), first, "zeros", align_corners=True),
            "roi_feats, from boxes in 0..1": from_boxes,
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


PROPOSALS = ("transforms", "boxes_out", "x1y1x2y2", "scores", "nms_thresh", "nms_max", "nms_pick")
DENSECAP = Golden(
    "densecap",
    lambda folder: (DenseCapCase(Case(path.stem, read_npz(path))) for path in sorted(folder.glob("*.npz"))),
    {
        "theta": (lambda c: c.theta, GRID),
        "grid_yx": (lambda c: c.points, GRID),
        "roi_feats": (DenseCapCase.sampled, SAMPLED),
        "(anchors|boxes_out|x1y1x2y2)": (lambda c, key: c.proposals[key], of_pixels),
        "(nms_pick)": (lambda c, key: c.proposals[key], 0.0),
    },
    required=lambda case: ("theta", "grid_yx", *(PROPOSALS if "anchors" in case.stored else ())),
)
