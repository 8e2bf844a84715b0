"""Captioners of ImageCaptioning.pytorch, whatever the model: teacher forcing, attention, cross-entropy and its
gradients, greedy and beam search with all stored options, self-critical training.

A case is NAME_io.npz with NAME_model.pth and NAME_infos.pkl. Models compute in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import PAD, START, UNKNOWN, CaptionState, RegionBatch, TeacherForced
from saccade.decoding import DecodedCaptions, DecodingConfig, beam_search, diverse_beam_search, greedy
from saccade.interop.checkpoint import load_arrays
from saccade.interop.harness import Case, Difference, Excuse, Golden, Table, memo, of_gradient
from saccade.interop.importer import Imported, Importer
from saccade.interop.importers.adaptive import ADAPTIVE
from saccade.interop.importers.updown import UPDOWN
from saccade.metrics.captions.cider import DocumentFrequencies
from saccade.metrics.captions.reward import SelfCriticalReward
from saccade.tasks.captioning.self_critical import mean_of_others, policy_loss

LOG_PROBABILITY, METRIC, LOSS = 1e-5, 1e-6, 1e-5  # allowed of float32 outputs, computed in float64 here
DOCUMENT_FREQUENCIES = "scst_df.p"
SEARCH_OPTIONS: dict[str, dict[str, Any]] = {  # the endings of stored beam searches
    "dc": {"no_immediate_repeat": True},
    "nobad": {"no_bad_endings": True},
    "unk": {"suppress_unk": True},
    "wu": {"length_penalty": "wu", "alpha": 0.9},
    "avg": {"length_penalty": "average"},
    "old": {},  # the reference's earlier implementation finds the same
}
NO_MASKS = Excuse("stored empty: the reference cannot normalise batches without masks")


class CaptionerCase:
    """Pictures and the captions of each, one after the other, with a model."""

    def __init__(self, case: Case, imported: Imported[Any], folder: Path, asked_bias: str) -> None:
        assert imported.source.words is not None
        self.case, self.imported, self.model, self.folder = case, imported, imported.model, folder
        self.words, self.options, self.asked_bias = imported.source.words, imported.source.options, asked_bias
        features = case.tensor("att_feats").double()
        self.mask = torch.ones(features.shape[:2], dtype=torch.bool)
        if "att_masks" in case.stored:
            self.mask = case.tensor("att_masks") > 0
        regions = int(self.mask.sum(dim=1).max())  # the reference cuts off what is padding in all pictures
        boxes = torch.zeros(len(features), regions, 4).double()
        self.images = RegionBatch(features[:, :regions], self.mask[:, :regions], boxes)
        self.whole = case.tensor("fc_feats").double()
        self.labels = case.tensor("labels")
        flat = self.labels.reshape(-1, self.labels.shape[-1])
        self.sentences = torch.cat([torch.full_like(flat[:, :1], START), self.words.sentences(flat[:, 1:])], dim=1)
        self.per_image = len(flat) // len(features)
        going_on = (flat[:, 1:-1] != 0).any(dim=0)
        self.steps = 1 + int(going_on.cumprod(dim=0).sum())  # the reference stops where all captions are over
        self.longest = int(self.options.get("max_length", 20) or self.options("seq_length"))

    @cached_property
    def state(self) -> CaptionState:
        state: CaptionState = self.model.start_from(self.images, self.whole)
        return state

    @cached_property
    def told(self) -> TeacherForced:
        return self._tell(self.images)

    @cached_property
    def told_without_masks(self) -> TeacherForced:
        """As the reference sees pictures when it is given no masks: padding is a region like others."""
        images = self.images
        return self._tell(RegionBatch(images.features, torch.ones_like(images.mask), images.boxes))

    def _tell(self, images: RegionBatch) -> TeacherForced:
        state = self.model.start_from(images, self.whole)
        forced: TeacherForced = self.model.teacher_force(state.repeat(self.per_image), self.sentences[:, :-1])
        return forced

    @property
    def keys(self) -> Tensor:
        """The state's bias is added to every region's key here; that of padding, never looked at, is the bias alone."""
        seen: Any = self.state.context
        weights = self.imported.source.weights
        keys = seen.keys - weights[self.asked_bias].to(seen.keys)
        return torch.where(seen.mask[:, :, None], keys, weights["ctx2att.bias"].to(keys))

    def teacher_forced(self, what: str, ending: str) -> Tensor | Excuse:
        """What would be said after each word, or where the model looked; there are zeros when all is said."""
        stored = self.case.stored[f"{what}{ending}"]
        if ending and not self.case.stored.get("logprobs_tf_nomask", np.zeros(0)).size:
            return NO_MASKS
        forced = self.told_without_masks if ending else self.told
        value = self.words.columns(forced.log_probabilities)
        if what == "attn_tf":
            sentinel = [] if forced.sentinel is None else [forced.sentinel[:, :, None]]
            value = torch.cat([*sentinel, forced.weights], dim=2)
        value = value.clone()
        value[:, self.steps :] = 0
        return value[:, : self.steps] if stored.ndim == 3 and stored.shape[1] == self.steps else value

    @cached_property
    def cross_entropy(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and its gradient for every official weight."""
        with torch.enable_grad():
            self.model.zero_grad()
            labels = self.sentences[:, 1:]
            wanted = labels != PAD
            loss = self._tell(self.images).nll(labels, wanted).sum() / wanted.sum()
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach(), self.imported.gradients()

    def gradient_norms(self) -> dict[str, Difference]:
        names = self.case.take("grad_names").tolist()
        found = {name: float(value.norm()) for name, value in self.cross_entropy[1].items()}
        return {
            f"grad_norms__{name}": Difference(abs(found.get(name, float("inf")) - norm), of_gradient(norm))
            for name, norm in zip(names, self.case.stored["grad_norms"].tolist(), strict=True)
        }

    @cached_property
    def greedy(self) -> DecodedCaptions:
        return greedy(
            self.model, self.state, DecodingConfig(max_length=self.longest, suppress_unk=False), distributions=True
        )

    @property
    def greedy_unrepeated(self) -> DecodedCaptions:
        config = DecodingConfig(max_length=self.longest, suppress_unk=False, no_immediate_repeat=True)
        return greedy(self.model, self.state, config)

    def ids(self, said: DecodedCaptions) -> Int[Tensor, "row step"]:
        return self.filled(self.words.back(said.words))

    def filled(self, values: Tensor) -> Tensor:
        """Zeros up to the longest caption."""
        missing = self.longest - values.shape[1]
        return F.pad(values, (0, missing) if values.dim() == 2 else (0, 0, 0, missing))

    @memo
    def search(self, name: str) -> DecodedCaptions | None:
        """`beam3_wu` is beam search of three with the length penalty wu; `dbs_b4g2` is diverse, in two groups."""
        given: dict[str, Any] = {"max_length": self.longest, "finished_beams": "keep_slot", "suppress_unk": False}
        if name.startswith("dbs_b"):
            beam, groups = (int(part) for part in name.removeprefix("dbs_b").split("g"))
            config = DecodingConfig(strategy="diverse", num_beams=beam, num_beam_groups=groups, **given)
            return diverse_beam_search(self.model, self.state, config)
        width, *options = name.removeprefix("beam").split("_")
        if not all(word in SEARCH_OPTIONS for word in options):
            return None
        for word in options:
            given |= SEARCH_OPTIONS[word]
        if int(self.words.said[-1]) != UNKNOWN:  # the reference looks for UNK among the last word only
            given["suppress_unk"] = False
        return beam_search(self.model, self.state, DecodingConfig(num_beams=int(width), **given))

    def searched(self, name: str, part: str) -> Tensor | None:
        if (said := self.search(name)) is None:
            return None
        ids = self.ids(said).view(-1, said.per_image, self.longest)
        rows = (-1, said.per_image)
        found = {"seqs": ids, "best": ids[:, 0], "lens": said.lengths.view(rows), "scores": said.score.view(rows)}
        return found[part]

    @cached_property
    def sampled(self) -> dict[str, Tensor]:
        """Stored samples: their log-probabilities, what they and greedy captions earn, the losses of both baselines."""
        words = self.words.sentences(self.case.tensor("scst_samples"))
        wanted, per_image = words != PAD, len(words) // len(self.state)
        read = torch.cat([torch.full_like(words[:, :1], START), words[:, :-1]], dim=1)
        forced = self.model.teacher_force(self.state.repeat(per_image), read)
        said, owner = -forced.nll(words, wanted), np.arange(len(words)) // per_image
        baseline = self.words.sentences(self.case.tensor("greedy_seq"))
        reward = self._reward(lambda given: given(words, owner))
        earned, expected = torch.from_numpy(reward(words, owner)), torch.from_numpy(reward(baseline))
        ahead = earned - expected[owner]
        found = {
            "scst_sample_logprobs": self.words.columns(forced.log_probabilities).masked_fill(~wanted[:, :, None], 0),
            "scst_sample_ciderd": earned,
            "scst_greedy_ciderd": expected,
            "scst_reward": ahead[:, None].expand(said.shape),
            "scst_loss": policy_loss(said, ahead, wanted),
        }
        if per_image > 1:
            found["nsc_loss"] = policy_loss(said, earned - mean_of_others(earned, per_image), wanted)
        return found

    def _reward(self, earned: Callable[[SelfCriticalReward], np.ndarray]) -> SelfCriticalReward:
        """References have their <end> unless they are as long as a caption can be.

        Each case counted n-grams in its own captions, but the folder has one file for all, of the last of them:
        whichever of the two explains the stored rewards better was used.
        """
        captions = self.sentences[:, 1:-1].view(len(self.images), self.per_image, -1).tolist()
        rewards, file = [SelfCriticalReward(captions)], self.folder / DOCUMENT_FREQUENCIES
        if file.exists():
            known: Mapping[str, int] = {str(official): int(ours) for official, ours in enumerate(self.words.read)}
            counted = DocumentFrequencies.load(file).rename(lambda word: known.get(str(word), word))
            rewards.append(SelfCriticalReward(captions, counted))
        stored = self.case.stored.get("scst_sample_ciderd")
        if stored is None or stored.shape != earned(rewards[0]).shape:
            return rewards[-1]
        return min(rewards, key=lambda reward: float(np.abs(earned(reward) - stored).max()))


def opens(importer: Importer[Any], asked_bias: str) -> Callable[[Path], Iterator[CaptionerCase]]:
    """`asked_bias` is added to the state there, to every region's key here."""

    def cases(folder: Path) -> Iterator[CaptionerCase]:
        for path in sorted(folder.glob("*_io.npz")):
            name = path.name.removesuffix("_io.npz")
            imported = importer.read(folder / f"{name}_model.pth")
            imported.model.double()
            yield CaptionerCase(Case(name, load_arrays(path)), imported, folder, asked_bias)

    return cases


SEARCHES = r"(beam\d+(?:_[a-z]+)*|dbs_b\d+g\d+)"
TABLE: Table = {
    "num_boxes": (lambda c: c.mask.sum(dim=1), 0.0),
    "label_masks": (lambda c: (c.sentences != PAD).view(c.labels.shape), 0.0),
    "fc_embed": (lambda c: c.state.context.whole, LOG_PROBABILITY),
    "att_embed": (lambda c: c.state.context.regions, LOG_PROBABILITY),
    "ctx2att": (lambda c: c.keys, LOG_PROBABILITY),
    "(logprobs_tf|attn_tf)(|_nomask)": (lambda c, what, ending: c.teacher_forced(what, ending), LOG_PROBABILITY),
    "xe_loss": (lambda c: c.cross_entropy[0], LOSS),
    "grad_norms": (lambda c: c.gradient_norms() if "grad_names" in c.case.stored else None, 0.0),
    "greedy_seq": (lambda c: c.ids(c.greedy), 0.0),
    "greedy_constraint_seq": (lambda c: c.ids(c.greedy_unrepeated), 0.0),
    "greedy_step_logprobs": (lambda c: c.filled(c.words.columns(c.greedy.distributions)), LOG_PROBABILITY),
    "greedy_token_logprob": (lambda c: c.filled(c.greedy.log_probabilities), LOG_PROBABILITY),
    rf"{SEARCHES}_(best|seqs|lens)": (lambda c, name, part: c.searched(name, part), 0.0),
    rf"{SEARCHES}_(scores)": (lambda c, name, part: c.searched(name, part), LOG_PROBABILITY),
    "(scst_sample_logprobs)": (lambda c, key: c.sampled[key], LOG_PROBABILITY),
    "(scst_sample_ciderd|scst_greedy_ciderd|scst_reward)": (lambda c, key: c.sampled[key], METRIC),
    "(scst_loss|nsc_loss)": (lambda c, key: c.sampled.get(key), LOSS),
}
GOLDENS = (
    Golden("updown", opens(UPDOWN, "core.attention.h2att.bias"), TABLE),
    Golden("adaptive", opens(ADAPTIVE, "core.attention.ho_embed.bias"), TABLE),
)
