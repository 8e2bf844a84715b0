"""IMRAM: embeddings, every step of both directions, losses, gradients."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from saccade.interop.goldens.matching import EMBEDDINGS, NEGATIVES, RECALLS, MatchingCase, gradients, opens
from saccade.interop.harness import EMBEDDING, LOSS, SIMILARITY, Golden, memo
from saccade.interop.importers.imram import IMRAM
from saccade.models import Imram
from saccade.nn import SentenceGru, triplet_loss, unit

QUERIES = {"t2i": "words", "i2t": "regions"}


class ImramCase(MatchingCase[Imram]):
    def loss(self, tag: str) -> Tensor:
        scores = self.model(self.batch_images, self.batch_texts).double()
        return triplet_loss(scores, self.margin, NEGATIVES[tag])

    def official_name(self, stored: str) -> str:
        return stored.removeprefix("model.")

    @memo
    def upto(self, way: str, steps: int) -> Tensor:
        return self.imported.variant(queries=QUERIES[way], steps=steps).similarity(*self.codes)

    def step_sims(self, way: str, step: str) -> Tensor:
        """What one step adds, in either direction, whichever of them the model sums up."""
        last = int(step)
        return self.upto(way, last + 1) - self.upto(way, last) if last else self.upto(way, 1)

    @cached_property
    def final_state(self) -> Tensor:
        """The mean of both directions' last states, of the first layer as in the official code; no score needs it."""
        model, texts = self.model, self.texts
        first = SentenceGru(model.config.word_dim, model.config.dim, 1, bidirectional=True)
        state = model.words.rnn.state_dict()
        first.load_state_dict({name: state[name] for name in first.state_dict()})
        forward, backward = first(model.words.embed(texts.tokens), texts.lengths).chunk(2, dim=-1)
        last = forward[torch.arange(len(texts)), texts.lengths - 1]
        mean = (last + backward[:, 0]) / 2
        return unit(mean) if model.config.unit_words else mean


GOLDEN = Golden(
    "imram",
    opens(ImramCase, IMRAM),
    {
        **EMBEDDINGS,
        "img_mean": (lambda c: c.codes[0].regions.mean(dim=1), EMBEDDING),
        "cap_final_state": (lambda c: c.final_state, EMBEDDING),
        "sims": (lambda c: c.sims, SIMILARITY),
        "batch_scores_eval": (lambda c: c.batch_scores, SIMILARITY),
        "batch_scores_train": (lambda c: c.batch_scores.T, SIMILARITY),
        r"step_sims__(t2i|i2t)__(\d+)": (ImramCase.step_sims, SIMILARITY),
        **RECALLS,
        "loss_(sum|max)": (lambda c, tag: c.gradients(tag)[0], LOSS),
        **gradients("sum|max"),
    },
)
