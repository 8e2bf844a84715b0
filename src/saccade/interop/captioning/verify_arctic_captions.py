"""Verify the authors' code of Show, Attend and Tell: soft and hard attention, costs, gradients and the baseline.

There the state of a caption that has ended stays as it was, and looks go on and count. Ours do not count, so the steps
are taken here one by one. Everything is computed in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import CaptionState, RegionBatch, Told
from saccade.core.errors import SaccadeError
from saccade.interop.captioning.arctic_captions import arctic_ids, arctic_places, arctic_weights, import_arctic
from saccade.interop.captioning.verify_show_attend_tell import compare_norms, folders_with_io
from saccade.interop.places import OfficialIds, official_gradients
from saccade.interop.verification import Case, load_arrays, verifier
from saccade.language.vocabulary import START
from saccade.models import ShowAttendTell
from saccade.models.show_attend_tell import DrawnRegions, unevenness
from saccade.nn import LstmMemory

SCORE, LOSS = 1e-5, 1e-5
FLOOR = 1e-8  # is added to a probability before its logarithm


@verifier("show_attend_tell_hard")
def verify_hard(folder: Path) -> Iterator[Case]:
    for place in folders_with_io(folder):
        files = [file for file in sorted(place.glob("*.npz")) if file.name != "io.npz"]
        if len(files) != 1:
            raise SaccadeError(f"{place} has {len(files)} checkpoints beside io.npz: expected one, arctic_params.npz")
        case = Case(place.name, load_arrays(place / "io.npz"))
        ids = arctic_ids(len(arctic_weights(files[0])["Wemb"]), None, files[0])
        lesson = _take_lesson(case, ids)
        if "alpha_entropy_c" in case.stored:
            lesson = replace(lesson, entropy=float(case.take("alpha_entropy_c")))
        _verify_forward(case, "soft", _load(files[0], "soft"), lesson)
        _verify_forward(case, "expect", _load(files[0], "hard", at_test="expected"), lesson)
        _verify_forward(case, "argmax", _load(files[0], "hard", at_test="likeliest"), lesson)
        _verify_soft_gradients(case, _load(files[0], "soft"), lesson)
        for sampled in (1, 0):
            _verify_reinforce(case, sampled, _load(files[0], "hard", entropy=lesson.entropy), lesson)
        yield case


@dataclass(frozen=True)
class Lesson:
    """The inputs of a case, one row a caption."""

    images: RegionBatch
    ids: OfficialIds
    words: Int[Tensor, "text step"]  # read, <start> first
    labels: Int[Tensor, "text step"]
    mask: Float[Tensor, "text step"]
    draws: Float[Tensor, "text step"]
    entropy: float = 0.002

    @property
    def every(self) -> Bool[Tensor, "text step"]:
        """All steps: there, looks after the end count too."""
        return torch.ones_like(self.mask, dtype=torch.bool)


@dataclass(frozen=True)
class Answer:
    """What a model makes of a lesson."""

    weights: Float[Tensor, "text step region"]
    taken: Float[Tensor, "text step region"]
    probabilities: Float[Tensor, "text step word"]
    cost: Float[Tensor, "text step"]
    gate: Float[Tensor, "text step"]
    told: Told


def _load(path: Path, attention: str, **changes: Any) -> ShowAttendTell:
    model = import_arctic(path, dtype=torch.float64, attention=attention, **changes)
    model.dropout.p = 0.0  # what is verified was computed without
    return model


def _take_lesson(case: Case, ids: OfficialIds) -> Lesson:
    features, official = torch.from_numpy(case.take("ctx")).double(), torch.from_numpy(case.take("x")).T
    count = features.shape[:2]
    images = RegionBatch(features, torch.ones(count, dtype=torch.bool), torch.zeros(*count, 4))
    labels = ids.said[official]
    words = torch.cat([torch.full_like(labels[:, :1], START), ids.read[official][:, :-1]], dim=1)
    mask, draws = (torch.from_numpy(case.take(key)).double().T for key in ("mask", "uniform_draws"))
    return Lesson(images, ids, words, labels, mask, draws)


def _answer(model: ShowAttendTell, lesson: Lesson, sampled: bool | None = None) -> Answer:
    chances = iter([lesson.draws[:, 0], *lesson.draws.unbind(dim=1)])  # the first is for which pictures are sampled
    model.chance = lambda *_, **__: next(chances)
    state = model.start(lesson.images)
    assert isinstance(state.seen, DrawnRegions)
    if sampled is not None:
        state = replace(state, seen=replace(state.seen, sampled=torch.full_like(state.seen.sampled, sampled)))
    weights, taken, hidden, gates = [], [], [], []
    for word, there in zip(lesson.words.unbind(dim=1), lesson.mask.unbind(dim=1), strict=True):
        before = state.memory
        assert isinstance(before, LstmMemory)
        gates.append(torch.ones_like(there) if model.gate is None else model.gate(before.hidden).sigmoid()[:, 0])
        thought = model.advance(word, state)
        state = _hold(before, thought.state, there[:, None])
        assert isinstance(state.memory, LstmMemory)
        hidden.append(torch.cat([state.memory.hidden, thought.hidden[:, model.config.dim :]], dim=1))
        weights.append(thought.weights)
        taken.append(thought.extras.get("taken", thought.weights))
    spoken = model.log_probabilities(torch.stack(hidden, dim=1))
    cost = -(spoken.gather(2, lesson.labels[..., None])[..., 0].exp() + FLOOR).log() * lesson.mask
    looked, went = torch.stack(weights, dim=1), torch.stack(taken, dim=1)
    told = Told(spoken, looked, extras={"taken": went})
    return Answer(looked, went, spoken.exp()[..., lesson.ids.said], cost, torch.stack(gates, dim=1), told)


def _hold(before: LstmMemory, after: CaptionState, there: Float[Tensor, "text 1"]) -> CaptionState:
    """A caption that has ended keeps its state."""
    memory = after.memory
    assert isinstance(memory, LstmMemory)
    hidden = there * memory.hidden + (1 - there) * before.hidden
    return replace(after, memory=LstmMemory(hidden, there * memory.cell + (1 - there) * before.cell))


@torch.no_grad()
def _verify_forward(case: Case, name: str, model: ShowAttendTell, lesson: Lesson) -> None:
    answer = _answer(model, lesson)
    found = {
        "alphas": answer.weights,
        "alpha_sample": answer.taken,
        "probs": answer.probabilities,
        "masked_cost": answer.cost,
        "sel": answer.gate,
    }
    for key, value in found.items():
        if f"{name}_{key}" in case.stored:
            case.compare(f"{name}_{key}", value.transpose(0, 1), SCORE)


def _verify_soft_gradients(case: Case, model: ShowAttendTell, lesson: Lesson) -> None:
    """Their penalty is a mean over regions and a sum over captions, the cost a mean over captions."""
    answer = _answer(model, lesson)
    cost = answer.cost.sum(dim=1).mean()
    uneven = unevenness(answer.weights, lesson.every, lesson.images.mask).sum(dim=0).mean() * model.config.coverage
    case.compare("soft_cost", cost, LOSS)
    case.compare("soft_alpha_reg", uneven, LOSS)
    (cost + uneven).backward()  # type: ignore[no-untyped-call]
    names = case.take("param_names").tolist()
    compare_norms(case, "soft_grad_norms", names, model, arctic_places(model.config), lesson.ids)


def _verify_reinforce(case: Case, sampled: int, model: ShowAttendTell, lesson: Lesson) -> None:
    """What reaches the shares of attention (ours through the model's own losses), all gradients, and the baseline."""
    prefix = f"hard_h{sampled}"
    if not any(key.startswith(prefix) for key in case.stored):
        return
    model.train()
    model.baseline.fill_(float(case.take("baseline_before")))
    answer = _answer(model, lesson, bool(sampled))
    for key, value in (("alphas", answer.weights), ("alpha_sample", answer.taken), ("masked_cost", answer.cost)):
        case.compare(f"{prefix}_{key}", value.transpose(0, 1), SCORE)
    own = model.own_losses(answer.told, lesson.labels, answer.cost, lesson.every)
    looks = sum(own.values()) * lesson.every.sum()  # theirs is a sum over all looks, ours is given for each word
    assert isinstance(looks, Tensor)
    (reached,) = torch.autograd.grad(looks, answer.weights, retain_graph=True)
    case.compare(f"{prefix}_known_grad_alphas", reached.transpose(0, 1), SCORE)
    case.compare(f"{prefix}_baseline_after", model.baseline, LOSS)
    (answer.cost.sum(dim=1).mean() + looks).backward()  # type: ignore[no-untyped-call]
    places = arctic_places(model.config)
    compare_norms(case, f"{prefix}_grad_norms", case.take("param_names").tolist(), model, places, lesson.ids)
    for name, gradient in official_gradients(model, places, lesson.ids):
        if gradient is not None and f"{prefix}_grad_{name}" in case.stored:
            case.compare(f"{prefix}_grad_{name}", gradient, SCORE)
