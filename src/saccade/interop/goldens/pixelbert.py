"""Pixel-BERT in the form of a re-implementation: the grid encoder, embeddings, every state, and outputs and losses of
pre-training and of the model that answers.

A case is a folder with model.pt, config.json and io.npz. The CNN's map is an input.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from saccade.core.errors import SaccadeError
from saccade.interop.goldens.interbert import FLOAT32, near
from saccade.interop.harness import Case, Golden, case_folders, memo
from saccade.interop.importer import Imported
from saccade.interop.importers.pixelbert import CLASSIFIER, PIXELBERT, PIXELBERT_ANSWERING
from saccade.models import PixelBert, PixelBertAnswering
from saccade.models.pixelbert import pooled_boxes
from saccade.nn.transformer.blocks import run_layers

FILE = "model.pt"
IGNORED = -100  # the label of pieces that were not masked


class PixelBertCase:
    def __init__(self, case: Case, imported: Imported[PixelBert], answering: PixelBertAnswering | None) -> None:
        self.case, self.imported, self.model, self.answering = case, imported, imported.model, answering
        words, ids = imported.words, case.tensor("in_ids").long()
        self.cells, self.mask = case.tensor("in_cnn_feat").double(), case.tensor("in_mask") > 0
        if int(ids.max()) >= len(words.inputs) or int(ids.min()) < 0:
            raise SaccadeError(f"{case.name}: in_ids does not fit the checkpoint")
        if self.cells.dim() != 4 or self.cells.shape[1] != self.model.config.region_dim:
            raise SaccadeError(f"{case.name}: in_cnn_feat does not fit the checkpoint")
        self.ids = words.inputs[ids]

    @memo
    def run(self, model: PixelBert) -> dict[str, Tensor]:
        """What is computed on the way, by the stored keys; texts come first."""
        grid = model.image.convolve(self.cells)
        pixels = model.image(grid.flatten(2).mT, pooled_boxes(self.cells).to(grid).expand(len(grid), -1, -1))
        words = model.text(self.ids)
        there = torch.cat([self.mask, self.mask.new_ones(pixels.shape[:2])], dim=1)
        states = run_layers(model.streams.shared, torch.cat([words, pixels], dim=1), there)
        found = {"grid": grid.permute(0, 2, 3, 1), "vis_emb": pixels, "txt_emb": words, "seq": states}
        return found | {"pooled": model.pool(states)}

    @memo
    def outputs(self) -> dict[str, Tensor]:
        """Logits with the classes in their order, 1 a true pair; losses."""
        found, case, model = self.run(self.model), self.case, self.model
        logits = model.word_logits(found["seq"][:, : self.ids.shape[1]])
        match = model.match_logits(found["pooled"])
        labels, matched = case.tensor("in_mlm").long(), case.tensor("in_itm").long() == 1
        target = torch.where(labels == IGNORED, -1, self.imported.words.outputs[labels.clamp(min=0)])
        each = functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-1, reduction="none")
        return {
            "mlm_logits": self.imported.words.columns(logits),
            "itm_logits": match.flip(dims=(1,)),
            "mlm_loss_per_token": each,
            "mlm_loss_mean_over_all_positions": model.word_loss(logits, target),
            "mlm_loss_mean_over_masked": self.imported.variant(word_average="masked").word_loss(logits, target),
            "itm_loss_per_ex": torch.stack(
                [model.match_loss(one[None], true[None]) for one, true in zip(match, matched, strict=True)]
            ),
            "itm_loss": model.match_loss(match, matched),
        }

    def answers(self) -> dict[str, Tensor]:
        model = self.answering
        if model is None:
            return {}
        logits, target = model.label_out(self.run(model)["pooled"]), self.case.tensor("in_vqa")
        scores = functional.one_hot(target.long(), logits.shape[1]) if target.dim() == 1 else target
        return {"vqa_logits": logits, "vqa_loss": model.loss(logits, scores.double())}

    def stage(self, name: str) -> Tensor | None:
        """None, and so unknown, if there is no such stage."""
        if name.startswith("vqa_"):
            return self.answers().get(name)
        return {**self.run(self.model), **self.outputs()}.get(name)


def opens(folder: Path) -> Iterator[PixelBertCase]:
    for place, stored, gradients in case_folders(folder):
        if not (place / FILE).is_file():
            continue
        case = Case(place.name if place != folder else "pixelbert", stored | gradients)
        imported = PIXELBERT.read(place / FILE, dtype=torch.float64)
        answers = CLASSIFIER in imported.source.weights
        tasks = PIXELBERT_ANSWERING.read(place / FILE, dtype=torch.float64).model if answers else None
        yield PixelBertCase(case, imported, tasks)


GOLDEN = Golden(
    "pixelbert",
    opens,
    {**near(r"out_(\w+)", PixelBertCase.stage, "out_{}", FLOAT32)},
    required=lambda case: ("out_grid", "out_vis_emb", "out_seq", "out_pooled", "out_mlm_logits", "out_itm_logits"),
)
