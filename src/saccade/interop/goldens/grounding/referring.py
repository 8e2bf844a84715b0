"""PLAN: the paper's equations in double precision (golden.npz, config.json), and the released code with its checkpoint
(ref_io.npz, model_ref.pt, ref_config.json), whose outputs are float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from saccade.batch import StepBatch
from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.harness import Case, Golden, Table
from saccade.interop.importer import WeightMap, to
from saccade.interop.importers.referring import PLAN
from saccade.interop.words import numbered_words
from saccade.models import Plan, PlanConfig
from saccade.models.plan import Level, PaperLevel, ReferenceLevel

EXACT = 1e-9  # stored in float64
ABSENT = -100.0  # the released code's score of another picture's candidates


def of_reference(stored: np.ndarray) -> float:
    """2e-5 of float32 outputs, relative where they are large."""
    return 2e-5 * max(1.0, float(np.abs(stored).max(initial=0)))


WEIGHTS = {
    "Wv": to("image.attention.region.weight"),
    "Wp": to("proposal.attention.region.weight"),
    "Wr_p": to("candidate_map.weight"),
    "br_p": to("candidate_map.bias"),
    "Wr_h": to("query_map.weight"),
    "br_h": to("query_map.bias"),
    **{
        theirs.format(short): to(ours.format(name))
        for short, name in (("img", "image"), ("prop", "proposal"))
        for theirs, ours in {
            "Wh_{}": "{}.attention.state.weight",
            "b_{}": "{}.attention.region.bias",
            "w_{}": "{}.attention.weigh.weight",
            "lstm_{}_wih": "{}.lstm.weight_ih",
            "lstm_{}_whh": "{}.lstm.weight_hh",
            "lstm_{}_bih": "{}.lstm.bias_ih",
            "lstm_{}_bhh": "{}.lstm.bias_hh",
        }.items()
    },
}


SIZES = {  # what config.json says, and of which array it is so
    "K": ("in_V", 0),
    "N": ("in_u", 0),
    "L": ("in_m", 0),
    "dv": ("in_V", 1),
    "du": ("in_u", 1),
    "ds": ("in_sp", 1),
    "dc": ("in_cat", 1),
    "dm": ("in_m", 1),
    "da": ("param_Wv", 0),
    "dh": ("param_Wh_img", 1),
    "dr": ("param_Wr_p", 0),
}


class PaperCase:
    """One text about one picture; what is read, and what a box's category is, stand as vectors."""

    def __init__(self, case: Case, facts: dict[str, Any]) -> None:
        self.case = case
        if not isinstance(facts, dict):
            raise SaccadeError("config.json is no mapping of sizes")
        for size, (key, axis) in SIZES.items():
            if size in facts:  # what a folder says of itself must be so
                case.check(f"config {size}", abs(facts[size] - case.take(key).shape[axis]), 0.0)
        weights = {name.removeprefix("param_"): case.tensor(name) for name in case.stored if name.startswith("param_")}
        for name in WEIGHTS:
            if name not in weights:
                raise SaccadeError(f'{case.name} has no "param_{name}"')
        self.cells, self.read = case.tensor("in_V")[None], case.tensor("in_m")[None]
        self.boxes = torch.cat([case.tensor(f"in_{part}") for part in ("u", "sp", "cat")], dim=1)[None]
        config = PlanConfig(
            region_dim=self.cells.shape[2],
            candidate_dim=case.take("in_u").shape[1],
            category_dim=case.take("in_cat").shape[1],
            text_dim=self.read.shape[2],
            dim=weights["Wh_img"].shape[1],
            attention_dim=len(weights["w_img"]),
            referring_dim=len(weights["Wr_p"]),
            word_dim=1,
        )
        self.model = Plan(config, numbered_words(5)).double().eval()
        own = [name for name, _ in self.model.named_parameters() if name.startswith(("words.", "lstm.", "categories."))]
        WeightMap(WEIGHTS, self.model, None, own).load(weights, case.name, "PLAN")

    @cached_property
    def levels(self) -> dict[str, Level]:
        image, proposal = self.model.image, self.model.proposal
        assert isinstance(image, PaperLevel)
        assert isinstance(proposal, PaperLevel)
        given = {"img": (image, self.cells), "prop": (proposal, self.boxes)}
        return {
            name: level(parts, torch.ones(parts.shape[:2], dtype=torch.bool), self.read)
            for name, (level, parts) in given.items()
        }

    def stage(self, part: str, level: str) -> Tensor:
        field = {"e": "scores", "att": "weights", "z": "attended", "h": "states"}[part]
        found: Tensor = getattr(self.levels[level], field)[0]
        return found

    @cached_property
    def logits(self) -> Tensor:
        return self.model.compare(self.boxes, self.levels["img"], self.levels["prop"])[0, -1]

    def narrowed(self) -> Tensor:
        """β_Li p_i."""
        return self.levels["prop"].weights[0, -1, :, None] * self.boxes[0]

    def loss(self) -> Tensor:
        return functional.cross_entropy(self.logits[None], self.case.tensor("in_target").reshape(1))


class ReferenceCase:
    """Dialogs about pictures, each with its own candidates, of which each has a map of cells."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        imported = PLAN.read(folder / "model_ref.pt", dtype=torch.float64, feature_scale=1.0)
        self.model = imported.model
        image, proposal = self.model.image, self.model.proposal
        assert isinstance(image, ReferenceLevel)
        assert isinstance(proposal, ReferenceLevel)
        self.image, self.proposal = image, proposal
        self.facts = read_json(folder / "ref_config.json")
        self.there = case.tensor("in_questions_mask") > 0
        self.last = case.tensor("in_questions_num").long() - 1
        self.counts = case.tensor("in_patch_lengths").long()
        texts, steps = self.there.shape
        words, real = case.tensor("in_words"), case.tensor("in_words_mask") > 0
        if not bool(((words == 0) | (words == 1)).all() and (words.sum(dim=2) == real).all()):
            raise SaccadeError(f"{case.name}: in_words must be one-hot where in_words_mask is 1, else zero")
        lengths = case.tensor("in_words_len").long() + 1
        case.check("in_words_len", float((lengths != real.sum(dim=1).clamp(min=1)).any()), 0.0)
        ids = imported.words.inputs[words.argmax(dim=2)] * real
        self.texts = StepBatch(ids.view(texts, steps, -1), real.view(texts, steps, -1))
        self.check_sizes()

    def check_sizes(self) -> None:
        """What a folder says of itself must be so."""
        config, texts = self.model.config, self.texts.tokens.shape
        own = {"B": texts[0], "Q": texts[1], "W": texts[2], "embedding_dim": config.word_dim, "hidden_dim": config.dim}
        own |= {"feature_dim": config.region_dim, "representation_dim": config.referring_dim}
        own |= {"onehot_dim": self.case.take("in_words").shape[2], "H": self.case.take("in_img").shape[2]}
        own |= {"ph": self.case.take("in_prop").shape[2]}
        for name, size in own.items():
            if name in self.facts:
                self.case.check(f"config {name}", abs(self.facts[name] - size), 0.0)

    @cached_property
    def read(self) -> Tensor:
        return self.model.encode_steps(self.texts)

    @cached_property
    def seen(self) -> Level:
        cells = self.case.tensor("in_img").double().flatten(2).mT
        found: Level = self.image(cells, torch.ones(cells.shape[:2], dtype=torch.bool), self.read, self.there)
        return found

    @cached_property
    def mask(self) -> Tensor:
        return torch.arange(int(self.counts.max())) < self.counts[:, None]

    @cached_property
    def narrowed(self) -> Level:
        maps = self.case.tensor("in_prop").double().flatten(2).mT
        padded = maps.new_zeros(*self.mask.shape, *maps.shape[1:])
        padded[self.mask] = maps
        found: Level = self.proposal(padded, self.mask, self.read, self.there)
        return found

    def flat(self, values: Tensor) -> Tensor:
        """[text step candidate …] as the released code lays it out: [all candidates, step, …]."""
        return values.transpose(1, 2)[self.mask]

    @cached_property
    def picture(self) -> Tensor:
        return self.image.represent(self.seen)[torch.arange(len(self.last)), self.last]

    @cached_property
    def boxes(self) -> Tensor:
        own = self.last.repeat_interleave(self.counts)
        return self.flat(self.proposal.represent(self.narrowed))[torch.arange(len(own)), own]

    @cached_property
    def masked(self) -> Tensor:
        """Every text with every candidate of the batch."""
        owner = torch.arange(len(self.counts)).repeat_interleave(self.counts)
        own = torch.arange(len(self.counts))[:, None] == owner
        return (self.picture @ self.boxes.mT).masked_fill(~own, ABSENT)

    def loss(self) -> Tensor:
        return functional.cross_entropy(self.masked, self.case.tensor("in_targets").long())


def plan_cases(folder: Path) -> Iterator[PaperCase | ReferenceCase]:
    if (folder / "golden.npz").is_file():
        yield PaperCase(Case("golden", read_npz(folder / "golden.npz")), read_json(folder / "config.json"))
    if (folder / "ref_io.npz").is_file():
        yield ReferenceCase(Case("ref_io", read_npz(folder / "ref_io.npz")), folder)


TABLE: Table = {
    "out_(e|att|z|h)_(img|prop)": (PaperCase.stage, EXACT),
    "out_p_tilde": (PaperCase.narrowed, EXACT),
    "out_logits": (lambda c: c.logits, EXACT),
    "out_prob": (
        lambda c: (c.masked if isinstance(c, ReferenceCase) else c.logits).softmax(dim=-1),
        lambda stored: EXACT if stored.dtype == np.float64 else of_reference(stored),
    ),
    "out_loss": (lambda c: c.loss(), lambda stored: EXACT if stored.dtype == np.float64 else of_reference(stored)),
    "out_sentence_feature": (lambda c: c.read, of_reference),
    "out_img_att_feat": (lambda c: c.seen.attended, of_reference),
    "out_prop_att_feat": (lambda c: c.flat(c.narrowed.attended), of_reference),
    "out_img_lstm": (lambda c: c.seen.states, of_reference),
    "out_prop_lstm": (lambda c: c.flat(c.narrowed.states), of_reference),
    "out_img_rep": (lambda c: c.picture, of_reference),
    "out_prop_rep": (lambda c: c.boxes, of_reference),
    "out_scores_raw": (lambda c: c.picture @ c.boxes.mT, of_reference),
    "out_scores_masked": (lambda c: c.masked, lambda stored: 2e-5),
    "out_pred": (lambda c: c.masked.argmax(dim=1), 0.0),
}
GOLDEN = Golden("plan", plan_cases, TABLE)
