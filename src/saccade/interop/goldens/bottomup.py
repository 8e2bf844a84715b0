"""The official Bottom-Up attention code's selection of regions and its TSV: which boxes, their features, the bytes.

A case is `NAME.tsv` with `NAME_decoded.npz`: per picture what a stub network gave (`rois` in network pixels, `scores`,
`im_scale`, where stored `pool5`) and what the reference made of it (`keep_idx`, `boxes`, `features`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.data.formats.tsv import BottomUpTsv, TsvRow
from saccade.interop.checkpoint import load_arrays
from saccade.interop.harness import Case, Difference, Golden, difference
from saccade.vision.nms import class_confidence, select

LIMITS = ((10, 100), (36, 36))  # the fewest and the most regions: the two that were released


class BottomUpCase:
    def __init__(self, case: Case, tsv: Path) -> None:
        self.case, self.tsv = case, tsv
        self.numbers = pictures(case)
        if not self.numbers:
            raise SaccadeError(f"{case.name}_decoded.npz holds no arrays of pictures (img0_rois, img0_scores, …)")
        self.places = {n: self._places(n) for n in self.numbers}
        self.confidence = {n: self._confidence(n) for n in self.numbers}
        self.limits = self._limits()
        rows = list(BottomUpTsv(tsv).rows())
        self.rows = dict(zip(self.numbers, rows, strict=False))
        case.check("pictures in the TSV", abs(len(rows) - len(self.numbers)), 0)
        self._check_bytes()

    def _places(self, n: int) -> np.ndarray:
        """Proposals in pixels of the original."""
        rois, scale = self.case.take(f"img{n}_rois"), self.case.take(f"img{n}_im_scale")
        return np.asarray((rois[:, 1:] / scale).astype(np.float32))

    def _confidence(self, n: int) -> Tensor:
        """The rule runs on the proposals in pixels of the original, both ends counted."""
        boxes, rois = torch.from_numpy(self.places[n]), self.case.take(f"img{n}_rois")
        scores = torch.from_numpy(np.asarray(self.case.take(f"img{n}_scores"), dtype=np.float32))
        if len(boxes) != len(scores) or boxes.shape[1:] != (4,):
            shapes = f"img{n}_rois {list(rois.shape)} and img{n}_scores {list(scores.shape)}"
            raise SaccadeError(f"{self.case.name}: {shapes} differ")
        return class_confidence(boxes[None], scores[None], inclusive=True)[0]

    def _limits(self) -> tuple[int, int]:
        """The limits that a case states (`min_boxes`, `max_boxes`), or else the first that explain how many were kept.

        Cases state none, so beside the two released settings the fewest and the most of the case's pictures are tried.
        """
        if {"min_boxes", "max_boxes"} <= self.case.stored.keys():
            return int(self.case.take("min_boxes")), int(self.case.take("max_boxes"))
        counts = {n: len(self.chosen(n)) for n in self.numbers}
        for least, most in (*LIMITS, (min(counts.values()), max(counts.values()))):
            kept = {n: int(select(c[None], least=least, most=most)[1].sum()) for n, c in self.confidence.items()}
            if kept == counts:
                return least, most
        return LIMITS[0]

    def chosen(self, n: int) -> np.ndarray:
        return self.case.take(f"img{n}_keep_idx")

    def boxes(self, n: int) -> np.ndarray:
        return np.asarray(self.places[n][self.chosen(n)])

    def features(self, n: int) -> np.ndarray:
        """Of the chosen proposals; those of the TSV alone where the network's are not stored."""
        if f"img{n}_pool5" in self.case.stored:
            return np.asarray(self.case.take(f"img{n}_pool5")[self.chosen(n)])
        return self.case.take(f"img{n}_features")

    def choice(self, n: int) -> Difference:
        """Equal positions; where they differ the confidences must be tied: the reference orders ties by chance."""
        kept, real = select(self.confidence[n][None], least=self.limits[0], most=self.limits[1])
        found, stored, confidence = kept[0][real[0]].numpy(), self.chosen(n), self.confidence[n].numpy()
        if stored.shape != found.shape or len(set(stored.tolist())) != len(stored):
            return Difference(float("inf"))
        return Difference(float(((stored != found) & (confidence[stored] != confidence[found])).sum()))

    def in_tsv(self, n: int, key: str, value: object) -> dict[str, Difference] | None:
        name = f"img{n}_image_{key}"
        return {f"{name} in the TSV": Difference(float(str(self.case.take(name)) != str(value)))}

    def _check_bytes(self) -> None:
        """The TSV's rows against the arrays, and the file as we would write it."""
        again = b""
        for n, row in self.rows.items():
            boxes, features = self.boxes(n), self.features(n)
            self.case.check(f"img{n} boxes in the TSV", difference(row.boxes, boxes), 0)
            self.case.check(f"img{n} features in the TSV", difference(row.features, features), 0)
            again += TsvRow(row.id, row.width, row.height, boxes, features).line()
        stored = self.tsv.read_bytes()
        apart = abs(len(again) - len(stored)) + sum(x != y for x, y in zip(again, stored, strict=False))
        self.case.check("bytes of the TSV that differ", apart, 0)


def pictures(case: Case) -> list[int]:
    return sorted({int(found[1]) for key in case.stored if (found := re.match(r"img(\d+)_", key))})


def opens(folder: Path) -> Iterator[BottomUpCase]:
    for path in sorted(folder.glob("*.tsv")):
        beside = path.with_name(f"{path.stem}_decoded.npz")
        if not beside.exists():
            raise SaccadeError(f"{beside} is missing: a case is NAME.tsv with NAME_decoded.npz")
        yield BottomUpCase(Case(path.stem, load_arrays(beside)), path)


def of_row(field: str, key: str):  # type: ignore[no-untyped-def]
    """A field of the picture's row in the TSV; a picture that has none there fails."""
    return lambda c, n: c.in_tsv(int(n), key, getattr(c.rows[int(n)], field)) if int(n) in c.rows else None


GOLDEN = Golden(
    "bottomup",
    opens,
    {
        r"img(\d+)_keep_idx": (lambda c, n: c.choice(int(n)), 0.0),
        r"img(\d+)_boxes": (lambda c, n: c.boxes(int(n)), 0.0),
        r"img(\d+)_features": (lambda c, n: c.features(int(n)) if f"img{n}_pool5" in c.case.stored else None, 0.0),
        r"img(\d+)_num_boxes": (lambda c, n: len(c.chosen(int(n))), 0.0),
        r"img(\d+)_image_id": (of_row("id", "id"), 0.0),
        r"img(\d+)_image_w": (of_row("width", "w"), 0.0),
        r"img(\d+)_image_h": (of_row("height", "h"), 0.0),
    },
    required=lambda case: (
        f"img{n}_{part}" for n in pictures(case) for part in ("boxes", "features", "image_id", "image_w", "image_h")
    ),
)
