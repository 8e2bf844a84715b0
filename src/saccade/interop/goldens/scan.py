"""SCAN: embeddings, every direction × pooling × normaliser of similarity, losses, gradients, one training step."""

from __future__ import annotations

import itertools
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from saccade.interop.goldens.matching import EMBEDDINGS, NEGATIVES, RECALLS, Codes, MatchingCase, gradients, opens
from saccade.interop.harness import EMBEDDING, GRADIENT, LOSS, SIMILARITY, Golden, Table, Tolerance, memo
from saccade.interop.importers.matching import NORMALISERS
from saccade.interop.importers.scan import POOLS, QUERIES, SCAN
from saccade.models import Scan
from saccade.nn import triplet_loss

SHARPNESS = {"t2i": (9.0, 6.0), "i2t": (4.0, 5.0)}  # λ₁, λ₂ of the stored modes
TRAINED_MODE = ("t2i", "LogSumExp", "clipped_l2norm")  # whose gradients are stored


class ScanCase(MatchingCase[Scan]):
    @cached_property
    def doubles(self) -> Codes:
        """The official evaluation computes in float64 from float32 codes."""
        images, texts = self.codes
        return images.to(dtype=torch.float64), texts.to(dtype=torch.float64)

    @cached_property
    def sims(self) -> Tensor:
        return self.model.similarity(*self.doubles)

    @memo
    def form(self, query: str, pool: str, normaliser: str) -> Scan:
        """The same encoders with another form of attention."""
        sharpness, pool_sharpness = SHARPNESS[query]
        return self.imported.variant(
            queries=QUERIES[query],
            normaliser=NORMALISERS[normaliser],
            sharpness=sharpness,
            pool=POOLS[pool],
            pool_sharpness=pool_sharpness,
        )

    def mode_loss(self, tag: str, *mode: str) -> Tensor:
        return triplet_loss(self.form(*mode).similarity(*self.batch_codes), self.margin, NEGATIVES[tag])

    def loss(self, tag: str) -> Tensor:
        """Of the mode whose stored loss is the one that was differentiated; the documented one where none is stored."""
        wanted = float(self.case.take(f"grad_{tag}__loss"))
        modes = [TRAINED_MODE, *itertools.product(QUERIES, POOLS, NORMALISERS)]
        stored = {mode: self.case.stored.get(f"loss_{tag}__{'__'.join(mode)}") for mode in modes}
        alike = [mode for mode, loss in stored.items() if loss is not None and abs(float(loss) - wanted) < 1e-6]
        codes = self.model.encode_images(self.batch_images), self.model.encode_texts(self.batch_texts)
        scores = self.form(*(alike[0] if alike else TRAINED_MODE)).similarity(*codes)
        return triplet_loss(scores, self.margin, NEGATIVES[tag])

    def stepped(self, tag: str, name: str) -> Tensor | None:
        """A weight after one official training step: gradients clipped together, then Adam from a fresh state."""
        official = self.gradients(tag)[1]
        weights = {key: self.imported.source.weights[key].clone().requires_grad_() for key in official}
        for key, weight in weights.items():
            weight.grad = official[key].to(weight)
        torch.nn.utils.clip_grad_norm_(weights.values(), float(self.options("grad_clip")))
        torch.optim.Adam(weights.values(), lr=float(self.options("learning_rate"))).step()
        return weights.get(name)


def of_largest(stored: np.ndarray) -> float:
    """A whole gradient: relative to its largest entry."""
    return GRADIENT * max(float(np.abs(stored).max()), 1e-3)


def modes(tolerance: Tolerance, pools: str) -> Table:
    mode = f"({'|'.join(QUERIES)})__({pools})__({'|'.join(NORMALISERS)})"
    return {
        f"sims64__{mode}": (lambda c, *mode: c.form(*mode).similarity(*c.doubles), tolerance),
        f"sims32__{mode}": (lambda c, *mode: c.form(*mode).similarity(*c.codes), tolerance),
        f"batch_scores__{mode}": (lambda c, *mode: c.form(*mode).similarity(*c.batch_codes), tolerance),
    }


GOLDEN = Golden(
    "scan",
    opens(ScanCase, SCAN),
    {
        **EMBEDDINGS,
        **modes(SIMILARITY, "LogSumExp|Mean|Max"),
        **modes(2 * SIMILARITY, "Sum"),
        r"loss_(sum|max)__(\w+?)__(\w+?)__(\w+)": (lambda c, tag, *mode: c.mode_loss(tag, *mode), LOSS),
        r"grad_(sum|max)__loss": (lambda c, tag: c.gradients(tag)[0], LOSS),
        "sims": (lambda c: c.sims, SIMILARITY),
        **RECALLS,
        r"grad_(sum|max)__(?!loss$)(.+)": (lambda c, tag, name: c.gradients(tag)[1].get(name), of_largest),
        **gradients("sum|max"),
        r"step1_(sum|max)__(.+)": (lambda c, tag, name: c.stepped(tag, name), EMBEDDING),
    },
)
