"""VSRN: regions, vectors, both measures, captions, losses, gradient norms.

The caption generator lies beside the checkpoints, which do not hold it, as NAME.caption_model.pt.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from saccade.interop.checkpoint import read_checkpoint, state_dict
from saccade.interop.goldens.matching import NEGATIVES, RECALLS, Codes, MatchingCase, gradients, opens
from saccade.interop.harness import EMBEDDING, LOSS, SIMILARITY, Difference, Excuse, Expression, Golden
from saccade.interop.importers.vsrn import VSRN
from saccade.models import Vsrn
from saccade.models.vsrn import normalise
from saccade.nn import caption_labels, caption_loss, triplet_loss

MEASURES = "(cosine|order)"
NOT_KEPT = Excuse("the caption generator is not in the checkpoint: expected NAME.caption_model.pt beside it")


class VsrnCase(MatchingCase[Vsrn]):
    def by(self, measure: str, codes: Codes) -> Tensor:
        return self.imported.variant(measure=measure).similarity(*codes)

    @cached_property
    def sims(self) -> Tensor:
        """As the evaluation takes them: in float64, by the model's measure.

        The official evaluation of an order model can be asked for either: the stored table tells which it was.
        """
        images, texts = self.codes
        double = images.to(dtype=torch.float64), texts.to(dtype=torch.float64)
        table = self.model.similarity(*double)
        if self.model.config.measure == "order" and "sims64" in self.case.stored:
            stored = torch.from_numpy(self.case.stored["sims64"])
            if stored.shape == table.shape:
                both = (table, self.by("cosine", double))
                return min(both, key=lambda found: float((found - stored).abs().max()))
        return table

    def ranking_loss(self, tag: str, measure: str) -> Tensor:
        return triplet_loss(self.by(measure, self.batch_codes), self.margin, NEGATIVES[tag])

    def loss(self, tag: str) -> Tensor:
        """Ranking and writing together; tags are total_sum and total_max."""
        scores = self.model(self.batch_images, self.batch_texts)
        return triplet_loss(scores, self.margin, NEGATIVES[tag.removeprefix("total_")]) + self.written()

    def written(self) -> Tensor:
        """The loss of writing each caption of the batch from its own picture."""
        pairs = torch.arange(len(self.batch_texts))
        own = self.model.own_losses(self.model.encode_images(self.batch_images), self.batch_texts, pairs)
        return torch.stack([*own.values(), torch.zeros(())]).sum()

    @property
    def own_tag(self) -> str:
        return "total_max" if self.options.get("max_violation", False) else "total_sum"

    @property
    def longest(self) -> int:
        return int(self.options.get("max_len", 60))

    @cached_property
    def labels(self) -> tuple[Tensor, Tensor]:
        return caption_labels(self.batch_texts, self.longest)

    @cached_property
    def spoken(self) -> dict[str, Tensor]:
        """What the reader's states are, and what the writer expects at every step."""
        assert self.model.caption is not None
        images = self.batch_codes[0]
        states, last = self.model.caption.read(images.regions, images.mask)
        directions = 2 if self.model.config.caption_bidirectional else 1
        return {
            "encoder_out": states,
            "encoder_hidden": last.view(len(last), directions, -1).transpose(0, 1),
            "logprobs": self.model.caption(states, last, images.mask, self.labels[0][:, : self.longest - 1]),
        }

    def caption_losses(self) -> dict[str, Tensor | Difference]:
        apart = float(self.written()) - float(self.case.stored["loss_caption"])
        return {
            "loss_caption": caption_loss(self.spoken["logprobs"], *self.labels),
            "loss_caption in the steps a batch needs": Difference(abs(apart)),
        }


def captions_beside(folder: Path, name: str) -> dict[str, Tensor]:
    path = folder / f"{name}.caption_model.pt"
    if not path.exists():
        return {}
    state = state_dict(read_checkpoint(path), path, "the caption generator")
    return {f"caption_model.{key}": value for key, value in state.items()}


def written(expression: Expression) -> Expression:
    """For what needs the caption generator."""
    return lambda c, *groups: NOT_KEPT if c.model.caption is None else expression(c, *groups)


GOLDEN = Golden(
    "vsrn",
    opens(VsrnCase, VSRN, more=captions_beside),
    {
        "region_fc_emb": (lambda c: normalise(c.model.regions(c.images), c.model.config.norm_before), EMBEDDING),
        "region_gcn_emb": (lambda c: c.codes[0].regions, EMBEDDING),
        "img_emb": (lambda c: c.codes[0].pooled, EMBEDDING),
        "cap_emb": (lambda c: c.codes[1].pooled, EMBEDDING),
        "batch_gcn_emb": (lambda c: c.batch_codes[0].regions, EMBEDDING),
        "batch_img_emb": (lambda c: c.batch_codes[0].pooled, EMBEDDING),
        "batch_cap_emb": (lambda c: c.batch_codes[1].pooled, EMBEDDING),
        f"sims_{MEASURES}32": (lambda c, measure: c.by(measure, c.codes), SIMILARITY),
        "sims64": (lambda c: c.sims, SIMILARITY),
        "batch_scores": (lambda c: c.batch_scores, SIMILARITY),
        **RECALLS,
        f"loss_(sum|max)__{MEASURES}": (lambda c, tag, measure: c.ranking_loss(tag, measure), LOSS),
        "caption_labels": (lambda c: c.labels[0], 0.0),
        "caption_masks": (lambda c: c.labels[1], 0.0),
        "loss_total": (written(lambda c: c.gradients(c.own_tag)[0]), LOSS),
        **{key: (written(row), tolerance) for key, (row, tolerance) in gradients("total_(?:sum|max)").items()},
        "caption_(encoder_out|encoder_hidden|logprobs)": (written(lambda c, key: c.spoken[key]), EMBEDDING),
        "loss_caption": (written(VsrnCase.caption_losses), LOSS),
    },
)
