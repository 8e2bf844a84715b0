"""DRN: what each level asks, C and P maps, heads, targets, losses of all stages, moments and their recall, gradients.

A case is a folder with model_best.pth.tar (or another *.pth.tar), io.npz, config.json if its options are not the
released ones, and grads.npz if gradients are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saccade.batch import TextBatch
from saccade.core.errors import SaccadeError
from saccade.interop.goldens.vcml import relative
from saccade.interop.harness import Case, Difference, Golden, case_folders, gradient_difference, memo
from saccade.interop.importer import Imported
from saccade.interop.importers.moments import DRN
from saccade.metrics.moments import moment_recall, temporal_nms
from saccade.models import Drn
from saccade.models.drn import Cells, Read

FLOAT32 = 5e-5  # relative: official outputs in float32
GRADIENT = 1e-4  # relative to max(1, norm)
PLACES = 1e-9  # of locations, which floats hold exactly
OVERLAPS, COUNTS = (0.3, 0.5, 0.7), (1, 5)  # of the stored recalls
WHOLE = -1  # the level of a video that nothing was found in


class DrnCase:
    def __init__(self, case: Case, imported: Imported[Drn]) -> None:
        self.case, self.imported, self.model = case, imported, imported.model
        self.segments, self.where = (
            case.tensor("in_props_features").double(),
            case.tensor("in_props_start_end").double(),
        )
        self.spans = case.tensor("in_gt_start_end").double()
        ids, lengths = case.tensor("in_query_tokens").long(), case.tensor("in_query_length").long()
        dim, count = self.model.config.region_dim, len(self.segments)
        if self.segments.dim() != 3 or self.segments.shape[2] != dim or self.where.shape[:2] != self.segments.shape[:2]:
            raise SaccadeError(f"{case.name}: in_props_features does not fit the checkpoint or in_props_start_end")
        if not count == len(ids) == len(lengths) == len(self.spans):
            raise SaccadeError(f"{case.name}: in_query_tokens, in_query_length and in_gt_start_end are not of as many")
        if int(ids.max()) >= len(imported.words) or int(lengths.max()) > ids.shape[1] or int(lengths.min()) < 1:
            raise SaccadeError(f"{case.name}: in_query_tokens does not fit the checkpoint or in_query_length")
        for layer in self.model.modules():
            if isinstance(layer, nn.BatchNorm1d):
                layer.momentum = 0.0  # statistics of a batch are not kept
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        self.texts = TextBatch(imported.words.inputs[ids] * mask, mask)
        self.first_stage = bool(imported.source.options.get("is_first_stage", False))
        for key in ("in_props_num", "in_num_frames"):  # of which the model reads nothing
            if key in case.stored:
                case.take(key)

    @memo
    def run(self, mode: str) -> tuple[Read, list[Tensor], list[Tensor], Cells]:
        """All that the model finds on the way; in `train` with the statistics of the batch."""
        model = self.model.train(mode == "train")
        with torch.set_grad_enabled(mode == "train"):
            read = model.encode_query(self.texts)
            maps = model.interact(self.segments, self.where, read)
            pyramid = model.pyramid(maps)
            found = read, maps, pyramid, model.cells(pyramid)
        model.eval()
        return found

    def query(self, level: str) -> Tensor:
        read, *_ = self.run("eval")
        return read.queries[int(level)]

    def maps(self, kind: str, level: str) -> Tensor:
        _, maps, pyramid, _ = self.run("eval")
        return (maps if kind == "C" else pyramid)[int(level)]

    def head(self, mode: str, kind: str, level: str) -> Tensor:
        cells = self.run(mode)[3]
        own = cells.level == int(level)
        if kind == "loc_reg":
            return cells.distances[:, own].mT
        logits = cells.match if kind == "match_logit" else cells.quality
        assert logits is not None
        return logits[:, own][:, None]

    def locations(self, level: str) -> Tensor:
        cells = self.run("eval")[3]
        return cells.places[cells.level == int(level)]

    def target(self, kind: str, level: str) -> Tensor:
        cells = self.run("eval")[3]
        positive, distances = self.model.targets(self.spans, cells)
        return (positive.double() if kind == "label" else distances)[:, cells.level == int(level)]

    @memo
    def losses(self, mode: str) -> dict[str, Tensor]:
        cells = self.run(mode)[3]
        with torch.set_grad_enabled(mode == "train"):
            positive, wanted = self.model.targets(self.spans, cells)
            iou = self.model.quality_loss(cells, self.spans, positive, wanted)
            return {
                "cls": self.model.match_loss(cells, positive),
                "reg": self.model.location_loss(cells, positive, wanted),
                "iou": 0 * iou if self.first_stage else iou,
            }

    def loss(self, mode: str, stage: str | None, kind: str) -> Tensor:
        """Of the first stage, L_iou is none."""
        found = self.losses(mode)[kind]
        return torch.zeros_like(found) if stage and kind == "iou" else found

    @memo
    def detections(self, stage: str | None) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each text its moments with scores in the order of the cells, and the level of each."""
        cells, model = self.run("eval")[3], self.model
        model.stage.fill_(1.0 if stage or self.first_stage else 3.0)
        spans, scores, there = model.moments(cells).clamp(0, 1), model.scores(cells), model.proposals(cells)
        model.stage.fill_(3.0)
        found = torch.cat([spans, scores[..., None]], dim=2)
        return [
            (own[mask].numpy(), cells.level[mask].numpy())
            if bool(mask.any())
            else (np.array([[0.0, 1.0, 1.0]]), np.array([WHOLE]))
            for own, mask in zip(found, there, strict=True)
        ]

    def detected(self, stage: str | None, n: str) -> Difference | None:
        """In order; where a level found more than it may keep, the released code's order is none."""
        if int(n) >= len(self.segments):
            return None
        ours, stored = self.detections(stage)[int(n)][0], self.case.take(f"out_eval_{stage or ''}det_{n}")
        if ours.shape != stored.shape:
            return Difference(float("inf"))
        cut = np.bincount(self.detections(stage)[int(n)][1].clip(0)).max(initial=0) >= self.model.config.per_level
        if cut:
            apart = np.abs(ours[:, None] - stored[None]).max(axis=2)
            return Difference(float(max(apart.min(axis=0).max(), apart.min(axis=1).max())))
        return relative(ours, stored)

    @memo
    def ranked(self, n: int) -> np.ndarray:
        found = self.detections(None)[n][0]
        return found[np.argsort(-found[:, 2], kind="stable")]

    def kept(self, threshold: str, n: str) -> np.ndarray:
        """The moments that greedy suppression picks; the threshold's two digits follow its point."""
        return np.flatnonzero(temporal_nms(self.ranked(int(n))[:, :2], int(threshold) / 10 ** (len(threshold) - 1)))

    def recall(self, kind: str) -> Tensor:
        moments = [self.ranked(n)[:, :2] for n in range(len(self.segments))]
        found = moment_recall(moments, self.spans.numpy(), COUNTS, OVERLAPS, nms=kind == "nms")
        return torch.tensor([[found[f"R@{n},IoU={m:g}"] for n in COUNTS] for m in OVERLAPS])

    @memo
    def gradients(self) -> dict[str, Tensor]:
        """Of the three losses together, by official names."""
        with torch.enable_grad():
            self.model.zero_grad()
            torch.stack([*self.losses("train").values()]).sum().backward()  # type: ignore[no-untyped-call]
        found = self.imported.gradients()
        self.model.zero_grad()
        return found

    def gradient(self, kind: str, name: str) -> Difference | None:
        found, stored = self.gradients().get(name), torch.tensor(np.array(self.case.take(f"{kind}:{name}"), np.float64))
        if found is None:
            return None
        return gradient_difference(found.norm() if kind == "norm" else found, stored)


def opens(folder: Path) -> Iterator[DrnCase]:
    for place, stored, gradients in case_folders(folder):
        files = sorted(place.glob("*.pth.tar"))
        if not files:
            continue
        case = Case(place.name if place != folder else "drn", stored | gradients)
        yield DrnCase(case, DRN.read(files[0], dtype=torch.float64))


def near(pattern: str, ours: Callable[..., Any], key: str, tolerance: float = FLOAT32) -> dict[str, Any]:
    """A row that compares relative to max(1, |stored|); `key` is the stored key, with the pattern's groups."""
    row = lambda c, *g: relative(ours(c, *g), c.case.stored[key.format(*(part or "" for part in g))])  # noqa: E731
    return {pattern: (row, tolerance)}


GOLDEN = Golden(
    "drn",
    opens,
    {
        **near(r"out_eval_query_cmd_([012])", DrnCase.query, "out_eval_query_cmd_{}"),
        **near(r"out_eval_([CP])([012])", DrnCase.maps, "out_eval_{}{}"),
        **near(r"out_(eval|train)_(match_logit|loc_reg|iou_logit)_([012])", DrnCase.head, "out_{}_{}_{}"),
        **near(r"out_eval_locations_([012])", DrnCase.locations, "out_eval_locations_{}", PLACES),
        **near(r"out_eval_target_label_([012])", lambda c, n: c.target("label", n), "out_eval_target_label_{}", 0.0),
        **near(r"out_eval_target_reg_([012])", lambda c, n: c.target("reg", n), "out_eval_target_reg_{}"),
        **near(r"out_(eval|train)_(stage1_)?loss_(cls|reg|iou)", DrnCase.loss, "out_{}_{}loss_{}"),
        r"out_eval_(stage1_)?det_(\d+)": (DrnCase.detected, FLOAT32),
        **near(r"out_eval_det_level_(\d+)", lambda c, n: c.detections(None)[int(n)][1], "out_eval_det_level_{}", 0.0),
        **near(r"out_eval_ranked_(\d+)", lambda c, n: c.ranked(int(n)), "out_eval_ranked_{}"),
        **near(r"out_eval_nms(\d+)_(\d+)", DrnCase.kept, "out_eval_nms{}_{}", 0.0),
        **near(r"out_eval_recall_(nms|nonms)", DrnCase.recall, "out_eval_recall_{}"),
        **near("loss", lambda c: sum(c.losses("train").values()), "loss"),
        "(norm|full):(.+)": (DrnCase.gradient, GRADIENT),
    },
    required=lambda case: ("out_eval_match_logit_0", "out_eval_loc_reg_0", "out_eval_iou_logit_0", "out_eval_loss_cls"),
)
