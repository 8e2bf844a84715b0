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

from saccade.core.errors import SaccadeError
from saccade.data.formats.tsv import BottomUpTsv, TsvRow
from saccade.interop.verification import Case, load_arrays, verifier
from saccade.vision.detectors.selection import class_confidence, select

LIMITS = ((10, 100), (36, 36))  # the two that were released


@verifier("bottomup")
def verify_bottomup(folder: Path) -> Iterator[Case]:
    for path in sorted(folder.glob("*.tsv")):
        beside = path.with_name(f"{path.stem}_decoded.npz")
        if not beside.exists():
            raise SaccadeError(f"{beside} is missing: a case is NAME.tsv with NAME_decoded.npz")
        yield _verify_case(Case(path.stem, load_arrays(beside)), path)


def _verify_case(case: Case, tsv: Path) -> Case:
    numbers = sorted({int(found.group(1)) for key in case.stored if (found := re.match(r"img(\d+)_", key))})
    if not numbers:
        raise SaccadeError(f"{case.name}_decoded.npz holds no arrays of pictures (img0_rois, img0_scores, …)")
    confidence = {n: _confidence(case, n) for n in numbers}
    counts = {n: len(case.take(f"img{n}_keep_idx")) for n in numbers}
    least, most = _limits(case, confidence, counts)
    rows = list(BottomUpTsv(tsv).rows())
    case.check("pictures in the TSV", abs(len(rows) - len(numbers)), 0)
    again = b""
    for n, row in zip(numbers, rows, strict=False):
        kept, real = select(confidence[n][None], least=least, most=most)
        _compare_choice(case, f"img{n}_keep_idx", kept[0][real[0]].numpy(), confidence[n].numpy())
        chosen = case.take(f"img{n}_keep_idx")
        boxes = (case.take(f"img{n}_rois")[:, 1:] / case.take(f"img{n}_im_scale")).astype(np.float32)[chosen]
        case.compare(f"img{n}_boxes", boxes, 0)
        features = case.take(f"img{n}_features")
        if f"img{n}_pool5" in case.stored:
            features = case.take(f"img{n}_pool5")[chosen]
            case.compare(f"img{n}_features", features, 0)
        if f"img{n}_num_boxes" in case.stored:
            case.compare(f"img{n}_num_boxes", len(chosen), 0)
        for key, value in (("id", row.id), ("w", row.width), ("h", row.height)):
            name = f"img{n}_image_{key}"
            case.check(f"{name} in the TSV", float(str(case.take(name)) != str(value)), 0)
        case.check(f"img{n} boxes in the TSV", _difference(row.boxes, boxes), 0)
        case.check(f"img{n} features in the TSV", _difference(row.features, features), 0)
        again += TsvRow(row.id, row.width, row.height, boxes, features).line()
    case.check("bytes of the TSV that differ", _bytes_apart(again, tsv.read_bytes()), 0)
    return case


def _confidence(case: Case, n: int) -> torch.Tensor:
    """The rule runs on the proposals in pixels of the original, both ends counted."""
    rois, scale = case.take(f"img{n}_rois"), case.take(f"img{n}_im_scale")
    boxes = torch.from_numpy((rois[:, 1:] / scale).astype(np.float32))
    scores = torch.from_numpy(np.asarray(case.take(f"img{n}_scores"), dtype=np.float32))
    if len(boxes) != len(scores) or boxes.shape[1:] != (4,):
        raise SaccadeError(f"{case.name}: img{n}_rois {list(rois.shape)} and img{n}_scores {list(scores.shape)} differ")
    return class_confidence(boxes[None], scores[None], inclusive=True)[0]


def _limits(case: Case, confidence: dict[int, torch.Tensor], counts: dict[int, int]) -> tuple[int, int]:
    """The limits that a case states (`min_boxes`, `max_boxes`), or else the first that explain how many were kept.

    Cases state none, so beside the two released settings the fewest and the most of the case's pictures are tried.
    """
    if {"min_boxes", "max_boxes"} <= case.stored.keys():
        return int(case.take("min_boxes")), int(case.take("max_boxes"))
    options = (*LIMITS, (min(counts.values()), max(counts.values())))
    for least, most in options:
        kept = {n: int(select(c[None], least=least, most=most)[1].sum()) for n, c in confidence.items()}
        if kept == counts:
            return least, most
    return LIMITS[0]


def _compare_choice(case: Case, key: str, found: np.ndarray, confidence: np.ndarray) -> None:
    """Equal positions; where they differ the confidences must be tied, since the reference's order of ties is not."""
    stored = case.take(key)
    if stored.shape != found.shape or len(set(stored.tolist())) != len(stored):
        case.check(key, float("inf"), 0)
        return
    wrong = (stored != found) & (confidence[stored] != confidence[found])
    case.check(key, float(wrong.sum()), 0)


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape:
        return float("inf")
    return float(np.abs(a.astype(np.float64) - b).max()) if a.size else 0.0


def _bytes_apart(a: bytes, b: bytes) -> float:
    return float(abs(len(a) - len(b)) + sum(x != y for x, y in zip(a, b, strict=False)))
