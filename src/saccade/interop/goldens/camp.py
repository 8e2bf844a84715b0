"""CAMP: encoders, pooled pairs, scores, losses, gradients of four variants."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.interop.goldens.matching import EMBEDDINGS, NEGATIVES, RECALLS, MatchingCase, gradients, opens
from saccade.interop.harness import EMBEDDING, LOSS, SIMILARITY, Golden
from saccade.interop.importers.camp import CAMP, MAX_CAPTION_WORDS
from saccade.models import Camp
from saccade.nn import binary_loss, triplet_loss

LOSSES = "(?:BCE|hinge)_(?:sum|max)"


class CampCase(MatchingCase[Camp]):
    @cached_property
    def margin(self) -> float:
        return float(self.options("margin"))

    @cached_property
    def joint(self) -> Tensor:
        """Each pair's pooled vectors, the picture's beside the sentence's, before they are scored."""
        return torch.cat(self.model.pooled(*self.batch_codes), dim=-1)

    def loss(self, tag: str) -> Tensor:
        return self.loss_of(tag, self.model(self.batch_images, self.batch_texts))

    def loss_of(self, tag: str, scores: Tensor) -> Tensor:
        kind, _, negatives = tag.partition("_")
        if kind == "BCE":
            return binary_loss(scores, NEGATIVES[negatives])
        return triplet_loss(scores, self.margin, NEGATIVES[negatives])

    def official_name(self, stored: str) -> str:
        """Every part was wrapped in nn.DataParallel: `sim.module.fc_1.0.weight`."""
        return stored.replace(".module.", ".", 1)

    @property
    def official_loss(self) -> str:
        return "BCE_max" if self.options("max_violation") else "BCE_sum"  # whatever loss_func says


def padded(values: Tensor) -> Tensor:
    """To the length that the official code gives every caption."""
    return F.pad(values, (0, 0, 0, MAX_CAPTION_WORDS - values.shape[1]))


GOLDEN = Golden(
    "camp",
    opens(CampCase, CAMP, containers=("plainopt.pth.tar",)),
    {
        **EMBEDDINGS,
        "cap_emb": (lambda c: padded(c.codes[1].words), EMBEDDING),
        "batch_cap_emb": (lambda c: padded(c.batch_codes[1].words), EMBEDDING),
        "batch_joint": (lambda c: c.joint, EMBEDDING),
        "cap_mask": (lambda c: padded(c.codes[1].mask[:, :, None].long())[:, :, 0], 0.0),
        "sims": (lambda c: c.sims, SIMILARITY),
        "batch_scores": (lambda c: c.batch_scores, SIMILARITY),
        **RECALLS,
        "loss_official": (lambda c: c.loss_of(c.official_loss, c.batch_scores), LOSS),
        f"loss_({LOSSES})": (lambda c, tag: c.loss_of(tag, c.batch_scores), LOSS),
        **gradients(LOSSES),
    },
)
