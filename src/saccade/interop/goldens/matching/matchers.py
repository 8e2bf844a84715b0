"""SCAN, VSRN, CAMP and IMRAM, and what GSMN shares with them: embeddings, scores in every form, losses, gradients.

A case is NAME.io.npz with NAME.pth.tar, which may lie there in several containers. It holds pictures, captions, one
training batch, embeddings, scores, losses and gradient norms.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import ImageCode, TextBatch, TextCode
from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import read_checkpoint, state_dict
from saccade.interop.goldens.metrics import figures
from saccade.interop.harness import (
    EMBEDDING,
    GRADIENT,
    LOSS,
    SIMILARITY,
    Case,
    Difference,
    Excuse,
    Expression,
    Golden,
    Table,
    Tolerance,
    difference,
    memo,
    of_gradient,
    unmasked,
)
from saccade.interop.importer import Imported, Importer
from saccade.interop.importers import matching as official
from saccade.interop.words import vocabulary_beside
from saccade.models import Camp, Imram, Matcher, Scan, Vsrn
from saccade.models.vsrn import caption_labels, caption_loss, normalise
from saccade.nn import Negatives, SentenceGru, WordEncoder, binary_loss, triplet_loss, unit

NEGATIVES: dict[str, Negatives] = {"sum": "all", "max": "hardest"}  # the official names of our two losses
M = TypeVar("M", bound=Matcher)
Codes = tuple[ImageCode, TextCode]


def doubled(codes: Codes) -> Codes:
    return codes[0].to(dtype=torch.float64), codes[1].to(dtype=torch.float64)


class MatchingCase(Generic[M]):
    """A case with its model, its pictures and captions, and its training batch: picture p with caption p."""

    def __init__(self, case: Case, imported: Imported[M]) -> None:
        self.case, self.imported, self.model = case, imported, imported.model
        self.options = imported.source.options
        self.margin = float(self.options.get("margin", 0.2))
        self.images = unmasked(case.tensor("images"))
        if "boxes" in case.stored:
            self.images = replace(self.images, boxes=case.tensor("boxes"))
        tokens, lengths = case.tensor("captions"), case.tensor("lengths")
        self.texts = TextBatch(tokens, torch.arange(tokens.shape[1]) < lengths[:, None])
        pictures, captions = (case.tensor(f"batch_{side}_idx") for side in ("img", "cap"))
        self.batch_images, self.batch_texts = self.images.select(pictures), self.texts.select(captions).trimmed()

    @cached_property
    def codes(self) -> Codes:
        return self.model.encode_images(self.images), self.model.encode_texts(self.texts)

    @cached_property
    def batch_codes(self) -> Codes:
        return self.model.encode_images(self.batch_images), self.model.encode_texts(self.batch_texts)

    @cached_property
    def doubles(self) -> Codes:
        """Where the official evaluation computes in float64 from float32 codes."""
        return doubled(self.codes)

    @cached_property
    def sims(self) -> Tensor:
        return self.model.similarity(*self.codes)

    @cached_property
    def batch_scores(self) -> Tensor:
        return self.model.similarity(*self.batch_codes)

    def ranking(self, tag: str, scores: Tensor) -> Tensor:
        return triplet_loss(scores, self.margin, NEGATIVES[tag])

    def loss(self, tag: str) -> Tensor:
        """The training batch's loss, to be differentiated; `tag` names it in the stored keys."""
        return self.ranking(tag, self.model(self.batch_images, self.batch_texts))

    def official_name(self, stored: str) -> str:
        """The weight that `gradnorm_TAG__…` names."""
        return stored

    @memo
    def gradients(self, tag: str) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and the official gradients of it, by the names of the checkpoint."""
        with torch.enable_grad():
            self.model.zero_grad()
            loss = self.loss(tag)
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach(), self.imported.gradients()

    def gradient_norm(self, tag: str, name: str) -> Difference:
        """Of one weight, of a group (`group_img_enc`) or of all (`total`); −1 is stored where none must arrive."""
        found = self.gradients(tag)[1]
        if name == "total":
            chosen = list(found.values())
        elif name.startswith("group_"):
            group = self.official_name(name.removeprefix("group_") + ".")
            chosen = [value for key, value in found.items() if key.startswith(group)]
        else:
            chosen = [value for key, value in found.items() if key == self.official_name(name)]
        if not chosen:
            return Difference(float("inf"))
        norm = float(torch.stack([value.norm() for value in chosen]).norm())
        stored = float(self.case.stored[f"gradnorm_{tag}__{name}"])
        return Difference(norm, 1e-6) if stored == -1 else Difference(abs(norm - stored))

    def recalls(self, way: str) -> np.ndarray:
        """The official recalls and ranks of the table of scores."""
        return np.array(figures(self.sims.numpy())[way == "t2i"])


def opens(
    opened: Callable[[Case, Imported[Any]], MatchingCase[Any]],
    importer: Importer[Any],
    containers: tuple[str, ...] = (),
    more: Callable[[Path, str], Mapping[str, Tensor]] = lambda folder, name: {},
) -> Callable[[Path], Iterator[MatchingCase[Any]]]:
    """The cases of a folder; all containers of a checkpoint must hold the same weights.

    `more` finds the weights of a case that its checkpoint does not hold.
    """

    def cases(folder: Path) -> Iterator[MatchingCase[Any]]:
        vocabulary = vocabulary_beside(folder)
        for path in sorted(folder.glob("*.io.npz")):
            name = path.name.removesuffix(".io.npz")
            endings = ("pth.tar", "legacy.pth.tar", *containers)
            files = [file for end in endings if (file := folder / f"{name}.{end}").exists()]
            if not files:
                raise SaccadeError(f"{path} has no checkpoint beside it: expected {name}.pth.tar")
            imported = [importer.read(file, vocabulary, more(folder, name)) for file in files]
            case, first = Case(name, read_npz(path)), imported[0].model
            for file, other in zip(files[1:], imported[1:], strict=True):
                state, own = other.model.state_dict(), first.state_dict()
                alike = state.keys() == own.keys() and other.model.config == first.config
                worst = max(difference(state[key], own[key]) for key in own) if alike else float("inf")
                case.check(f"container {file.name.removeprefix(f'{name}.')}", worst, 0.0)
            yield opened(case, imported[0])

    return cases


EMBEDDINGS: Table = {
    "img_emb": (lambda c: c.codes[0].regions, EMBEDDING),
    "cap_emb": (lambda c: c.codes[1].words, EMBEDDING),
    "batch_img_emb": (lambda c: c.batch_codes[0].regions, EMBEDDING),
    "batch_cap_emb": (lambda c: c.batch_codes[1].words, EMBEDDING),
    "cap_emb_len": (lambda c: c.texts.lengths, 0.0),
}
SCORES: Table = {
    "sims": (lambda c: c.sims, SIMILARITY),
    "batch_scores": (lambda c: c.batch_scores, SIMILARITY),
    r"metrics_(i2t|t2i)": (lambda c, way: c.recalls(way), 1e-6),
}


def gradients(tags: str) -> Table:
    """`gradloss_TAG` and `gradnorm_TAG__…`, for the tags of this pattern."""
    return {
        rf"gradloss_({tags})": (lambda c, tag: c.gradients(tag)[0], LOSS),
        rf"gradnorm_({tags})__(.+)": (lambda c, *names: c.gradient_norm(*names), of_gradient),
    }


# SCAN: every direction × pooling × normaliser, and one training step

SHARPNESS = {"t2i": (9.0, 6.0), "i2t": (4.0, 5.0)}  # λ₁, λ₂ of the stored modes
TRAINED_MODE = ("t2i", "LogSumExp", "clipped_l2norm")  # whose gradients are stored


class ScanCase(MatchingCase[Scan]):
    @cached_property
    def sims(self) -> Tensor:
        return self.model.similarity(*self.doubles)

    @memo
    def form(self, query: str, pool: str, normaliser: str) -> Scan:
        """The same encoders with another form of attention."""
        sharpness, pool_sharpness = SHARPNESS[query]
        return self.imported.variant(
            queries=official.QUERIES[query],
            normaliser=official.NORMALISERS[normaliser],
            sharpness=sharpness,
            pool=official.POOLS[pool],
            pool_sharpness=pool_sharpness,
        )

    def loss(self, tag: str) -> Tensor:
        """Of the mode whose stored loss is the one that was differentiated; the documented one where none is stored."""
        wanted = float(self.case.take(f"grad_{tag}__loss"))
        modes = [TRAINED_MODE, *itertools.product(official.QUERIES, official.POOLS, official.NORMALISERS)]
        stored = {mode: self.case.stored.get(f"loss_{tag}__{'__'.join(mode)}") for mode in modes}
        alike = [mode for mode, loss in stored.items() if loss is not None and abs(float(loss) - wanted) < 1e-6]
        codes = self.model.encode_images(self.batch_images), self.model.encode_texts(self.batch_texts)
        return self.ranking(tag, self.form(*(alike[0] if alike else TRAINED_MODE)).similarity(*codes))

    def stepped(self, tag: str, name: str) -> Tensor | None:
        """A weight after one official training step: gradients clipped together, then Adam from a fresh state."""
        found = self.gradients(tag)[1]
        weights = {key: self.imported.source.weights[key].clone().requires_grad_() for key in found}
        for key, weight in weights.items():
            weight.grad = found[key].to(weight)
        torch.nn.utils.clip_grad_norm_(weights.values(), float(self.options("grad_clip")))
        torch.optim.Adam(weights.values(), lr=float(self.options("learning_rate"))).step()
        return weights.get(name)


def of_largest(stored: np.ndarray) -> float:
    """A whole gradient: relative to its largest entry."""
    return GRADIENT * max(float(np.abs(stored).max()), 1e-3)


def scan_modes(tolerance: Tolerance, pools: str) -> Table:
    mode = f"({'|'.join(official.QUERIES)})__({pools})__({'|'.join(official.NORMALISERS)})"
    return {
        f"sims64__{mode}": (lambda c, *mode: c.form(*mode).similarity(*c.doubles), tolerance),
        f"sims32__{mode}": (lambda c, *mode: c.form(*mode).similarity(*c.codes), tolerance),
        f"batch_scores__{mode}": (lambda c, *mode: c.form(*mode).similarity(*c.batch_codes), tolerance),
    }


SCAN = Golden(
    "scan",
    opens(ScanCase, official.SCAN),
    {
        **EMBEDDINGS,
        **SCORES,
        **scan_modes(SIMILARITY, "LogSumExp|Mean|Max"),
        **scan_modes(2 * SIMILARITY, "Sum"),
        r"loss_(sum|max)__(\w+?)__(\w+?)__(\w+)": (
            lambda c, tag, *mode: c.ranking(tag, c.form(*mode).similarity(*c.batch_codes)),
            LOSS,
        ),
        r"grad_(sum|max)__loss": (lambda c, tag: c.gradients(tag)[0], LOSS),
        r"grad_(sum|max)__(?!loss$)(.+)": (lambda c, tag, name: c.gradients(tag)[1].get(name), of_largest),
        **gradients("sum|max"),
        r"step1_(sum|max)__(.+)": (ScanCase.stepped, EMBEDDING),
    },
)


# VSRN: both measures, and captions. The generator lies beside the checkpoints, as NAME.caption_model.pt.

MEASURES = "(cosine|order)"
NOT_KEPT = Excuse("the caption generator is not in the checkpoint: expected NAME.caption_model.pt beside it")


class VsrnCase(MatchingCase[Vsrn]):
    def by(self, measure: str, codes: Codes) -> Tensor:
        return self.imported.variant(measure=measure).similarity(*codes)

    @cached_property
    def sims(self) -> Tensor:
        """As the evaluation takes them: in float64, by the model's measure.

        The official evaluation of an order model may use either measure: the stored table shows which it was.
        """
        table = self.model.similarity(*self.doubles)
        if self.model.config.measure == "order" and "sims64" in self.case.stored:
            stored = torch.from_numpy(self.case.stored["sims64"])
            if stored.shape == table.shape:
                both = (table, self.by("cosine", self.doubles))
                return min(both, key=lambda found: float((found - stored).abs().max()))
        return table

    def loss(self, tag: str) -> Tensor:
        """Ranking and captioning together; tags are total_sum and total_max."""
        return super().loss(tag.removeprefix("total_")) + self.captioning()

    def captioning(self) -> Tensor:
        """The loss of captioning each picture of the batch."""
        pairs = torch.arange(len(self.batch_texts))
        own = self.model.own_losses(self.model.encode_images(self.batch_images), self.batch_texts, pairs)
        return torch.stack([*own.values(), torch.zeros(())]).sum()

    @property
    def own_tag(self) -> str:
        return "total_max" if self.options.get("max_violation", False) else "total_sum"

    @cached_property
    def labels(self) -> tuple[Tensor, Tensor]:
        return caption_labels(self.batch_texts, int(self.options.get("max_len", 60)))

    @cached_property
    def generator(self) -> dict[str, Tensor]:
        """The states of the generator's encoder, and what its decoder expects at every step."""
        assert self.model.caption is not None
        images = self.batch_codes[0]
        states, last = self.model.caption.read(images.regions, images.mask)
        directions = 2 if self.model.config.caption_bidirectional else 1
        inputs = self.labels[0][:, : int(self.options.get("max_len", 60)) - 1]
        return {
            "encoder_out": states,
            "encoder_hidden": last.view(len(last), directions, -1).transpose(0, 1),
            "logprobs": self.model.caption(states, last, images.mask, inputs),
        }

    def caption_losses(self) -> dict[str, Tensor | Difference]:
        apart = float(self.captioning()) - float(self.case.stored["loss_caption"])
        return {
            "loss_caption": caption_loss(self.generator["logprobs"], *self.labels),
            "loss_caption in the steps a batch needs": Difference(abs(apart)),
        }


def generator_beside(folder: Path, name: str) -> dict[str, Tensor]:
    path = folder / f"{name}.caption_model.pt"
    if not path.exists():
        return {}
    state = state_dict(read_checkpoint(path), path, "the caption generator")
    return {f"caption_model.{key}": value for key, value in state.items()}


def captioned(expression: Expression) -> Expression:
    """For what needs the caption generator."""
    return lambda c, *groups: NOT_KEPT if c.model.caption is None else expression(c, *groups)


VSRN = Golden(
    "vsrn",
    opens(VsrnCase, official.VSRN, more=generator_beside),
    {
        "region_fc_emb": (lambda c: normalise(c.model.regions(c.images), c.model.config.norm_before), EMBEDDING),
        "region_gcn_emb": (lambda c: c.codes[0].regions, EMBEDDING),
        "img_emb": (lambda c: c.codes[0].pooled, EMBEDDING),
        "cap_emb": (lambda c: c.codes[1].pooled, EMBEDDING),
        "batch_gcn_emb": (lambda c: c.batch_codes[0].regions, EMBEDDING),
        "batch_img_emb": (lambda c: c.batch_codes[0].pooled, EMBEDDING),
        "batch_cap_emb": (lambda c: c.batch_codes[1].pooled, EMBEDDING),
        **SCORES,
        f"sims_{MEASURES}32": (lambda c, measure: c.by(measure, c.codes), SIMILARITY),
        "sims64": (lambda c: c.sims, SIMILARITY),
        f"loss_(sum|max)__{MEASURES}": (lambda c, tag, measure: c.ranking(tag, c.by(measure, c.batch_codes)), LOSS),
        "caption_labels": (lambda c: c.labels[0], 0.0),
        "caption_masks": (lambda c: c.labels[1], 0.0),
        "loss_total": (captioned(lambda c: c.gradients(c.own_tag)[0]), LOSS),
        **{key: (captioned(row), tolerance) for key, (row, tolerance) in gradients("total_(?:sum|max)").items()},
        "caption_(encoder_out|encoder_hidden|logprobs)": (captioned(lambda c, key: c.generator[key]), EMBEDDING),
        "loss_caption": (captioned(VsrnCase.caption_losses), LOSS),
    },
)


# CAMP: pooled pairs of four variants

CAMP_LOSSES = "(?:BCE|hinge)_(?:sum|max)"


class CampCase(MatchingCase[Camp]):
    def ranking(self, tag: str, scores: Tensor) -> Tensor:
        kind, _, negatives = tag.partition("_")
        return binary_loss(scores, NEGATIVES[negatives]) if kind == "BCE" else super().ranking(negatives, scores)

    def official_name(self, stored: str) -> str:
        """Every part was wrapped in nn.DataParallel: `sim.module.fc_1.0.weight`."""
        return stored.replace(".module.", ".", 1)

    @property
    def official_loss(self) -> str:
        return "BCE_max" if self.options("max_violation") else "BCE_sum"  # whatever loss_func says


def padded(values: Tensor) -> Tensor:
    """To the length that the official code gives every caption."""
    return F.pad(values, (0, 0, 0, official.MAX_CAPTION_WORDS - values.shape[1]))


CAMP = Golden(
    "camp",
    opens(CampCase, official.CAMP, containers=("plainopt.pth.tar",)),
    {
        **EMBEDDINGS,
        **SCORES,
        "cap_emb": (lambda c: padded(c.codes[1].words), EMBEDDING),
        "batch_cap_emb": (lambda c: padded(c.batch_codes[1].words), EMBEDDING),
        "batch_joint": (lambda c: torch.cat(c.model.pooled(*c.batch_codes), dim=-1), EMBEDDING),
        "cap_mask": (lambda c: padded(c.codes[1].mask[:, :, None].long())[:, :, 0], 0.0),
        "loss_official": (lambda c: c.ranking(c.official_loss, c.batch_scores), LOSS),
        f"loss_({CAMP_LOSSES})": (lambda c, tag: c.ranking(tag, c.batch_scores), LOSS),
        **gradients(CAMP_LOSSES),
    },
)


# IMRAM: every step of both directions


class ImramCase(MatchingCase[Imram]):
    def ranking(self, tag: str, scores: Tensor) -> Tensor:
        return super().ranking(tag, scores.double())

    def official_name(self, stored: str) -> str:
        return stored.removeprefix("model.")

    @memo
    def upto(self, way: str, steps: int) -> Tensor:
        return self.imported.variant(queries=official.QUERIES[way], steps=steps).similarity(*self.codes)

    def step_sims(self, way: str, step: str) -> Tensor:
        """What one step adds, in either direction, whichever of them the model sums up."""
        last = int(step)
        return self.upto(way, last + 1) - self.upto(way, last) if last else self.upto(way, 1)

    def final_state(self) -> Tensor:
        """The mean of both directions' last states, of the first layer as in the official code; no score needs it."""
        model, texts = self.model, self.texts
        assert isinstance(model.words, WordEncoder)
        first = SentenceGru(model.config.word_dim, model.config.dim, 1, bidirectional=True)
        state = model.words.rnn.state_dict()
        first.load_state_dict({name: state[name] for name in first.state_dict()})
        forward, backward = first(model.words.embed(texts.tokens), texts.lengths).chunk(2, dim=-1)
        last = forward[torch.arange(len(texts)), texts.lengths - 1]
        mean = (last + backward[:, 0]) / 2
        return unit(mean) if model.config.unit_words else mean


IMRAM = Golden(
    "imram",
    opens(ImramCase, official.IMRAM),
    {
        **EMBEDDINGS,
        **SCORES,
        "img_mean": (lambda c: c.codes[0].regions.mean(dim=1), EMBEDDING),
        "cap_final_state": (ImramCase.final_state, EMBEDDING),
        "batch_scores_eval": (lambda c: c.batch_scores, SIMILARITY),
        "batch_scores_train": (lambda c: c.batch_scores.T, SIMILARITY),
        r"step_sims__(t2i|i2t)__(\d+)": (ImramCase.step_sims, SIMILARITY),
        "loss_(sum|max)": (lambda c, tag: c.gradients(tag)[0], LOSS),
        **gradients("sum|max"),
    },
)
