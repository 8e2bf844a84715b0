"""The authors' code of Show, Attend and Tell: soft and hard attention, costs, gradients and the baseline, in float64.

There the state of a caption that has ended stays as it was, and looks go on and count. Ours do not count, so the steps
are taken here one by one. A case is a folder with io.npz and arctic_params.npz.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from saccade.batch import CaptionState, Told
from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import load_arrays
from saccade.interop.goldens.show_attend_tell_soft import folders_with_io, gradient_norms
from saccade.interop.harness import Case, Difference, Golden, memo, unmasked
from saccade.interop.importer import Imported
from saccade.interop.importers.show_attend_tell import ARCTIC
from saccade.language.vocabulary import START
from saccade.models import ShowAttendTell
from saccade.models.show_attend_tell import DrawnRegions, unevenness
from saccade.nn import LstmMemory

SCORE, LOSS = 1e-5, 1e-5  # of float32 outputs, computed in float64 here
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
        words = self.load(attention="soft").source.words
        assert words is not None
        self.words, self.labels = words, words.said[official]
        self.read = torch.cat([torch.full_like(self.labels[:, :1], START), words.read[official][:, :-1]], dim=1)
        self.mask, self.draws = (case.tensor(key).double().T for key in ("mask", "uniform_draws"))
        self.every = torch.ones_like(self.mask, dtype=torch.bool)  # there, looks after the end count too
        self.entropy = float(case.take("alpha_entropy_c")) if "alpha_entropy_c" in case.stored else 0.002

    def load(self, **settings: Any) -> Imported[ShowAttendTell]:
        imported = ARCTIC.read(self.path, dtype=torch.float64, **settings)
        imported.model.dropout.p = 0.0  # what is verified was computed without
        return imported

    def answer(self, model: ShowAttendTell, sampled: bool | None = None) -> dict[str, Any]:
        """What a model makes of the captions."""
        chances = iter([self.draws[:, 0], *self.draws.unbind(dim=1)])  # the first is for which pictures are sampled
        model.chance = lambda *_, **__: next(chances)
        state = model.start(self.images)
        assert isinstance(state.seen, DrawnRegions)
        if sampled is not None:
            state = replace(state, seen=replace(state.seen, sampled=torch.full_like(state.seen.sampled, sampled)))
        weights, taken, hidden, gates = [], [], [], []
        for word, there in zip(self.read.unbind(dim=1), self.mask.unbind(dim=1), strict=True):
            before = state.memory
            assert isinstance(before, LstmMemory)
            gates.append(torch.ones_like(there) if model.gate is None else model.gate(before.hidden).sigmoid()[:, 0])
            thought = model.advance(word, state)
            state = held(before, thought.state, there[:, None])
            assert isinstance(state.memory, LstmMemory)
            hidden.append(torch.cat([state.memory.hidden, thought.hidden[:, model.config.dim :]], dim=1))
            weights.append(thought.weights)
            taken.append(thought.extras.get("taken", thought.weights))
        spoken = model.log_probabilities(torch.stack(hidden, dim=1))
        looked, went = torch.stack(weights, dim=1), torch.stack(taken, dim=1)
        return {
            "alphas": looked,
            "alpha_sample": went,
            "probs": self.words.columns(spoken.exp()),
            "masked_cost": -(spoken.gather(2, self.labels[..., None])[..., 0].exp() + FLOOR).log() * self.mask,
            "sel": torch.stack(gates, dim=1),
            "told": Told(spoken, looked, extras={"taken": went}),
        }

    @memo
    def forward(self, form: str) -> dict[str, Any]:
        return self.answer(self.load(**FORMS[form]).model)

    @cached_property
    def soft(self) -> dict[str, Any]:
        """Their penalty is a mean over regions and a sum over captions, the cost a mean over captions."""
        imported = self.load(attention="soft")
        with torch.enable_grad():
            answer = self.answer(imported.model)
            cost = answer["masked_cost"].sum(dim=1).mean()
            uneven = unevenness(answer["alphas"], self.every, self.images.mask).sum(dim=0).mean()
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
            answer = self.answer(model, sampled == "1")
            own = model.own_losses(answer["told"], self.labels, answer["masked_cost"], self.every)
            looks = torch.stack([*own.values()]).sum() * self.every.sum()  # theirs is a sum over all, ours by word
            (reached,) = torch.autograd.grad(looks, answer["alphas"], retain_graph=True)
            (answer["masked_cost"].sum(dim=1).mean() + looks).backward()
        results = {"known_grad_alphas": reached, "baseline": model.baseline, "gradients": imported.gradients()}
        return answer | results

    def reinforced_norms(self, key: str, sampled: str) -> dict[str, Difference]:
        return gradient_norms(self.case, key, "param_names", self.reinforced(sampled)["gradients"])


def by_step(value: Tensor) -> Tensor:
    """There, steps come before captions."""
    return value.transpose(0, 1)


def held(before: LstmMemory, after: CaptionState, there: Float[Tensor, "text 1"]) -> CaptionState:
    """A caption that has ended keeps its state."""
    memory = after.memory
    assert isinstance(memory, LstmMemory)
    hidden = there * memory.hidden + (1 - there) * before.hidden
    return replace(after, memory=LstmMemory(hidden, there * memory.cell + (1 - there) * before.cell))


def opens(folder: Path) -> Iterator[HardCase]:
    for place in folders_with_io(folder):
        files = [file for file in sorted(place.glob("*.npz")) if file.name != "io.npz"]
        if len(files) != 1:
            raise SaccadeError(f"{place} has {len(files)} checkpoints beside io.npz: expected one, arctic_params.npz")
        yield HardCase(Case(place.name, load_arrays(place / "io.npz")), files[0])


def required(case: Case) -> Iterator[str]:
    yield from ("soft_cost", "soft_alpha_reg", "soft_grad_norms", "param_names")
    for prefix in ("hard_h1", "hard_h0"):
        if any(key.startswith(prefix) for key in case.stored):
            for key in ("alphas", "alpha_sample", "masked_cost", "known_grad_alphas", "baseline_after", "grad_norms"):
                yield f"{prefix}_{key}"


HARD = "hard_h([01])"
GOLDEN = Golden(
    "show_attend_tell_hard",
    opens,
    {
        f"({'|'.join(FORMS)})_(alphas|alpha_sample|probs|masked_cost|sel)": (
            lambda c, f, key: by_step(c.forward(f)[key]),
            SCORE,
        ),
        "soft_(cost|alpha_reg)": (lambda c, key: c.soft[key], LOSS),
        "(soft_grad_norms)": (lambda c, key: gradient_norms(c.case, key, "param_names", c.soft["gradients"]), 0.0),
        f"{HARD}_(alphas|alpha_sample|masked_cost|known_grad_alphas)": (
            lambda c, h, key: by_step(c.reinforced(h)[key]),
            SCORE,
        ),
        f"{HARD}_baseline_after": (lambda c, h: c.reinforced(h)["baseline"], LOSS),
        f"({HARD}_grad_norms)": (HardCase.reinforced_norms, 0.0),
        f"{HARD}_grad_(?!norms)(.+)": (lambda c, h, name: c.reinforced(h)["gradients"].get(name), SCORE),
    },
    required=required,
)
