"""InterBERT: embeddings, every layer with what it attends to, pooled vectors, outputs and losses of pre-training and of
the fine-tuning model, gradients, and which regions are masked with which.

A case is a folder with pytorch_model.bin, pytorch_model_vltasks.bin if vl_* is stored, config.json, io.npz, and
grads.npz if gradients are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.interop.goldens.vcml import relative
from saccade.interop.harness import Case, Difference, Golden, case_folders, difference, gradient_difference, memo
from saccade.interop.importer import Imported
from saccade.interop.importers.interbert import DECODER, INTERBERT, WORDS
from saccade.models import InterBert
from saccade.nn.masking import with_overlapping
from saccade.nn.transformer.blocks import Layer, attend_over
from saccade.nn.transformer.streams import Interaction
from saccade.vision.boxes import iou

FLOAT32 = 2e-5  # relative: official outputs in float32
GRADIENT = 1e-4  # relative to max(1, norm)
EXACT = 1e-9
ANCHOR_RATE, OVERLAP = 0.1, 0.4  # of the released code's region masking
FILE, TASKS_FILE = "pytorch_model.bin", "pytorch_model_vltasks.bin"


class InterBertCase:
    def __init__(self, case: Case, imported: Imported[InterBert], tasks: InterBert | None) -> None:
        self.case, self.imported, self.model, self.tasks = case, imported, imported.model, tasks
        words = imported.words
        ids = case.tensor("in_input_ids").long()
        self.segments = case.tensor("in_segment_ids").long()
        self.features, self.where = case.tensor("in_image_feat").double(), case.tensor("in_image_loc").double()
        self.text_mask, self.image_mask = case.tensor("in_txt_mask") > 0, case.tensor("in_img_mask") > 0
        if int(ids.max()) >= len(words) or int(ids.min()) < 0:
            raise SaccadeError(f"{case.name}: in_input_ids does not fit the checkpoint")
        if self.features.shape[2] != self.model.config.region_dim or self.where.shape[2] != 5:
            raise SaccadeError(f"{case.name}: in_image_feat or in_image_loc does not fit the checkpoint")
        self.ids = words.inputs[ids]
        self.mask = torch.cat([self.image_mask, self.text_mask], dim=1)
        if "in_multimodal_mask" in case.stored:
            case.check("in_multimodal_mask", difference(self.mask, case.take("in_multimodal_mask") > 0), 0.0)

    def streams(self, model: InterBert) -> Interaction:
        assert isinstance(model.streams, Interaction)
        return model.streams

    @memo
    def run(self, model: InterBert) -> dict[str, Any]:
        """All that is computed on the way, by the stored keys."""
        with torch.enable_grad():
            words, regions = model.text(self.ids, self.segments), model.image(self.features, self.where)
            found: dict[str, Any] = {"txt_emb": words, "img_emb": regions}
            streams, count = self.streams(model), regions.shape[1]
            states = torch.cat([regions, words], dim=1)
            for number, layer in enumerate(streams.shared):
                states = self.layer(found, f"layer{number}", layer, states, self.mask)
            regions, words = states[:, :count], states[:, count:]
            for number, layer in enumerate(streams.text, start=len(streams.shared)):
                words = self.layer(found, f"layer{number}", layer, words, self.text_mask)
            for number, layer in enumerate(streams.image):
                regions = self.layer(found, f"v_layer{number}", layer, regions, self.image_mask)
            assert model.pool_text is not None
            assert model.pool_image is not None
            pooled = model.pool(regions, words)
            found |= {
                "seq_t": words,
                "seq_v": regions,
                "pool_t": model.pool_text(words[:, 0]).relu(),
                "pool_v": model.pool_image(regions[:, 0]).relu(),
                "pooled": pooled,
                "msm_logits": self.imported.words.columns(model.word_logits(words)),
                "mrm_logits": model.region_outputs(regions),
                "itm_logits": model.match_logits(pooled),
            }
        return found

    def layer(self, found: dict[str, Any], name: str, layer: Any, states: Tensor, mask: Tensor) -> Tensor:
        assert isinstance(layer, Layer)
        keys = attend_over(mask)
        found[f"{name}_attn"] = layer.weights(states, keys)
        after: Tensor = layer(states, keys)
        found[f"{name}_out"] = after
        return after

    def stage(self, name: str) -> Tensor | None:
        found: Tensor | None = self.run(self.model).get(name)
        return found

    @memo
    def losses(self) -> dict[str, Tensor]:
        """Of masked regions only those of true pairs count."""
        found, case = self.run(self.model), self.case
        labels, matched = case.tensor("in_lm_labels").long(), case.tensor("in_is_next").long().flatten() == 0
        target = torch.where(labels >= 0, self.imported.words.outputs[labels.clamp(min=0)], -1)
        masked = (case.tensor("in_image_label") == 1) & matched[:, None]
        regions = case.tensor("in_image_target").double()
        with torch.enable_grad():
            losses = {
                "msm": self.model.word_loss(self.model.word_logits(found["seq_t"]), target),
                "mrm": self.model.region_loss(found["mrm_logits"][:, 1:], masked, regions),
                "itm": self.model.match_loss(found["itm_logits"], matched),
            }
            return losses | {"total": torch.stack([*losses.values()]).sum()}

    def task_stage(self, name: str) -> Tensor | None:
        """Of the fine-tuning model."""
        if self.tasks is None:
            return None
        model, found = self.tasks, self.run(self.tasks)
        outputs: dict[str, Callable[[], Tensor]] = {
            "vil_prediction": lambda: model.label_out(found["pooled"]),
            "vil_logit": lambda: model.choice_out(found["pooled"]),
            "vil_binary_prediction": lambda: found["itm_logits"],
            "vision_prediction": lambda: found["mrm_logits"],
            "vision_logit": lambda: masked_logit(model.region_choice_out(found["seq_v"]), self.image_mask),
            "linguisic_prediction": lambda: found["msm_logits"],
            "linguisic_logit": lambda: model.word_choice_out(found["seq_t"]),
        }
        return outputs[name]() if name in outputs else found.get(name)

    @memo
    def masking(self) -> tuple[Tensor, Tensor]:
        """The table of overlaps, and which regions are masked."""
        boxes = self.case.tensor("mask_loc").double()[:, :4]
        size = self.case.tensor("mask_wh").double() if "mask_wh" in self.case.stored else torch.ones(2)
        pixels = boxes * torch.cat([size, size])
        anchors = self.case.tensor("mask_draws") < ANCHOR_RATE
        return iou(pixels, pixels, inclusive=True), with_overlapping(anchors, pixels, OVERLAP, inclusive=True)

    def masked_features(self) -> Tensor:
        return self.case.tensor("mask_feat_in") * ~self.masking()[1][:, None]

    def masked_labels(self) -> Tensor:
        return torch.where(self.masking()[1], 1, -1)

    @memo
    def gradients(self) -> dict[str, Tensor]:
        with torch.enable_grad():
            self.model.zero_grad()
            self.losses()["total"].backward()  # type: ignore[no-untyped-call]
        found = self.imported.gradients()
        self.model.zero_grad()
        return found | {DECODER: found[WORDS]}  # one table

    def gradient(self, kind: str, name: str) -> Difference | None:
        found, stored = self.gradients().get(name), torch.tensor(np.array(self.case.take(f"{kind}:{name}"), np.float64))
        if found is None:
            return None
        return gradient_difference(found.norm() if kind == "norm" else found, stored)


def masked_logit(logits: Tensor, mask: Tensor) -> Tensor:
    """A region that is not there is never chosen: the released code adds −10000."""
    return logits + (~mask)[..., None] * -10000.0


def opens(folder: Path) -> Iterator[InterBertCase]:
    for place, stored, gradients in case_folders(folder):
        if not (place / FILE).is_file():
            continue
        case = Case(place.name if place != folder else "interbert", stored | gradients)
        imported = INTERBERT.read(place / FILE, dtype=torch.float64)
        tasks = INTERBERT.read(place / TASKS_FILE, dtype=torch.float64) if (place / TASKS_FILE).is_file() else None
        yield InterBertCase(case, imported, None if tasks is None else tasks.model)


def near(pattern: str, ours: Callable[..., Any], key: str, tolerance: float = FLOAT32) -> dict[str, Any]:
    """A row that compares relative to max(1, |stored|); `key` is the stored key, with the pattern's groups."""

    def row(case: InterBertCase, *groups: str) -> Difference | None:
        found = ours(case, *groups)
        return None if found is None else relative(found, np.array(case.case.stored[key.format(*groups)]))

    return {pattern: (row, tolerance)}


GOLDEN = Golden(
    "interbert",
    opens,
    {
        **near(r"out_loss_(msm|mrm|itm|total)", lambda c, name: c.losses()[name].reshape(1), "out_loss_{}"),
        **near(r"out_((?!loss_)\w+)", InterBertCase.stage, "out_{}"),
        **near(r"vl_(\w+)", InterBertCase.task_stage, "vl_{}"),
        **near("mask_iou", lambda c: c.masking()[0], "mask_iou", EXACT),
        **near("mask_feat_out", InterBertCase.masked_features, "mask_feat_out", EXACT),
        **near("mask_label", InterBertCase.masked_labels, "mask_label", 0.0),
        **near("loss", lambda c: c.losses()["total"], "loss"),
        "(norm|full):(.+)": (InterBertCase.gradient, GRADIENT),
    },
    required=lambda case: ("out_seq_t", "out_seq_v", "out_msm_logits", "out_mrm_logits", "out_itm_logits"),
)
