"""Weakly supervised grounders, in double precision: the multi-level common space and Align2Ground, by their equations.

A case is NAME.npz with config.json beside it: param_* are weights, in_* inputs, out_* what was computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from saccade.batch import ImageCode, RegionBatch, TextCode
from saccade.core.arrays import read_npz
from saccade.core.files import read_json
from saccade.interop.harness import Case, Golden, Table, memo
from saccade.interop.importer import WeightMap, to
from saccade.interop.words import numbered_words
from saccade.models import Align2Ground, Align2GroundConfig, Multilevel, MultilevelConfig
from saccade.models.multilevel import UnitLayers, phrase_heat, unit_length
from saccade.nn import contrastive_loss, triplet_loss
from saccade.nn.attention import summed
from saccade.vision.grid import cell_boxes, resized

EXACT = 1e-9  # stored in float64


def weights_of(case: Case) -> dict[str, Tensor]:
    return {key.removeprefix("param_"): case.tensor(key) for key in case.stored if key.startswith("param_")}


def cases(folder: Path) -> Iterator[tuple[Case, Mapping[str, Any]]]:
    for path in sorted(folder.glob("*.npz")):
        yield Case(path.stem, read_npz(path)), read_json(folder / "config.json")


class MultilevelCase:
    """Pictures as maps of several sizes, words and sentences as vectors."""

    def __init__(self, case: Case, facts: Mapping[str, Any]) -> None:
        self.case, self.facts = case, facts
        self.weights = weights_of(case)
        self.maps = [case.tensor(f"in_level{level}").permute(0, 3, 1, 2) for level in range(int(facts["L"]))]
        self.words, self.sentences = case.tensor("in_word"), case.tensor("in_sent")
        self.real = torch.arange(self.words.shape[1]) < case.tensor("in_lens")[:, None]
        place = torch.arange(self.words.shape[1])
        self.phrases = (case.tensor("in_phrase_idx")[..., None] == place).any(dim=1)[:, None].double()

    @memo
    def model(self, unit_sentence: bool = True, count_padding: bool = True) -> Multilevel:
        facts, widths = self.facts, tuple(int(one.shape[1]) for one in self.maps)
        convolutions = int(facts["n_conv"])
        config = MultilevelConfig(
            region_dim=sum(widths),
            levels=widths,
            hidden=tuple(len(self.weights[f"conv0_{n}_b"]) for n in range(convolutions - 1)),
            dim=int(facts["D"]),
            word_dim=1,
            word_encoder="lstm",
            pool_sharpness=float(facts["gamma1"]),
            unit_sentence=unit_sentence,
            count_padding=count_padding,
        )
        model = Multilevel(config, numbered_words(5)).double().eval()
        model.word_layers = UnitLayers(self.words.shape[2], config.dim).double()  # whose inputs are given
        model.sentence_layers = UnitLayers(self.sentences.shape[1], config.dim).double()
        table = {
            **{
                f"conv{level}_{n}_{kind[0]}": to(f"levels.{level}.{n}.{kind}")
                for level in range(len(widths))
                for n in range(convolutions)
                for kind in ("weight", "bias")
            },
            **{
                f"{side[0]}{n}_{kind[0]}": to(f"{side}_layers.{n}.{kind}")
                for side in ("word", "sentence")
                for n in (0, 1)
                for kind in ("weight", "bias")
            },
        }
        own = [name for name, _ in model.named_parameters() if name.startswith("words.")]
        WeightMap(table, model, None, own).load(self.weights, self.case.name, "multi-level", strict=True)
        return model

    def level(self, number: str) -> Tensor:
        """A map brought to the finest, as TensorFlow 1 did."""
        side = int(self.facts["M"])
        return resized(self.maps[int(number)], side, side, corners=True).permute(0, 2, 3, 1)

    @cached_property
    def images(self) -> ImageCode:
        side = int(self.facts["M"])
        features = torch.cat([self.level(str(n)).flatten(1, 2) for n in range(len(self.maps))], dim=2)
        boxes = cell_boxes(side, side).double().expand(len(features), -1, -1)
        return self.model().encode_images(RegionBatch(features, torch.ones(features.shape[:2]).bool(), boxes))

    @cached_property
    def texts(self) -> TextCode:
        model = self.model()
        assert model.sentence_layers is not None
        return TextCode(model.word_layers(self.words), self.real, model.sentence_layers(self.sentences))

    def attend(self, side: str) -> tuple[Tensor, Tensor, Tensor]:
        """H, R and s · v of every picture with every text: [image text level query cell]."""
        images, texts = self.model().prepare(self.images, self.texts)
        assert texts.sentence is not None
        return self.model().every_pair(texts.vectors if side == "words" else texts.sentence[:, None], images)

    def heat(self, side: str) -> Tensor:
        """H as it is stored: [text image query cell level]."""
        return self.attend(side)[0].permute(1, 0, 3, 4, 2)

    def attended(self, side: str) -> Tensor:
        """Σ H v: [text image query level dim]."""
        cells = self.model().prepare(self.images, self.texts)[0].vectors
        return summed(self.attend(side)[0], cells[:, None]).permute(1, 0, 3, 2, 4)

    def fits(self, side: str) -> Tensor:
        """R at every level: [text image query level]."""
        return self.attend(side)[1].permute(1, 0, 3, 2)

    def table(self, which: str) -> Tensor:
        """[text image] of one of the scores."""
        model = self.model(which != "s_unnorm", which != "w_masked")
        sides = model.prepare(self.images, self.texts)
        return (model.word_pairs if which[0] == "w" else model.sentence_pairs)(*sides).mT

    def nll(self, over: str, which: str) -> Tensor:
        logits = float(self.facts["gamma2"]) * self.table(which)
        return -logits.log_softmax(dim=0 if over == "S_given_I" else 1).diagonal()

    def loss(self) -> Tensor:
        """Of both tables, summed over the batch, as the matching task has it."""
        temperature = 1 / float(self.facts["gamma2"])
        tables = self.model().ranked(self.images, self.texts)
        return torch.stack([contrastive_loss(table, temperature) for table in tables]).sum()

    @cached_property
    def own(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of picture p with text p: the words' heat maps, R_t and levels."""
        return self.model().heat_maps(*self.model().prepare(self.images, self.texts))

    def square(self, heat: Tensor) -> Tensor:
        side = int(self.facts["M"])
        return heat.reshape(*heat.shape[:-1], side, side)

    def sentence_heat(self) -> Tensor:
        weights, fits, _ = self.attend("sentence")
        own = torch.arange(len(weights))
        return self.square(weights[own, own, fits[own, own, :, 0].argmax(dim=1), 0])


def multilevel_cases(folder: Path) -> Iterator[MultilevelCase]:
    return (MultilevelCase(*case) for case in cases(folder))


MULTILEVEL_TABLE: Table = {
    r"out_resized(\d+)": (MultilevelCase.level, EXACT),
    "out_v": (lambda c: c.images.regions.unflatten(2, (len(c.maps), -1)), EXACT),
    "out_s": (lambda c: c.texts.words, EXACT),
    "out_sbar": (lambda c: c.texts.pooled, EXACT),
    "out_H_pairs": (lambda c: c.heat("words"), EXACT),
    "out_a_pairs": (lambda c: unit_length(c.attended("words")), EXACT),
    "out_R_tl": (lambda c: c.fits("words"), EXACT),
    "out_R_t": (lambda c: c.fits("words").amax(dim=3), EXACT),
    "out_level_word": (lambda c: c.fits("words").argmax(dim=3), 0.0),
    "out_R_((?:w|s)(?:_masked|_unnorm)?)": (MultilevelCase.table, EXACT),
    "out_H_s": (lambda c: c.heat("sentence")[:, :, 0], EXACT),
    "out_a_s_unnorm": (lambda c: c.attended("sentence")[:, :, 0], EXACT),
    "out_a_s": (lambda c: unit_length(c.attended("sentence"))[:, :, 0], EXACT),
    "out_R_sl": (lambda c: c.fits("sentence")[:, :, 0], EXACT),
    "out_nll_(S_given_I|I_given_S)_(w|s)": (MultilevelCase.nll, EXACT),
    "out_loss_sum": (MultilevelCase.loss, EXACT),
    "out_loss_mean": (lambda c: c.loss() / len(c.words), EXACT),
    "out_heatmap_word": (lambda c: c.square(c.own[0]), EXACT),
    "out_heatmap_phrase": (lambda c: c.square(phrase_heat(c.own[0], c.own[1], c.phrases))[:, 0], EXACT),
    "out_heatmap_sentence": (MultilevelCase.sentence_heat, EXACT),
}
MULTILEVEL_GOLDEN = Golden("multilevel", multilevel_cases, MULTILEVEL_TABLE)


class Align2GroundCase:
    """Regions, phrases and captions as vectors."""

    def __init__(self, case: Case, facts: Mapping[str, Any]) -> None:
        self.case, self.facts = case, facts
        self.weights = weights_of(case)
        self.rois, phrases = case.tensor("in_rois"), case.tensor("in_phrases")
        said = case.tensor("in_phrase_mask") > 0
        spans = torch.diag_embed(said.double())  # every phrase is a word by itself
        self.images = ImageCode(self.rois, torch.ones(self.rois.shape[:2]).bool())
        self.texts = TextCode(phrases, said, case.tensor("in_caption"), phrases=spans)
        self.padded = replace(self.texts, phrases=torch.eye(said.shape[1]).double().expand_as(spans))  # all counted

    @memo
    def model(
        self, local: Literal["attend", "max"] = "attend", score: Literal["global", "pooled"] = "global"
    ) -> Align2Ground:
        facts = self.facts
        config = Align2GroundConfig(
            region_dim=int(facts["dx"]),
            word_dim=int(facts["dp"]),
            state_dim=int(facts["dc"]),
            hidden_dim=int(facts["dh"]),
            dim=int(facts["dj"]),
            local=local,
            score=score,
        )
        model = Align2Ground(config, numbered_words(5)).double().eval()
        layers = (("enc0", "inner"), ("enc1", "outer"), ("cap", "caption"))
        table = {
            "W_l": to("local.weight", lambda weight: weight.T),
            **{f"{theirs}_{k[0]}": to(f"{ours}.{k}") for theirs, ours in layers for k in ("weight", "bias")},
        }
        own = [name for name, _ in model.named_parameters() if name.startswith("words.")]
        WeightMap(table, model, None, own).load(self.weights, self.case.name, "Align2Ground", strict=False)
        return model

    @memo
    def scores(self) -> Tensor:
        """s of every picture with every text: [image text phrase region]."""
        rois, phrases = self.model().prepare(self.images, self.padded)
        return self.model().match(rois, phrases, each=False)[0]

    def attention(self, local: Literal["attend", "max"] = "attend") -> Tensor:
        return self.model(local).choose(self.scores(), self.images.mask[:, None])

    def hidden(self) -> Tensor:
        inner = self.model().prepare(self.images, self.texts)[0].inner
        assert inner is not None
        return self.model().encoded(self.attention(), inner[:, None])

    def aggregated(self) -> Tensor:
        return self.model().aggregated(self.hidden(), self.texts.mask[None])

    def score(self) -> Tensor:
        return self.model().similarity(self.images, self.texts)

    def loss(self, negatives: Literal["all", "hardest"]) -> Tensor:
        return triplet_loss(self.score(), float(self.facts["margin"]), negatives)


def align2ground_cases(folder: Path) -> Iterator[Align2GroundCase]:
    return (Align2GroundCase(*case) for case in cases(folder))


ALIGN2GROUND_TABLE: Table = {
    "out_xhat": (lambda c: c.model().local(c.rois), EXACT),
    "out_s": (lambda c: c.scores().mT, EXACT),
    "out_alpha": (lambda c: c.attention().mT, EXACT),
    "out_ground_argmax": (lambda c: c.scores().argmax(dim=3), 0.0),
    "out_x_c": (lambda c: summed(c.attention(), c.rois[:, None]), EXACT),
    "out_x_c_hard": (lambda c: summed(c.attention("max"), c.rois[:, None]), EXACT),
    "out_enc_per_phrase": (lambda c: c.model().outer(c.hidden()), EXACT),
    "out_f_enc": (Align2GroundCase.aggregated, EXACT),
    "out_cap_emb": (lambda c: c.model().caption(c.texts.pooled), EXACT),
    "out_score": (Align2GroundCase.score, EXACT),
    "out_rank_loss_sum": (lambda c: c.loss("all"), EXACT),
    "out_rank_loss_hard": (lambda c: c.loss("hardest"), EXACT),
    "out_score_local_max": (lambda c: c.model("attend", "pooled").similarity(c.images, c.texts), EXACT),
}
ALIGN2GROUND_GOLDEN = Golden("align2ground", align2ground_cases, ALIGN2GROUND_TABLE)
