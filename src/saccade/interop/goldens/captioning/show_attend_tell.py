"""Show, Attend and Tell, in float64: the tutorial's code (soft) and the authors' own (soft and hard attention).

A case is a folder with io.npz and its checkpoints; a folder of such folders has several cases. The tutorial's has
WORDMAP.json and checkpoints that all hold the same weights, the authors' arctic_params.npz.
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

from saccade.batch import START, StepOutput, TeacherForced
from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.decoding import DecodedCaptions, DecodingConfig, beam_search
from saccade.interop.harness import (
    LOSS,
    Case,
    Difference,
    Golden,
    difference,
    fitted,
    gradient_norms,
    memo,
    unmasked,
)
from saccade.interop.importer import Imported
from saccade.interop.importers.show_attend_tell import ARCTIC, SHOW_ATTEND_TELL, word_map
from saccade.models import ShowAttendTell
from saccade.models.show_attend_tell import SampledRegionContext, unevenness
from saccade.nn import LstmMemory

SCORE = 1e-5  # of float32 outputs, computed in float64 here
NOISE = 1e-6  # of gradients that are zero in exact arithmetic, in float64


def folders_with_io(folder: Path) -> list[Path]:
    return [path for path in (folder, *sorted(folder.iterdir())) if (path / "io.npz").is_file()]


# The tutorial: teacher forcing, losses, gradients and beam searches

MAX_WORDS = 51  # after which the tutorial's search gives up


class SoftCase:
    """Captions in the official order, longest first; nothing follows a caption's end."""

    def __init__(self, case: Case, imported: Imported[ShowAttendTell]) -> None:
        self.case, self.imported, self.model, self.words = case, imported, imported.model, imported.words
        lengths = case.tensor("caption_lengths")[:, 0]
        self.order = case.tensor("sort_ind")  # captions of one length may stand in any order
        if sorted(self.order.tolist()) != list(range(len(lengths))):
            raise SaccadeError(f"{case.name}: sort_ind is no order of {len(lengths)} captions")
        self.order_gap = Difference(difference(lengths[self.order], lengths.sort(descending=True).values))
        self.captions, self.steps = case.tensor("captions")[self.order], lengths[self.order] - 1
        self.images = unmasked(case.tensor("encoder_out").double().flatten(1, 2))

    @cached_property
    def forced(self) -> dict[str, Any]:
        """Teacher forcing, with what is differentiated."""
        model, count = self.model, int(self.steps.max())
        wanted = torch.arange(count) < self.steps[:, None]
        with torch.enable_grad():
            model.zero_grad()
            state, outputs = model.start(self.images.select(self.order)), list[StepOutput]()
            for word in self.words.inputs[self.captions[:, :count]].unbind(dim=1):
                outputs.append(model.step(word, outputs[-1].state if outputs else state))
            forced = model.stack_steps(outputs)
            logits = self.words.columns(model.logits(torch.stack([output.hidden for output in outputs], dim=1)))
            labels = self.words.outputs[self.captions[:, 1 : count + 1]]
            nll = -forced.log_probabilities.gather(2, labels[..., None])[..., 0].masked_fill(~wanted, 0)
            own = model.own_losses(forced, labels, nll, wanted)["coverage_loss"]
            loss = nll.sum() / wanted.sum()
            (loss + own).backward()  # type: ignore[no-untyped-call]
        return {
            "scores": (logits * wanted[..., None]).detach(),
            "alphas": forced.weights * wanted[..., None],
            "ce_loss": loss,
            "alpha_reg": own,
            "loss": loss + own,
            "gradients": self.imported.gradients(),
        }

    def best(self, key: str) -> Difference:
        """The likeliest words; which of two equals comes first is not decided (all are equal after the end)."""
        scores, stored = self.forced["scores"], self.case.tensor(key)
        return Difference(difference(scores.gather(2, stored), scores.topk(stored.shape[2], dim=2).values))

    @memo
    def searched(self, name: str) -> dict[str, Tensor | Difference]:
        """The best caption and its attention, and all that came to an end, in that order; by the stored endings."""
        width = int(name.removeprefix("beam"))
        ways: Any = {"finished_beams": "shrink_beam", "unfinished_beams": "fallback", "length_penalty": "none"}
        config = DecodingConfig(num_beams=width, max_length=MAX_WORDS, suppress_unk=False, **ways)
        decoded = beam_search(self.model, self.images, config)
        stored = {key.removeprefix(f"{name}_"): value for key, value in self.case.stored.items()}
        best, complete = decoded.best(), decoded.by_completion()
        ended = complete.ended & ~complete.score.isneginf()
        sentences = self.sentences(complete).masked_fill(~ended[:, None], -1).view(len(self.images), width, -1)
        maps = torch.cat([torch.ones_like(best.weights[:, :1]), best.weights], dim=1)  # a map of ones for <start>
        maps = fitted(maps, stored["alphas"].shape[:2])
        scores = complete.score.masked_fill(~ended, float("nan")).view(-1, width).numpy()
        expected = stored["complete_scores"]
        alike = expected.shape == scores.shape and np.array_equal(np.isnan(expected), np.isnan(scores))
        return {
            "best": fitted(self.sentences(best), stored["best"].shape, fill=-1),
            "alphas": maps.reshape(*maps.shape[:2], *stored["alphas"].shape[2:]),
            "complete_seqs": fitted(sentences, stored["complete_seqs"].shape, fill=-1),
            "num_complete": ended.view(-1, width).sum(dim=1),
            "complete_scores": Difference(
                float(np.nanmax(np.abs(expected - scores), initial=0)) if alike else float("inf")
            ),
        }

    def sentences(self, decoded: DecodedCaptions) -> Int[Tensor, "row step"]:
        """Official ids, <start> first, −1 behind the end."""
        words = self.words.back(decoded.words).masked_fill(~decoded.mask, -1)
        return torch.cat([self.words.back(torch.full_like(words[:, :1], START)), words], dim=1)


def opens_soft(folder: Path) -> Iterator[SoftCase]:
    for place in folders_with_io(folder):
        maps = sorted(place.glob("WORDMAP*.json"))
        if not maps:
            raise SaccadeError(f"{place} has no WORDMAP.json")
        words = word_map(read_json(maps[0]), str(maps[0]), literal=True)
        files = sorted([*place.glob("*.pth"), *place.glob("*.pth.tar")])
        if not files:
            raise SaccadeError(f"{place} has no checkpoint: expected a .pth or .pth.tar file")
        imported = [SHOW_ATTEND_TELL.read(file, words=words, dtype=torch.float64) for file in files]
        case, first = Case(place.name, read_npz(place / "io.npz")), imported[0].model
        for file, other in zip(files[1:], imported[1:], strict=True):
            same = replace(first.config, dropout=0) == replace(other.model.config, dropout=0)  # weights do not show it
            state = other.model.state_dict()
            gaps = [difference(state[key], value) for key, value in first.state_dict().items()] if same else []
            case.check(f"the same weights in {file.name}", max(gaps, default=float("inf")), 0.0)
        yield SoftCase(case, imported[0])


def required_soft(case: Case) -> Iterator[str]:
    yield from ("captions_sorted", "decode_lengths", "scores", "alphas", "ce_loss", "alpha_reg", "loss", "grad_norms")
    for prefix in (key.removesuffix("_best") for key in case.stored if re.fullmatch(r"beam\d+_best", key)):
        for part in ("alphas", "complete_seqs", "num_complete", "complete_scores"):
            yield f"{prefix}_{part}"


SOFT = Golden(
    "show_attend_tell_soft",
    opens_soft,
    {
        "sort_ind": (lambda c: c.order_gap, 0.0),
        "captions_sorted": (lambda c: c.captions, 0.0),
        "decode_lengths": (lambda c: c.steps, 0.0),
        "(scores|alphas)": (lambda c, key: c.forced[key], SCORE),
        "(ce_loss|alpha_reg|loss)": (lambda c, key: c.forced[key], LOSS),
        "(grad_norms)": (lambda c, key: gradient_norms(c.case, key, "grad_names", c.forced["gradients"], NOISE), 0.0),
        r"(top\d+)": (SoftCase.best, SCORE),
        r"(beam\d+)_(best|complete_seqs|num_complete)": (lambda c, name, part: c.searched(name)[part], 0.0),
        r"(beam\d+)_(alphas|complete_scores)": (lambda c, name, part: c.searched(name)[part], SCORE),
    },
    required=required_soft,
)


# The authors' code: costs, gradients and the baseline. There the state of a caption that has ended stays as it was, and
# its attention goes on and counts. Ours does not count, so the steps are taken here one by one.

COST = 1e-5  # of float32 outputs, computed in float64 here
FLOOR = 1e-8  # is added to a probability before its logarithm
FORMS: dict[str, dict[str, Any]] = {
    "soft": {"attention": "soft"},
    "expect": {"attention": "hard", "at_test": "expected"},
    "argmax": {"attention": "hard", "at_test": "likeliest"},
}


class HardCase:
    """The inputs of a case, one row a caption, and the model under several settings."""

    def __init__(self, case: Case, path: Path) -> None:
        self.case, self.path = case, path
        self.images, official = unmasked(case.tensor("ctx").double()), case.tensor("x").T
        self.words = self.load(attention="soft").words
        self.labels, inputs = self.words.outputs[official], self.words.inputs[official]
        self.inputs = torch.cat([torch.full_like(inputs[:, :1], START), inputs[:, :-1]], dim=1)
        self.mask, self.draws = (case.tensor(key).double().T for key in ("mask", "uniform_draws"))
        self.every = torch.ones_like(self.mask, dtype=torch.bool)  # there, attention after the end counts too
        self.entropy = float(case.take("alpha_entropy_c")) if "alpha_entropy_c" in case.stored else 0.002

    def load(self, **settings: Any) -> Imported[ShowAttendTell]:
        imported = ARCTIC.read(self.path, dtype=torch.float64, **settings)
        imported.model.dropout.p = 0.0  # what is verified was computed without
        return imported

    def run(self, model: ShowAttendTell, sampled: bool | None = None) -> dict[str, Any]:
        """What a model makes of the captions."""
        chances = iter([self.draws[:, 0], *self.draws.unbind(dim=1)])  # the first is for which pictures are sampled
        model.chance = lambda *_, **__: next(chances)
        state = model.start(self.images)
        assert isinstance(state.context, SampledRegionContext)
        if sampled is not None:
            context = replace(state.context, sampled=torch.full_like(state.context.sampled, sampled))
            state = replace(state, context=context)
        weights, taken, hidden, gates = [], [], [], []
        for word, there in zip(self.inputs.unbind(dim=1), self.mask.unbind(dim=1), strict=True):
            before, output = state.memory, model.step(word, state)
            after, going_on = output.state.memory, there[:, None]
            assert isinstance(before, LstmMemory)
            assert isinstance(after, LstmMemory)
            gates.append(torch.ones_like(there) if model.gate is None else model.gate(before.hidden).sigmoid()[:, 0])
            kept = LstmMemory(  # a caption that has ended keeps its state
                going_on * after.hidden + (1 - going_on) * before.hidden,
                going_on * after.cell + (1 - going_on) * before.cell,
            )
            state = replace(output.state, memory=kept)
            hidden.append(torch.cat([kept.hidden, output.hidden[:, model.config.dim :]], dim=1))
            weights.append(output.weights)
            taken.append(output.extras.get("taken", output.weights))
        log_probabilities = model.log_probabilities(torch.stack(hidden, dim=1))
        attention, chosen = torch.stack(weights, dim=1), torch.stack(taken, dim=1)
        right = log_probabilities.gather(2, self.labels[..., None])[..., 0].exp()
        return {
            "alphas": attention,
            "alpha_sample": chosen,
            "probs": self.words.columns(log_probabilities.exp()),
            "masked_cost": -(right + FLOOR).log() * self.mask,
            "sel": torch.stack(gates, dim=1),
            "forced": TeacherForced(log_probabilities, attention, extras={"taken": chosen}),
        }

    @memo
    def forward(self, form: str) -> dict[str, Any]:
        return self.run(self.load(**FORMS[form]).model)

    @cached_property
    def soft(self) -> dict[str, Any]:
        """Their penalty is a mean over regions and a sum over captions, the cost a mean over captions."""
        imported = self.load(attention="soft")
        with torch.enable_grad():
            found = self.run(imported.model)
            cost = found["masked_cost"].sum(dim=1).mean()
            uneven = unevenness(found["alphas"], self.every, self.images.mask).sum(dim=0).mean()
            penalty = uneven * imported.model.config.coverage
            (cost + penalty).backward()
        return {"cost": cost, "alpha_reg": penalty, "gradients": imported.gradients()}

    @memo
    def reinforced(self, sampled: str) -> dict[str, Any]:
        """What reaches the shares of attention (ours through the model's own losses), all gradients, the baseline."""
        imported = self.load(attention="hard", entropy=self.entropy)
        model = imported.model.train()
        model.baseline.fill_(float(self.case.take("baseline_before")))
        with torch.enable_grad():
            found = self.run(model, sampled == "1")
            own = model.own_losses(found["forced"], self.labels, found["masked_cost"], self.every)
            loss = torch.stack([*own.values()]).sum() * self.every.sum()  # theirs is a sum over all, ours by word
            (reached,) = torch.autograd.grad(loss, found["alphas"], retain_graph=True)
            (found["masked_cost"].sum(dim=1).mean() + loss).backward()
        results = {"known_grad_alphas": reached, "baseline": model.baseline, "gradients": imported.gradients()}
        return found | results

    def norms(self, key: str, sampled: str | None = None) -> dict[str, Difference]:
        found = self.soft if sampled is None else self.reinforced(sampled)
        return gradient_norms(self.case, key, "param_names", found["gradients"], NOISE)


def by_step(value: Tensor) -> Tensor:
    """There, steps come before captions."""
    return value.transpose(0, 1)


def opens_hard(folder: Path) -> Iterator[HardCase]:
    for place in folders_with_io(folder):
        files = [file for file in sorted(place.glob("*.npz")) if file.name != "io.npz"]
        if len(files) != 1:
            raise SaccadeError(f"{place} has {len(files)} checkpoints beside io.npz: expected one, arctic_params.npz")
        yield HardCase(Case(place.name, read_npz(place / "io.npz")), files[0])


def required_hard(case: Case) -> Iterator[str]:
    yield from ("soft_cost", "soft_alpha_reg", "soft_grad_norms", "param_names")
    for prefix in ("hard_h1", "hard_h0"):
        if any(key.startswith(prefix) for key in case.stored):
            for key in ("alphas", "alpha_sample", "masked_cost", "known_grad_alphas", "baseline_after", "grad_norms"):
                yield f"{prefix}_{key}"


SAMPLED = "hard_h([01])"
HARD = Golden(
    "show_attend_tell_hard",
    opens_hard,
    {
        f"({'|'.join(FORMS)})_(alphas|alpha_sample|probs|masked_cost|sel)": (
            lambda c, form, key: by_step(c.forward(form)[key]),
            SCORE,
        ),
        "soft_(cost|alpha_reg)": (lambda c, key: c.soft[key], COST),
        "(soft_grad_norms)": (HardCase.norms, 0.0),
        f"{SAMPLED}_(alphas|alpha_sample|masked_cost|known_grad_alphas)": (
            lambda c, sampled, key: by_step(c.reinforced(sampled)[key]),
            SCORE,
        ),
        f"{SAMPLED}_baseline_after": (lambda c, sampled: c.reinforced(sampled)["baseline"], COST),
        f"({SAMPLED}_grad_norms)": (HardCase.norms, 0.0),
        f"{SAMPLED}_grad_(?!norms)(.+)": (lambda c, sampled, name: c.reinforced(sampled)["gradients"].get(name), SCORE),
    },
    required=required_hard,
)
