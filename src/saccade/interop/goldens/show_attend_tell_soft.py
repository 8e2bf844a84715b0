"""The tutorial's Show, Attend and Tell: teacher forcing, losses, gradients and beam searches, in float64.

A case is a folder with io.npz, WORDMAP.json and checkpoints, all of the same weights; a folder of such has several.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from saccade.batch import Thought
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.decoding import Decoded, DecodingConfig, beam_search
from saccade.interop.checkpoint import load_arrays
from saccade.interop.harness import LOSS, Case, Difference, Golden, difference, fitted, memo, of_gradient, unmasked
from saccade.interop.importer import Imported
from saccade.interop.importers.show_attend_tell import SHOW_ATTEND_TELL, word_map
from saccade.language.vocabulary import START
from saccade.models import ShowAttendTell

SCORE = 1e-5  # of float32 outputs, computed in float64 here
MAX_WORDS = 51  # after which the tutorial's search gives up
NOISE = 1e-6  # of gradients that are zero in exact arithmetic, in float64


class SoftCase:
    """Captions in the official order, longest first; nothing is said after a caption's end."""

    def __init__(self, case: Case, imported: Imported[ShowAttendTell]) -> None:
        assert imported.source.words is not None
        self.case, self.imported, self.model, self.words = case, imported, imported.model, imported.source.words
        self.lengths = case.tensor("caption_lengths")[:, 0]
        self.order = case.tensor("sort_ind")  # captions of one length may stand in any order
        if sorted(self.order.tolist()) != list(range(len(self.lengths))):
            raise SaccadeError(f"{case.name}: sort_ind is no order of {len(self.lengths)} captions")
        self.captions, self.steps = case.tensor("captions")[self.order], self.lengths[self.order] - 1
        self.images = unmasked(case.tensor("encoder_out").double().flatten(1, 2))

    @property
    def order_gap(self) -> Difference:
        return Difference(difference(self.lengths[self.order], self.lengths.sort(descending=True).values))

    @cached_property
    def taught(self) -> dict[str, Any]:
        """Teacher forcing, with what is differentiated."""
        model, count = self.model, int(self.steps.max())
        wanted = torch.arange(count) < self.steps[:, None]
        with torch.enable_grad():
            model.zero_grad()
            state, thoughts = model.start(self.images.select(self.order)), list[Thought]()
            for word in self.words.read[self.captions[:, :count]].unbind(dim=1):
                thoughts.append(model.advance(word, thoughts[-1].state if thoughts else state))
            told = model.told(thoughts)
            logits = self.words.columns(model.speak(torch.stack([thought.hidden for thought in thoughts], dim=1)))
            labels = self.words.said[self.captions[:, 1 : count + 1]]
            missed = -told.log_probabilities.gather(2, labels[..., None])[..., 0].masked_fill(~wanted, 0)
            own = model.own_losses(told, labels, missed, wanted)["coverage_loss"]
            loss = missed.sum() / wanted.sum()
            (loss + own).backward()  # type: ignore[no-untyped-call]
        return {
            "scores": (logits * wanted[..., None]).detach(),
            "alphas": told.weights * wanted[..., None],
            "ce_loss": loss,
            "alpha_reg": own,
            "loss": loss + own,
            "gradients": self.imported.gradients(),
        }

    def best(self, key: str) -> Difference:
        """The likeliest words; which of two equals comes first is not decided (all are, where nothing is said)."""
        scores, stored = self.taught["scores"], self.case.tensor(key)
        return Difference(difference(scores.gather(2, stored), scores.topk(stored.shape[2], dim=2).values))

    @memo
    def searched(self, name: str) -> dict[str, Tensor | Difference]:
        """The best caption and its looks, and all that came to an end, in that order; by the stored endings."""
        width = int(name.removeprefix("beam"))
        ways: Any = {"finished": "shrink", "unfinished": "fallback", "length_penalty": "none"}
        config = DecodingConfig(beam=width, longest=MAX_WORDS, unknown=True, **ways)
        decoded = beam_search(self.model, self.images, config)
        stored = {key.removeprefix(f"{name}_"): value for key, value in self.case.stored.items()}
        best, complete = decoded.best(), decoded.by_completion()
        ended = complete.ended & ~complete.score.isneginf()
        sentences = self.sentences(complete).masked_fill(~ended[:, None], -1).view(len(self.images), width, -1)
        looks = torch.cat([torch.ones_like(best.weights[:, :1]), best.weights], dim=1)  # a map of ones for <start>
        looks = fitted(looks, stored["alphas"].shape[:2])
        scores = complete.score.masked_fill(~ended, float("nan")).view(-1, width).numpy()
        expected = stored["complete_scores"]
        alike = expected.shape == scores.shape and np.array_equal(np.isnan(expected), np.isnan(scores))
        return {
            "best": fitted(self.sentences(best), stored["best"].shape, fill=-1),
            "alphas": looks.reshape(*looks.shape[:2], *stored["alphas"].shape[2:]),
            "complete_seqs": fitted(sentences, stored["complete_seqs"].shape, fill=-1),
            "num_complete": ended.view(-1, width).sum(dim=1),
            "complete_scores": Difference(
                float(np.nanmax(np.abs(expected - scores), initial=0)) if alike else float("inf")
            ),
        }

    def sentences(self, decoded: Decoded) -> Int[Tensor, "row step"]:
        """Official ids, <start> first, −1 behind the end."""
        words = self.words.back(decoded.words).masked_fill(~decoded.mask, -1)
        return torch.cat([self.words.back(torch.full_like(words[:, :1], START)), words], dim=1)


def gradient_norms(case: Case, key: str, names: str, found: dict[str, Tensor]) -> dict[str, Difference]:
    """The length of every gradient, relative to itself; a weight that has no place here must have none."""
    norms = {name: float(gradient.norm()) for name, gradient in found.items()}
    return {
        f"{key}__{name}": Difference(abs(norms.get(name, float("inf")) - norm), of_gradient(norm, NOISE))
        for name, norm in zip(case.take(names).tolist(), case.stored[key].tolist(), strict=True)
    }


def folders_with_io(folder: Path) -> list[Path]:
    return [path for path in (folder, *sorted(folder.iterdir())) if (path / "io.npz").is_file()]


def opens(folder: Path) -> Iterator[SoftCase]:
    for place in folders_with_io(folder):
        maps = sorted(place.glob("WORDMAP*.json"))
        if not maps:
            raise SaccadeError(f"{place} has no WORDMAP.json")
        words = word_map(read_json(maps[0]), str(maps[0]), literal=True)
        files = sorted([*place.glob("*.pth"), *place.glob("*.pth.tar")])
        if not files:
            raise SaccadeError(f"{place} has no checkpoint: expected a .pth or .pth.tar file")
        imported = [SHOW_ATTEND_TELL.read(file, words=words, dtype=torch.float64) for file in files]
        case, first = Case(place.name, load_arrays(place / "io.npz")), imported[0].model
        for file, other in zip(files[1:], imported[1:], strict=True):
            same = replace(first.config, dropout=0) == replace(other.model.config, dropout=0)  # weights do not tell it
            state = other.model.state_dict()
            gaps = [difference(state[key], value) for key, value in first.state_dict().items()] if same else []
            case.check(f"the same weights in {file.name}", max(gaps, default=float("inf")), 0.0)
        yield SoftCase(case, imported[0])


def required(case: Case) -> Iterator[str]:
    yield from ("captions_sorted", "decode_lengths", "scores", "alphas", "ce_loss", "alpha_reg", "loss", "grad_norms")
    for prefix in (key.removesuffix("_best") for key in case.stored if re.fullmatch(r"beam\d+_best", key)):
        for part in ("alphas", "complete_seqs", "num_complete", "complete_scores"):
            yield f"{prefix}_{part}"


GOLDEN = Golden(
    "show_attend_tell_soft",
    opens,
    {
        "sort_ind": (lambda c: c.order_gap, 0.0),
        "captions_sorted": (lambda c: c.captions, 0.0),
        "decode_lengths": (lambda c: c.steps, 0.0),
        "(scores|alphas)": (lambda c, key: c.taught[key], SCORE),
        "(ce_loss|alpha_reg|loss)": (lambda c, key: c.taught[key], LOSS),
        "(grad_norms)": (lambda c, key: gradient_norms(c.case, key, "grad_names", c.taught["gradients"]), 0.0),
        r"(top\d+)": (SoftCase.best, SCORE),
        r"(beam\d+)_(best|complete_seqs|num_complete)": (lambda c, name, part: c.searched(name)[part], 0.0),
        r"(beam\d+)_(alphas|complete_scores)": (lambda c, name, part: c.searched(name)[part], SCORE),
    },
    required=required,
)
