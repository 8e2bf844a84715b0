"""MARN, in double precision, by its equations: one impression, whose candidate is the first item and whose history are
the others.

A case is NAME.npz with config.json beside it: param_* are weights, in_* inputs (embeddings of each modality, properties
of the behaviours), out_* what was computed. The user clicked, if config.json has no "clicked".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.batch import ClickBatch
from saccade.core.errors import SaccadeError
from saccade.interop.goldens.grounding.grounders import EXACT, cases, weights_of
from saccade.interop.harness import Case, Golden, Table
from saccade.interop.importer import WeightMap, to
from saccade.interop.words import numbered_words
from saccade.models import Marn, MarnConfig
from saccade.models.marn import Behaviours, Discriminators, ItemFusion, Represented

GATES = {"inputs.weight": "W{}", "inputs.bias": "b{}", "states.weight": "U{}"}  # of update, reset and new


def weight_table(modalities: int) -> dict[str, Any]:
    kinds = {"w": "weight", "b": "bias"}
    own = {"pre": "fusion.common.{}", "S": "fusion.specific.{}", "att": "fusion.gates.{}"}
    alone = {
        "I_": "fusion.invariant",
        "D0_": "discriminators.first.guess",
        "D1_": "discriminators.second.guess",
        "a0": "behaviours.attend",
        "a1": "behaviours.weigh",
        "m0": "hidden",
        "m1": "click",
    }
    return {
        **{
            f"{theirs}{m}_{short}": to(f"{ours.format(m)}.{kind}")
            for theirs, ours in own.items()
            for m in range(modalities)
            for short, kind in kinds.items()
        },
        **{f"{theirs}{short}": to(f"{ours}.{kind}") for theirs, ours in alone.items() for short, kind in kinds.items()},
        **{name: to(f"behaviours.{name}") for name in GATES},
    }


class MarnCase:
    def __init__(self, case: Case, facts: Mapping[str, Any]) -> None:
        self.case = case
        if not isinstance(facts, Mapping):
            raise SaccadeError("config.json is no mapping of sizes")
        weights = weights_of(case)
        modalities = sum(key.startswith("in_e") for key in case.stored)
        self.embedded = tuple(case.tensor(f"in_e{m}") for m in range(modalities))
        self.properties = case.tensor("in_prop")[None]
        for name in ("I_w", "pre0_w", "a0w", "m0w", *(pattern.format(g) for pattern in GATES.values() for g in "urh")):
            if name not in weights:
                raise SaccadeError(f'{case.name} has no "param_{name}"')
        for name, pattern in GATES.items():
            weights[name] = torch.cat([weights.pop(pattern.format(gate)) for gate in "urh"])
        sizes = {
            "B": len(self.embedded[0]),
            "M": modalities,
            "d": len(weights["I_w"]),
            "dc": len(weights["pre0_w"]),
            "dh": len(weights["states.weight"]) // 3,
            "dp": self.properties.shape[2],
        }
        for size, found in sizes.items():
            if size in facts:  # what a folder says of itself must be so
                case.check(f"config {size}", abs(facts[size] - found), 0.0)
        if "de" in facts:
            widths = [e.shape[1] for e in self.embedded]
            case.check("config de", float(list(facts["de"]) != widths), 0.0)
        config = MarnConfig(
            dim=sizes["d"],
            common_dim=sizes["dc"],
            state_dim=sizes["dh"],
            attention_dim=len(weights["a0w"]),
            hidden_dim=len(weights["m0w"]),
            reversal=float(facts.get("grl", 1.0)),
            adversarial_weight=float(facts.get("lam", 0.05)),
            invariant=facts.get("invariant", "mean"),
            normalise_weights=bool(facts.get("normalise_weights", False)),
        )
        self.clicked = float(facts.get("clicked", 1))
        model = Marn(config, numbered_words(5))
        model.fusion = ItemFusion(tuple(e.shape[1] for e in self.embedded), config)  # whose inputs are given
        model.discriminators = Discriminators(modalities, config)
        model.behaviours = Behaviours(config.dim, sizes["dp"], config)
        self.model = model.double().eval()
        own = [name for name, _ in model.named_parameters() if name.startswith(("embed.", "properties."))]
        WeightMap(weight_table(modalities), model, None, own).load(weights, case.name, "MARN")

    @cached_property
    def items(self) -> Represented:
        found: Represented = self.model.fusion(self.embedded)
        return found

    def guess(self, which: str, parts: str) -> Tensor:
        discriminator = getattr(self.model.discriminators, "first" if which == "0" else "second")
        found: Tensor = discriminator(self.items.invariant if parts == "c" else self.items.specific)
        return found

    def discriminator_losses(self, items: Represented) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = self.model.discriminators(items, torch.ones(len(items.fused)).double()).losses
        return losses

    @cached_property
    def weights(self) -> Tensor:
        found: Tensor = self.model.discriminators(self.items, torch.ones(len(self.items.fused)).double()).weights
        return found[..., 0]

    @cached_property
    def losses(self) -> dict[str, Tensor]:
        return self.discriminator_losses(self.items)

    def gradient(self, loss: str, part: str, factor: float | None = None) -> Tensor:
        """Of a loss by c^m or s^m, as it comes back to the item; by a reversal of its own, if a factor is given."""
        discriminators = self.model.discriminators
        if factor is not None:
            discriminators.config = replace(discriminators.config, reversal=factor)
        with torch.enable_grad():
            parts = {name: getattr(self.items, name).detach().requires_grad_() for name in ("invariant", "specific")}
            items = Represented(**{**vars(self.items), **parts})
            found: Tensor = torch.autograd.grad(self.discriminator_losses(items)[loss], parts[part])[0]
        discriminators.config = self.model.config
        return found

    def shared_gradient(self) -> Tensor:
        """Of the weights of D₁ by both its uses."""
        weight = self.model.discriminators.second.guess.weight  # type: ignore[union-attr]
        with torch.enable_grad():
            losses = self.discriminator_losses(self.items)
            (found,) = torch.autograd.grad(losses["d1"] + losses["ds"], weight)
        return found

    @cached_property
    def attention(self) -> Tensor:
        vectors = self.items.vectors
        every = torch.ones(1, len(vectors) - 1, dtype=torch.bool)
        return self.model.behaviours.attention(vectors[None, 1:], every, vectors[:1])

    @cached_property
    def states(self) -> Tensor:
        history = self.items.vectors[None, 1:]
        every = torch.ones(history.shape[:2], dtype=torch.bool)
        found: Tensor = self.model.behaviours(history, self.properties, every, self.attention)
        return found[0]

    @cached_property
    def logit(self) -> Tensor:
        """By the model's own road, with these properties in the place of embedded ones."""
        count = len(self.items.vectors)
        places = torch.arange(1, count)[None]
        self.model.properties.forward = lambda kinds, ages: self.properties  # type: ignore[method-assign]
        empty = torch.zeros_like(places)
        batch = ClickBatch(
            *(torch.zeros(1).long(), places, empty == 0, empty, empty.double()),
            *(torch.tensor([self.clicked]), torch.arange(count), torch.ones(count).double()),
        )
        vectors = self.items.vectors
        return self.model.predict(batch, vectors, vectors[:1])[0]

    def click_loss(self) -> Tensor:
        return self.model.click_loss(self.logit, torch.tensor([self.clicked]).double())

    def total(self) -> Tensor:
        adversarial: Tensor = self.model.config.adversarial_weight * torch.stack([*self.losses.values()]).sum()
        return self.click_loss() + adversarial


TABLE: Table = {
    "out_s_m": (lambda c: c.items.specific, EXACT),
    "out_c_m": (lambda c: c.items.invariant, EXACT),
    "out_atten": (lambda c: c.items.gates, EXACT),
    "out_s": (lambda c: c.items.fused, EXACT),
    "out_c": (lambda c: c.items.shared, EXACT),
    "out_rep": (lambda c: c.items.vectors, EXACT),
    "out_D0": (lambda c: c.guess("0", "c"), EXACT),
    "out_D(1)_(c|s)": (MarnCase.guess, EXACT),
    "out_w": (lambda c: c.weights, EXACT),
    "out_L_(D0|D1|Ds)": (lambda c, which: c.losses[which.lower()], EXACT),
    "out_grad_L_D1_wrt_c_plain": (lambda c: -c.gradient("d1", "invariant", 1.0), EXACT),
    "out_grad_L_D1_wrt_c_reversed": (lambda c: c.gradient("d1", "invariant"), EXACT),
    "out_grad_L_Ds_wrt_s": (lambda c: c.gradient("ds", "specific"), EXACT),
    "out_grad_D1w_total": (MarnCase.shared_gradient, EXACT),
    "out_att_hist": (lambda c: c.attention[0], EXACT),
    "out_augru_h": (lambda c: c.states, EXACT),
    "out_ctr": (lambda c: c.logit.sigmoid()[0], EXACT),
    "out_L_ctr": (MarnCase.click_loss, EXACT),
    "out_L_total": (MarnCase.total, EXACT),
}


def marn_cases(folder: Path) -> list[MarnCase]:
    return [MarnCase(case, facts) for case, facts in cases(folder)]


GOLDEN = Golden("marn", marn_cases, TABLE)
